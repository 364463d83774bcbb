"""The MIMIC-CXR-JPG tree: lookup of studies, and their problems. Trees are written by hand here."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reveal_bench.sources.mimic_cxr_jpg import find_trees, look_up_studies, study_images, tree_files

A, B, C = "02aa804e-bde0afdd", "174413ec-4ec4c1f7", "2a2277a9-b0ded155"
METADATA = "mimic-cxr-2.0.0-metadata.csv.gz"


def row(dicom_id: str, study: str = "50414267", subject: str = "10000032", **changes: Any) -> dict[str, Any]:
    known = {"dicom_id": dicom_id, "subject_id": subject, "study_id": study, "ViewPosition": "PA", "Rows": 30}
    facts = {"Columns": 20, "StudyDate": "21800506", "StudyTime": "213014.53100000001"}
    return {**known, **facts, "ViewCodeSequence_CodeMeaning": "postero-anterior", **changes}


def table(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


def write_tree(tree: Path, rows: list[dict[str, Any]], *, pictures: bool = True) -> Path:
    tree.mkdir(parents=True, exist_ok=True)
    (tree / METADATA).write_bytes(gzip.compress(table(rows)))
    for entry in rows if pictures else ():
        subject, study = entry["subject_id"], entry["study_id"]
        path = tree / "files" / f"p{subject[:2]}" / f"p{subject}" / f"s{study}" / f"{entry['dicom_id']}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (20, 30), 90).save(path)
    return tree


def look_up(tree: Path, *wanted: str) -> tuple[dict[str, Any], list[str], list[str]]:
    problems: list[Any] = []
    warnings: list[str] = []
    return look_up_studies(tree, wanted, problems, warnings), [str(problem) for problem in problems], warnings


def test_a_study_is_found_by_its_id_alone(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, [row(A), row(B, ViewPosition="LATERAL"), row(C, "50000001", "10000045")])
    studies, problems, warnings = look_up(tree, "50414267")
    assert (list(studies), problems, warnings) == (["50414267"], [], [])
    study = studies["50414267"]
    assert (study.subject_id, [image.dicom_id for image in study.images]) == ("10000032", [A, B])
    images, faults = study_images(study, need_pictures=True)
    assert faults == []
    name = f"files/p10/p10000032/s50414267/{A}.jpg"
    assert [(image.image_id, image.view, image.width, image.height) for image in images] == [
        (A, "PA", 20, 30), (B, "LATERAL", 20, 30),
    ]  # fmt: skip
    assert images[0].picture is not None
    assert (images[0].picture.path, images[0].picture.name, images[0].picture.source_path) == (
        tree / name, f"{A}.jpg", name,
    )  # fmt: skip


def test_no_folder_of_pictures_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = write_tree(tmp_path, [row(A), row(C, "50000001", "10000045")])
    listed: list[Path] = []
    iterdir = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda folder: listed.append(folder) or iterdir(folder))
    find_trees(tree)
    study_images(look_up(tree, "50414267")[0]["50414267"], need_pictures=True)
    assert set(listed) == {tree}


def test_dates_are_compared_and_not_shown(tmp_path: Path) -> None:
    rows = [
        row(A, "1", StudyDate="21800506", StudyTime="93052.4"),  # 09:30:52, its zero lost
        row(B, "2", StudyDate="21800506", StudyTime="213014.53100000001"),
        row(C, "3", StudyDate="", StudyTime=""),
    ]
    studies, _, _ = look_up(write_tree(tmp_path, rows), "1", "2", "3")
    assert (studies["1"].is_before(studies["2"]), studies["2"].is_before(studies["1"])) == (True, False)
    assert studies["1"].is_before(studies["1"]) is False
    assert studies["1"].is_before(studies["3"]) is None
    assert "2180" not in repr(studies)
    assert "2180" not in repr(study_images(studies["1"], need_pictures=True))


@pytest.mark.parametrize(
    ("position", "meaning", "view", "raw"),
    [
        ("AP", "antero-posterior", "AP", "AP"),
        ("LL", "left lateral", "LATERAL", "LL"),
        ("PA LLD", "", "PA", "PA LLD"),
        ("", "antero-posterior", "AP", "antero-posterior"),
        ("LAO", "left anterior oblique", "UNKNOWN", "LAO"),
        ("", "", "UNKNOWN", None),
    ],
)
def test_views(tmp_path: Path, position: str, meaning: str, view: str, raw: str | None) -> None:
    entry = row(A, ViewPosition=position, ViewCodeSequence_CodeMeaning=meaning)
    image = look_up(write_tree(tmp_path, [entry]), "50414267")[0]["50414267"].images[0]
    assert (image.view, image.view_raw) == (view, raw)


def test_the_tree_is_found_where_wget_leaves_it(tmp_path: Path) -> None:
    inner = tmp_path / "physionet.org" / "files" / "mimic-cxr-jpg" / "2.1.0"
    tree = write_tree(inner, [row(A)])
    for folder in (tree, tree / "files", tree / "files" / "p10"):
        (folder / "index.html").write_text("<html>")
    assert find_trees(tmp_path) == [tree]
    assert find_trees(tmp_path / "physionet.org") == [tree]
    assert find_trees(tree) == [tree]
    assert find_trees(tree / "files") == []
    assert find_trees(tmp_path / "nowhere") == []
    other = write_tree(inner.with_name("2.0.0"), [row(A)])
    assert find_trees(tmp_path) == [other, tree]


def test_tables_packed_or_not_whatever_they_are_called(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, [row(A)])
    packed = (tree / METADATA).read_bytes()
    (tree / METADATA).write_bytes(gzip.decompress(packed))
    assert list(look_up(tree, "50414267")[0]) == ["50414267"]
    (tree / METADATA).rename(tree / METADATA.removesuffix(".gz"))
    assert list(look_up(tree, "50414267")[0]) == ["50414267"]
    (tree / METADATA).write_bytes(packed)
    assert tree_files(tree)["metadata"].name == METADATA  # as it was published
    (tree / METADATA).write_bytes(packed[:-9])
    _, problems, _ = look_up(tree, "50414267")
    assert problems[0].startswith(f"{METADATA}: `file` must be readable as csv")


def test_splits_other_than_test_are_a_warning(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, [row(A, "1"), row(B, "2"), row(C, "3")])
    splits = [{"dicom_id": d, "study_id": s, "subject_id": 9, "split": t}
              for d, s, t in ((A, "1", "train"), (B, "2", "test"), (C, "3", "train"))]  # fmt: skip
    (tree / "mimic-cxr-2.0.0-split.csv").write_bytes(table(splits))
    studies, problems, warnings = look_up(tree, "1", "2")
    assert ([study.split for study in studies.values()], problems) == (["train", "test"], [])
    assert warnings == ["1 studies belong to MIMIC-CXR-JPG's split 'train', on which models may have been trained"]


def test_without_metadata_the_list_of_names_gives_the_ids(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, [row(A), row(B)])
    (tree / METADATA).unlink()
    names = "\n".join(f"files/p10/p10000032/s50414267/{dicom_id}.jpg" for dicom_id in (A, B))
    (tree / "IMAGE_FILENAMES").write_text(names + "\n")
    studies, problems, warnings = look_up(tree, "50414267")
    images, faults = study_images(studies["50414267"], need_pictures=True)
    assert [(image.image_id, image.view, image.width, image.height) for image in images] == [
        (A, "UNKNOWN", 20, 30), (B, "UNKNOWN", 20, 30),
    ]  # fmt: skip
    assert (problems, faults) == ([], [])
    assert warnings == ["the MIMIC-CXR-JPG tree has no metadata table, so views are unknown"]
    (tree / "IMAGE_FILENAMES").write_text("files/p10/p11000032/s50414267/x.jpg\n")
    assert "IMAGE_FILENAMES:1: `path` must look like files/p10/" in look_up(tree, "50414267")[1][0]
    (tree / "IMAGE_FILENAMES").unlink()
    assert ("must contain mimic-cxr-2.*-metadata.csv.gz or IMAGE_FILENAMES, got neither") in look_up(tree, "50414267")[
        1
    ][0]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(A), row(A)], f":3: `dicom_id` must be unique, got {A}"),
        (
            [row(A), row(B, subject="10000045")],
            (":3: `subject_id` must be the same for all images of a study (10000032), got 10000045"),
        ),
        ([row(A, Rows="")], ":2: `Rows, Columns` must be whole numbers above 0, got  and 20"),
        ([row(A, Columns="0")], ":2: `Rows, Columns` must be whole numbers above 0, got 30 and 0"),
        ([row("../../x")], ":2: `subject_id, dicom_id` must be a number and a DICOM id, got '10000032', '../../x'"),
        ([{"dicom_id": A, "study_id": 1}], ":1: `subject_id` must be columns, got dicom_id, study_id"),
    ],
)
def test_broken_metadata(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    (tmp_path / METADATA).write_bytes(gzip.compress(table(rows)))
    _, problems, _ = look_up(tmp_path, "50414267")
    assert problems[0] == METADATA + message


def test_rows_of_other_studies_are_not_judged(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, [row(A), row("../x", "50000001", Rows="many")], pictures=False)
    assert look_up(tree, "50414267")[1] == []


def test_missing_scaled_and_broken_pictures(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, [row(A), row(B), row(C)])
    folder = tree / "files/p10/p10000032/s50414267"
    (folder / f"{A}.jpg").unlink()
    Image.new("L", (10, 15)).save(folder / f"{B}.jpg")
    (folder / f"{C}.jpg").write_bytes(b"<html>503</html>")
    study = look_up(tree, "50414267")[0]["50414267"]
    _, faults = study_images(study, need_pictures=True)
    where = "files/p10/p10000032/s50414267"
    assert [(fault.rule.split(" (")[0], fault.value) for fault in faults] == [
        ("must exist when pixels are embedded", f"no {where}/{A}.jpg"),
        ("must have the size that the metadata state", f"10 x 15 instead of 20 x 30 for {where}/{B}.jpg"),
        ("must be readable", f"not a picture in {where}/{C}.jpg"),
    ]
    images, faults = study_images(study, need_pictures=False)
    assert [(image.image_id, image.picture is None) for image in images] == [(A, True), (B, False)]
    assert len(faults) == 2


def test_a_size_that_nobody_knows_is_a_fault(tmp_path: Path) -> None:
    entry = {name: value for name, value in row(A).items() if name not in ("Rows", "Columns")}
    study = look_up(write_tree(tmp_path, [entry], pictures=False), "50414267")[0]["50414267"]
    images, faults = study_images(study, need_pictures=False)
    assert (images, [fault.rule for fault in faults]) == ((), ["must be stated by the metadata or the picture"])
