"""Code shared by the sources of boxes: finding files, reading tables, leaving images out."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest

from reveal_bench.dicom import write_dicom
from reveal_bench.kinds.images import PictureFile
from reveal_bench.masks import rasterize_polygons
from reveal_bench.sources.box_source import BoxBuild
from reveal_bench.sources.boxes import (
    Faults,
    PictureFolder,
    annotate_boxes,
    annotate_mask,
    box_problem,
    dicom_headers,
    find_file,
    is_synthetic,
    read_table,
)
from reveal_bench.sources.source import BuildError, Pixels, Problem


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
    assert [(row.line, row["name"], row["x"]) for row in rows] == [(2, "a\nb", "1"), (5, "c", "2")]
    assert warnings == [f"{path.name}: the column 'extra' is unknown and is ignored"]
    assert faults.problems == []


CSV = "must be readable as csv in UTF-8"


@pytest.mark.parametrize(
    ("name", "content", "rule", "value"),
    [
        ("t.csv", b"x\n\xff\n", "must be UTF-8: save the table as CSV UTF-8", "the byte 0xff"),
        ("t.csv.gz", gzip.compress(b"x\n1\n" * 99, mtime=0)[:-9], CSV, "Compressed file ended before"),
        ("t.csv.zip", b"PK", CSV, "File is not a zip file"),
        ("none.csv", None, "must exist", "none"),
    ],
)
def test_unreadable_tables(tmp_path: Path, name: str, content: bytes | None, rule: str, value: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    faults = Faults()
    read_table(tmp_path / name, ("x",), faults, [])
    (problem,) = faults.problems
    assert (problem.file, problem.rule) == (name, rule)
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
    assert warnings == [*["left out: f:1: `x` must, got be"] * 3, "2 images are left out because of these problems"]


@pytest.mark.parametrize(
    ("box", "rule"),
    [
        ((0, 0, 10, 20), None),
        ((-1, -1, 12, 22), None),  # one pixel beyond each side: rounding
        ((-1.01, 0, 5, 5), "must be in the image of 10 x 20 pixels"),
        ((0, 0, 11.01, 5), "must be in the image of 10 x 20 pixels"),
        ((0, 16, 5, 5.01), "must be in the image of 10 x 20 pixels"),
        ((0, 0, 0, 5), "must have width and height above 0"),
        ((10, 0, 0.9, 5), "must cover the centre of a pixel"),
    ],
)
def test_boxes_are_inside_their_image(box: tuple[float, float, float, float], rule: str | None) -> None:
    assert box_problem(box, (20, 10)) == rule


def test_an_annotation_keeps_every_box() -> None:
    annotation = annotate_boxes("Edema", [(1, 1, 4, 4), (3, 3, 4, 4)], (20, 10), "R1")
    assert annotation.boxes_xywh == ((1, 1, 4, 4), (3, 3, 4, 4))
    assert (annotation.bbox_xywh, annotation.area_px, annotation.n_instances) == ((1, 1, 6, 6), 16 + 16 - 4, 2)
    assert (annotation.rle, annotation.reader, annotation.reader_id) == (None, "individual", "R1")


def test_a_gallery_knows_visible_pictures_by_their_stem(tmp_path: Path) -> None:
    for name in ("a/x.PNG", "b/y.png", "b/._y.png", ".c/z.png", "old/y.png", "b/t.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    films = PictureFolder.below(tmp_path, [".png"], skip=["old"])
    assert sorted(films.paths) == ["x", "y"]
    assert films.warnings(["x"]) == ["1 picture has no label here and is not part of the dataset"]
    assert films.warnings(["x", "y", "z"]) == []


def gallery_of(
    root: Path, pictures: Path | None, suffixes: list[str], *, pixels: Pixels, kind: str = "picture"
) -> PictureFolder:
    build = BoxBuild(root, {}, None, Faults(), [], pixels, False, pictures, 1)
    return build.films(suffixes, kind=kind)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pixels", "is_named", "problems", "warnings"),
    [
        ("embed", True, ["pictures:z: `picture` must exist for z, got no such file"], []),
        ("embed", False, ["pictures:z: `picture` must exist for z, got no such file"], []),
        ("withhold", True, [], ["1 image has no picture here, so no hash to verify a copy against"]),
        ("withhold", False, [], ["1 image has no picture here, so no hash to verify a copy against"]),
    ],
)
def test_a_missing_picture_is_a_problem_only_if_embedded(
    tmp_path: Path, pixels: Pixels, is_named: bool, problems: list[str], warnings: list[str]
) -> None:
    (tmp_path / "x.png").touch()
    films = gallery_of(tmp_path, tmp_path if is_named else None, [".png"], pixels=pixels)
    faults = Faults()
    pictures = [films.picture(image_id, faults) for image_id in ("x", "z")]
    assert pictures == [PictureFile(tmp_path / "x.png", "x.png", "x.png"), None]
    assert [str(problem) for problem in faults.problems] == problems
    assert films.warnings(["x", "z"]) == warnings


def test_no_picture_at_all(tmp_path: Path) -> None:
    (tmp_path / "list.csv").touch()
    for root in (tmp_path, tmp_path / "list.csv"):
        with pytest.raises(
            ValueError,
            match=f"`pictures` must contain .png files unless `pixels` is withhold, got none below {tmp_path}$",
        ):
            gallery_of(root, None, [".png"], pixels="embed")
        with pytest.raises(ValueError, match=r"`pictures` must contain .png files"):
            gallery_of(root, tmp_path, [".png"], pixels="withhold")
        films = gallery_of(root, None, [".png"], pixels="withhold", kind="dicom")
        lost = "no hash to verify a copy against and no view from its header"
        assert films.warnings(["x", "y"]) == [f"2 images have no picture here, so {lost}"]


def test_headers_are_the_same_whatever_the_number_of_processes(tmp_path: Path) -> None:
    facts = {"PatientID": "P", "ViewPosition": "PA"}
    write_dicom(tmp_path / "good", np.zeros((3, 5), np.uint8), facts, bits_stored=8)
    write_dicom(tmp_path / "bare", np.zeros((3, 5), np.uint8), {"PixelData": None}, bits_stored=8)
    (tmp_path / "none").write_bytes(b"text")
    names = ["good", "bare", "none", *["good"] * 90]
    pictures = {f"{name}{i}": PictureFile(tmp_path / name, "x.png", name, "dicom") for i, name in enumerate(names)}
    results = []
    for workers in (1, 2):
        faults = Faults()
        results.append((dicom_headers(pictures, faults, workers=workers), [str(p) for p in faults.problems]))
    assert results[0] == results[1]
    headers, problems = results[0]
    assert list(headers) == [image_id for image_id in pictures if image_id.startswith("good")]
    assert {(header.rows, header.columns, header.view) for header in headers.values()} == {(3, 5, "PA")}
    assert problems == [
        "bare:bare1: `picture` must be a readable DICOM file, got no pixel data",
        "none:none2: `picture` must be a readable DICOM file, got not DICOM",
    ]


@pytest.mark.parametrize(
    ("notice", "expected"),
    [
        ("up/root/SYNTHETIC.txt", True),
        ("up/root/inner/SYNTHETIC.txt", True),  # an archive that was unpacked into a folder of its own
        ("up/root/inner/tables/SYNTHETIC.txt", True),
        ("up/root/inner/other/SYNTHETIC.txt", False),
        ("up/SYNTHETIC.txt", False),  # beside somebody's real data
        ("SYNTHETIC.txt", False),
    ],
)
def test_a_notice_counts_in_the_root_and_on_the_way_to_the_files(tmp_path: Path, notice: str, expected: bool) -> None:
    root = tmp_path / "up" / "root"
    (root / "inner" / "tables").mkdir(parents=True)
    (root / "inner" / "other").mkdir()
    (tmp_path / notice).touch()
    files = [root / "inner" / "tables" / "a.csv", root / "inner" / "tables" / "b.csv"]
    assert is_synthetic(root, files) is expected
    assert is_synthetic(root, [*files, root / "real.csv"]) is (notice == "up/root/SYNTHETIC.txt")
    assert is_synthetic(root) is (notice == "up/root/SYNTHETIC.txt")
    table = root / "table.csv"
    table.touch()
    assert is_synthetic(table, [table]) is (notice == "up/root/SYNTHETIC.txt")  # its own folder counts


def test_an_annotation_of_a_mask() -> None:
    square = ((1.0, 2.0), (4.0, 2.0), (4.0, 4.0), (1.0, 4.0))  # with its border 4 x 3 pixels
    rle = rasterize_polygons((square,), (10, 10))
    annotation = annotate_mask("Mass", rle, 1, polygons=(square,), boxes=[(1, 2, 3, 2)])
    assert (annotation.bbox_xywh, annotation.area_px, annotation.n_instances) == ((1, 2, 4, 3), 12, 1)
    assert (annotation.rle, annotation.polygons, annotation.boxes_xywh) == (rle, (square,), ((1, 2, 3, 2),))
