"""PadChest-GR: boxes to pixels, labels to findings, sentences, archives, and everything that can be wrong."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reveal_bench.findings import PADCHEST_GR_FINDINGS
from reveal_bench.phantom import LAYOUTS
from reveal_bench.sources import padchest_gr
from reveal_bench.sources.source import BuildError

STUDY = "251488034557732338959601580328898734705"
IMAGE = "216840111366964013829543166512013338135747880_02-094-102"


def sentence(**changes: Any) -> dict[str, Any]:
    return {
        "sentence_en": "Enlarged heart.", "sentence_es": "Corazón grande.", "abnormal": True,
        "boxes": [[0.25, 0.5, 0.75, 1.0]], "extra_boxes": [], "labels": ["cardiomegaly"], "locations": ["cardiac"],
        "progression": None,
    } | changes  # fmt: skip


def write(
    root: Path, *sentences: dict[str, Any], table: str | None = None, entry: dict[str, Any] | None = None
) -> Path:
    """A download with one study of a picture of 40 x 60 pixels (width x height)."""
    study = {"StudyID": STUDY, "ImageID": f"{IMAGE}.png", "findings": list(sentences)} | (entry or {})
    (root / "grounded_reports_20240819.json").write_text(json.dumps([study]), encoding="utf-8")
    if table is None:
        table = f"StudyID,ImageID,PatientID,split\n{STUDY},{IMAGE}.png,77,validation\n"
    if table:
        (root / "master_table.csv").write_text(table, encoding="utf-8")
    png = root / "Padchest_GR_files" / f"{IMAGE}.png"
    png.parent.mkdir(exist_ok=True)
    Image.fromarray(np.arange(2400, dtype=np.uint16).reshape(60, 40)).save(png)
    return root


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("padchest") / "download"
    LAYOUTS["padchest-gr"](out, n_images=6, seed=1, long_side=160)
    return out


def test_a_study_by_hand(tmp_path: Path) -> None:
    second = sentence(boxes=[[0, 0, 0.5, 0.5]], extra_boxes=[[0, 0, 0.25, 0.25]], labels=["cardiomegaly"])
    source_data = padchest_gr.read(write(tmp_path, sentence(), second))
    (record,) = source_data.splits["validation"]
    assert (record.image_id, record.study_id, record.patient_id) == (IMAGE, STUDY, "77")
    assert (record.size, record.view) == ((60, 40), "FRONTAL")
    truth, other = record.annotations
    assert (truth.finding, truth.reader, truth.reader_id) == ("Cardiomegaly", "ground_truth", None)
    # of 40 x 60 pixels: [0.25, 0.5, 0.75, 1] -> x 10 to 30, y 30 to 60; [0, 0, 0.5, 0.5] -> x 0 to 20, y 0 to 30
    assert truth.boxes_xywh == ((10, 30, 20, 30), (0, 0, 20, 30))
    assert (truth.bbox_xywh, truth.area_px, truth.n_instances) == ((0, 0, 30, 60), 1200, 2)
    assert (other.reader, other.reader_id, other.boxes_xywh) == ("individual", "2", ((0, 0, 10, 15),))
    assert record.label_status["Cardiomegaly"] == 1
    assert set(record.label_status.values()) == {1, None}
    assert record.picture is not None
    assert (record.picture.kind, record.picture.name) == ("png16", f"{IMAGE}.png")


def test_sentences_keep_everything_that_the_source_says(tmp_path: Path) -> None:
    plain = {"sentence_en": "No effusion.", "sentence_es": "Sin derrame.", "abnormal": False}
    chronic = sentence(labels=["chronic changes"], progression="stable")
    source_data = padchest_gr.read(write(tmp_path, plain, chronic))
    (extra,) = source_data.extras
    assert (extra.config, extra.key, list(extra.features())) == ("sentences", "image_id", list(extra.rows[0]))
    assert extra.rows[0] == {
        "image_id": IMAGE, "sentence_en": "No effusion.", "sentence_es": "Sin derrame.", "abnormal": False,
        "labels": [], "locations": [], "progression": None, "boxes_xywh": [], "extra_boxes_xywh": [],
    }  # fmt: skip
    assert extra.rows[1]["labels"] == ["chronic changes"]
    assert extra.rows[1]["boxes_xywh"] == [[10, 30, 20, 30]]
    (record,) = source_data.splits["validation"]
    assert (record.annotations, record.labels) == ((), [])
    assert source_data.warnings[-1] == (
        "1 sentences with boxes have no label that is a finding; only the config `sentences` has them "
        "(chronic changes 1)"
    )


def test_labels_are_grouped_and_a_finding_may_lack_a_box(tmp_path: Path) -> None:
    sentences = [
        sentence(labels=["laminar atelectasis"]),
        sentence(labels=["Hydropneumothorax "], boxes=[[0, 0, 1, 1]]),  # two findings, spelt loosely
        sentence(labels=["scoliosis"], boxes=[]),
        sentence(labels=["nodule"], abnormal=False),
    ]
    source_data = padchest_gr.read(write(tmp_path, *sentences))
    (record,) = source_data.splits["validation"]
    assert [a.finding for a in record.annotations] == ["Atelectasis", "Pleural effusion", "Pneumothorax"]
    assert record.labels == ["Atelectasis", "Pleural effusion", "Pneumothorax", "Scoliosis"]
    assert record.missing == ("Scoliosis",)
    assert record.asked("present") == ["Atelectasis", "Pleural effusion", "Pneumothorax"]
    assert source_data.warnings[-1] == (
        "1 sentences with boxes have labels of several findings; each of these findings gets all boxes of the sentence"
    )


def test_without_the_master_table_all_is_test(tmp_path: Path) -> None:
    source_data = padchest_gr.read(write(tmp_path, sentence(), table=""))
    (record,) = source_data.splits["test"]
    assert record.patient_id == STUDY
    alone = "the source does not identify patients: every image counts as a separate patient, also in a holdout"
    assert f"master_table.csv is missing, so all studies are in the split 'test', and {alone}" in source_data.warnings


def test_the_master_table_may_be_zipped(tmp_path: Path) -> None:
    write(tmp_path, sentence())
    with zipfile.ZipFile(tmp_path / "master_table.csv.zip", "w") as archive:
        archive.write(tmp_path / "master_table.csv", "master_table.csv")
    (tmp_path / "master_table.csv").unlink()
    assert list(padchest_gr.read(tmp_path).splits) == ["validation"]


def test_pictures_in_an_archive_are_read_but_not_in_parts_of_one(tmp_path: Path) -> None:
    write(tmp_path, sentence())
    folder = tmp_path / "Padchest_GR_files"
    with zipfile.ZipFile(folder / "PadChest_GR.zip", "w") as archive:
        archive.write(folder / f"{IMAGE}.png", f"PadChest_GR/{IMAGE}.png")
    (folder / f"{IMAGE}.png").unlink()
    (record,) = padchest_gr.read(tmp_path).splits["validation"]
    assert record.picture is not None
    assert (record.size, record.picture.member) == ((60, 40), f"PadChest_GR/{IMAGE}.png")
    assert record.picture.source_path == f"Padchest_GR_files/PadChest_GR.zip!PadChest_GR/{IMAGE}.png"
    (folder / "PadChest_GR.zip").rename(folder / "PadChest_GR.zip.001")
    with pytest.raises(
        ValueError,
        match=(
            r"got only parts of an archive below .*; join the parts first: cat "
            r"PadChest_GR.zip"
        ),
    ):
        padchest_gr.read(tmp_path)


def test_a_picture_of_an_earlier_study_is_not_taken_for_it(tmp_path: Path) -> None:
    write(tmp_path, sentence())
    earlier = tmp_path / "PadChest_GR_progression_prior_studies"
    earlier.mkdir()
    Image.new("I;16", (10, 10)).save(earlier / f"{IMAGE}.png")
    (record,) = padchest_gr.read(tmp_path).splits["validation"]
    assert record.size == (60, 40)


@pytest.mark.parametrize(
    ("changes", "field", "rest"),
    [
        ({"labels": ["cardiomegally"]}, "findings[1].labels",
         "must be one of PadChest's 193 labels, got 'cardiomegally' (nearest: 'cardiomegaly')"),
        ({"labels": "cardiomegaly"}, "findings[1].labels", "must be a list of texts, got cardiomegaly"),
        ({"boxes": [[10, 20, 30, 40]]}, "findings[1].boxes",
         "must be corners [left, top, right, bottom] from 0 to 1, got [10, 20, 30, 40]"),
        ({"boxes": [[0, 0, 1]]}, "findings[1].boxes",
         "must be corners [left, top, right, bottom] from 0 to 1, got [0, 0, 1]"),
        ({"extra_boxes": [[0, 0, "1", 1]]}, "findings[1].extra_boxes",
         "must be corners [left, top, right, bottom] from 0 to 1, got [0, 0, '1', 1]"),
        ({"boxes": [[0.5, 0, 0.5, 1]]}, "findings[1].boxes",
         "must have width and height above 0, got [0.5, 0, 0.5, 1] of 40 x 60"),
        ({"abnormal": "yes"}, "findings[1]", "must be an object whose `abnormal` is true or false, got {"),
    ],
)  # fmt: skip
def test_what_can_be_wrong_with_a_sentence(tmp_path: Path, changes: dict[str, Any], field: str, rest: str) -> None:
    with pytest.raises(BuildError) as caught:
        padchest_gr.read(write(tmp_path, sentence(**changes)))
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"grounded_reports_20240819.json:1: `{field}` {rest}")


@pytest.mark.parametrize(
    ("entry", "table", "message"),
    [
        ({"findings": None}, None, "`entry` must be an object with StudyID, ImageID and a list of findings, got "),
        ({"ImageID": "../a.png"}, None, "`ImageID` must be a PNG file name, with a StudyID of digits, got '../a.png'"),
        ({"StudyID": "12"}, None, f"`StudyID` must have a row with '{IMAGE}.png' in the master table, got no row"),
        ({"ImageID": "b.png"}, None, f"`StudyID` must have a row with 'b.png' in the master table, got '{IMAGE}"),
        ({"ImageID": "b.png"}, "", "`ImageID` must have a picture, got no file b.png"),
        ({}, f"StudyID,ImageID,PatientID,split\n{STUDY},{IMAGE}.png,77,tset\n",
         "`split` must be one of train, validation, test, got 'tset'"),
        ({}, f"StudyID,ImageID,PatientID,split\n{STUDY},{IMAGE}.png,77,test\n{STUDY},{IMAGE}.png,78,test\n",
         f"`StudyID` must be the same for all rows of a study (image, patient and split), got {IMAGE}.png, 78, test"),
    ],
)  # fmt: skip
def test_what_can_be_wrong_with_an_entry(
    tmp_path: Path, entry: dict[str, Any], table: str | None, message: str
) -> None:
    with pytest.raises(BuildError) as caught:
        padchest_gr.read(write(tmp_path, sentence(), entry=entry, table=table))
    assert message in str(caught.value.problems[0])


def test_studies_and_images_are_unique(tmp_path: Path) -> None:
    write(tmp_path, sentence())
    (study,) = json.loads((tmp_path / "grounded_reports_20240819.json").read_text())
    (tmp_path / "grounded_reports_20240819.json").write_text(json.dumps([study, study]))
    with pytest.raises(BuildError) as caught:
        padchest_gr.read(tmp_path)
    assert [str(p).split(": ", 1)[1] for p in caught.value.problems] == [
        f"`StudyID` must be unique, but entry 1 also has it, got '{STUDY}'",
        f"`ImageID` must be unique, but entry 1 also has it, got '{IMAGE}'",
    ]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    write(tmp_path, sentence())
    (tmp_path / "Padchest_GR_files" / f"{IMAGE}.png").write_bytes(b"no picture")
    with pytest.raises(
        BuildError, match=f"Padchest_GR_files/{IMAGE}.png:{IMAGE}: `picture` must be a readable PNG, got not a"
    ):
        padchest_gr.read(tmp_path)
    (tmp_path / "grounded_reports_20240819.json").write_text("{}")
    with pytest.raises(BuildError, match="`file` must be a JSON list in UTF-8, got a dict"):
        padchest_gr.read(tmp_path)
    (tmp_path / "grounded_reports_20240819.json").unlink()
    with pytest.raises(ValueError, match=r"`root` must contain grounded_reports_20240819.json, got "):
        padchest_gr.read(tmp_path)


def test_the_twin_has_splits_sentences_and_a_second_reader(twin: Path) -> None:
    inspection = padchest_gr.inspect(twin)
    assert inspection.synthetic
    assert (list(inspection.problems), list(inspection.warnings)) == ([], [])
    source_data = padchest_gr.read(twin)
    records = [record for split in source_data.splits.values() for record in split]
    assert len(records) == inspection.counts["images"] == 6
    assert {a.reader for record in records for a in record.annotations} == {"ground_truth", "individual"}
    n_sentences = inspection.counts["abnormal sentences"] + inspection.counts["other sentences"]
    assert len(source_data.extras[0].rows) == n_sentences
    assert any("Scoliosis" in record.missing for record in records)
    assert set(records[0].label_status) == set(PADCHEST_GR_FINDINGS)
