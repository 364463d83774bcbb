"""Reading of whitelisted values from DICOM headers, without the pixels.

Only elements in :data:`WHITELIST` are parsed; names, free text, private elements and everything else are skipped
unread. Six fields of :class:`Header` still identify a person: `study_uid`, `series_uid`, `sop_uid`, `patient_key`, and
for finding duplicates `exposure_key` and `source_uids`. They are used for grouping and keyed hashing, must never be
published, and are not in the `repr` of a header.

Headers of real collections have many errors, such as spacings of zero, five spellings of one vendor, and distances of
12.4 and 18.4 beside 1800. An impossible value is returned as None. Nothing is guessed, and an invalid value never stops
the reading of a file.

Texts that may be published are checked. Manufacturer and model are returned only if they contain nothing that looks
like an identifier. A view is returned only in a known spelling, by comparison with exact lists and never with parts of
words (a lateral decubitus image is not a lateral view; an oblique image is neither AP nor PA). View codes are those of
DICOM PS3.16 CID 4010, as SNOMED CT and older SRT codes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reveal_bench.dicom.dataset import HeaderValues, quiet_pydicom, read_dataset, transfer_syntax
from reveal_bench.dicom.files import DicomFile

VIEWS = ("AP", "PA", "LATERAL", "UNKNOWN")

_SPELLINGS = {
    "AP": ("AP", "A P", "ANTERO POSTERIOR", "ANTEROPOSTERIOR", "ANTERIOR POSTERIOR"),
    "PA": ("PA", "P A", "POSTERO ANTERIOR", "POSTEROANTERIOR", "POSTERIOR ANTERIOR"),
    "LATERAL": ("LATERAL", "LAT", "LL", "RL", "LEFT LATERAL", "RIGHT LATERAL", "L LAT", "R LAT", "LARGE LATERAL"),
}
_CODES = {
    "AP": ("399348003", "R-10206"),
    "PA": ("272479007", "R-10214", "R-40888"),
    "LATERAL": ("399067008", "R-102CD", "399173006", "R-10236", "399198007", "R-10232"),
}
_VIEW_OF_SPELLING = {spelling: view for view, spellings in _SPELLINGS.items() for spelling in spellings}
_VIEW_OF_CODE = {code: view for view, codes in _CODES.items() for code in codes}

_BRANDS = {
    "AGFA": "AGFA",
    "CANON": "CANON",
    "CARESTREAM": "CARESTREAM",
    "EASTMAN": "KODAK",
    "FUJI": "FUJIFILM",
    "FUJIFILM": "FUJIFILM",
    "GE": "GE",
    "HOLOGIC": "HOLOGIC",
    "KODAK": "KODAK",
    "KONICA": "KONICA MINOLTA",
    "PHILIPS": "PHILIPS",
    "SAMSUNG": "SAMSUNG",
    "SHIMADZU": "SHIMADZU",
    "SIEMENS": "SIEMENS",
    "TOSHIBA": "TOSHIBA",
    "VAREX": "VAREX",
    "VARIAN": "VARIAN",
}
"""First word of a manufacturer's name -> brand.

