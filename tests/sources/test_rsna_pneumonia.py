"""RSNA Pneumonia: boxes and classes by hand, the twin, and everything that can be wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from reveal_bench.dicom import write_dicom
from reveal_bench.phantom import LAYOUTS
from reveal_bench.sources import rsna_pneumonia
from reveal_bench.sources.source import BuildError

HEADS = "patientId,x,y,width,height,Target\n"
CLASS_HEADS = "patientId,class\n"
ROWS = "aa,100.0,200.0,50.0,60.0,1\naa,120.0,220.0,50.0,60.0,1\nbb,,,,,0\ncc,,,,,0\n"
CLASSES = "aa,Lung Opacity\naa,Lung Opacity\nbb,Normal\ncc,No Lung Opacity / Not Normal\n"


def write(root: Path, rows: str = ROWS, classes: str | None = CLASSES) -> Path:
    (root / "stage_2_train_labels.csv").write_text(HEADS + rows, encoding="utf-8")
    if classes is not None:
        (root / "stage_2_detailed_class_info.csv").write_text(CLASS_HEADS + classes, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rsna") / "download"
    LAYOUTS["rsna-pneumonia"](out, n_images=8, seed=1, long_side=128)
    return out


def test_rows_by_hand(tmp_path: Path) -> None:
    source_data = rsna_pneumonia.read(write(tmp_path), pixels="withhold")
    first, *others = source_data.splits["train"]
    (annotation,) = first.annotations
    assert annotation.boxes_xywh == ((100, 200, 50, 60), (120, 220, 50, 60))
    assert annotation.bbox_xywh == (100, 200, 70, 80)
    assert annotation.area_px == 2 * 3000 - 30 * 40
    assert (first.label_status, first.size, first.patient_id) == ({"Lung Opacity": 1}, (1024, 1024), "aa")
    assert [(r.label_status, r.annotations) for r in others] == [({"Lung Opacity": 0}, ())] * 2
    (extra,) = source_data.extras
    names = extra.features()["class"].names
    assert [(row["image_id"], names[row["class"]]) for row in extra.rows] == [
        ("aa", "Lung Opacity"), ("bb", "Normal"), ("cc", "No Lung Opacity / Not Normal"),
    ]  # fmt: skip
    assert source_data.warnings[:2] == [
        "images: the source publishes 26,684, this download has 3",
        "images with boxes: the source publishes 6,012, this download has 1",
    ]


def test_the_mapping_tells_patients(tmp_path: Path) -> None:
    mapping = [{"subset_img_id": name, "img_id": f"00000{n:03d}_000.png"} for name, n in (("aa", 7), ("bb", 7))]
    (tmp_path / "pneumonia-challenge-dataset-mappings_2018.json").write_text(json.dumps(mapping), encoding="utf-8")
    source_data = rsna_pneumonia.read(write(tmp_path, classes=None), pixels="withhold")
    assert [record.patient_id for record in source_data.splits["train"]] == ["00000007", "00000007", "cc"]
    assert source_data.extras == []
    assert source_data.warnings[-3:] == [
        "stage_2_detailed_class_info.csv is missing, so there is no config 'classes'",
        "pneumonia-challenge-dataset-mappings_2018.json: 1 image without an entry; each counts as a separate patient",
        "3 images have no picture here, so no hash to verify a copy against and no view from its header",
    ]
    (tmp_path / "pneumonia-challenge-dataset-mappings_2018.json").write_text('[{"img_id": 3}]', encoding="utf-8")
    with pytest.raises(BuildError, match="must be a JSON list of entries with subset_img_id and img_id, got KeyError"):
        rsna_pneumonia.read(tmp_path, pixels="withhold")


LABELS, INFO = "stage_2_train_labels.csv", "stage_2_detailed_class_info.csv"


@pytest.mark.parametrize(
    ("rows", "classes", "problem"),
    [
        ("aa,1,1,2,2,2\n", "", f"{LABELS}:2: `Target` must be 0 or 1, got '2'"),
        ("aa,1,1,2,2,1\naa,,,,,0\n", "", f"{LABELS}:3: `Target` must be the same as in line 2, got 0"),
        ("aa,,,,,0\naa,,,,,0\n", "", f"{LABELS}:3: `patientId` must have only one row if Target is 0, got aa"),
        ("aa,1,1,2,2,0\n", "", f"{LABELS}:2: `x, y, width, height` must be blank if Target is 0, got 1, 1, 2, 2"),
        ("aa,,,,,1\n", "", f"{LABELS}:2: `x, y, width, height` must be four finite numbers, got '', '', '', ''"),
        ("aa,1000,1,30,2,1\n", "",
         f"{LABELS}:2: `x, y, width, height` must be in the image of 1024 x 1024 pixels, got 1000, 1, 30, 2"),
        ("aa,,,,,0\n", "aa,normal\n", f"{INFO}:2: `class` must be one of 'Normal', 'No Lung Opacity / Not Normal', "
         "'Lung Opacity', got 'normal'"),
        ("aa,,,,,0\n", "zz,Normal\n", f"{INFO}:2: `patientId` must be in the table of labels, got 'zz'"),
        ("aa,,,,,0\n", "aa,Normal\naa,No Lung Opacity / Not Normal\n",
         (f"{INFO}:3: `class` must be the same in all rows of an image, here 'Normal', got 'No Lung "
"Opacity / Not Normal'")),
        ("aa,,,,,0\n", "aa,Lung Opacity\n",
         (f"{INFO}:2: `class` must be 'Lung Opacity' if and only if the image has boxes, got 'Lung "
"Opacity' and 0 boxes")),
    ],
)  # fmt: skip
def test_what_can_be_wrong(tmp_path: Path, rows: str, classes: str, problem: str) -> None:
    write(tmp_path, rows + "ok,,,,,0\n", classes)
    with pytest.raises(BuildError) as caught:
        rsna_pneumonia.read(tmp_path, pixels="withhold")
    assert [str(p) for p in caught.value.problems] == [problem]
    assert rsna_pneumonia.inspect(tmp_path).problems == caught.value.problems
    left = rsna_pneumonia.read(tmp_path, pixels="withhold", keep_going=True).splits["train"]
    assert "ok" in [record.image_id for record in left]
    assert "aa" not in [record.image_id for record in left] or "'zz'" in problem


def test_the_view_is_read_from_the_header_but_not_the_spacing(tmp_path: Path) -> None:
    write(tmp_path, "aa,,,,,0\nbb,,,,,0\n", "aa,Normal\nbb,Normal\n")
    for name, facts in (("aa", {"ViewPosition": "AP", "PixelSpacing": [0.1, 0.1]}), ("bb", {"PixelData": None})):
        path = tmp_path / "stage_2_train_images" / f"{name}.dcm"
        path.parent.mkdir(exist_ok=True)
        write_dicom(path, np.zeros((1024, 1024), np.uint8), facts, bits_stored=8)
    with pytest.raises(BuildError, match=r"bb.dcm:bb: `picture` must be a readable DICOM file, got no pixel data"):
        rsna_pneumonia.read(tmp_path)
    source_data = rsna_pneumonia.read(tmp_path, keep_going=True)
    (record,) = source_data.splits["train"]
    assert (record.view, record.view_raw, record.spacing_mm) == ("AP", "AP", None)
    assert [row["image_id"] for row in source_data.extras[0].rows] == ["aa"]


def test_the_twin_has_a_patient_with_two_images_and_a_test_image(twin: Path) -> None:
    inspection = rsna_pneumonia.inspect(twin)
    assert inspection.synthetic
    assert (list(inspection.problems), list(inspection.warnings)) == ([], [])
    source_data = rsna_pneumonia.read(twin)
    assert source_data.warnings == ["1 picture has no label here and is not part of the dataset"]
    records = source_data.splits["train"]
    assert len({record.patient_id for record in records}) < len(records) == 8
    assert {record.view for record in records} <= {"AP", "PA"}
    assert rsna_pneumonia.read(twin / LABELS, pixels="withhold").extras[0].rows == source_data.extras[0].rows


def test_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`root` must contain stage_2_train_labels.csv, got "):
        rsna_pneumonia.read(tmp_path)
    with pytest.raises(
        ValueError, match=r"`pictures` must contain .dcm files unless `pixels` is withhold, got none below "
    ):
        rsna_pneumonia.read(write(tmp_path))
