"""Files that are set aside, duplicates, and the markers of de-identification."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.dicom import DicomFile, Header, find_duplicates, header_warnings, read_header, set_aside
from reveal_bench.dicom.scan import film_notes
from tests.dicom.conftest import CR, DX, Write

SC = "1.2.840.10008.5.1.4.1.1.7"
ORIGINAL = {"SOPClassUID": DX, "Modality": "DX", "ImageType": ["ORIGINAL", "PRIMARY"]}


@pytest.fixture
def header(write: Write) -> Header:
    return read_header(write({**ORIGINAL, "StudyInstanceUID": "1", "SOPInstanceUID": "1.1"}))


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"SOPClassUID": CR, "Modality": "CR"},
        {"Modality": "CR"},  # CR with the SOP class of DX: 962 of 7,469 real files
        {"SOPClassUID": f"{DX}.1"},
        {"SOPClassUID": None},
        {"SOPClassUID": None, "Modality": None},
        {"ImageType": ["DERIVED", "PRIMARY"]},
        {"ImageType": None},
        {"BodyPartExamined": "EXTREMETY"},
    ],
)
def test_originals(write: Write, attributes: dict[str, Any]) -> None:
    assert set_aside(read_header(write({**ORIGINAL, **attributes}))) is None


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"SOPClassUID": SC}, "a secondary capture (SOP class)"),
        ({"SOPClassUID": f"{SC}.2"}, "a secondary capture (SOP class)"),
        ({"SOPClassUID": "1.2.840.10008.5.1.4.1.1.11.1"}, "a presentation state, not a picture"),
        (
            {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.88.59"},
            "a structured report or key object selection, not a picture",
        ),
        ({"SOPClassUID": "1.2.840.10008.5.1.4.1.1.104.1"}, "an encapsulated document, not a picture"),
        ({"SOPClassUID": "1.2.840.10008.1.3.10"}, "a DICOMDIR, the index of a storage medium"),
        (
            {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.2"},
            "the SOP class is not that of a radiograph, got 1.2.840.10008.5.1.4.1.1.2",
        ),
        ({"Modality": "CT"}, "the modality is neither CR nor DX, got CT"),
        ({"Modality": "MG", "SOPClassUID": None}, "the modality is neither CR nor DX, got MG"),
        ({"PixelData": None}, "no pixel data, or the file is truncated before them"),
        ({"PhotometricInterpretation": "RGB"}, "a colour picture, got RGB"),
        ({"ImageType": ["DERIVED", "SECONDARY"]}, "derived secondary picture (ImageType)"),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "LOCALIZER"]}, "localizer (ImageType)"),
        ({"Rows": None}, "no picture, because Rows or Columns are missing"),
    ],
)
def test_set_aside_with_its_reason(write: Write, attributes: dict[str, Any], reason: str) -> None:
    assert set_aside(read_header(write({**ORIGINAL, **attributes}))) == reason


def test_secondary_captures_of_collections_that_were_saved_as_such(write: Write) -> None:
    resaved = read_header(write({"SOPClassUID": SC, "Modality": "CR", "ImageType": ["DERIVED", "SECONDARY"]}))
    assert set_aside(resaved) is not None
    assert set_aside(resaved, include_secondary=True) is None
    assert (
        set_aside(replace(resaved, modality="OT"), include_secondary=True)
        == "the modality is neither CR nor DX, got OT"
    )


def files(*names: str) -> list[DicomFile]:
    return [DicomFile(Path(name)) for name in names]


def test_copies_by_uid(header: Header) -> None:
    a, b, c = files("a", "b", "c")
    other = replace(header, sop_uid="1.2")
    assert find_duplicates([(a, header), (c, other)]) == []
    (double,) = find_duplicates([(a, header), (b, header), (c, other)])
    assert (double.file, double.of, double.is_conflict) == (b, a, False)
    assert double.reason == "the same SOPInstanceUID and header facts"


def test_one_uid_on_different_pictures_is_a_conflict(header: Header) -> None:
    a, b = files("a", "b")
    (by_header,) = find_duplicates([(a, header), (b, replace(header, rows=9))])
    assert by_header.is_conflict
    (by_pixels,) = find_duplicates([(a, header), (b, header)], {a: "x", b: "y"})
    assert by_pixels.is_conflict
    assert by_pixels.reason == "the same SOPInstanceUID but different pixels, so one of the two files is mislabelled"
    # another encoding of the same picture: header facts differ, pixels do not
    (double,) = find_duplicates([(a, header), (b, replace(header, transfer_syntax="z"))], {a: "x", b: "x"})
    assert not double.is_conflict


def test_absent_uids_are_not_the_same(header: Header) -> None:
    a, b = files("a", "b")
    nameless = replace(header, sop_uid=None)
    assert find_duplicates([(a, nameless), (b, nameless)]) == []


def test_same_pixels_within_a_study_only(header: Header) -> None:
    a, b, c = files("a", "b", "c")
    texts = [
        (a, header),
        (b, replace(header, sop_uid="1.2")),
        (c, replace(header, sop_uid="2.1", study_uid="2")),
    ]
    (double,) = find_duplicates(texts, dict.fromkeys((a, b, c), "same"))
    assert (double.file, double.of, double.reason) == (b, a, "the same pixels in the same study")


@pytest.mark.parametrize(
    ("raw", "processed", "why"),
    [
        ({}, {"source_uids": ("1.9",)}, "named as source"),
        ({"exposure_key": "k"}, {"exposure_key": "k"}, "same exposure key"),
        ({"exposure_key": "k", "kvp": 80.0, "exposure_mas": 2.0},
         {"exposure_key": "l", "kvp": 80.0, "exposure_mas": 2.0}, None),
        ({"kvp": 80.0, "exposure_mas": 2.0}, {"kvp": 80.0, "exposure_mas": 2.0}, "same view, kVp and mAs"),
        ({"kvp": 80.0, "exposure_mas": 2.0}, {"kvp": 80.0, "exposure_mas": 2.5}, None),
        ({"kvp": 80.0, "exposure_mas": 2.0, "view": "PA"}, {"kvp": 80.0, "exposure_mas": 2.0, "view": "LATERAL"}, None),
        ({}, {}, None),
        ({"study_uid": "2"}, {"source_uids": ("1.9",)}, None),
    ],
)  # fmt: skip
def test_the_picture_for_presentation_stays(
    header: Header, raw: dict[str, Any], processed: dict[str, Any], why: str | None
) -> None:
    a, b = files("a", "b")
    pair = [
        (a, replace(header, sop_uid="1.9", intent="PROCESSING", **raw)),
        (b, replace(header, intent="PRESENTATION", **processed)),
    ]
    for headers in (pair, pair[::-1]):
        doubles = find_duplicates(headers)
        if why is None:
            assert doubles == []
        else:
            (double,) = doubles
            assert (double.file, double.of, double.is_conflict) == (a, b, False)
            assert double.reason == f"FOR PROCESSING; the same exposure ({why}) is present FOR PRESENTATION"


def test_a_raw_picture_alone_stays(header: Header) -> None:
    (a,) = files("a")
    assert find_duplicates([(a, replace(header, intent="PROCESSING"))]) == []


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"deidentified": None}, ["PatientIdentityRemoved is absent", "BurnedInAnnotation absent is no proof"]),
        ({"deidentified": False}, ["was not de-identified", "BurnedInAnnotation absent is no proof"]),
        ({"deidentified": True}, ["no coded method is stated", "BurnedInAnnotation absent is no proof"]),
        (
            {"deidentified": True, "deid_methods": ("113100",), "burned_in": False},
            ["BurnedInAnnotation NO is no proof"],
        ),
        ({"deidentified": True, "deid_methods": ("113100", "113101")}, []),
        (
            {"deidentified": True, "deid_methods": ("113100", "113101"), "burned_in": True},
            ["BurnedInAnnotation is YES"],
        ),
    ],
)
def test_markers_that_a_publisher_must_check(header: Header, facts: dict[str, Any], expected: list[str]) -> None:
    warnings = header_warnings(replace(header, **facts))
    assert len(warnings) == len(expected)
    for warning, part in zip(warnings, expected, strict=True):
        assert part in warning


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"ViewPosition": "PA", "BodyPartExamined": "HAND"},
            ["BodyPartExamined is HAND, not CHEST; it is often wrong"],
        ),
        (
            {"ViewPosition": "PA", "BodyPartExamined": "DOE JOHN"},
            ["BodyPartExamined is an unlisted value, not CHEST; it is often wrong"],
        ),
        ({"ViewPosition": "PA", "BodyPartExamined": "PORT CHEST"}, []),
        ({"ViewPosition": "AP", "PatientOrientation": ["L", "F"]}, []),
        ({"ViewPosition": "LORDOTIC"}, ["the view is unknown: no known ViewPosition, code or orientation"]),
        (
            {"ViewPosition": "AP", "PatientOrientation": ["A", "F"]},
            ["the view is AP, but its codes or the orientation say LATERAL"],
        ),
        (
            {"ViewPosition": "PA", "ViewCodeSequence": [{"CodeValue": "R-10206"}]},
            ["the view is PA, but its codes or the orientation say AP"],
        ),
    ],
)
def test_statements_that_a_look_at_the_film_can_check(
    write: Write, values: dict[str, Any], expected: list[str]
) -> None:
    assert list(film_notes(read_header(write(values)))) == expected
