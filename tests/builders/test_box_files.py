"""What the builders of box sources share: finding files, reading tables, leaving images out."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from reveal_bench.builders.box_files import Faults, Gallery, annotate_boxes, box_problem, find_file, read_table
from reveal_bench.builders.source import BuildError, Problem


def test_the_shallowest_file_of_the_first_pattern_is_found(tmp_path: Path) -> None:
    for name in (
        "b/list.csv",
        "a/deep/list.csv",
        "list.json",
        ".hidden/list.csv",
        "1/2/3/4/5/six.csv",
        "1/2/3/4/5/6/far.csv",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert find_file(tmp_path, "*.txt", "list.csv", "list.json") == tmp_path / "b" / "list.csv"
    assert find_file(tmp_path, "six.csv") is not None
    assert find_file(tmp_path, "far.csv") is None
    assert find_file(tmp_path / "list.json", "list.*") == tmp_path / "list.json"
    assert find_file(tmp_path / "list.json", "list.csv") is None
    assert find_file(tmp_path / "nothing", "list.csv") is None


def test_a_tree_of_pictures_is_not_searched(tmp_path: Path) -> None:
    for number in range(61):
        (tmp_path / "files" / f"p{number}").mkdir(parents=True)
    (tmp_path / "files" / "p0" / "list.csv").touch()
    assert find_file(tmp_path, "list.csv") is None
    (tmp_path / "files" / "p60").rmdir()
    assert find_file(tmp_path, "list.csv") == tmp_path / "files" / "p0" / "list.csv"


@pytest.mark.parametrize("form", ["plain", "gzip", "zip"])
def test_columns_are_found_by_name_whatever_their_order_case_and_spaces(tmp_path: Path, form: str) -> None:
    text = '\ufeff X ,Name,extra\n 1 ,"a\nb",7\n\n2,c,8\n'.encode()
    path = tmp_path / {"plain": "t.csv", "gzip": "t.csv.gz", "zip": "t.csv.zip"}[form]
    if form == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("inner/t.csv", text)
    else:
        path.write_bytes(text if form == "plain" else gzip.compress(text))
    faults, warnings = Faults(), list[str]()
    rows = read_table(path, ("name", "x"), faults, warnings)
    assert [(row.line, row["name"], row["x"]) for row in rows] == [(3, "a\nb", "1"), (5, "c", "2")]
    assert warnings == [f"{path.name}: the column 'extra' is not known and is not read"]
    assert faults.problems == []


@pytest.mark.parametrize(
    ("name", "content", "value"),
    [
        ("t.csv", b"x\n\xff\n", "'utf-8' codec can't decode byte 0xff"),
        ("t.csv.gz", b"x\n1\n", "Not a gzipped file"),
        ("t.csv.gz", gzip.compress(b"x\n1\n" * 99)[:-9], "Compressed file ended before"),
        ("t.csv.zip", b"PK", "File is not a zip file"),
        ("none.csv", None, "No such file"),
    ],
)
def test_unreadable_tables(tmp_path: Path, name: str, content: bytes | None, value: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    faults = Faults()
    read_table(tmp_path / name, ("x",), faults, [])
    (problem,) = faults.problems
    assert (problem.file, problem.rule) == (name, "must be a readable CSV file in UTF-8")
    assert value in problem.value
    with pytest.raises(BuildError):
        faults.settle([], keep_going=True)  # a broken file stops the build


def test_problems_of_images_become_warnings(tmp_path: Path) -> None:
    faults, warnings = Faults(), list[str]()
    faults.settle(warnings, keep_going=False)
    assert warnings == []
    for image_id in ("a", "b", "a"):
        faults.add(Problem("f", 1, "x", "must", "be"), image_id)
    with pytest.raises(BuildError, match="3 problems"):
        faults.settle([], keep_going=False)
    faults.settle(warnings, keep_going=True)
    assert warnings == [*["left out: f:1: `x` must, got be"] * 3, "2 images are left out for these problems"]


@pytest.mark.parametrize(
    ("box", "rule"),
    [
        ((0, 0, 10, 20), None),
        ((-1, -1, 12, 22), None),  # one pixel beyond each side: rounding
        ((-1.01, 0, 5, 5), "must lie in the image of 10 x 20 pixels"),
        ((0, 0, 11.01, 5), "must lie in the image of 10 x 20 pixels"),
        ((0, 16, 5, 5.01), "must lie in the image of 10 x 20 pixels"),
        ((0, 0, 0, 5), "must have width and height above 0"),
        ((10, 0, 0.9, 5), "must cover the centre of a pixel"),
    ],
)
def test_boxes_lie_in_their_image(box: tuple[float, float, float, float], rule: str | None) -> None:
    assert box_problem(box, (20, 10)) == rule


def test_an_annotation_keeps_every_box() -> None:
    annotation = annotate_boxes("Edema", [(1, 1, 4, 4), (3, 3, 4, 4)], (20, 10), reader="individual", reader_id="R1")
    assert annotation.boxes_xywh == ((1, 1, 4, 4), (3, 3, 4, 4))
    assert (annotation.bbox_xywh, annotation.area_px, annotation.n_instances) == ((1, 1, 6, 6), 16 + 16 - 4, 2)
    assert (annotation.rle, annotation.reader, annotation.reader_id) == (None, "individual", "R1")


def test_a_gallery_knows_visible_pictures_by_their_stem(tmp_path: Path) -> None:
    for name in ("a/x.PNG", "b/y.png", "b/._y.png", ".c/z.png", "old/y.png", "b/t.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    gallery = Gallery.below(tmp_path, [".png"], skip=["old"])
    assert sorted(gallery.paths) == ["x", "y"]
    assert gallery.unused(["x"]) == ["1 pictures have no label here and are no part of the dataset"]
    assert gallery.unused(["x", "y", "z"]) == []
