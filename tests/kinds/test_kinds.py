"""Studies and tasks are read from a folder as they were written, with and without pixels and a holdout."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import BuildLog, build_folder
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.findings.records import StudyRecord, age_band, read_studies
from reveal_bench.kinds.images import PictureFile, StudyImage
from reveal_bench.kinds.tasks.records import Rating, ReferenceBox, TaskRecord, read_ratings, read_tasks
from reveal_bench.kinds.tasks.rows import rating_row, ratings_features
from reveal_bench.sources.source import BuildError, Extra
from tests.dataset.card_folders import rows_of

FINDINGS, TASKS = BENCHMARKS["reveal-cxr"], BENCHMARKS["rexecution"]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    root = tmp_path / "pictures"
    root.mkdir()
    for i in range(12):
        Image.fromarray(np.full((6, 5), 20 * i, np.uint8)).save(root / f"{i}.png")
    return root


def image(pictures: Path, i: int, **changes: object) -> StudyImage:
    picture = PictureFile(pictures / f"{i}.png", f"image{i}.png", f"deep/folder/{i}.png")
    facts = {"manufacturer": "maker", "manufacturer_raw": "MAKER ", "kvp": 85.1, "spacing_mm": (0.139, 0.143)}
    known = {**facts, "spacing_source": "pixel_spacing", "view_raw": "POSTERO ANTERIOR", **changes}
    return StudyImage(f"image{i}", "PA", 5, 6, picture=picture, **known)


def study(pictures: Path, i: int, n_images: int = 1, **changes: object) -> StudyRecord:
    record = StudyRecord(
        study_id=f"study{i}",
        patient_id=f"patient{i}",
        labels=("Cardiomegaly", "COPD"),
        agreement="three_of_three",
        images=tuple(image(pictures, i + k) for k in range(n_images)),
        n_agree_all=3,
        age_band=age_band(83),
        sex="F",
        race="White",
        patient_class="inpatient",
    )
    return replace(record, **changes)


def task(pictures: Path, i: int) -> TaskRecord:
    return TaskRecord(
        task_id=f"task{i}",
        study_id=f"study{i}",
        patient_id=f"patient{i}",
        prompt="Is there an effusion?",
        category="measurement_temporal",
        images=(image(pictures, i),),
        prior_images=(image(pictures, i + 6), image(pictures, i + 5)),
        indication="cough",
        temporal=True,
        tags={"laterality": ("left", "Follow-up")},
        question_scores={"clinical_relevance": 4, "answerability": 5, "complexity": 3, "clarity": 5},
        risk_flag=False,
        requires_boxes=True,
        reference_answer="SECRET ANSWER",
        reference_boxes=(ReferenceBox("effusion", (1.0, 2.0, 3.5, 2.0), f"image{i}"),),
    )


def ratings(n: int) -> Extra:
    rows = [rating_row(Rating(f"task{i}", "model", "reader", 4, 3, 5, image_style=2)) for i in range(n)]
    return Extra("ratings", ratings_features, rows, key="task_id")


def without_pixels(image: StudyImage) -> StudyImage:
    return replace(image, picture=None, source_sha256=None, pixel_sha256=None, pixel_pipeline="withheld")


def in_essence(record: StudyRecord) -> StudyRecord:
    return replace(record, images=tuple(without_pixels(image) for image in record.images))


def load(folder: Path, script: str) -> str:
    """Return the output of a script that uses `datasets` and none of our code."""
    home = folder.parent / "home"
    environment = {"PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1", "HF_HOME": str(home), "HOME": str(home)}
    program = f"import sys; sys.modules['reveal_bench'] = None\nfrom datasets import load_dataset\n{script}"
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        capture_output=True, text=True, env=environment, cwd=folder.parent, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("pixels", ["embed", "withhold"])
def test_studies_are_read_as_written(tmp_path, pictures, pixels):
    records = [study(pictures, 0, n_images=2), study(pictures, 3, labels=(), agreement=None, n_agree_all=None)]
    info = build_folder({"released": records}, tmp_path / "out", FINDINGS, pixels=pixels, synthetic=True)
    assert info.splits["released"] == {
        "n_studies": 2, "n_images": 3, "n_patients": 2, "n_asked": 24, "references": "public"
    }  # fmt: skip
    back = read_studies(tmp_path / "out", "released")
    assert [in_essence(record) for record in back] == [in_essence(record) for record in records]
    (row, _) = rows_of(tmp_path / "out", "multilabel/")
    assert row["label_vector"] == [0, 0, 1, 1] + [0] * 8  # Cardiomegaly and COPD are the third and fourth label
    assert [facts["source_sha256"] is None for facts in row["image_facts"]] == [False, False]
    is_here = pixels == "embed"
    assert [entry is not None for entry in row["images"]] == [is_here, is_here]
    printed = load(
        tmp_path / "out",
        "rows = load_dataset(sys.argv[1], 'multilabel', split='released')\n"
        "names = rows.features['labels'].feature.int2str(rows[0]['labels'])\n"
        "print(names, [i and i.size for i in rows[0]['images']])",
    )
    assert printed.strip() == f"['Cardiomegaly', 'COPD'] {[(5, 6)] * 2 if is_here else [None] * 2}"


def test_holdout_of_studies_has_images_and_no_answers(tmp_path, pictures):
    records = [study(pictures, i) for i in range(8)]
    public, private = tmp_path / "public", tmp_path / "private"
    build_folder({"test": records}, public, FINDINGS, holdout=private, holdout_split="test", synthetic=True)
    rows = rows_of(public, "holdout_inputs/")
    assert len(rows) == 4
    for row in rows:
        assert (row["labels"], row["label_vector"], row["agreement"], row["n_agree_all"]) == ([], None, None, None)
        # the last code of each vocabulary is "unknown"
        assert (row["age_band"], row["sex"], row["race"], row["patient_class"]) == (9, 3, 4, 3)
        assert {facts["source_sha256"] for facts in row["image_facts"]} == {None}
        assert row["images"][0]["bytes"].startswith(b"\x89PNG")
    kept = read_studies(private, "holdout")
    assert {record.labels for record in kept} == {("Cardiomegaly", "COPD")}
    assert {entry for row in pq.read_table(private / "multilabel").to_pylist() for entry in row["images"]} == {None}


def divided(pictures, n_released=5, n_private=3):
    records = [study(pictures, i) for i in range(n_released + n_private)]
    return {"released": records[:n_released], "holdout": records[n_released:]}


def test_given_halves_are_kept(tmp_path, pictures):
    halves = divided(pictures)
    public, private = tmp_path / "public", tmp_path / "private"
    build_folder(halves, public, FINDINGS, holdout=private, holdout_split="holdout", synthetic=True, seed=3)
    for folder, split in ((public, "released"), (private, "holdout")):
        assert {record.study_id for record in read_studies(folder, split)} == {one.study_id for one in halves[split]}
    with pytest.raises(ValueError, match="they are private"):
        read_studies(public, "holdout")
    inputs = pq.read_table(public / "holdout_inputs").to_pylist()
    assert {row["study_id"] for row in inputs} == {one.study_id for one in halves["holdout"]}
    assert all(row["labels"] == [] for row in inputs)


@pytest.mark.parametrize("half", ["released", "holdout"])
def test_order_of_given_halves_reveals_nothing(tmp_path, pictures, half):
    orders = []
    for name, turn in (("a", 1), ("b", -1)):
        halves = {split: records[::turn] for split, records in divided(pictures).items()}
        folders = {"released": tmp_path / name, "holdout": tmp_path / f"{name}-private"}
        build_folder(halves, folders["released"], FINDINGS, holdout=folders["holdout"], holdout_split="holdout")
        orders.append([record.study_id for record in read_studies(folders[half], half)])
    assert orders[0] == orders[1]


def test_given_holdout_needs_a_private_folder(tmp_path, pictures):
    with pytest.raises(
        ValueError,
        match="`holdout` must name a folder because the records have the private split 'holdout', got none",
    ):
        build_folder(divided(pictures), tmp_path / "public", FINDINGS)


def test_patient_of_a_given_holdout_is_in_no_other_split(tmp_path, pictures):
    halves = divided(pictures)
    halves["released"][0] = replace(halves["released"][0], patient_id=halves["holdout"][1].patient_id)
    with pytest.raises(BuildError, match="must not also be in the holdout"):
        build_folder(halves, tmp_path / "public", FINDINGS, holdout=tmp_path / "private", holdout_split="holdout")


def test_given_halves_of_a_later_version_must_match_earlier_ones(tmp_path, pictures):
    halves = divided(pictures)
    before = {"previous": tmp_path / "public", "previous_holdout": tmp_path / "private"}
    build_folder(halves, before["previous"], FINDINGS, holdout=before["previous_holdout"], holdout_split="holdout")
    options = {"holdout": tmp_path / "private2", "holdout_split": "holdout", **before}
    swapped = {"released": halves["holdout"], "holdout": halves["released"]}
    with pytest.raises(BuildError, match="must not have been released before"):
        build_folder(swapped, tmp_path / "public2", FINDINGS, **options)
    new = [replace(study(pictures, i), patient_id=f"new{i}") for i in range(8, 11)]
    retired = {"released": [*halves["released"], *halves["holdout"]], "holdout": new}
    overwriting = {"holdout": tmp_path / "private", "holdout_split": "holdout", "overwrite": True}
    for out, choices in (("public2", options), ("public", overwriting)):
        with pytest.raises(BuildError, match="must stay private unless the holdout is retired"):
            build_folder(retired, tmp_path / out, FINDINGS, **choices)
    build_folder(retired, tmp_path / "public2", FINDINGS, retire_holdout=True, **options)
    kept = read_studies(tmp_path / "private2", "holdout")
    assert {record.patient_id for record in kept} == {"new8", "new9", "new10"}


def test_tasks_and_their_ratings_go_to_the_same_half(tmp_path, pictures):
    records = [task(pictures, i) for i in range(6)]
    public, private = tmp_path / "public", tmp_path / "private"
    build_folder(
        {"test": records}, public, TASKS, holdout=private, holdout_split="test", synthetic=True, extras=[ratings(6)]
    )
    released, held = read_tasks(public, "released"), read_tasks(private, "holdout")
    everything = sorted(released + held, key=lambda record: record.task_id)
    for before, after in zip(records, everything, strict=True):
        images = tuple(without_pixels(image) for image in before.images)
        priors = tuple(without_pixels(image) for image in before.prior_images)
        tags = {**dict.fromkeys(after.tags, ()), **before.tags}
        assert replace(before, images=images, prior_images=priors, tags=tags) == replace(
            after,
            images=tuple(without_pixels(image) for image in after.images),
            prior_images=tuple(without_pixels(image) for image in after.prior_images),
        )
    for folder, split, tasks in ((public, "released", released), (private, "holdout", held)):
        scores = read_ratings(folder, split)
        assert sorted(score.task_id for score in scores) == sorted(record.task_id for record in tasks)
        assert {score.content for score in scores} == {3}  # the smallest of 4, 3 and 5
    texts = str([pq.read_table(path).to_pylist() for path in public.rglob("holdout*.parquet")])
    assert "SECRET ANSWER" not in texts
    assert "Is there an effusion?" in texts
    printed = load(
        public,
        "rows = load_dataset(sys.argv[1], 'tasks', split='released')\n"
        "rated = load_dataset(sys.argv[1], 'ratings', split='released')\n"
        "print(len(rows), len(rated), len(rows[0]['prior_images']), rows[0]['tags']['laterality'])",
    )
    assert printed.strip() == "3 3 2 ['left', 'Follow-up']"


def test_rating_without_a_task_is_an_error_unless_left_out(tmp_path, pictures):
    with pytest.raises(BuildError, match="ratings:task3: `task_id` must be the key of a record, got 'task3'"):
        build_folder({"test": [task(pictures, i) for i in range(3)]}, tmp_path / "a", TASKS, extras=[ratings(4)])
    (pictures / "0.png").unlink()
    log = BuildLog()
    build_folder(
        {"test": [task(pictures, i) for i in range(3)]},
        tmp_path / "b",
        TASKS,
        extras=[ratings(3)],
        keep_going=True,
        log=log,
    )
    assert [str(problem) for problem in log.left_out] == [
        "deep/folder/0.png:task0: `picture` must be readable, got no such file"
    ]
    assert [score.task_id for score in read_ratings(tmp_path / "b", "test")] == ["task1", "task2"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ("Edema",)}, r"`labels` must be one of Airspace opacity, .* got 'Edema'"),
        ({"labels": ("COPD", "COPD")}, "`labels` must name each finding once, got COPD, COPD"),
        ({"sex": "female"}, "`sex` must be one of F, M, other, unknown, got 'female'"),
        ({"agreement": "four"}, "`agreement` must be one of two_of_three, three_of_three, got 'four'"),
        ({"images": ()}, "`image` must exist when pixels are embedded, got None"),
    ],
)
def test_studies_outside_the_vocabularies_are_refused(tmp_path, pictures, changes, message):
    with pytest.raises(BuildError, match=message):
        build_folder({"test": [study(pictures, 0, **changes)]}, tmp_path / "out", FINDINGS)


def test_image_of_another_size_is_refused(tmp_path, pictures):
    wide = study(pictures, 0, images=(replace(image(pictures, 0), width=7),))
    with pytest.raises(BuildError, match="image image0 must have 7 x 6 pixels, got 5 x 6"):
        build_folder({"test": [wide]}, tmp_path / "out", FINDINGS)


def test_sixteen_bits_become_eight(tmp_path, pictures):
    values = np.array([[1000, 2000], [3000, 5000]], np.uint16)
    Image.fromarray(values).save(pictures / "deep.png")
    picture = PictureFile(pictures / "deep.png", "deep.png", "deep.png", kind="png16")
    record = study(pictures, 0, images=(StudyImage("deep", "PA", 2, 2, picture=picture),))
    build_folder({"test": [record]}, tmp_path / "out", FINDINGS, synthetic=True)
    (row,) = rows_of(tmp_path / "out", "multilabel/")
    (tmp_path / "back.png").write_bytes(row["images"][0]["bytes"])
    # (v - 1000) * 255 / 4000: 0, 63.75, 127.5 (half to even), 255
    assert np.asarray(Image.open(tmp_path / "back.png")).tolist() == [[0, 64], [128, 255]]
    assert row["image_facts"][0]["pixel_pipeline"].startswith("png16-v1")


@pytest.mark.parametrize(
    ("years", "band"), [(0, "0-9"), (9.9, "0-9"), (10, "10-19"), (79, "70-79"), (80, "80+"), (120, "80+")]
)
def test_age_bands(years, band):
    assert age_band(years) == band


def test_impossible_age_is_refused():
    with pytest.raises(ValueError, match=r"`years` must be in \[0, 150\], got -1"):
        age_band(-1)


@pytest.mark.parametrize("name", KINDS)
def test_columns_are_recognized_without_features(name):
    benchmark = next(row for row in BENCHMARKS.values() if row.kind == name)
    assert KINDS[name].table.columns(benchmark) == tuple(KINDS[name].table.features(benchmark))


def test_holdout_prompts_are_public_also_without_pixels(tmp_path, pictures):
    records = [task(pictures, i) for i in range(6)]
    public = tmp_path / "public"
    build_folder(
        {"test": records}, public, TASKS, pixels="withhold", holdout=tmp_path / "private", synthetic=True
    )  # fmt: skip
    rows = rows_of(public, "holdout_inputs/")
    assert [row["prompt"] for row in rows] == ["Is there an effusion?"] * 3
    assert {(row["reference_answer"], str(row["images"]), row["question_scores"]) for row in rows} == {
        (None, "[None]", None)
    }
    assert {str(row["tags"]["laterality"]) for row in rows} == {"[]"}
