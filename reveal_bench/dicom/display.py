"""Which display steps a file asks for, in words and as a :class:`~reveal_bench.dicom.grey.Display`.

Choices, where DICOM leaves one or files break its rules
--------------------------------------------------------
- A modality table goes before slope and intercept; of these, one without the other is not applied (and said).
- A VOI table goes before windows; of several tables or windows the first is taken.
- Without either: the full range of the stored bits.
- Inverted if and only if the photometric interpretation is MONOCHROME1, after VOI. PresentationLUTShape never inverts:
  INVERSE with MONOCHROME1 names the same inversion again; with MONOCHROME2 it contradicts, and a warning says so.
- HighBit: missing is BitsStored - 1; another value is refused, since viewers differ on what it means.
- PixelPaddingValue has no special treatment: padding takes the grey of its value, as pydicom shows it.
- A window or table that is there but unusable (no number, no width) is an error, never replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from reveal_bench.dicom.facts import Facts
from reveal_bench.dicom.files import DicomError
from reveal_bench.dicom.grey import Display, Lut, Rescale, Window

if TYPE_CHECKING:
    from pydicom import Dataset

__all__ = ["KEYWORDS", "Plan", "plan_display"]

KEYWORDS = (
    "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "PhotometricInterpretation",
    "ModalityLUTSequence", "RescaleSlope", "RescaleIntercept", "VOILUTSequence", "WindowCenter", "WindowWidth",
    "VOILUTFunction", "PresentationLUTShape", "PresentationIntentType",
)  # fmt: skip
"""Elements read to decide on the display."""

_FUNCTIONS = ("LINEAR", "LINEAR_EXACT", "SIGMOID")


@dataclass(frozen=True, slots=True)
class Plan:
    """`display`, its `steps` in words, and `warnings` about what the file says."""

    display: Display
    steps: tuple[str, ...]
    warnings: tuple[str, ...]


def plan_display(dataset: Dataset) -> Plan:
    """Read what the file asks for.

    Raises
    ------
    DicomError
        If an element that decides on the display is missing or unusable.
    """
    facts = Facts(dataset)
    warnings: list[str] = []
    bits, is_signed = _bits(facts, warnings)
    modality, modality_step = _modality(dataset, facts, is_signed, warnings)
    low, _ = Display(bits, is_signed, modality).modality_range
    voi, voi_step = _voi(dataset, facts, low < 0, warnings)
    is_inverted = _is_inverted(facts, warnings)
    if facts.word("PresentationIntentType") == "FOR PROCESSING":
        warnings.append("FOR PROCESSING: raw detector values, not yet processed for display")
    steps = [modality_step, voi_step, *(["invert (MONOCHROME1)"] if is_inverted else []), "8 bit"]
    return Plan(Display(bits, is_signed, modality, voi, is_inverted), tuple(steps), tuple(warnings))


def _bits(facts: Facts, warnings: list[str]) -> tuple[int, bool]:
    bits, high, sign = (facts.integer(key) for key in ("BitsStored", "HighBit", "PixelRepresentation"))
    if bits is None or not 1 <= bits <= 16:
        raise DicomError(f"BitsStored must lie in [1, 16], got {bits}")
    allocated = facts.integer("BitsAllocated")
    if allocated is not None and bits > allocated:
        raise DicomError(f"BitsStored {bits} is more than BitsAllocated {allocated}")
    if sign not in (0, 1):
        raise DicomError(f"PixelRepresentation must be 0 or 1, got {sign}")
    if high is None:
        warnings.append("HighBit is missing: BitsStored - 1 is taken")
    elif high != bits - 1:
        raise DicomError(f"HighBit must be BitsStored - 1 ({bits - 1}), got {high}")
    return bits, bool(sign)


def _is_inverted(facts: Facts, warnings: list[str]) -> bool:
    photometric, shape = facts.word("PhotometricInterpretation"), facts.word("PresentationLUTShape")
    is_inverted = photometric == "MONOCHROME1"
    if shape is not None and (shape == "INVERSE") != is_inverted:
        done = "inverted" if is_inverted else "not inverted"
        warnings.append(f"PresentationLUTShape {shape} contradicts {photometric}, which is followed: {done}")
    return is_inverted


def _modality(dataset: Dataset, facts: Facts, is_signed: bool, warnings: list[str]) -> tuple[Rescale | Lut | None, str]:
    tables = _items(dataset, "ModalityLUTSequence")
    if tables:
        return _lut(tables[0], "ModalityLUTSequence", is_signed), "modality lut"
    slope, intercept = _number(facts, "RescaleSlope"), _number(facts, "RescaleIntercept")
    if slope is None and intercept is None:
        return None, "no modality step"
    if slope is None or intercept is None:
        warnings.append("RescaleSlope and RescaleIntercept are not both given: neither is applied")
        return None, "no modality step"
    if slope == 0:
        raise DicomError("RescaleSlope must not be 0")
    return Rescale(slope, intercept), "modality slope/intercept"


def _voi(dataset: Dataset, facts: Facts, is_signed: bool, warnings: list[str]) -> tuple[Window | Lut | None, str]:
    tables = _items(dataset, "VOILUTSequence")
    if tables:
        lut = _lut(tables[0], "VOILUTSequence", is_signed)
        highest, possible = int(lut.entries.max()), (1 << lut.bits) - 1
        if highest < possible // 2:
            warnings.append(f"VOILUTSequence reaches {highest} of {possible}: the picture is dark")
        return lut, f"voi lut 1 of {len(tables)}"
    center, width = _number(facts, "WindowCenter"), _number(facts, "WindowWidth")
    if center is None or width is None:
        if (center is None) != (width is None):
            warnings.append("WindowCenter and WindowWidth are not both given: no window is applied")
        warnings.append("no VOI LUT and no window: the full range that the stored bits can hold is shown")
        return None, "full range"
    function = facts.word("VOILUTFunction") or "LINEAR"
    if function not in _FUNCTIONS:
        raise DicomError(f"VOILUTFunction must be one of {', '.join(_FUNCTIONS)}, got {function}")
    if width < 1 if function == "LINEAR" else width <= 0:
        least = "at least 1" if function == "LINEAR" else "above 0"
        raise DicomError(f"WindowWidth must be {least} for {function}, got {width:g}")
    return Window(center, width, function), f"voi window 1 of {len(facts.texts('WindowCenter'))} {function}"


def _number(facts: Facts, keyword: str) -> float | None:
    """The first value; None if absent or empty."""
    texts = facts.texts(keyword)
    if not texts or not texts[0]:
        return None
    try:
        value = float(texts[0])
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise DicomError(f"{keyword} must be a number, got {texts[0]!r}")
    return value


def _items(dataset: Dataset, keyword: str) -> list[Dataset]:
    try:
        return list(dataset.get(keyword) or ())
    except Exception:  # pydicom meets damaged sequences with many kinds
        raise DicomError(f"{keyword} cannot be read") from None


def _lut(item: Dataset, sequence: str, is_signed: bool) -> Lut:
    """A table (PS3.3 C.11.1.1): descriptor (entries, first value, bits), then data in words, or in bytes if 8 bits.

    Whether the first value is signed follows from the values that enter the table, not from the representation
    written: files without explicit representations do not tell.
    """
    descriptor, data = _words(item, "LUTDescriptor", sequence), _words(item, "LUTData", sequence)
    if len(descriptor) != 3:
        raise DicomError(f"{sequence} has a descriptor of {len(descriptor)} values, expected 3")
    n_entries, first, bits = int(descriptor[0]) or 1 << 16, int(descriptor[1]), int(descriptor[2])
    if not 8 <= bits <= 16:
        raise DicomError(f"{sequence} must have entries of 8 to 16 bits, got {bits}")
    if bits == 8 and len(data) == (n_entries + 1) // 2 and n_entries > 1:
        data = data.astype("<u2").view(np.uint8)[:n_entries]
    if len(data) != n_entries:
        raise DicomError(f"{sequence} holds {len(data)} entries, its descriptor says {n_entries}")
    if data.max() >= 1 << bits:
        raise DicomError(f"{sequence} holds {data.max()}, more than its {bits} bits")
    return Lut(first - (1 << 16) if is_signed and first >= 1 << 15 else first, data, bits)


def _words(item: Dataset, keyword: str, sequence: str) -> np.ndarray:
    """16-bit words as unsigned, whatever representation they were written in."""
    from pydicom.dataelem import RawDataElement

    try:
        element = item.get_item(keyword)
        value = element.value
        is_little_endian = element.is_little_endian if isinstance(element, RawDataElement) else True
        if isinstance(value, bytes):
            return np.frombuffer(value[: len(value) // 2 * 2], "<u2" if is_little_endian else ">u2")
        return np.atleast_1d(np.asarray(value, dtype=np.int64)) & 0xFFFF
    except Exception:  # absent, or no numbers
        raise DicomError(f"{sequence} has no usable {keyword}") from None