A brand that another company took over, such as KODAK, keeps its name.
"""

_COMPANY_WORDS = {
    "AG", "AS", "BV", "CO", "COMPANY", "CORP", "CORPORATION", "ELECTRONICS", "GMBH", "GROUP", "HEALTH", "HEALTHCARE",
    "HEALTHINEERS", "IMAGING", "INC", "KG", "LIMITED", "LLC", "LTD", "MEDICAL", "NV", "SA", "SAS", "SPA", "SRL",
    "SYSTEM", "SYSTEMS", "TECHNOLOGIES", "TECHNOLOGY",
}  # fmt: skip


def canonical_view(position: str | None, codes: Sequence[str] = (), orientation: Sequence[str] = ()) -> str:
    """Return the view: ``AP``, ``PA``, ``LATERAL`` or ``UNKNOWN``.

    Parameters
    ----------
    position : str or None
        ViewPosition as in the file. A known spelling determines the view.
    codes : sequence of str
        Code values of ViewCodeSequence. If `position` does not determine the view and all codes mean the same view,
        they determine it.
    orientation : sequence of str
        PatientOrientation, (direction of rows, direction of columns). Only used if `position` is empty and the codes do
        not determine the view, and only to recognise a lateral view, in which rows run between back and front (``A``,
        ``P``) and columns along the body. AP and PA cannot be distinguished.

    Examples
    --------
    >>> canonical_view("Postero Anterior"), canonical_view("LL"), canonical_view("LLD"), canonical_view("")
    ('PA', 'LATERAL', 'UNKNOWN', 'UNKNOWN')
    >>> canonical_view("", codes=["R-10206"]), canonical_view("", orientation=["A", "F"])
    ('AP', 'LATERAL')
    """
    words = _words(position or "")
    if words in _VIEW_OF_SPELLING:
        return _VIEW_OF_SPELLING[words]
    coded = {_VIEW_OF_CODE.get(code, "UNKNOWN") for code in codes}
    if len(coded) == 1:
        return coded.pop()
    is_lateral = not coded and not words and len(orientation) == 2
    return "LATERAL" if is_lateral and orientation[0] in ("A", "P") and orientation[1] in ("F", "H") else "UNKNOWN"


def canonical_manufacturer(raw: str | None) -> str | None:
    """Return the manufacturer's brand in capitals, without the legal form of the company; None for an empty text.

    Examples
    --------
    >>> canonical_manufacturer("Carestream Health"), canonical_manufacturer("CARESTREAM")
    ('CARESTREAM', 'CARESTREAM')
    >>> canonical_manufacturer("FUJI PHOTO FILM Co., ltd."), canonical_manufacturer("Acme Imaging Systems, Inc.")
    ('FUJIFILM', 'ACME')
    """
    words = _words(raw or "").split()
    if not words:
        return None
    if words[:2] == ["GENERAL", "ELECTRIC"]:
        return "GE"
    if words[0] in _BRANDS:
        return _BRANDS[words[0]]
    while len(words) > 1 and words[-1] in _COMPANY_WORDS:
        words.pop()
    return " ".join(words)


def canonical_model(raw: str | None) -> str | None:
    """Return the model's name in capitals, without quotation marks and with single spaces; None for an empty text.

    Examples
    --------
    >>> canonical_model('"DRX-Revolution" ')
    'DRX-REVOLUTION'
    """
    return " ".join((raw or "").replace('"', " ").upper().split()) or None


def _words(text: str) -> str:
    """Return the words of `text` in capitals, separated by single spaces; punctuation and underscores end a word."""
    return " ".join(re.sub(r"[^\w&]|_", " ", text.upper()).split())


WHITELIST = (
    "StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "PatientID", "SOPClassUID", "Modality", "Rows",
    "Columns", "PhotometricInterpretation", "BitsStored", "ViewPosition", "ViewCodeSequence", "PatientOrientation",
    "PixelSpacing", "ImagerPixelSpacing", "Manufacturer", "ManufacturerModelName", "DetectorType", "KVP", "Exposure",
    "ExposureInuAs", "DistanceSourceToDetector", "PatientAge", "PatientSex", "ImageType", "InstanceNumber",
    "BurnedInAnnotation", "PatientIdentityRemoved", "DeidentificationMethodCodeSequence", "PresentationIntentType",
    "IrradiationEventUID", "AcquisitionDate", "AcquisitionTime", "SourceImageSequence", "BodyPartExamined",
    "FileSetConsistencyFlag",
)  # fmt: skip
"""Keywords of the elements that are read.

