"""CheXlocalize: the places of its parts, study-level labels, and files that are set aside."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.sources import chexlocalize
from reveal_bench.sources.source import BuildError

BATCH = "CheXpert-v1.0 batch 1 (validate & csv)"


def ids(root: Path, split: str, pictures: Path | None = None) -> list[str]:
    records = list(chexlocalize.read(root, pictures=pictures).splits[split])
    assert all(record.picture is not None and record.picture.path.is_file() for record in records)
    return [record.image_id for record in records]


def move(old: Path, new: Path) -> None:
    new.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(old, new)


@pytest.mark.parametrize(
    "place",
    [
        "CheXpert/valid",
        "CheXpert-v1.0/valid",
        f"{BATCH}/valid",
        f"{BATCH}/{BATCH}/valid",
        f"chexpertchestxrays-u20210408/{BATCH}/valid",
        f"../../{BATCH}/valid",
        "../CheXpert-v1.0/val",
    ],
)
def test_pictures_of_the_validation_split_where_people_have_them(copy: Path, place: str) -> None:
    before = ids(copy, "validation")
    move(copy / "CheXpert" / "val", copy / place)
    root = copy.parent.parent  # as a user would name it
    assert ids(root, "validation") == before
    assert ids(root, "test")
    assert chexlocalize.inspect(root).counts["validation pictures"] == 6


def test_labels_as_chexpert_names_them(copy: Path) -> None:
    before = {r.image_id: r.label_status for r in chexlocalize.read(copy).splits["validation"]}
    move(copy / "CheXpert" / "val", copy / BATCH / "valid")
    move(copy / "CheXpert" / "val_labels.csv", copy / BATCH / "valid.csv")
    after = {r.image_id: r.label_status for r in chexlocalize.read(copy).splits["validation"]}
    assert after == before
    assert chexlocalize.inspect(copy).files["valid"] == f"{BATCH}/valid.csv"


@pytest.mark.parametrize("named", ["", "CheXpert-v1.0", "CheXpert-v1.0/valid"])
def test_pictures_in_a_folder_of_ones_own(copy: Path, tmp_path: Path, named: str) -> None:
    before = ids(copy, "validation")
    own = tmp_path / "own"
    move(copy / "CheXpert" / "val", own / "CheXpert-v1.0" / "valid")
    with pytest.raises(BuildError, match="6 images have no picture here: patient64541_study1_view1_frontal, "):
        chexlocalize.read(copy)
    assert ids(copy, "validation", pictures=own / named) == before
    first = next(iter(chexlocalize.read(copy, pictures=own).splits["validation"]))
    assert first.picture is not None
    assert first.picture.source_path == f"CheXpert-v1.0/valid/{'/'.join(first.image_id.split('_', 2))}.jpg"


def test_annotations_directly_in_the_folder(copy: Path) -> None:
    before = ids(copy, "test")
    assert ids(copy / "CheXlocalize", "test") == before  # the inner folder named as the root
    for path in list((copy / "CheXlocalize").iterdir()):
        move(path, copy / path.name)
    (copy / "CheXlocalize").rmdir()
    assert chexlocalize.detect(copy.parent.parent) == 1
    assert ids(copy, "test") == before


def test_everything_in_one_folder_as_in_the_sample_of_its_repository(copy: Path, tmp_path: Path) -> None:
    before = ids(copy, "validation")
    sample = tmp_path / "sample"
    move(copy / "CheXpert" / "val", sample / "valid")
    move(copy / "CheXpert" / "val_labels.csv", sample / "valid.csv")
    move(copy / "CheXlocalize" / "gradcam_maps_val", sample / "gradcam_heatmaps_val")
    for path in (copy / "CheXlocalize").glob("gt_*_val.json"):
        move(path, sample / path.name)
    assert ids(sample, "validation") == before
    inspection = chexlocalize.inspect(sample)
    assert inspection.problems == []
    assert inspection.files["gt_annotations_val"] == "gt_annotations_val.json"
    assert sum("pickled heat map, never opened" in text for text in inspection.warnings) == 1


def test_the_small_pictures_are_refused(copy: Path) -> None:
    move(copy / "CheXpert" / "val", copy / "CheXpert-v1.0-small" / "valid")
    with pytest.raises(BuildError, match="must contain the full-size pictures of CheXpert") as caught:
        chexlocalize.read(copy, keep_going=True)
    assert str(caught.value.problems[0]) == (
        "CheXpert-v1.0-small/valid: `folder` must contain the full-size pictures of CheXpert, because "
        "masks do not fit CheXpert-small, got CheXpert-v1.0-small"
    )
    shutil.copytree(copy / "CheXpert-v1.0-small" / "valid", copy / "CheXpert-v1.0" / "valid")
    for record in chexlocalize.read(copy).splits["validation"]:
        assert record.picture is not None
        assert record.picture.source_path.startswith("CheXpert-v1.0/valid/")


def test_a_folder_that_only_sounds_small(copy: Path, tmp_path: Path) -> None:
    before = ids(copy, "validation")
    move(copy, tmp_path / "my-small" / "data")
    assert ids(tmp_path / "my-small" / "data", "validation") == before


def test_file_in_two_places_is_taken_from_the_first(copy: Path) -> None:
    shutil.copytree(copy / "CheXpert" / "val", copy / "CheXpert-v1.0" / "valid")
    only = sorted((copy / "CheXpert" / "val").rglob("view*.jpg"))[0]
    only.unlink()
    source_data = chexlocalize.read(copy)
    names = [record.picture.source_path for record in source_data.splits["validation"] if record.picture is not None]
    assert sorted(path.split("/")[0] for path in names) == ["CheXpert"] * 5 + ["CheXpert-v1.0"]
    assert (
        "split 'validation': 5 pictures in CheXpert-v1.0/valid are not used, because another folder also has them"
    ) in source_data.warnings


def study_rows(root: Path) -> list[dict[str, str]]:
    """The test labels as groundtruth.csv has them: one row per study, whole numbers, another order of columns."""
    with (root / "CheXpert" / "test_labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = sorted(name for name in rows[0] if name != "Path")
    studies = {row["Path"].rsplit("/", 1)[0]: {name: row[name][:1] for name in names} for row in rows}
    return [{"Study": f"CheXpert-v1.0/{study}", **labels} for study, labels in studies.items()]


def write_groundtruth(path: Path, rows: Iterable[dict[str, str]]) -> None:
    lines = [list(row.values()) for row in rows]
    heads = list(next(iter(rows)))
    path.write_text("\n".join(",".join(cells) for cells in [heads, *lines]))  # no newline at the end, as published


FINDINGS = ["Lung Opacity" if name == "Airspace Opacity" else name for name in CHEXLOCALIZE_FINDINGS]


def n_different(root: Path, studies: list[dict[str, str]]) -> int:
    """Findings of images that differ from their study's row, from the csv files alone."""
    by_study = {row["Study"].removeprefix("CheXpert-v1.0/"): row for row in studies}
    with (root / "CheXpert" / "test_labels.csv").open(newline="") as file:
        pairs = [(row, by_study.get(row["Path"].rsplit("/", 1)[0])) for row in csv.DictReader(file)]
    return sum(float(row[name]) != float(study[name]) for row, study in pairs if study for name in FINDINGS)


