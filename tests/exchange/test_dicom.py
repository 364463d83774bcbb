"""DICOM objects and another library: highdicom reads ours, and we read highdicom's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import highdicom as hd
import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.sr.codedict import codes

from reveal_bench.arguments import ArgumentError
from reveal_bench.exchange import dicom_seg, dicom_sr
from reveal_bench.exchange.dicom_objects import Identifiers
from reveal_bench.masks import decode_mask
from tests.exchange.drawn import (
    BOXED,
    FILMS,
    GUESSED,
    JUDGED,
    LABELLED,
    MASKED,
    PARTS,
    PICTURES,
    POINTED,
    RING,
    WIDE,
    annotations,
)


def pictured(folder: Path) -> Path:
    """The folder with pictures as the command writes them before the form."""
    (folder / "images").mkdir()
    for film in FILMS.values():
        grey = np.arange(film.width * film.height, dtype=np.uint8).reshape(film.height, film.width)
        Image.fromarray(grey).save(folder / "images" / PICTURES[film.image_id])
    return folder


def test_a_segmentation_is_read_by_highdicom(tmp_path: Path) -> None:
    dicom_seg.write(annotations(MASKED, PARTS, GUESSED), pictured(tmp_path), PICTURES)
    files = sorted(path.name for path in (tmp_path / "segmentations").iterdir())
    assert files == [
        "b.individual%3AR2.dcm",
        f"{annotations().stems[WIDE.image_id]}.ground_truth.dcm",
        f"{annotations().stems[WIDE.image_id]}.prediction.dcm",
    ]
    segmentation = hd.seg.segread(tmp_path / "segmentations" / f"{annotations().stems[WIDE.image_id]}.ground_truth.dcm")
    assert segmentation.get_segment_description(1).segment_label == "Edema"
    assert segmentation.get_segment_description(1).algorithm_type.value == "MANUAL"
    image = pydicom.dcmread(tmp_path / "images" / f"{annotations().stems[WIDE.image_id]}.dcm")
    pixels = segmentation.get_pixels_by_source_instance([image.SOPInstanceUID])
    assert np.array_equal(pixels[0, ..., 0].astype(bool), RING)
    assert segmentation.StudyInstanceUID == image.StudyInstanceUID
    assert image.PatientID == "p1"
    assert str(image.PatientName) == ""
    assert image.get("StudyDate", "") == ""
    assert np.array_equal(image.pixel_array, np.arange(35, dtype=np.uint8).reshape(5, 7))
    assert list((tmp_path / "images").glob("*.png")) == [], "a picture is replaced by its secondary capture"


def test_a_models_segments_are_automatic_and_hold_its_confidence(tmp_path: Path) -> None:
    dicom_seg.write(annotations(GUESSED), tmp_path, PICTURES)
    segment = hd.seg.segread(next((tmp_path / "segmentations").iterdir())).get_segment_description(1)
    assert segment.algorithm_type.value == "AUTOMATIC"
    assert segment.SegmentDescription == '{"score": 0.625, "cell": "D5"}'
    assert not (tmp_path / "images").exists(), "without pictures there are no images to write"


def test_a_report_is_read_by_highdicom(tmp_path: Path) -> None:
    dicom_sr.write(annotations(POINTED, BOXED), tmp_path, PICTURES)
    report: Any = hd.sr.srread(tmp_path / "reports" / "b.prediction.dcm").content
    groups = report.get_planar_roi_measurement_groups(graphic_type=hd.sr.GraphicTypeValues.POINT)
    assert [group.roi.value.tolist() for group in groups] == [[[1.5, 2.5]], [[3.0, 0.25]]]
    assert {group.finding_type.meaning for group in groups} == {"Edema"}
    assert [one.value for group in groups for one in group.get_measurements()] == [0.25, 0.25]
    boxes: Any = hd.sr.srread(tmp_path / "reports" / "b.human_benchmark.dcm").content
    first = boxes.get_planar_roi_measurement_groups()[0].roi.value.tolist()
    assert first == [[0.5, 1.0], [2.75, 1.0], [2.75, 4.5], [0.5, 4.5], [0.5, 1.0]]


def test_coordinates_that_32_bits_do_not_hold_are_counted(tmp_path: Path) -> None:
    fine = annotations(POINTED, type(POINTED)("b", "Edema", "prediction", points=((1.23456789012, 2.0),)))
    assert dicom_sr.write(fine, tmp_path, PICTURES) == ["1 drawings’ coordinates, rounded to 32 bits"]


def foreign(segmentation_type: str, label: str = "Edema", **options: Any) -> Any:
    """A segmentation that highdicom alone makes of image b: two segments, of which the second is PARTS."""
    ids = Identifiers(annotations())
    image = hd.sc.SCImage(
        np.zeros((6, 4), np.uint8), "MONOCHROME2", 8, "PATIENT", hd.UID(), hd.UID(), 1,
        options.pop("of", ids.uid("image", "b")), 1, "elsewhere", patient_orientation=("L", "F"),
    )  # fmt: skip
    described = [hd.seg.SegmentDescription(n, label, codes.SCT.Tissue, codes.SCT.Lung, "MANUAL") for n in (1, 2)]
    masks = np.stack([np.ones((6, 4)), decode_mask(PARTS.mask)], axis=-1)[np.newaxis]  # type: ignore[arg-type]
    masks = masks.astype(np.uint8 if segmentation_type == "BINARY" else np.float32)
    return hd.seg.Segmentation(
        [image], masks, segmentation_type, described, hd.UID(), 1, hd.UID(), 1, "elsewhere", "tool", "1", "0"
    )


def test_a_segmentation_of_another_tool(tmp_path: Path) -> None:
    foreign("BINARY").save_as(tmp_path / "any.dcm")
    whole, parts = dicom_seg.read(tmp_path / "any.dcm", annotations()).drawings
    assert (whole.image_id, whole.finding, whole.reader) == ("b", "Edema", "individual")
    assert whole.mask is not None
    assert decode_mask(whole.mask).all()
    assert parts.mask == PARTS.mask


def test_an_image_is_found_by_the_files_name_where_its_identifier_is_not_ours(tmp_path: Path) -> None:
    foreign("BINARY", of="1.2.3").save_as(tmp_path / "b.dcm")
    assert {one.image_id for one in dicom_seg.read(tmp_path, annotations()).drawings} == {"b"}
    foreign("BINARY", of="1.2.3").save_as(tmp_path / "unknown.dcm")
    with pytest.raises(ArgumentError, match=r"must refer to images of split 'test'.*got 'unknown'"):
        dicom_seg.read(tmp_path / "unknown.dcm", annotations())


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    foreign("FRACTIONAL").save_as(tmp_path / "fractional.dcm")
    with pytest.raises(ArgumentError, match="must be a binary segmentation, got fractional"):
        dicom_seg.read(tmp_path / "fractional.dcm", annotations())
    foreign("BINARY", label="Mass").save_as(tmp_path / "mass.dcm")
    with pytest.raises(ArgumentError, match="must name findings of the benchmark"):
        dicom_seg.read(tmp_path / "mass.dcm", annotations())
    foreign("BINARY", of=Identifiers(annotations()).uid("image", WIDE.image_id)).save_as(tmp_path / "size.dcm")
    with pytest.raises(ArgumentError, match="has 7 x 5 pixels, got 4 x 6"):
        dicom_seg.read(tmp_path / "size.dcm", annotations())
    (tmp_path / "text.dcm").write_text("no DICOM")
    for form in (dicom_seg, dicom_sr):
        with pytest.raises(ArgumentError, match="must be a DICOM file"):
            form.read(tmp_path / "text.dcm", annotations())
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(ArgumentError, match="must be DICOM files, or a folder of them"):
            form.read(tmp_path / "empty", annotations())
    with pytest.raises(ArgumentError, match="must be DICOM structured reports"):
        dicom_sr.read(tmp_path / "mass.dcm", annotations())


CHECKER = os.environ.get("REVEAL_DCIODVFY")


@pytest.mark.skipif(CHECKER is None, reason="needs dciodvfy of dicom3tools: make soak")
def test_a_checker_of_dicom_files_finds_no_error(tmp_path: Path) -> None:
    for name, form in (("seg", dicom_seg), ("sr", dicom_sr)):
        (tmp_path / name).mkdir()
        form.write(annotations(MASKED, PARTS, GUESSED, POINTED, BOXED), pictured(tmp_path / name), PICTURES)
    (tmp_path / "labels").mkdir()
    dicom_sr.write(annotations(studies=(LABELLED, JUDGED)), tmp_path / "labels", PICTURES)
    files = sorted(tmp_path.rglob("*.dcm"))
    assert len(files) == 2 + 3 + 2 + 3 + 2
    for file in files:
        report = subprocess.run([str(CHECKER), str(file)], capture_output=True, encoding="latin-1", check=False).stderr
        assert "Error" not in report, f"{file.name}: {report}"
