"""Tasks of the synthetic download. Expectations come from plain csv and gzip, and from files broken by hand."""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reveal_bench.kinds.tasks.records import RUBRIC, TaskRecord
from reveal_bench.metrics.ordinal import CRITERIA
from reveal_bench.phantom.rexecution import TREE_OF_WGET, write_rexecution
from reveal_bench.sources import rexecution
from reveal_bench.sources.source import BuildError

Rows = list[dict[str, str]]


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty tasks with every trap; never changed."""
    root = tmp_path_factory.mktemp("twin")
    write_rexecution(root, n_tasks=20, seed=0, long_side=96)
    return root


@pytest.fixture
def copy(twin: Path, tmp_path: Path) -> Path:
    """A twin that a test may change."""
    shutil.copytree(twin, tmp_path / "copy")
    return tmp_path / "copy"


def table(path: Path) -> Rows:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def metadata(root: Path) -> Rows:
    return table(root / TREE_OF_WGET / "mimic-cxr-2.0.0-metadata.csv.gz")


def change(path: Path, edit: Callable[[Rows], object]) -> None:
    rows = table(path)
    edit(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def records(root: Path, **options: Any) -> list[TaskRecord]:
    return list(rexecution.read(root, **options).splits["test"])


def refused(root: Path, **options: Any) -> list[str]:
    with pytest.raises(BuildError) as caught:
        rexecution.read(root, **options)
    return [str(problem) for problem in caught.value.problems]


def test_every_row_is_a_task_with_all_images_of_its_study(twin: Path) -> None:
    tasks = records(twin)
    rows = table(twin / "tasks.csv")
    assert [task.task_id for task in tasks] == [row["task_id"] for row in rows]
    images = metadata(twin)
    for task, row in zip(tasks, rows, strict=True):
        study = row["study_id"].removeprefix("s")
        of_study = [image for image in images if image["study_id"] == study]
        assert (task.study_id, task.patient_id) == (study, of_study[0]["subject_id"])
        assert [i.image_id for i in task.images] == [image["dicom_id"] for image in of_study]
        assert [(i.height, i.width) for i in task.images] == [(int(i["Rows"]), int(i["Columns"])) for i in of_study]
        prior = [image["dicom_id"] for image in images if image["study_id"] == row["prior_study_id"]]
        assert [i.image_id for i in task.prior_images] == prior
        assert task.temporal == bool(prior)
        assert (task.prompt, task.indication) == (row["prompt"], row["indication"] or None)
        assert task.reference_answer == row["reference_answer"]
        boxes = [[box.label, list(box.bbox_xywh), box.image_id] for box in task.reference_boxes]
        assert boxes == [list(box.values()) for box in json.loads(row["reference_boxes"])]
    assert sum(task.temporal for task in tasks) == 2
    assert sum(len(task.images) > 1 for task in tasks) > 3


def test_pictures_are_those_of_the_tree(twin: Path) -> None:
    for task in records(twin):
        for image in (*task.images, *task.prior_images):
            assert image.picture is not None
            with Image.open(image.picture.path) as picture:
                assert picture.size == (image.width, image.height)
            assert image.picture.path == twin / TREE_OF_WGET / image.picture.source_path
        assert pickle.loads(pickle.dumps(task)) == task


def test_tags_and_spellings_are_read_as_meant(twin: Path) -> None:
    by_id = {task.task_id: task for task in records(twin)}
    rows = {row["task_id"]: row for row in table(twin / "tasks.csv")}
    written = {row["category"] for row in rows.values()}
    assert {"High-level diagnostic reasoning", "diagnosis_support"} <= written  # the trap is there
    assert {task.category for task in by_id.values()} <= {"broad_abnormality", "diagnosis_support",
                                                          "measurement_temporal"}  # fmt: skip
    dashes = {dash: [n for n, row in rows.items() if dash in row["tag_pathology_type"]] for dash in (" - ", " \u2013 ")}
    for dash, names in dashes.items():
        assert names
        for name in names:
            assert by_id[name].tags["pathology_type"] == tuple(rows[name]["tag_pathology_type"].split(dash))
    assert any(row["tag_laterality"] == "None" for row in rows.values())
    assert {values for task in by_id.values() for values in task.tags["laterality"]} == {"Bilateral"}
    assert {task.tags["question_type"] for task in by_id.values()} == {("Open-ended",)}


def test_ratings_and_rubric_are_extras(twin: Path) -> None:
    source_data = rexecution.read(twin)
    ratings, rubric = source_data.extras
    assert (ratings.config, ratings.key, rubric.config, rubric.split) == ("ratings", "task_id", "rubric", "rubric")
    rows = table(twin / "ratings.csv")
    note = "names of readers are published; use pseudonyms if these are names of persons: reader-2, reader-1"
    assert note in source_data.warnings
    names = ("task_id", "model", "reader")
    assert [{name: row[name] for name in names} for row in ratings.rows] == [{n: row[n] for n in names} for row in rows]
    scores = [[row[name] for name in CRITERIA] for row in ratings.rows]
    assert scores == [[int(row[name]) if row[name] else None for name in CRITERIA] for row in rows]
    assert set(ratings.rows[0]) == {*names, *CRITERIA}  # content is computed, never stored
    assert len(rubric.rows) == len(RUBRIC) == 30
    assert set(source_data.extras[-1].features()) == set(rubric.rows[0])


def test_inspection_counts(twin: Path) -> None:
    inspection = rexecution.inspect(twin)
    rows, of_tree, ratings = table(twin / "tasks.csv"), metadata(twin), table(twin / "ratings.csv")
    used = {row["study_id"].removeprefix("s") for row in rows} | {row["prior_study_id"] for row in rows} - {""}
    assert inspection.problems == []
    assert inspection.synthetic
    assert inspection.counts["tasks"] == 20
    assert inspection.counts["studies"] == len(used)
    assert inspection.counts["images"] == sum(image["study_id"] in used for image in of_tree) < len(of_tree)
    assert inspection.counts["pictures"] == inspection.counts["images"]
    assert inspection.counts["ratings"] == len(ratings)
    assert (inspection.counts["models"], inspection.counts["readers"]) == (3, 2)
    assert inspection.counts["tasks that require boxes"] == sum(row["requires_boxes"] == "Yes" for row in rows)
    assert inspection.files["tasks"] == "tasks.csv"
    assert inspection.files["mimic metadata"] == f"{TREE_OF_WGET}/mimic-cxr-2.0.0-metadata.csv.gz"
    (total,) = [warning for warning in inspection.warnings if "`total`" in warning]
    assert "in 1 of 20 rows" in total
    assert ": 13 beside " in total


def test_detection(twin: Path, tmp_path: Path) -> None:
    assert rexecution.detect(twin) == 0.95
    assert rexecution.detect(twin / "tasks.csv") == 0.9
    assert rexecution.detect(twin / "ratings.csv") == 0
    assert rexecution.detect(twin / TREE_OF_WGET) == 0
    assert rexecution.detect(tmp_path / "nowhere") == 0


def test_the_tree_may_be_elsewhere(copy: Path, tmp_path: Path) -> None:
    before = records(copy)
    (copy / "physionet.org").rename(tmp_path / "data")
    (problem,) = refused(copy)
    assert "copy: `MIMIC-CXR-JPG tree` must be in the folder of the task file" in problem
    after = records(copy, pictures=tmp_path / "data")
    assert [task.task_id for task in after] == [task.task_id for task in before]
    alone = tmp_path / "tasks.csv"
    (copy / "tasks.csv").rename(alone)
    source_data = rexecution.read(alone, pictures=tmp_path / "data" / "files")
    assert [extra.config for extra in source_data.extras] == ["rubric"]
    assert "no ratings file, so the dataset has only tasks and the rubric" in source_data.warnings


def test_files_that_are_no_part_are_set_aside(copy: Path) -> None:
    (copy / "notes.txt").write_text("mine")
    aside = dict(rexecution.read(copy).set_aside)
    assert aside["notes.txt"] == "no file of this dataset"
    assert aside[f"{TREE_OF_WGET}/index.html"] == "no file of this dataset"
    assert aside[f"{TREE_OF_WGET}/mimic-cxr-2.0.0-chexpert.csv.gz"] == "not needed for tasks"
    assert not [name for name in aside if name.endswith((".jpg", "tasks.csv", "metadata.csv.gz", "SYNTHETIC.txt"))]


def first_with_prior(rows: Rows) -> dict[str, str]:
    return next(row for row in rows if row["prior_study_id"])


def swap_prior(rows: Rows) -> None:
    row = first_with_prior(rows)
    row["study_id"], row["prior_study_id"] = row["prior_study_id"], row["study_id"].removeprefix("s")
    row["reference_boxes"] = ""


def shift_box(rows: Rows) -> None:
    row = next(row for row in rows if row["reference_boxes"] != "[]")
    boxes = json.loads(row["reference_boxes"])
    boxes[0]["bbox_xywh"][0] += 90
    row["reference_boxes"] = json.dumps(boxes)


def unname_box(rows: Rows) -> None:
    row = first_with_prior(rows)
    row["reference_boxes"] = '[{"label": "x", "bbox_xywh": [0, 0, 1, 1]}]'


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda rows: rows[3].update(study_id="5"), "`study_id` must be a study of the MIMIC-CXR-JPG tree, got 5"),
        (lambda rows: rows[3].update(prior_study_id="6"), "`prior_study_id` must be a study of the MIMIC-CXR-JPG tree"),
        (lambda rows: rows[3].update(prior_study_id=rows[5]["study_id"]), "must be a study of the same patient, got 5"),
        (swap_prior, "`prior_study_id` must be earlier than `study_id`, got 5"),
        (shift_box, "`reference_boxes` must be in the image of "),
        (unname_box, "`reference_boxes` must name one of the 2 images of the task, got none"),
    ],
)
def test_what_the_tree_contradicts(copy: Path, edit: Callable[[Rows], object], message: str) -> None:
    change(copy / "tasks.csv", edit)
    (problem,) = refused(copy)
    assert problem.startswith("tasks.csv:")
    assert message in problem
    assert not [image["StudyDate"] for image in metadata(copy) if image["StudyDate"] in problem]
    source_data = rexecution.read(copy, keep_going=True)
    assert len(list(source_data.splits["test"])) == 19
    assert any(warning == f"left out: {problem}" for warning in source_data.warnings)


def test_a_subject_is_checked(copy: Path) -> None:
    change(
        copy / "tasks.csv", lambda rows: [row.update(subject_id="") for row in rows] and rows[0].update(subject_id="p7")
    )
    (problem,) = refused(copy)
    assert "`subject_id` must be the study's patient, got 7, but the tree says 1" in problem


def test_a_box_needs_no_image_where_there_is_one(copy: Path) -> None:
    tasks = records(copy)
    index = next(i for i, task in enumerate(tasks) if len(task.images) == 1 and not task.temporal)
    box = '[{"label": "x", "bbox_xywh": [0, 0, 1, 1]}]'
    change(copy / "tasks.csv", lambda rows: rows[index].update(reference_boxes=box))
    assert records(copy)[index].reference_boxes[0].image_id == tasks[index].images[0].image_id


def test_unknown_tasks_in_ratings_get_a_hint(copy: Path) -> None:
    change(copy / "ratings.csv", lambda rows: rows[4].update(task_id="task-0020"))
    assert refused(copy) == [
        "ratings.csv:6: `task_id` must be a task of tasks.csv, got 'task-0020' (nearest: 'task-020')"
    ]
    assert len(rexecution.read(copy, keep_going=True).extras[0].rows) == len(table(copy / "ratings.csv")) - 1


def test_ratings_follow_a_task_that_is_left_out(copy: Path) -> None:
    change(copy / "tasks.csv", lambda rows: rows[0].update(category="?"))
    n_ratings = sum(row["task_id"] == "task-001" for row in table(copy / "ratings.csv"))
    source_data = rexecution.read(copy, keep_going=True)
    assert f"{n_ratings} ratings are left out together with their tasks" in source_data.warnings
    assert "task-001" not in {row["task_id"] for row in source_data.extras[0].rows}


def test_missing_pictures_matter_only_when_embedded(copy: Path) -> None:
    task = next(task for task in records(copy) if task.temporal)
    for image in (task.images[0], task.prior_images[0]):
        assert image.picture is not None
        image.picture.path.unlink()
    problems = refused(copy)
    assert [problem.split("`")[1] for problem in problems] == ["study_id: picture", "prior_study_id: picture"]
    assert all("must exist when pixels are embedded, got no files/p" in problem for problem in problems)
    withheld = {t.task_id: t for t in records(copy, pixels="withhold")}[task.task_id]
    assert (withheld.images[0].picture, withheld.images[0].width) == (None, task.images[0].width)
    assert rexecution.inspect(copy).problems == []


def test_scaled_pictures_are_refused(copy: Path) -> None:
    picture = records(copy)[0].images[0].picture
    assert picture is not None
    with Image.open(picture.path) as image:
        image.resize((20, 20)).save(picture.path)
    (problem,) = refused(copy)
    assert "`study_id: picture` must have the size that the metadata state" in problem


def test_two_task_files_are_one_too_many(copy: Path) -> None:
    (copy / "tasks.json").write_text("[]")
    problems = refused(copy, keep_going=True)
    forms = ", ".join(f"tasks{suffix}" for suffix in (".csv", ".tsv", ".xlsx", ".json", ".jsonl", ".parquet"))
    assert problems == [f"copy: `tasks` must be one file, {forms}, got tasks.csv, tasks.json"]


def test_a_folder_without_tasks(tmp_path: Path) -> None:
    for function in (rexecution.inspect, rexecution.read):
        with pytest.raises(ValueError, match=r"`root` must contain a task file, tasks.csv or tasks.tsv or "):
            function(tmp_path)


def test_the_least_that_a_task_needs(twin: Path, tmp_path: Path) -> None:
    study = table(twin / "tasks.csv")[0]["study_id"]
    row = {"task_id": 1, "study_id": study, "prompt": "?", "category": "measurement_temporal"}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row) + "\n")
    source_data = rexecution.read(tmp_path, pictures=twin)
    (task,) = source_data.splits["test"]
    assert isinstance(task, TaskRecord)
    assert (task.task_id, task.question_scores, task.risk_flag, task.requires_boxes) == ("1", None, None, False)
    assert (task.reference_answer, task.reference_boxes, task.temporal, len(task.images)) == (None, (), False, 1)
    assert not any(task.tags.values())
    assert (
        "1 tasks of measurement_temporal have no prior study; they should ask for a measurement, not a comparison"
        in source_data.warnings
    )
