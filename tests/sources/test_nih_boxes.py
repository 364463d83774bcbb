"""NIH boxes: the real list, its twin, and everything that can be wrong with one."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.kinds.localization.records import read_localization
from reveal_bench.sources import nih_boxes
from reveal_bench.sources.source import BuildError

REAL = Path(__file__).parents[3] / "shared" / "data" / "nih"
needs_real = pytest.mark.skipif(
    not (REAL / "BBox_List_2017.csv.gz").exists(), reason="needs ../shared/data: see README"
)

HEADER = "Image Index,Finding Label,Bbox [x,y,w,h],,,\n"
GOOD = "00000001_000.png,Atelectasis,100.5,200.25,10,20\n"


def write(folder: Path, text: str, *, zipped: bool = False) -> Path:
    if zipped:
        (folder / "BBox_List_2017.csv.gz").write_bytes(gzip.compress(text.encode()))
    else:
        (folder / "BBox_List_2017.csv").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def twin(twin_of: Callable[[str], Path]) -> Path:
    return twin_of("nih-boxes")


@needs_real
def test_the_published_list_has_the_published_counts() -> None:
    inspection = nih_boxes.inspect(REAL)
    # 726 patients: distinct first parts of the names, counted with cut, sort and uniq
    assert dict(inspection.counts) == {"boxes": 984, "images": 880, "patients": 726, "pictures": 0}
    assert [text.partition(":")[0] for text in inspection.warnings] == ["880 of 880 images have no picture here"]
    assert (list(inspection.problems), inspection.synthetic) == ([], False)
    source_data = nih_boxes.read(REAL, pixels="withhold")
    assert [warning.split(":")[0] for warning in source_data.warnings] == [
        "2 pictures have no label here and are not part of the dataset",
        "880 images have no picture here, so no hash to verify a copy against",
    ]
    records = source_data.splits["test"]
    per_finding = {
        finding: sum(r.reference(finding) is not None for r in records) for finding in records[0].label_status
    }
    assert per_finding == {  # rows per label of the published file, counted by sort and uniq
        "Atelectasis": 180, "Cardiomegaly": 146, "Effusion": 153, "Infiltration": 123,
        "Mass": 85, "Nodule": 79, "Pneumonia": 120, "Pneumothorax": 98,
    }  # fmt: skip


@needs_real
def test_the_real_list_becomes_a_valid_folder_without_pixels(tmp_path: Path) -> None:
    public, private = tmp_path / "public", tmp_path / "private"
    source_data = nih_boxes.read(REAL, pixels="withhold")
    info = build_folder(source_data.splits, public, BENCHMARKS["nih-boxes"], pixels="withhold", holdout=private)
    assert [info.splits[split]["n_patients"] for split in ("released", "holdout")] == [363, 363]
    assert validate_folder(public, holdout=private, load=False) == []
    everyone = read_localization(public, "released") + read_localization(private, "holdout")
    assert sorted(everyone, key=lambda r: r.image_id) == sorted(source_data.splits["test"], key=lambda r: r.image_id)


@needs_real
def test_real_pictures_that_are_not_in_the_list_are_left_aside() -> None:
    with pytest.raises(BuildError, match="880 images have no picture here: 00013118_008, ") as caught:
        nih_boxes.read(REAL)
    assert str(caught.value.problems[0]) == (
        "BBox_List_2017.csv.gz:2: `picture` must exist for 00013118_008, got no such file"
    )
    source_data = nih_boxes.read(REAL, keep_going=True)
    assert len(source_data.splits["test"]) == 0
    assert source_data.warnings[0] == "2 pictures have no label here and are not part of the dataset"
    assert source_data.warnings[-1] == "880 images are left out because of these problems"


def test_a_row_by_hand(tmp_path: Path) -> None:
    rows = GOOD + "00000001_000.png,Infiltrate,512,512,100,100\n00000001_001.png,Mass,0,0,1024,1024\n"
    first, second = nih_boxes.read(write(tmp_path, HEADER + rows), pixels="withhold").splits["test"]
    assert (first.image_id, first.patient_id, first.size, first.view) == (
        "00000001_000",
        "00000001",
        (1024, 1024),
        "UNKNOWN",
    )
    assert first.labels == ["Atelectasis", "Infiltration"]  # "Infiltrate" in the list
    assert {value for finding, value in first.label_status.items() if finding not in first.labels} == {None}
    box = first.reference("Atelectasis")
    assert box is not None
    assert (box.bbox_xywh, box.boxes_xywh, box.n_instances, box.rle) == (
        (100.5, 200.25, 10, 20), ((100.5, 200.25, 10, 20),), 1, None,
    )  # fmt: skip
    # centres 100.5 to 109.5 are in [100.5, 110.5), and 200.5 to 219.5 in [200.25, 220.25)
    assert box.area_px == 10 * 20
    assert second.patient_id == first.patient_id
    assert second.reference("Mass").area_px == 1024 * 1024  # type: ignore[union-attr]


@pytest.mark.parametrize("zipped", [False, True])
def test_a_list_is_found_plain_or_zipped_and_below_a_folder(tmp_path: Path, zipped: bool) -> None:
    inner = tmp_path / "ChestXray-NIHCC"
    inner.mkdir()
    write(inner, HEADER + GOOD, zipped=zipped)
    assert nih_boxes.detect(tmp_path) == nih_boxes.detect(next(inner.iterdir())) == 1
    assert nih_boxes.inspect(tmp_path).counts["boxes"] == 1
    assert nih_boxes.inspect(tmp_path).files == {"boxes": f"ChestXray-NIHCC/{next(inner.iterdir()).name}"}
    assert nih_boxes.inspect(tmp_path).warnings[:2] == [
        "boxes: the source publishes 984, this download has 1", "images: the source publishes 880, this download has 1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", [": `file` must have a row of column names, got an empty table"]),
        ("Image Index,Finding Label,x,y,w,h\n" + GOOD, [
            ":1: `Bbox [x` must be a column, got Image Index, Finding Label, x, y, w, h",
            ":1: `h]` must be a column, got Image Index, Finding Label, x, y, w, h",
        ]),
        (HEADER + "a.png,Mass,1,1,2,2\n", [":2: `Image Index` must look like 00000001_000.png, got 'a.png'"]),
        (HEADER + "00000001_000.png,Infiltrat,1,1,2,2\n",
         [":2: `Finding Label` must be one of the 8 findings, got 'Infiltrat' (nearest: 'Infiltration')"]),
        (HEADER + "00000001_000.png,Mass,1,1,,2\n",
         [":2: `Bbox [x, y, w, h]` must be four finite numbers, got '1', '1', '', '2'"]),
        (HEADER + "00000001_000.png,Mass,1,nan,2,2\n",
         [":2: `Bbox [x, y, w, h]` must be four finite numbers, got '1', 'nan', '2', '2'"]),
        (HEADER + "00000001_000.png,Mass,1,1,0,2\n",
         [":2: `Bbox [x, y, w, h]` must have width and height above 0, got 1, 1, 0, 2"]),
        (HEADER + "00000001_000.png,Mass,1000,1,26,2\n",
         [":2: `Bbox [x, y, w, h]` must be in the image of 1024 x 1024 pixels, got 1000, 1, 26, 2"]),
        (HEADER + "00000001_000.png,Mass,-1.5,1,26,2\n",
         [":2: `Bbox [x, y, w, h]` must be in the image of 1024 x 1024 pixels, got -1.5, 1, 26, 2"]),
        (HEADER + "00000001_000.png,Mass,1.6,1.6,0.5,0.5\n",
         [":2: `Bbox [x, y, w, h]` must cover the centre of a pixel, got 1.6, 1.6, 0.5, 0.5"]),
        (HEADER + "00000001_000.png,Mass,1,1,2\n", [":2: `row` must have 6 cells, like the header, got 5"]),
        (HEADER + "00000001_000.png,Mass,1,1,2,2,,,,7\n", [":2: `row` must have 6 cells, like the header, got 10"]),
        (HEADER + '"a', [":2: `file` must be readable as csv in UTF-8, got unexpected end of data"]),
    ],
)  # fmt: skip
def test_what_can_be_wrong(tmp_path: Path, text: str, problems: list[str]) -> None:
    with pytest.raises(BuildError) as caught:
        nih_boxes.read(write(tmp_path, text), pixels="withhold")
    messages = [str(problem).removeprefix("BBox_List_2017.csv") for problem in caught.value.problems]
    assert messages[: len(problems)] == problems
    assert nih_boxes.inspect(tmp_path).problems == caught.value.problems


def test_a_box_may_stick_out_by_rounding_and_has_no_pixels_there(tmp_path: Path) -> None:
    text = HEADER + "00000001_000.png,Mass,1020.5,-0.5,4.5,10\n"
    (record,) = nih_boxes.read(write(tmp_path, text), pixels="withhold").splits["test"]
    annotation = record.reference("Mass")
    assert annotation is not None
    assert annotation.boxes_xywh == ((1020.5, -0.5, 4.5, 10),)
    assert annotation.area_px == 4 * 9  # centres of columns 1020 to 1023, of rows 0 to 8: 9.5 is not below 9.5


def test_an_image_with_a_problem_is_left_out_with_all_its_boxes(tmp_path: Path) -> None:
    rows = GOOD + "00000001_000.png,Mass,1,1,0,0\n00000002_000.png,Mass,1,1,5,5\n"
    source_data = nih_boxes.read(write(tmp_path, HEADER + rows), pixels="withhold", keep_going=True)
    assert [record.image_id for record in source_data.splits["test"]] == ["00000002_000"]
    assert source_data.warnings[-2:] == [
        "left out: BBox_List_2017.csv:3: `Bbox [x, y, w, h]` must have width and height above 0, got 1, 1, 0, 0",
        "1 image is left out because of these problems",
    ]
    assert [problem.field for problem in source_data.left_out] == ["Bbox [x, y, w, h]"]
    with pytest.raises(BuildError, match="must look like"):  # a line that belongs to no image stops the build
        nih_boxes.read(write(tmp_path, HEADER + "x,Mass,1,1,2,2\n"), pixels="withhold", keep_going=True)


def test_unknown_column_is_a_warning(tmp_path: Path) -> None:
    text = HEADER.replace("h],,,", "h],Reader,,") + GOOD.replace("\n", ",7\n")
    warnings = nih_boxes.read(write(tmp_path, text), pixels="withhold").warnings
    assert "BBox_List_2017.csv: the column 'Reader' is unknown and is ignored" in warnings


def test_the_twin_has_pictures_and_views(twin: Path) -> None:
    inspection = nih_boxes.inspect(twin)
    assert inspection.synthetic
    assert inspection.warnings == []
    source_data = nih_boxes.read(twin)
    assert source_data.synthetic
    assert nih_boxes.read(twin, pixels="withhold") == source_data  # the pictures are read to be hashed
    views = {record.view for record in source_data.splits["test"]}
    assert views <= {"AP", "PA"}  # from Data_Entry_2017.csv
    n_pictures = len(list(twin.rglob("*.png")))
    assert n_pictures == inspection.counts["images"] + 7
    assert source_data.warnings == ["7 pictures have no label here and are not part of the dataset"]


def test_images_without_a_known_view_are_counted(tmp_path: Path) -> None:
    write(tmp_path, HEADER + "".join(GOOD.replace("001_000", f"00{i}_000") for i in range(1, 6)))
    views = {"00000001": "AP", "00000002": "", "00000003": "LL", "00000004": "LL", "00000009": "RL"}  # 5 has no row
    lines = "".join(f"{patient}_000.png,{view}\n" for patient, view in views.items())
    (tmp_path / "Data_Entry_2017.csv").write_text("Image Index,View Position\n" + lines, encoding="utf-8")
    source_data = nih_boxes.read(tmp_path, pixels="withhold")
    assert [record.view for record in source_data.splits["test"]] == ["AP", *["UNKNOWN"] * 4]
    assert "Data_Entry_2017.csv: 4 images without a known view: blank 2, 'LL' 2" in source_data.warnings


def test_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`root` must contain BBox_List_2017.csv, got "):
        nih_boxes.read(tmp_path)
    write(tmp_path, HEADER + GOOD)
    with pytest.raises(
        ValueError, match=r"`pictures` must contain .png files unless `pixels` is withhold, got none below "
    ):
        nih_boxes.read(tmp_path)
    assert nih_boxes.detect(tmp_path / "nothing") == 0
