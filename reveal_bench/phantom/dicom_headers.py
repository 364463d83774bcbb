"""Make headers of synthetic DICOM files, with invented identifiers that must not get into a dataset.

Even de-identified real files may contain names, dates, places and private elements. These headers contain such values
on purpose, in every kind of element that is known to leak: text, names, dates, comments, elements in sequences, and
private elements with and without a stated type. :func:`identifiers` lists the values that a test must not find in a
dataset.

Acquisition parameters are spelled as in real files. Vendors, models, detectors, distances, kVp, mAs and spacings are
from Table S2 of paper 004 (both halves together), with their proportions there. Values of one machine occur together.
Spacings are the published ones, whatever the size of the image. Elements are missing, empty, zero or duplicated as
often as in the 7,469 headers of :mod:`reveal_bench.phantom.reveal_pixels`; rates in neither source are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reveal_bench.phantom.choices import choose
from reveal_bench.phantom.reveal_studies import RevealImage, RevealStudy


@dataclass(frozen=True, slots=True)
class Machine:
    """A manufacturer and a model in one spelling; `share` is the weight, as a number of images in Table S2."""

    share: float
    manufacturer: str
    model: str
    detector: str
    spacing: str
    distances: tuple[str, ...] = ()


MACHINES = (
    Machine(86, "CARESTREAM HEALTH", "DRX-REVOLUTION", "DIRECT", "0.139", ("0.0", "1000", "")),
    Machine(71, "Carestream Health", "DRX-Revolution", "DIRECT", "0.139", ("0.0", "1000", "")),
    Machine(15, "Carestream", "DRX-Revolution", "DIRECT", "0.139", ("1000", "")),
    Machine(3, "Carestream Health", "DRX-EVOLUTION", "DIRECT", "0.139", ("1828", "1829")),
    Machine(1, "CARESTREAM", "DRX-1", "", "0.139", ("18.4",)),
    Machine(2, "KODAK", "DRX-1", "DIRECT", "0.139", ("12.4", "0.0")),
    Machine(2, "KODAK", "DR 7500", "SCINTILLATOR", "0.143", ("1810", "1811")),
    Machine(13, "GE Healthcare", "Discovery XR656", "SCINTILLATOR", "0.194311", ("1817", "1828", "1829")),
    Machine(2, "GE MEDICAL SYSTEMS", '"Revolution XRd ADS 28.4"', "SCINTILLATOR", "0.1988", ("1830",)),
    Machine(9, "Philips Medical Systems", "DigitalDiagnost", "SCINTILLATOR", "0.1488959823886", ("1800", "1885")),
    Machine(4, "Imaging Dynamics Company Ltd.", "X3", "SCINTILLATOR", "0.144", ("",)),
    Machine(2, "KONICA MINOLTA", "CS-7", "", "0.175", ("0.0", "")),
    Machine(14, "GE Healthcare", "Definium 5000", "SCINTILLATOR", "0.1988", ("1828", "1829")),
)

AT_BEDSIDE = ("DRX-REVOLUTION", "DRX-Revolution", "DRX-1")
"""Mobile models; the others are stationary."""

KVP_AT_BEDSIDE = {"85": 69, "110": 79, "95": 7, "90": 4, "100": 4, "83": 1, "107": 1}
KVP_IN_A_ROOM = {"120": 30, "115": 11, "125": 5, "140": 1, "112": 1}
MAS = (
    1.6, 1.6, 2.0, 2.0, 2.2, 2.5, 2.8, 3.1, 3.1, 3.2, 3.2, 3.2, 3.9, 4.0, 4.0, 4.5, 5.0, 5.6, 6.3, 7.1, 10.1,
    12.5, 19.8,
)  # fmt: skip

POSITIONS: dict[str, dict[str | None, float]] = {
    "AP": {"AP": 0.93, "": 0.05, None: 0.02},
    "PA": {"PA": 0.80, "POSTERO ANTERIOR": 0.17, "": 0.03},
    "LATERAL": {"LL": 0.72, "LATERAL": 0.15, "RL": 0.07, "LARGE LATERAL": 0.02, "": 0.04},
}
"""View -> spellings of ViewPosition."""
VIEW_CODES = {
    "AP": ("399348003", "antero-posterior"),
    "PA": ("272479007", "postero-anterior"),
    "LATERAL": ("399067008", "lateral projection"),
}
BODY_PARTS = {"CHEST": 0.80, "PORT CHEST": 0.12, "EXTREMETY": 0.03, "": 0.05}
SPACINGS = {"imager": 0.34, "different": 0.12, "zero": 0.02, "pixel": 0.02, "both": 0.50}
"""Probabilities of the ways in which PixelSpacing and ImagerPixelSpacing are present; 34% and 12% are measured."""


def draw_acquisition(rng: np.random.Generator, view: str, *, at_bedside: bool) -> Attributes:
    """Return the attributes of one exposure (DICOM keyword -> value)."""
    machines = [machine for machine in MACHINES if (machine.model in AT_BEDSIDE) == at_bedside]
    machine = choose(rng, {machine: machine.share for machine in machines})
    is_computed = rng.random() < 0.15
    attributes: Attributes = {
        "Modality": "CR" if is_computed or rng.random() < 962 / 7469 else "DX",
        "SOPClassUID": "1.2.840.10008.5.1.4.1.1.1" + ("" if is_computed else ".1"),
        "Manufacturer": machine.manufacturer,
        "ManufacturerModelName": machine.model,
        "KVP": choose(rng, KVP_AT_BEDSIDE if at_bedside else KVP_IN_A_ROOM),
        "ImageType": ["ORIGINAL" if rng.random() < 0.4 else "DERIVED", "PRIMARY"],
        "PresentationIntentType": None if is_computed else "FOR PRESENTATION",
        "BodyPartExamined": choose(rng, BODY_PARTS),
        "InstanceNumber": choose(rng, {"1": 0.6, "2": 0.2, "1001": 0.1, "": 0.1}),
    }
    if machine.detector:
        attributes["DetectorType"] = machine.detector
    mas = MAS[int(rng.integers(len(MAS)))]
    attributes["Exposure"] = str(max(round(mas), 1))
    if rng.random() < 0.8:
        attributes["ExposureInuAs"] = str(round(1000 * mas))
    distance = machine.distances[int(rng.integers(len(machine.distances)))]
    if distance:
        attributes["DistanceSourceToDetector"] = distance
    attributes.update(_spacing(rng, machine.spacing))
    attributes.update(_view(rng, view))
    return {keyword: value for keyword, value in attributes.items() if value is not None}


def _spacing(rng: np.random.Generator, spacing: str) -> Attributes:
    kind = choose(rng, SPACINGS)
    twice = f"{spacing}\\{spacing}"
    at_patient = f"{0.96 * float(spacing):.6f}"
    attributes: dict[str, Attributes] = {
        "imager": {"ImagerPixelSpacing": twice},
        "different": {"ImagerPixelSpacing": twice, "PixelSpacing": f"{at_patient}\\{at_patient}"},
        "zero": {"ImagerPixelSpacing": twice, "PixelSpacing": "0.000\\0.000"},
        "pixel": {"PixelSpacing": twice},
        "both": {"ImagerPixelSpacing": twice, "PixelSpacing": twice},
    }
    return attributes[kind]


def _view(rng: np.random.Generator, view: str) -> Attributes:
    position = choose(rng, POSITIONS[view])
    attributes: Attributes = {"ViewPosition": position}
    if rng.random() < 0.3:
        code, meaning = VIEW_CODES[view]
        item = {"CodeValue": code, "CodingSchemeDesignator": "SCT", "CodeMeaning": meaning}
        attributes["ViewCodeSequence"] = [item]
    attributes["PatientOrientation"] = "A\\F" if view == "LATERAL" else "L\\F"
    return attributes


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
"""Identifying element -> value in every file in which :func:`draw_header` plants identifiers."""

_PRIVATE = "Leakington in a private element"
_NESTED = "Leakington in a sequence"
DEIDENTIFIED_CHANCE = 0.95
"""Elements that a de-identification tool writes about itself (PS3.15, Annex E)."""


def draw_header(study: RevealStudy, image: RevealImage, rng: np.random.Generator, *, plant: bool = True) -> Attributes:
    """Return the attributes of an image except those of its pixels; with `plant`, add identifiers that must not leak.

    Examples
    --------
    >>> from reveal_bench.phantom.reveal_studies import studies
    >>> study = next(studies(seed=0))
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
    """Return all values of an image's header that must not get into a dataset: texts, dates, numbers, UIDs."""
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
    """Return identifying elements that a list of names would miss: in a sequence, private, or without a stated type."""
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