Acquisition date and time are used only for the digest `exposure_key`, FileSetConsistencyFlag only to
recognise a DICOMDIR.
"""

CHEST = ("CHEST", "THORAX", "LUNG", "LUNGS", "RIB", "RIBS", "HEART", "MEDIASTINUM")
"""Body parts (DICOM PS3.16 Annex L, and common spellings) that a chest radiograph may state."""
OTHER_PARTS = (
    "ABDOMEN", "ANKLE", "ARM", "BREAST", "CLAVICLE", "CSPINE", "ELBOW", "EXTREMITY", "FEMUR", "FINGER",
    "FOOT", "FOREARM", "HAND", "HEAD", "HIP", "HUMERUS", "JAW", "KNEE", "LEG", "LSPINE", "NECK", "PELVIS",
    "SCAPULA", "SHOULDER", "SKULL", "SPINE", "STERNUM", "TSPINE", "WRIST",
)  # fmt: skip

PLAUSIBLE_DISTANCE_MM = (500.0, 5000.0)
"""Plausible distances from source to detector, in mm: about 1 m for bedside, 1.5 to 2 m for upright radiographs."""

_LONGEST_DEVICE_TEXT = 64
_IDENTIFIER = re.compile(
    r"""\^
    | (?:\d+\.){4,}\d                                                        # a UID
    | \d{9}                                                                  # a number of a person or a device
    | (?<!\d) (?:19|20)\d\d (?P<a>[-./]?) (?:0[1-9]|1[0-2]) (?P=a) (?:0[1-9]|[12]\d|3[01]) (?!\d)   # year first
    | (?<!\d) \d{1,2} (?P<b>[-./]) \d{1,2} (?P=b) (?:19|20)\d\d (?!\d)       # year last
    | (?<!\d) (?:0[1-9]|[12]\d|3[01]){2} (?:19|20)\d\d (?!\d)               # year last, without separators
    """,
    re.VERBOSE | re.ASCII,
)
"""Pattern of text that may identify a person or device and does not occur in names of manufacturers or models."""

_UNITS_IN_A_YEAR = {"D": 365.25, "W": 365.25 / 7, "M": 12.0, "Y": 1.0}


@dataclass(frozen=True, slots=True)
class Header:
    """Whitelisted values of a DICOM file; an absent or unusable value is None.

    Attributes
    ----------
    study_uid, series_uid, sop_uid, patient_key : str or None
        UIDs and PatientID. They must never be published.
    sop_class, modality, photometric, transfer_syntax : str or None
        As in the file; without a meta header, the transfer syntax used for reading.
    rows, columns, bits_stored, instance_number : int or None
    view : str
        ``AP``, ``PA``, ``LATERAL`` or ``UNKNOWN``; see :func:`~reveal_bench.dicom.header.canonical_view`.
    view_raw : str or None
        ViewPosition as in the file if it is a known spelling of a view; other texts could contain anything.
    spacing_mm : (float, float) or None
        Spacing between rows and between columns, in mm.
    spacing_source : str
        ``pixel_spacing``, ``imager_pixel_spacing`` (at the detector: not corrected for magnification) or ``none``.
    manufacturer, model : str or None
        Canonical spelling; `_raw` as in the file, at most 64 characters. None if part of the text may identify a
        person: a UID, a date, a "^" as in DICOM names, or nine consecutive digits.
    detector_type : str or None
        DIRECT, SCINTILLATOR, STORAGE, FILM.
    kvp, exposure_mas : float or None
        Both > 0, in kV and mAs.
    distance_source_to_detector_mm : float or None
        None for values outside :data:`PLAUSIBLE_DISTANCE_MM`, because their unit is uncertain.
    age_years : int or None
        Whole years; only age bands are published.
    sex : str or None
        F, M or O.
    image_type : tuple of str
    burned_in : bool or None
        BurnedInAnnotation; None or False does not prove that there is no text in the pixels.
    deidentified : bool or None
        PatientIdentityRemoved; `deid_methods` are the codes of the methods (PS3.16 CID 7050).
    intent : str or None
        ``PRESENTATION`` or ``PROCESSING``.
    exposure_key : str or None
        Key shared by pictures of the same exposure: IrradiationEventUID, or a digest of date and time. Must never be
        published.
    source_uids : tuple of str
        SOPInstanceUIDs of the pictures from which this picture was made. Must never be published.
    has_pixels : bool
    body_part : str or None
        BodyPartExamined in capitals if it is a known body part; "OTHER" for other texts, which could contain anything.
    coded_view : str or None
        View that ViewCodeSequence or else PatientOrientation states if ViewPosition states another one.
    """

    study_uid: str | None = field(repr=False)
    series_uid: str | None = field(repr=False)
    sop_uid: str | None = field(repr=False)
    patient_key: str | None = field(repr=False)
    sop_class: str | None
    modality: str | None
    rows: int | None
    columns: int | None
    photometric: str | None
    bits_stored: int | None
    transfer_syntax: str
    view: str
    view_raw: str | None
    spacing_mm: tuple[float, float] | None
    spacing_source: str
    manufacturer: str | None
    manufacturer_raw: str | None
    model: str | None
    model_raw: str | None
    detector_type: str | None
    kvp: float | None
    exposure_mas: float | None
    distance_source_to_detector_mm: float | None
    age_years: int | None
    sex: str | None
    image_type: tuple[str, ...]
    instance_number: int | None
    burned_in: bool | None
    deidentified: bool | None
    deid_methods: tuple[str, ...]
    intent: str | None
    exposure_key: str | None = field(repr=False)
    source_uids: tuple[str, ...] = field(repr=False)
    has_pixels: bool
    body_part: str | None = None
    coded_view: str | None = None


def read_header(file: Path | DicomFile) -> Header:
    """Return the whitelisted values of a file, which is read without its pixels.

    Raises
    ------
    DicomError
        If the file cannot be read as DICOM; the message does not name the file.
    ImportError
        If pydicom is not installed.
    """
    with quiet_pydicom(), DicomFile.of(file).open() as stream:
        dataset, has_pixels = read_dataset(stream, WHITELIST, pixels=False)
        sop_class = HeaderValues(dataset.file_meta).text("MediaStorageSOPClassUID")  # a DICOMDIR has no other class
        return _header(HeaderValues(dataset), sop_class, transfer_syntax(dataset), has_pixels)


def _header(facts: HeaderValues, sop_class: str | None, syntax: str, has_pixels: bool) -> Header:
    spacing_mm, spacing_source = pixel_spacing(facts)
    position = facts.text("ViewPosition")
    maker, model = (_device_text(facts.text(keyword)) for keyword in ("Manufacturer", "ManufacturerModelName"))
    view_codes, orientation = facts.items("ViewCodeSequence", "CodeValue"), facts.texts("PatientOrientation")
    view, coded_view = (canonical_view(text, view_codes, orientation) for text in (position, None))
    return Header(
        study_uid=facts.text("StudyInstanceUID"),
        series_uid=facts.text("SeriesInstanceUID"),
        sop_uid=facts.text("SOPInstanceUID"),
        patient_key=facts.text("PatientID"),
        sop_class=facts.text("SOPClassUID") or sop_class,
        modality=facts.word("Modality"),
        rows=facts.integer("Rows"),
        columns=facts.integer("Columns"),
        photometric=facts.word("PhotometricInterpretation"),
        bits_stored=facts.integer("BitsStored"),
        transfer_syntax=syntax,
        view=view,
        view_raw=position if canonical_view(position) != "UNKNOWN" else None,
        spacing_mm=spacing_mm,
        spacing_source=spacing_source,
        manufacturer=canonical_manufacturer(maker),
        manufacturer_raw=maker,
        model=canonical_model(model),
        model_raw=model,
        detector_type=facts.word("DetectorType"),
        kvp=facts.positive("KVP"),
        exposure_mas=_exposure_mas(facts),
        distance_source_to_detector_mm=_distance_mm(facts),
        age_years=age_in_years(facts.text("PatientAge")),
        sex={"F": "F", "FEMALE": "F", "M": "M", "MALE": "M", "O": "O"}.get(facts.word("PatientSex") or ""),
        image_type=tuple(value.upper() for value in facts.texts("ImageType")),
        instance_number=facts.integer("InstanceNumber"),
        burned_in=facts.yes_or_no("BurnedInAnnotation"),
        deidentified=facts.yes_or_no("PatientIdentityRemoved"),
        deid_methods=tuple(facts.items("DeidentificationMethodCodeSequence", "CodeValue")),
        intent={"FOR PRESENTATION": "PRESENTATION", "FOR PROCESSING": "PROCESSING"}.get(
            facts.word("PresentationIntentType") or ""
        ),
        exposure_key=_exposure_key(facts),
        source_uids=tuple(facts.items("SourceImageSequence", "ReferencedSOPInstanceUID")),
        has_pixels=has_pixels,
        body_part=_body_part(facts.word("BodyPartExamined")),
        coded_view=None if "UNKNOWN" in (view, coded_view) or view == coded_view else coded_view,
    )


def _body_part(word: str | None) -> str | None:
    """Return a known body part, "OTHER" for other texts, which could contain anything, or None."""
    if word and "CHEST" in word:  # also PORT CHEST and CHEST 2 VIEWS
        return "CHEST"
    return word if word in (*CHEST, *OTHER_PARTS) else "OTHER" if word else None


def age_in_years(text: str | None) -> int | None:
    """Return an age such as ``063Y``, ``018M``, ``09W`` or ``012D`` in whole years; None without a unit or above 130.

    Examples
    --------
    >>> age_in_years("063Y"), age_in_years("018M"), age_in_years("63"), age_in_years("900Y")
    (63, 1, None, None)
    """
    match = re.fullmatch(r"(\d{1,3}) ?([DWMY])", (text or "").upper(), re.ASCII)
    if match is None:
        return None
    years = int(int(match[1]) / _UNITS_IN_A_YEAR[match[2]])
    return years if years <= 130 else None


def _device_text(text: str | None) -> str | None:
    """Return a manufacturer or model unchanged, or None if part of the text may identify a person."""
    is_fit = text is not None and len(text) <= _LONGEST_DEVICE_TEXT and not _IDENTIFIER.search(text)
    return text if is_fit else None


def pixel_spacing(facts: HeaderValues) -> tuple[tuple[float, float] | None, str]:
    """Return (spacing between rows and between columns in mm, source).

    The source is PixelSpacing if valid, otherwise ImagerPixelSpacing; (None, "none") without either.
    """
    for keyword, source in (("PixelSpacing", "pixel_spacing"), ("ImagerPixelSpacing", "imager_pixel_spacing")):
        numbers = facts.numbers(keyword)
        if len(numbers) == 2 and min(numbers) > 0:
            return (numbers[0], numbers[1]), source
    return None, "none"


def _exposure_mas(facts: HeaderValues) -> float | None:
    """Return the exposure in mAs: the more precise ExposureInuAs, unless it contradicts Exposure."""
    whole, micro = facts.positive("Exposure"), facts.positive("ExposureInuAs")
    if micro is not None and (whole is None or abs(micro / 1000 - whole) <= 1):
        return micro / 1000
    return whole


def _distance_mm(facts: HeaderValues) -> float | None:
    distance = facts.positive("DistanceSourceToDetector")
    low, high = PLAUSIBLE_DISTANCE_MM
    return distance if distance is not None and low <= distance <= high else None


def _exposure_key(facts: HeaderValues) -> str | None:
    event = facts.text("IrradiationEventUID")
    if event:
        return event
    date, time = facts.text("AcquisitionDate"), facts.text("AcquisitionTime")
    return hashlib.sha256(f"{date} {time}".encode()).hexdigest() if date and time else None
