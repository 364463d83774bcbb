"""Headers of synthetic DICOM files: who, where and when, all made up, and all of it must stay out of a dataset.

Whoever builds a dataset from real files has names, dates, places and private elements in them, whatever the
de-identification promised. These headers hold such values on purpose, in every kind of element that was found to leak:
text, names, dates, comments, elements inside sequences, private elements of known and of unknown kind.
:func:`identifiers` lists what a test must not find again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reveal_bench.phantom.reveal_acquisition import draw_acquisition
from reveal_bench.phantom.reveal_studies import RevealImage, RevealStudy

__all__ = ["PLANTED", "draw_header", "identifiers"]

Attributes = dict[Any, Any]

PLANTED: dict[str, str] = {
    "PatientName": "Leakington^Planted^Q",
    "PatientBirthDate": "19310203",
    "PatientAddress": "7 Leakington Lane, Nowhere",
    "PatientTelephoneNumbers": "+00 000 5550199",
    "OtherPatientIDs": "LEAK-MRN-0042",
    "PatientComments": "planted: Mrs Leakington called about her film",
    "AdditionalPatientHistory": "planted: cough since the Leakington fair",
    "InstitutionName": "Leakington General (synthetic)",
    "InstitutionAddress": "1 Infirmary Way, Leakington",
    "InstitutionalDepartmentName": "Leakington Radiology",
    "StationName": "LEAKSTATION3",
    "ReferringPhysicianName": "Referrer^Leakington",
    "PerformingPhysicianName": "Performer^Leakington",
    "NameOfPhysiciansReadingStudy": "Reader^Leakington",
    "OperatorsName": "Operator^Leakington",
    "DeviceSerialNumber": "LEAKSERIAL-77",
    "DetectorID": "LEAKDETECTOR-78",
    "SoftwareVersions": "leaksoft 5.7",
    "ProtocolName": "LEAKPROTOCOL CHEST",
    "StudyDescription": "planted: XR CHEST Leakington ward 4",
    "SeriesDescription": "planted: Leakington series",
    "ImageComments": "planted: seen by Dr Leakington",
    "AdmittingDiagnosesDescription": "planted: fall at Leakington station",
    "RequestedProcedureDescription": "planted: request of Dr Leakington",
}
"""Elements that say who, where or when -> their value in every file that :func:`draw_header` plants."""

_PRIVATE = "Leakington in a private element"
_NESTED = "Leakington in a sequence"
DEIDENTIFIED_CHANCE = 0.95
"""Of the markers that a de-identification tool leaves (PS3.15, Annex E)."""


def draw_header(study: RevealStudy, image: RevealImage, rng: np.random.Generator, *, plant: bool = True) -> Attributes:
    """Attributes of one film, but for those of its pixels; with `plant` also what must not leak.

    Examples
    --------
    >>> from itertools import islice
    >>> from reveal_bench.phantom.reveal_studies import studies
    >>> study = next(islice(studies(seed=0), 1))
    >>> header = draw_header(study, study.images[0], np.random.default_rng(0))
    >>> header["StudyInstanceUID"] == study.study_uid, header["PatientName"]
    (True, 'Leakington^Planted^Q')
    """
    attributes: Attributes = {
        "SpecificCharacterSet": "ISO_IR 100",
        **draw_acquisition(rng, image.view, at_bedside=image.view == "AP"),
        "StudyInstanceUID": study.study_uid,
        "SeriesInstanceUID": study.uid("series", image.number),
        "SOPInstanceUID": study.uid("image", image.number),
        "PatientID": study.case_id,
    }
    if study.sex != "unknown":
        attributes["PatientSex"] = study.sex
    if study.age is not None:
        attributes["PatientAge"] = f"{study.age:03d}Y"
    if rng.random() < DEIDENTIFIED_CHANCE:
        attributes["PatientIdentityRemoved"] = "YES"
        attributes["DeidentificationMethodCodeSequence"] = [
            {"CodeValue": "113100", "CodingSchemeDesignator": "DCM", "CodeMeaning": "Basic Application Profile"},
            {"CodeValue": "113101", "CodingSchemeDesignator": "DCM", "CodeMeaning": "Clean Pixel Data Option"},
        ]
    if rng.random() < 0.6:
        attributes["BurnedInAnnotation"] = "NO"
    if plant:
        attributes.update(PLANTED)
        attributes.update(_dates_and_numbers(study, image))
        attributes.update(_hidden())
    return attributes


def identifiers(study: RevealStudy, image: RevealImage) -> tuple[str, ...]:
    """Everything in the film's header that must not be found in a dataset: texts, dates, numbers, UIDs."""
    uids = (study.study_uid, study.uid("series", image.number), study.uid("image", image.number))
    made = [value for value in _dates_and_numbers(study, image).values() if isinstance(value, str)]
    return (*PLANTED.values(), _PRIVATE, _NESTED, "Leakington", study.case_id, *uids, *made)


def _dates_and_numbers(study: RevealStudy, image: RevealImage) -> Attributes:
    rng = study.rng(30)
    day = f"20{rng.integers(20, 24)}{rng.integers(1, 13):02d}{rng.integers(1, 29):02d}"
    hour, minute, second = rng.integers(0, 24), rng.integers(0, 60), rng.integers(10, 50) + image.number
    time = f"{hour:02d}{minute:02d}{second:02d}.{rng.integers(100, 999)}"
    return {
        **{f"{what}Date": day for what in ("Study", "Series", "Acquisition", "Content")},
        **{f"{what}Time": time for what in ("Study", "Series", "Acquisition", "Content")},
        "AccessionNumber": f"ACC{rng.integers(10**8, 10**9)}",
        "StudyID": f"SID{rng.integers(10**6, 10**7)}",
        "IrradiationEventUID": study.uid("event", image.number),
    }


def _hidden() -> Attributes:
    """Elements that a list of names would not find: inside a sequence, private, and of no stated kind."""
    return {
        "RequestAttributesSequence": [
            {"ScheduledProcedureStepDescription": _NESTED, "RequestedProcedureID": "LEAK-REQUEST-9"}
        ],
        (0x0019, 0x0010, "LO"): "LEAKVENDOR 1.0",
        (0x0019, 0x161B, "LO"): _PRIVATE,
        (0x0029, 0x0010, "LO"): "LEAKVENDOR BLOB",
        (0x0029, 0x1010, "OB"): _PRIVATE.encode() + b"\0",
        (0x0029, 0x1020, "UN"): _PRIVATE.encode() + b"\0",
    }
