"""Which files are original projection radiographs, which are doubles, and what says that they were de-identified.

Nothing is dropped in silence: every file that is set aside carries its reason. BodyPartExamined is not looked at (chest
films are labelled EXTREMETY, sic).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reveal_bench.dicom.files import DicomFile
from reveal_bench.dicom.header import Header

__all__ = ["Duplicate", "deid_warnings", "find_duplicates", "set_aside"]

_STORAGE = "1.2.840.10008.5.1.4.1.1."
_RADIOGRAPHS = {_STORAGE + "1", _STORAGE + "1.1", _STORAGE + "1.1.1"}
"""Computed Radiography; Digital X-Ray for presentation and for processing (PS3.4 B.5)."""

_OTHER_CLASSES = (
    ("1.2.840.10008.1.3.10", "a DICOMDIR, the index of a medium"),
    (_STORAGE + "7", "a secondary capture (SOP class)"),
    (_STORAGE + "11", "a presentation state, not a picture"),
    (_STORAGE + "88", "a structured report or key object selection, not a picture"),
    (_STORAGE + "104", "an encapsulated document, not a picture"),
)
_MODALITIES = ("CR", "DX")
_CLEAN_PIXELS = "113101"


def set_aside(header: Header, *, allow_secondary: bool = False) -> str | None:
    """Why a file is not an original projection radiograph; None if it is one.

    Parameters
    ----------
    header : Header
    allow_secondary : bool
        Accept secondary captures of modality CR or DX: some public collections (RSNA Pneumonia, SIIM-ACR) were
        re-saved as such.

    Notes
    -----
    A missing SOP class or modality is no reason: de-identification often takes them out. CR with the SOP class of DX is
    accepted.
    """
    is_secondary = (header.sop_class or "").startswith(_STORAGE + "7")
    if header.sop_class and header.sop_class not in _RADIOGRAPHS and not (is_secondary and allow_secondary):
        return _class_reason(header.sop_class)
    if header.modality and header.modality not in _MODALITIES:
        return f"modality {header.modality}, not CR or DX"
    if not header.has_pixels:
        return "no pixel data, or the file was cut off before them"
    if not header.rows or not header.columns:
        return "no picture: Rows or Columns are missing"
    if header.photometric and not header.photometric.startswith("MONOCHROME"):
        return f"a colour picture ({header.photometric})"
    if header.image_type[:2] == ("DERIVED", "SECONDARY") and not allow_secondary:
        return "derived secondary picture (ImageType)"
    if "LOCALIZER" in header.image_type:
        return "localizer (ImageType)"
    return None


def _class_reason(sop_class: str) -> str:
    for prefix, reason in _OTHER_CLASSES:
        if sop_class == prefix or sop_class.startswith(f"{prefix}."):
            return reason
    return f"SOP class {sop_class} is not that of a radiograph (CR, DX)"


@dataclass(frozen=True, slots=True)
class Duplicate:
    """`file` shows what `of` shows, for this `reason`; or, as a conflict, claims to and does not."""

    file: DicomFile
    of: DicomFile
    reason: str
    is_conflict: bool = False


def find_duplicates(
    found: Sequence[tuple[DicomFile, Header]], pixel_sha256: Mapping[DicomFile, str] | None = None
) -> list[Duplicate]:
    """Files that repeat another one; of each group the first stays.

    Parameters
    ----------
    found : sequence of (file, header)
        In the order of preference.
    pixel_sha256 : mapping, optional
        Hash of the developed pixels of some or all files.

    Returns
    -------
    list of Duplicate
        In the order of `found`; no file twice. Rules, the first that fits:

        1. The SOPInstanceUID of an earlier file: a double if pixels (or, where not hashed, all header facts) agree,
           else a conflict, since one of the two files is not what it says.
        2. FOR PROCESSING beside FOR PRESENTATION of the same exposure in one study: the picture for presentation
           stays. The same exposure is: named as source, the same exposure key, or the same view, kVp and mAs.
        3. The same pixels as an earlier file of the study.
    """
    hashes = pixel_sha256 or {}
    presentations: dict[str | None, list[tuple[DicomFile, Header]]] = {}
    for file, header in found:
        if header.intent == "PRESENTATION":
            presentations.setdefault(header.study_uid, []).append((file, header))
    by_uid: dict[str, tuple[DicomFile, Header]] = {}
    by_pixels: dict[tuple[str | None, str], DicomFile] = {}
    duplicates = []
    for file, header in found:
        duplicate = _same_uid(file, header, by_uid, hashes)
        if duplicate is None and header.intent == "PROCESSING":
            duplicate = _processed_elsewhere(file, header, presentations.get(header.study_uid, ()))
        if duplicate is None and file in hashes:
            first = by_pixels.setdefault((header.study_uid, hashes[file]), file)
            duplicate = None if first == file else Duplicate(file, first, "the same pixels in the same study")
        if duplicate is not None:
            duplicates.append(duplicate)
    return duplicates


def _same_uid(
    file: DicomFile, header: Header, by_uid: dict[str, tuple[DicomFile, Header]], hashes: Mapping[DicomFile, str]
) -> Duplicate | None:
    if header.sop_uid is None:
        return None
    first, its_header = by_uid.setdefault(header.sop_uid, (file, header))
    if first == file:
        return None
    if file in hashes and first in hashes:
        agree, what = hashes[file] == hashes[first], "pixels"
    else:
        agree, what = header == its_header, "header facts"
    if agree:
        return Duplicate(file, first, f"the same SOPInstanceUID and {what}")
    return Duplicate(file, first, f"the same SOPInstanceUID but other {what}: one is not what it says", True)


def _processed_elsewhere(
    file: DicomFile, header: Header, presentations: Iterable[tuple[DicomFile, Header]]
) -> Duplicate | None:
    for other, shown in presentations:
        why = _same_exposure(header, shown)
        if why:
            return Duplicate(file, other, f"FOR PROCESSING; its exposure ({why}) is there FOR PRESENTATION")
    return None


def _same_exposure(raw: Header, shown: Header) -> str | None:
    if raw.sop_uid is not None and raw.sop_uid in shown.source_uids:
        return "named as source"
    if raw.exposure_key is not None and shown.exposure_key is not None:
        return "same exposure key" if raw.exposure_key == shown.exposure_key else None
    settings = (raw.kvp, raw.exposure_mas)
    same = None not in settings and settings == (shown.kvp, shown.exposure_mas) and raw.view == shown.view
    return "same view, kVp and mAs" if same else None


def deid_warnings(header: Header) -> list[str]:
    """What a publisher must look at before pixels or facts of this file leave the house.

    The markers are those of DICOM PS3.15 Annex E. None of them proves anything: they are what a tool wrote.
    """
    warnings = []
    if header.deidentified is None:
        warnings.append("PatientIdentityRemoved is absent: nothing says that the file was de-identified")
    elif not header.deidentified:
        warnings.append("PatientIdentityRemoved is NO: the file says that it was not de-identified")
    elif not header.deid_methods:
        warnings.append("PatientIdentityRemoved is YES, but no coded method says how")
    if header.burned_in:
        warnings.append("BurnedInAnnotation is YES: the pixels hold text that may identify the patient")
    elif _CLEAN_PIXELS not in header.deid_methods:
        said = "absent" if header.burned_in is None else "NO"
        warnings.append(f"no method says that the pixels were cleaned (113101); BurnedInAnnotation {said} is no proof")
    return warnings