def messages_of(root: Path) -> list[str]:
    return [warning for warning in chexlocalize.read(root).warnings if "groundtruth.csv" in warning]


@pytest.mark.parametrize("place", ["groundtruth.csv", "CheXpert/groundtruth.csv", "CheXlocalize/groundtruth.csv"])
def test_study_labels_that_agree_say_nothing(copy: Path, place: str) -> None:
    labels = copy / "CheXpert" / "test_labels.csv"
    studies = study_rows(copy)
    write_groundtruth(copy / place, studies)
    with labels.open(newline="") as file:  # every image gets its study's labels
        rows = list(csv.DictReader(file))
    of_study = {row["Study"].removeprefix("CheXpert-v1.0/"): row for row in studies}
    for row in rows:
        row.update({name: f"{of_study[row['Path'].rsplit('/', 1)[0]][name]}.0" for name in row if name != "Path"})
    with labels.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert n_different(copy, studies) == 0
    assert messages_of(copy) == []
    assert chexlocalize.inspect(copy).files["groundtruth"] == place


def test_study_labels_that_differ_are_counted(copy: Path) -> None:
    studies = study_rows(copy)
    studies[0]["Edema"] = "1" if studies[0]["Edema"] == "0" else "0"
    studies[-1]["Study"] = "CheXpert-v1.0/test/patient99999/study1"
    write_groundtruth(copy / "groundtruth.csv", studies)
    differ, missing, extra = messages_of(copy)
    assert differ.startswith(
        f"split 'test': {n_different(copy, studies)} labels differ from groundtruth.csv (labels are kept), "
    )
    assert "first Edema of patient64741_study1_view1_frontal" in differ
    assert missing == "split 'test': 1 studies have no row in groundtruth.csv"
    assert extra == "split 'test': 1 studies of groundtruth.csv have no image"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Study": "test/patient1"}, r"groundtruth.csv:2: `Study` must be unique and end in patient\*/study\*"),
        ({"Edema": "2"}, "groundtruth.csv:2: `Edema` must be 1, 0, -1 or blank, got '2'"),
    ],
)
def test_broken_study_labels(copy: Path, change: dict[str, str], message: str) -> None:
    rows = study_rows(copy)
    rows[0].update(change)
    write_groundtruth(copy / "groundtruth.csv", rows)
    with pytest.raises(BuildError, match=message):
        chexlocalize.read(copy)


