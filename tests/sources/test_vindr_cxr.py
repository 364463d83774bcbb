"""VinDr-CXR: separate readers, votes, both editions, pictures without pixels, and every possible error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reveal_bench.dicom import write_dicom
from reveal_bench.findings import VINBIGDATA_FINDINGS, VINDR_CXR_FINDINGS, VINDR_GLOBAL_LABELS
from reveal_bench.phantom import LAYOUTS
from reveal_bench.sources import vindr_cxr
from reveal_bench.sources.source import BuildError

TRAIN_HEADS = "image_id,rad_id,class_name,x_min,y_min,x_max,y_max\n"
TEST_HEADS = "image_id,class_name,x_min,y_min,x_max,y_max\n"
KAGGLE_HEADS = "image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max\n"


def picture(path: Path, *, width: int = 60, height: int = 40, **attributes: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_dicom(path, np.full((height, width), 7, np.uint16), attributes, bits_stored=12)


def write(root: Path, **tables: str) -> Path:
    (root / "annotations").mkdir(exist_ok=True)
    for name, text in tables.items():
        (root / "annotations" / f"{name}.csv").write_text(text, encoding="utf-8")
    return root


def labels(*rows: tuple[str, str, set[str]], other: str = "Other diseases") -> str:
    """A table of labels of the whole image: (image, reader, labels that are 1); without readers if they are blank."""
    names = [other if name == "Other diseases" else name for name in (*VINDR_CXR_FINDINGS, *VINDR_GLOBAL_LABELS)]
    has_readers = any(reader for _, reader, _ in rows)
    heads = ["image_id", *(["rad_id"] if has_readers else []), *names]
    lines = [
        [image, *([reader] if has_readers else []), *(str(int(name in findings)) for name in names)]
        for image, reader, findings in rows
    ]
    return "\n".join(",".join(line) for line in [heads, *lines]) + "\n"


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("vindr") / "download"
    LAYOUTS["vindr-cxr"](out, n_images=9, seed=1, long_side=160)
    return out


def test_readers_are_kept_apart_and_votes_make_the_status(tmp_path: Path) -> None:
    picture(tmp_path / "train" / "a.dicom", PixelSpacing=[0.2, 0.3])
    rows = (
        "a,R9,Cardiomegaly,10,10,30,30\n"
        "a,R9,Cardiomegaly,20.5,10,40.5,30\n"
        "a,R10,Cardiomegaly,11,11,31,31\n"
        "a,R10,Edema,0,0,5,5\n"
        "a,R8,No finding,,,,\n"
    )
    (record,) = vindr_cxr.read(write(tmp_path, annotations_train=TRAIN_HEADS + rows)).splits["train"]
    assert (record.image_id, record.patient_id, record.size, record.view) == ("a", "a", (40, 60), "PA")
    assert (record.spacing_mm, record.spacing_source) == ((0.2, 0.3), "pixel_spacing")
    assert [(a.finding, a.reader, a.reader_id, a.n_instances) for a in record.annotations] == [
        ("Cardiomegaly", "individual", "R10", 1), ("Cardiomegaly", "individual", "R9", 2),
        ("Edema", "individual", "R10", 1),
    ]  # fmt: skip
    assert record.annotations[1].boxes_xywh == ((10, 10, 20, 20), (20.5, 10, 20, 20))
    assert record.annotations[1].bbox_xywh == (10, 10, 30.5, 20)
    # two of three, one of three, none of three
    assert [record.label_status[f] for f in ("Cardiomegaly", "Edema", "ILD")] == [1, None, 0]
    assert record.missing == ("Cardiomegaly",)  # present, but no reader's boxes are the reference
    assert record.asked("present") == []


def test_the_consensus_of_test_is_the_ground_truth(tmp_path: Path) -> None:
    picture(tmp_path / "test" / "t.dicom")
    write(
        tmp_path,
        annotations_test=TEST_HEADS + "t,Lung Opacity,1,2,11,22\n",
        image_labels_test=labels(("t", "", {"Lung Opacity", "ILD", "Other disease"}), other="Other disease"),
    )
    source_data = vindr_cxr.read(tmp_path)
    (record,) = source_data.splits["test"]
    (annotation,) = record.annotations
    assert (annotation.reader, annotation.reader_id, annotation.bbox_xywh) == ("ground_truth", None, (1, 2, 10, 20))
    assert record.labels == ["ILD", "Lung Opacity"]
    assert set(record.label_status.values()) == {0, 1}
    assert record.missing == ("ILD",)
    assert record.asked("present") == ["Lung Opacity"]
    assert "split 'test': 1 finding without a box although the label is 1" in source_data.warnings
    (extra,) = source_data.extras
    names = extra.features()["labels"].feature.names
    (row,) = extra.rows
    assert row["reader_id"] is None
    assert [names[code] for code in row["labels"]] == ["ILD", "Lung Opacity", "Other diseases"]


def test_labels_of_the_image_are_kept_per_reader_and_contradictions_counted(tmp_path: Path) -> None:
    picture(tmp_path / "a.dicom")
    write(
        tmp_path,
        annotations_train=TRAIN_HEADS + "a,R1,Edema,1,1,9,9\na,R2,No finding,,,,\na,R3,ILD,2,2,8,8\n",
        image_labels_train=labels(
            ("a", "R1", {"Edema", "Pneumonia"}), ("a", "R2", {"No finding"}), ("a", "R3", {"Edema"})
        ),
    )
    source_data = vindr_cxr.read(tmp_path)
    (record,) = source_data.splits["train"]
    assert (record.label_status["Edema"], record.label_status["ILD"]) == (1, 0)  # by the labels, not the boxes
    assert [w for w in source_data.warnings if w.startswith("split")] == [
        "split 'train': 1 finding with a box although the label is 0",
        "split 'train': 1 finding without a box although the label is 1",
    ]
    assert [(row["reader_id"], len(row["labels"])) for row in source_data.extras[0].rows] == [
        ("R1", 2),
        ("R2", 1),
        ("R3", 1),
    ]


def test_the_kaggle_edition(tmp_path: Path) -> None:
    rows = "b,No finding,14,R1,,,,\nb,ILD,5,R2,1,1,5,5\nb,ILD,5,R3,2,2,6,6\n"
    (tmp_path / "train.csv").write_text(KAGGLE_HEADS + rows, encoding="utf-8")
    picture(tmp_path / "train" / "b.dicom")
    picture(tmp_path / "test" / "c.dicom")
    assert vindr_cxr.detect(tmp_path) == 1
    source_data = vindr_cxr.read(tmp_path)
    (record,) = source_data.splits["train"]
    assert [a.reader_id for a in record.annotations] == ["R2", "R3"]
    assert record.label_status["ILD"] == 1
    # the findings that this edition left out were not looked for
    unlabelled = {finding for finding, status in record.label_status.items() if status is None}
    assert unlabelled == set(VINDR_CXR_FINDINGS) - set(VINBIGDATA_FINDINGS)
    (read,) = source_data.extras
    assert [(row["image_id"], row["reader_id"]) for row in read.rows] == [("b", "R1"), ("b", "R2"), ("b", "R3")]
    assert source_data.warnings[-2:] == [
        "1 picture has no label here and is not part of the dataset",
        "the source does not identify patients: every image counts as a separate patient, also in a holdout",
    ]
    wrong = KAGGLE_HEADS + rows.replace("ILD,5,R2", "ILD,6,R2").replace("ILD,5,R3", "Edema,5,R3")
    (tmp_path / "train.csv").write_text(wrong, encoding="utf-8")
    with pytest.raises(BuildError) as caught:
        vindr_cxr.read(tmp_path)
    assert [str(problem) for problem in caught.value.problems] == [
        "train.csv:3: `class_id` must be 5 for 'ILD', got '6'",
        "train.csv:4: `class_name` must be one of 15 labels, got 'Edema'",
    ]


def test_a_train_csv_of_another_source_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding\n", encoding="utf-8")
    assert vindr_cxr.detect(tmp_path) == 0


@pytest.mark.parametrize(
    ("tables", "problems"),
    [
        ({"annotations_train": TRAIN_HEADS + "a,R1,Cardiomegly,1,1,2,2\n"},
         ["annotations_train.csv:2: `class_name` must be one of 28 labels, got 'Cardiomegly' (nearest: "]),
        ({"annotations_train": TRAIN_HEADS + "a,R1,No finding,1,1,2,2\n"},
         ["annotations_train.csv:2: `x_min, y_min, x_max, y_max` must be blank for 'No finding', got 1, 1, 2, 2"]),
        ({"annotations_train": TRAIN_HEADS + "a,R1,Edema,5,5,62,9\n"},
         ["annotations_train.csv:2: `x_min, y_min, x_max, y_max` must be in the image of 60 x 40 pixels, "
          "got 5, 5, 62, 9"]),
        ({"annotations_train": "image_id,class_name,x_min,y_min,x_max,y_max\n"},
         ["annotations_train.csv:1: `rad_id` must be a column, got image_id, class_name, x_min, y_min, x_max, y_max"]),
        ({"annotations_train": TRAIN_HEADS + "a,R1,No finding,,,,\n",
          "annotations_test": TEST_HEADS + "a,ILD,1,1,9,9\n"},
         ["annotations_test.csv:2: `image_id` must be in one split, got a, also in train"]),
        ({"annotations_train": TRAIN_HEADS, "image_labels_train": labels(("a", "R1", set()), ("a", "R1", set()))},
         ["image_labels_train.csv:3: `rad_id` must be unique per image, got 'R1' again"]),
        ({"annotations_train": TRAIN_HEADS, "image_labels_train": labels(("a", "R1", set())).replace("R1,0,", "R1,2,")},
         ["image_labels_train.csv:2: `Aortic enlargement` must be 0 or 1, got '2'"]),
        ({"annotations_train": TRAIN_HEADS, "image_labels_train": labels(("a", "R1", set())).replace("COPD", "CPOD")},
         ["image_labels_train.csv:1: `COPD` must be a column, got image_id"]),
        ({"annotations_train": TRAIN_HEADS + "zz,R1,No finding,,,,\n"},
         ["annotations_train.csv:2: `picture` must exist for zz, got no such file"]),
    ],
)  # fmt: skip
def test_what_can_be_wrong(tmp_path: Path, tables: dict[str, str], problems: list[str]) -> None:
    picture(tmp_path / "train" / "a.dicom")
    with pytest.raises(BuildError) as caught:
        vindr_cxr.read(write(tmp_path, **tables))
    messages = [str(problem) for problem in caught.value.problems]
    assert len(messages) == len(problems)
    assert all(one.startswith(start) for one, start in zip(messages, problems, strict=True)), messages


def test_pictures_that_cannot_be_used_are_listed_together(tmp_path: Path) -> None:
    picture(tmp_path / "train" / "a.dicom")
    picture(tmp_path / "train" / "b.dicom", PixelData=None)
    picture(tmp_path / "train" / "c.dicom", Rows=None)
    (tmp_path / "train" / "d.dicom").write_bytes(b"not DICOM")
    rows = "".join(f"{image},R1,No finding,,,,\n" for image in "abcd")
    write(tmp_path, annotations_train=TRAIN_HEADS + rows)
    with pytest.raises(BuildError) as caught:
        vindr_cxr.read(tmp_path)
    rule = "`picture` must be a readable DICOM file, got"
    messages = [str(problem) for problem in caught.value.problems]
    assert messages[:2] == [
        f"train/b.dicom:b: {rule} no pixel data",
        f"train/c.dicom:c: {rule} no Rows and Columns",
    ]
    assert messages[2].startswith(f"train/d.dicom:d: {rule} ")
    assert [record.image_id for record in vindr_cxr.read(tmp_path, keep_going=True).splits["train"]] == ["a"]


def test_the_twin_has_both_splits_and_a_file_without_pixels(twin: Path) -> None:
    inspection = vindr_cxr.inspect(twin)
    assert inspection.synthetic
    assert (inspection.counts["train images"], inspection.counts["test images"]) == (6, 3)
    assert (list(inspection.problems), list(inspection.warnings)) == ([], [])
    with pytest.raises(BuildError, match=r"1 problem:\n.*no pixel data"):
        vindr_cxr.read(twin)
    source_data = vindr_cxr.read(twin, keep_going=True)
    assert {split: len(records) for split, records in source_data.splits.items()} == {"train": 5, "test": 3}
    readers = {(a.reader, bool(a.reader_id)) for r in source_data.splits["train"] for a in r.annotations}
    assert readers == {("individual", True)}
    assert {a.reader for r in source_data.splits["test"] for a in r.annotations} == {"ground_truth"}
    photometrics = {record.picture.kind for split in source_data.splits.values() for record in split}
    assert photometrics == {"dicom"}


def test_arguments(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"`root` must contain annotations_train.csv or annotations_test.csv, or Kaggle's"
    ):
        vindr_cxr.read(tmp_path)
    write(tmp_path, annotations_train=TRAIN_HEADS)
    with pytest.raises(ValueError, match=r"`pictures` must contain .dicom or .dcm files, got none below "):
        vindr_cxr.read(tmp_path)
