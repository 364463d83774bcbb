"""Header facts: values that are read, malformed values, and proof that nothing else is ever parsed."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.dicom import DicomError, Header, read_header
from reveal_bench.dicom.dataset import quiet_pydicom, read_dataset
from reveal_bench.dicom.header import WHITELIST, age_in_years
from tests.dicom.conftest import DX, Write

FULL: dict[Any, Any] = {
    "BodyPartExamined": "PORT CHEST",
    "StudyInstanceUID": "1.2.3", "SeriesInstanceUID": "1.2.3.4", "SOPInstanceUID": "1.2.3.4.5", "PatientID": "P1",
    "SOPClassUID": DX, "Modality": "DX", "ViewPosition": "POSTERO ANTERIOR", "PixelSpacing": [0.139, 0.14],
    "Manufacturer": "Carestream Health", "ManufacturerModelName": "DRX-Revolution", "DetectorType": "SCINTILLATOR",
    "KVP": "85.0", "Exposure": "2", "ExposureInuAs": "1600", "DistanceSourceToDetector": "1800",
    "PatientAge": "063Y", "PatientSex": "F", "ImageType": ["DERIVED", "PRIMARY"], "InstanceNumber": "1001",
    "BurnedInAnnotation": "NO", "PatientIdentityRemoved": "YES", "PresentationIntentType": "FOR PRESENTATION",
    "DeidentificationMethodCodeSequence": [{"CodeValue": "113100"}, {"CodeValue": "113101"}],
    "SourceImageSequence": [{"ReferencedSOPInstanceUID": "9.9"}], "IrradiationEventUID": "7.7",
}  # fmt: skip


@pytest.mark.parametrize("transfer_syntax", ["explicit", "implicit", "deflated", "rle"])
def test_every_field(write: Write, transfer_syntax: str) -> None:
    header = read_header(write(FULL, transfer_syntax=transfer_syntax))
    assert header.transfer_syntax.startswith("1.2.840.10008.1.2")
    expected = {
        "study_uid": "1.2.3", "series_uid": "1.2.3.4", "sop_uid": "1.2.3.4.5", "patient_key": "P1", "sop_class": DX,
        "modality": "DX", "rows": 4, "columns": 4, "photometric": "MONOCHROME2", "bits_stored": 4, "view": "PA",
        "view_raw": "POSTERO ANTERIOR", "spacing_mm": (0.139, 0.14), "spacing_source": "pixel_spacing",
        "manufacturer": "CARESTREAM", "manufacturer_raw": "Carestream Health", "model": "DRX-REVOLUTION",
        "model_raw": "DRX-Revolution", "detector_type": "SCINTILLATOR", "kvp": 85.0, "exposure_mas": 1.6,
        "distance_source_to_detector_mm": 1800.0, "age_years": 63, "sex": "F", "image_type": ("DERIVED", "PRIMARY"),
        "instance_number": 1001, "burned_in": False, "deidentified": True, "deid_methods": ("113100", "113101"),
        "intent": "PRESENTATION", "exposure_key": "7.7", "source_uids": ("9.9",), "has_pixels": True,
        "body_part": "CHEST", "coded_view": None,
    }  # fmt: skip
    got = {field.name: getattr(header, field.name) for field in fields(Header) if field.name != "transfer_syntax"}
    assert got == expected


def test_an_all_but_empty_file(write: Write) -> None:
    header = read_header(write({"PixelData": None}))
    present = {f.name for f in fields(Header) if getattr(header, f.name) not in (None, (), False)}
    assert present == {
        "rows", "columns", "photometric", "bits_stored", "transfer_syntax", "view", "spacing_source"
    }  # fmt: skip
    assert (header.view, header.spacing_source, header.has_pixels) == ("UNKNOWN", "none", False)


MALFORMED: list[tuple[dict[Any, Any], str, object]] = [
    # field: text where a number belongs, several values where one belongs, values out of reason
    ({"KVP": "abc"}, "kvp", None),
    ({"KVP": "80\\90"}, "kvp", None),
    ({"KVP": "0"}, "kvp", None),
    ({"KVP": "inf"}, "kvp", None),
    ({"KVP": " +125.0 "}, "kvp", 125.0),
    ({(0x0018, 0x0060, "LO"): "85"}, "kvp", 85.0),
    ({(0x0018, 0x0060, "UN"): b"85"}, "kvp", 85.0),
    ({(0x0018, 0x0060, "FD"): 85.5}, "kvp", 85.5),
    ({(0x0018, 0x0060, "OB"): b"\x01\x02"}, "kvp", None),
    ({"Exposure": "3.2"}, "exposure_mas", 3.2),
    ({"Exposure": "2", "ExposureInuAs": "250000"}, "exposure_mas", 2.0),  # 250 mAs contradicts 2 mAs
    ({"ExposureInuAs": "1600"}, "exposure_mas", 1.6),
    ({"DistanceSourceToDetector": "0.0"}, "distance_source_to_detector_mm", None),
    ({"DistanceSourceToDetector": "12.4"}, "distance_source_to_detector_mm", None),
    ({"DistanceSourceToDetector": "18.4"}, "distance_source_to_detector_mm", None),
    ({"DistanceSourceToDetector": "1885"}, "distance_source_to_detector_mm", 1885.0),
    ({"DistanceSourceToDetector": "-1800"}, "distance_source_to_detector_mm", None),
    ({"PixelSpacing": "0.000\\0.000"}, "spacing_source", "none"),
    ({"PixelSpacing": "0\\0", "ImagerPixelSpacing": "0.2\\0.2"}, "spacing_source", "imager_pixel_spacing"),
    ({"PixelSpacing": "0.14", "ImagerPixelSpacing": "0.2\\0.3"}, "spacing_mm", (0.2, 0.3)),
    ({"PixelSpacing": "a\\b"}, "spacing_mm", None),
    ({"PixelSpacing": "-1\\-1"}, "spacing_mm", None),
    ({"Rows": None}, "rows", None),
    ({"Rows": None, (0x0028, 0x0010, "LO"): "4 rows"}, "rows", None),
    ({"Rows": None, (0x0028, 0x0010, "IS"): "4"}, "rows", 4),
    ({"InstanceNumber": "one"}, "instance_number", None),
    ({"InstanceNumber": "1.5"}, "instance_number", None),
    ({"Modality": "CR\\DX"}, "modality", None),
    ({"Modality": "cr "}, "modality", "CR"),
    ({"PatientSex": "f"}, "sex", "F"),
    ({"PatientSex": "U"}, "sex", None),
    ({"BurnedInAnnotation": "MAYBE"}, "burned_in", None),
    ({"BurnedInAnnotation": "YES"}, "burned_in", True),
    ({"PatientIdentityRemoved": "no"}, "deidentified", False),
    ({"PresentationIntentType": "FOR PROCESSING"}, "intent", "PROCESSING"),
    ({"Manufacturer": "A" * 65}, "manufacturer_raw", None),
    ({"Manufacturer": "A\x07B"}, "manufacturer_raw", None),
    *(
        ({keyword: text}, field, None)
        for keyword, name in (("Manufacturer", "manufacturer"), ("ManufacturerModelName", "model"))
        for field in (name, f"{name}_raw")
        for text in (
            "DOE^JANE",
            "1.2.840.113619.2.5.1",
            "DR of 1.2.3.4.5",
            "20240131",
            "DR 2024-01-31",
            "31.01.2024",
            "1/31/2024",
            "31012024",
            "123456789",
            "unit 0123456789",
            "A" * 65,
        )
    ),
    *(
        ({"ManufacturerModelName": text}, "model_raw", text)
        for text in ("DRX-1", "Definium 8000", "5000", "12345678", "XR 220amx 2.1.0", "v1.2.3.4", "Model 2011")
    ),
    *(
        ({"ViewPosition": text, "ViewCodeSequence": [{"CodeValue": "R-10206"}]}, "view_raw", None)
        for text in ("Mrs Doe, AP", "DOE^JANE", "LLD", "20240131", "AP sitting")
    ),
    *(({"ViewPosition": text}, "view_raw", text) for text in ("AP", "Postero_Anterior", "LL", "pa")),
    ({"SOPInstanceUID": ""}, "sop_uid", None),
    ({"ViewCodeSequence": [{"CodeValue": "R-10214"}]}, "view", "PA"),
    ({"ViewCodeSequence": []}, "view", "UNKNOWN"),
    ({(0x0054, 0x0220, "LO"): "R-10214"}, "view", "UNKNOWN"),
    ({"PatientOrientation": ["A", "F"]}, "view", "LATERAL"),
    ({"PatientOrientation": ["L", "F"]}, "view", "UNKNOWN"),
]


@pytest.mark.parametrize(("attributes", "name", "expected"), MALFORMED)
def test_malformed_values_become_nothing_and_never_stop_the_reading(
    write: Write, attributes: dict[Any, Any], name: str, expected: object
) -> None:
    assert getattr(read_header(write(attributes)), name) == expected


@pytest.mark.parametrize(
    ("text", "years"),
    [("063Y", 63), ("000Y", 0), ("018M", 1), ("011M", 0), ("104W", 1), ("105W", 2), ("400D", 1), ("091y", 91),
     ("9Y", 9), ("", None), (None, None), ("63", None), ("Y63", None), ("63 years", None),
     ("131Y", None), ("-01Y", None)],
)  # fmt: skip
def test_ages(text: str | None, years: int | None) -> None:
    assert age_in_years(text) == years


def test_exposure_key_is_a_digest_and_the_same_for_one_exposure(write: Write) -> None:
    taken = {"AcquisitionDate": "20240131", "AcquisitionTime": "101112.5"}
    first = read_header(write({**taken, "SOPInstanceUID": "1.1"})).exposure_key
    second = read_header(write({**taken, "SOPInstanceUID": "1.2"})).exposure_key
    other = read_header(write({**taken, "AcquisitionTime": "101113"})).exposure_key
    assert first == second != other
    assert first is not None
    assert "20240131" not in first


def test_only_the_whitelist_is_parsed(write: Write) -> None:
    """Names, dates and private elements are skipped unread, and nothing private is in the repr."""
    secret = {
        "PatientName": "SECRET^NAME", "PatientBirthDate": "19010101", "InstitutionName": "SECRET HOSPITAL",
        "AccessionNumber": "SECRET1", "StudyDescription": "SECRET TEXT", (0x0019, 0x0010, "LO"): "MAKER",
        (0x0019, 0x1010, "LO"): "SECRET^OPERATOR", "StudyDate": "20240131",
    }  # fmt: skip
    path = write({**FULL, **secret})
    assert b"SECRET" in path.read_bytes()
    header = read_header(path)
    everything = " ".join(str(getattr(header, field.name)) for field in fields(Header))
    assert not {"SECRET", "19010101", "20240131", "MAKER"} & set(everything.replace("^", " ").split())
    assert "SECRET" not in everything
    for private in ("1.2.3.4", "P1", "7.7", "9.9"):
        assert private not in repr(header)


def test_the_whitelist_names_no_element_that_identifies() -> None:
    assert len(set(WHITELIST)) == len(WHITELIST)
    for word in ("Name", "Birth", "Address", "Institution", "Physician", "Operator", "Accession", "Serial", "Comments"):
        assert [k for k in WHITELIST if word in k and k != "ManufacturerModelName"] == []


@pytest.mark.parametrize("element", [0x08, 0x09, 0x10], ids=["float", "double", "integer"])
def test_pixels_are_detected_without_being_read(write: Write, element: int) -> None:
    """A header of a file whose pixels are cut off still reads; their element is 7FE0,0008, 0009 or 0010."""
    path = write(FULL)
    data = path.read_bytes()
    assert data.count(b"\xe0\x7f\x10\x00") == 1
    path.write_bytes(data.replace(b"\xe0\x7f\x10\x00", bytes((0xE0, 0x7F, element, 0)))[:-10])
    assert read_header(path).has_pixels is True
    with quiet_pydicom(), path.open("rb") as file:
        dataset, _ = read_dataset(file, ["Rows"], pixels=False)
    assert list(dataset.keys()) == [0x00280010]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "an empty file"),
        (b"name,age\n", "not DICOM"),
        (b"%PDF-1.7" + bytes(300), "not DICOM"),
        (bytes(128) + b"DICM", "contains no element of a radiograph"),
        (bytes(128) + b"DICM" + b"\x02\x00\x10\x00UI\x14\x00" + b"1.2", "contains no element of a radiograph"),
        (bytes(500), "not DICOM"),
    ],
)
def test_files_other_than_dicom(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(DicomError, match=f"^{reason}$"):
        read_header(tmp_path / "x")


def test_a_deflate_bomb(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    from reveal_bench.dicom import dataset

    path = write(FULL, transfer_syntax="deflated")
    monkeypatch.setattr(dataset, "MAX_BYTES", 100)
    with pytest.raises(DicomError, match="inflates to more than 100 bytes"):
        read_header(path)


@pytest.mark.parametrize("name", ["no_meta_group_length.dcm", "ExplVR_BigEndNoMeta.dcm", "ExplVR_LitEndNoMeta.dcm"])
def test_real_files_without_a_proper_start(name: str) -> None:
    from pydicom.data import get_testdata_file

    path = get_testdata_file(name, download=False)
    assert isinstance(path, str)
    assert read_header(Path(path)).has_pixels is False