def test_study_labels_need_their_columns(copy: Path) -> None:
    rows = [{("Path" if name == "Study" else name): value for name, value in row.items()} for row in study_rows(copy)]
    write_groundtruth(copy / "groundtruth.csv", rows)
    with pytest.raises(BuildError, match=r"groundtruth\.csv:1: `Study` must be a column"):
        chexlocalize.read(copy)


def test_files_other_than_references_are_set_aside(copy: Path) -> None:
    maps = copy / "CheXlocalize" / "gradcam_maps_val"
    np.save(maps / "a_map.npy", np.zeros(3))
    Image.new("L", (4, 4)).save(maps / "b_map.png")
    (maps / "c.safetensors").write_bytes(b"")
    aside = dict(chexlocalize.read(copy).set_aside)
    inside = "CheXlocalize/gradcam_maps_val"
    for name in ("a_map.npy", "b_map.png", "c.safetensors"):
        assert aside[f"{inside}/{name}"] == "heat map of a model, not a reference"
    (pickled,) = [name for name in aside if name.endswith(".pkl")]
    assert aside[pickled] == "pickled heat map, never opened because a pickle can run code"
    assert aside["CheXlocalize/gradcam_segmentations_val.json"] == "a model's masks, not references"
    assert sum(reason == "interrupted download" for reason in aside.values()) == 3
    assert len(aside) == 8
    (maps,) = [text for text in chexlocalize.inspect(copy).warnings if "heat map of a model" in text]
    assert maps == f"set aside: {inside}/a_map.npy and 2 more files: heat map of a model, not a reference"


def test_sizes_show_in_the_inspection(copy: Path) -> None:
    path = sorted((copy / "CheXpert" / "test").rglob("view*.jpg"))[0]
    with Image.open(path) as image:
        image.resize((30, 20)).save(path)
    problems = chexlocalize.inspect(copy).problems
    assert [problem.field for problem in problems if "CheXpert-small is smaller" in problem.rule] == ["size"]
