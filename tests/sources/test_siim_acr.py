"""SIIM-ACR: relative run lengths by hand, unions, the twin, and everything that can be wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reveal_bench.dicom import write_dicom
from reveal_bench.masks import decode_mask
from reveal_bench.masks.relative_runs import decode_relative
from reveal_bench.phantom import LAYOUTS
from reveal_bench.sources import siim_acr
from reveal_bench.sources.source import BuildError

HEADS = "ImageId, EncodedPixels\n"
WHOLE = 1024 * 1024


def write(root: Path, rows: str, name: str = "train-rle.csv", heads: str = HEADS) -> Path:
    (root / name).write_text(heads + rows, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("siim") / "download"
    LAYOUTS["siim-acr"](out, n_images=6, seed=1, long_side=128)
    return out


@pytest.mark.parametrize(
    ("text", "pixels"),
    [
        # positions run down the columns of a picture of 4 x 4: column = position // 4, row = position % 4
        ("0 1", [(0, 0)]),
        ("1 2", [(1, 0), (2, 0)]),
        ("3 2", [(3, 0), (0, 1)]),  # over the end of a column
        ("1 1 2 1", [(1, 0), (0, 1)]),  # the gap counts from the end of the last run: 1, then 2 + 2 = 4
        ("0 1 0 1", [(0, 0), (1, 0)]),  # a gap of nothing
        ("15 1", [(3, 3)]),
        ("0 16", [(row, column) for row in range(4) for column in range(4)]),
    ],
)
def test_gaps_are_counted_from_the_end_of_the_last_run(text: str, pixels: list[tuple[int, int]]) -> None:
    expected = np.zeros((4, 4), bool)
    expected[tuple(np.array(pixels).T)] = True
    assert np.array_equal(decode_relative(text, (4, 4)).dense(0), expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be -1 or pairs of gap and length, got ''"),
        ("5", "must be -1 or pairs of gap and length, got '5'"),
        ("5 1 2", "must be -1 or pairs of gap and length, got '5 1 2'"),
        ("-1 3", "must be -1 or pairs of gap and length, got '-1 3'"),
        ("1.0 3", "must be -1 or pairs of gap and length, got '1.0 3'"),
        ("٣ 3", "must be -1 or pairs of gap and length, got '٣ 3'"),  # digits of another script
        ("5 0", "must have lengths above 0, got 0"),
        ("5 12", "must end within 4 x 4 = 16 pixels, got 17"),
        ("5 99999999999999999999", "must only contain numbers up to 16, got 99999999999999999999"),
    ],
)
def test_malformed_runs_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        decode_relative(text, (4, 4))
    assert str(caught.value) == message


def test_rows_of_an_image_are_united(tmp_path: Path) -> None:
    # rows 10 to 29 and 20 to 39 of column 2, rows 0 to 4 of column 3; and a column of its own
    rows = "1.2.3,2058 20\n1.2.3,2068 20 984 5\n1.2.4, -1\n1.2.5,-1\n1.2.6,0 1024\n"
    source_data = siim_acr.read(write(tmp_path, rows), pixels="withhold")
    first, *negative, last = source_data.splits["train"]
    (annotation,) = first.annotations
    mask = np.zeros((1024, 1024), bool)
    mask[10:40, 2] = True
    mask[0:5, 3] = True
    assert annotation.rle is not None
    assert np.array_equal(decode_mask(annotation.rle), mask)
    assert (annotation.n_instances, annotation.area_px, annotation.bbox_xywh) == (2, 35, (2, 0, 2, 40))
    assert annotation.boxes_xywh == ((2, 10, 1, 20), (2, 0, 2, 40))
    assert [record.label_status for record in negative] == [{"Pneumothorax": 0}] * 2
    assert last.annotations[0].bbox_xywh == (0, 0, 1, 1024)
    assert source_data.warnings == [
        "rows: the source publishes 12,954, this download has 5",
        "images: the source publishes 12,047, this download has 4",
        "4 images have no picture here, so no hash to verify a copy against and no view from its header",
        "the source does not identify patients: every image counts as a separate patient, also in a holdout",
    ]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("a,1 2 3\n", "2: `EncodedPixels` must be -1 or pairs of gap and length, got '1 2 3'"),
        (f"a,0 {WHOLE + 1}\n", f"2: `EncodedPixels` must end within 1024 x 1024 = {WHOLE} pixels, got {WHOLE + 1}"),
        ("a,-1\na,1 2\n",
         "3: `EncodedPixels` must not be -1 if the image has several rows, got 2 rows of a"),
        ("a,1 2\na, -1\n",
         "3: `EncodedPixels` must not be -1 if the image has several rows, got 2 rows of a"),
    ],
)  # fmt: skip
def test_what_can_be_wrong_with_a_row(tmp_path: Path, rows: str, problem: str) -> None:
    write(tmp_path, rows + "b,-1\n")
    with pytest.raises(BuildError) as caught:
        siim_acr.read(tmp_path, pixels="withhold")
    assert [str(p) for p in caught.value.problems] == [f"train-rle.csv:{problem}"]
    assert siim_acr.inspect(tmp_path).problems == caught.value.problems
    (left,) = siim_acr.read(tmp_path, pixels="withhold", keep_going=True).splits["train"]
    assert left.image_id == "b"


def test_the_later_table_is_known_by_its_columns(tmp_path: Path) -> None:
    write(tmp_path, "a,-1\n", "stage_2_train.csv", "ImageId,EncodedPixels\n")
    assert siim_acr.detect(tmp_path) == 1
    assert siim_acr.inspect(tmp_path).files == {"masks": "stage_2_train.csv"}
    write(tmp_path, "a,1\n", "stage_2_train.csv", "id,label\n")
    assert siim_acr.detect(tmp_path) == 0
    with pytest.raises(ValueError, match=r"`root` must contain train-rle.csv or stage_2_train.csv, got "):
        siim_acr.read(tmp_path)


def test_images_of_one_patient_id_share_the_first_one_s_name(tmp_path: Path) -> None:
    for name, patient in (("a", "p1"), ("b", "p2"), ("c", "p1"), ("d", "")):
        path = tmp_path / "dicom-images-train" / name / name / f"{name}.dcm"
        path.parent.mkdir(parents=True)
        facts = {"PatientID": patient, "ViewPosition": "PA"}
        write_dicom(path, np.zeros((1024, 1024), np.uint8), facts, bits_stored=8)
    write(tmp_path, "a,-1\nb,-1\nc,-1\nd,-1\n")
    source_data = siim_acr.read(tmp_path)
    records = source_data.splits["train"]
    # the same where pixels are withheld
    assert siim_acr.read(tmp_path, pixels="withhold") == source_data
    assert "1 image without a patient id; each counts as a separate patient" in source_data.warnings
    assert [record.patient_id for record in records] == ["a", "b", "a", "d"]
    assert {record.view for record in records} == {"PA"}
    assert records[0].picture.source_path == "dicom-images-train/a/a/a.dcm"
    assert records[0].picture.name == "a.png"


def test_the_twin_has_a_mask_in_two_rows(twin: Path) -> None:
    inspection = siim_acr.inspect(twin)
    assert inspection.synthetic
    assert (list(inspection.problems), list(inspection.warnings)) == ([], [])
    assert inspection.counts["rows"] > inspection.counts["images"] == 6
    records = siim_acr.read(twin).splits["train"]
    assert max(a.n_instances for record in records for a in record.annotations) == 2
    (twin / "extra.dcm").touch()
    assert siim_acr.read(twin).warnings == ["1 picture has no label here and is not part of the dataset"]
    (twin / "extra.dcm").unlink()
