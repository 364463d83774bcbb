"""Conversion of stored pixel values to 8-bit grey levels, by the display settings of a DICOM file.

The steps are those of DICOM PS3.3 C.11.1 and C.11.2, in this order: modality LUT (a table, or slope and intercept), VOI
LUT (a table or a window), inversion, 8 bits. Each step is computed once for all 256 or 65,536 values that a pixel can
have, in float64; only the last step rounds, half to even. A picture then needs only one table look-up per pixel. Bits
above BitsStored (old files keep overlays there) are ignored.

Choices where DICOM allows several possibilities or files break its rules
--------------------------------------------------------
- A modality table takes precedence over slope and intercept. If only one of slope and intercept is present, it is not
  applied, and a warning is given.
- A VOI table takes precedence over windows; the first of several tables or windows is used.
- Without a VOI table and a window, the full range of the stored bits is shown.
- If a table or window is unusable (no numbers, no width), or shows nothing (:mod:`reveal_bench.dicom.contrast`), the
  next way is used, with a warning: the other tables, the windows, the full range of the stored bits, the range of the
  picture's values without padding, and finally of 98% of them. If nothing shows more, the first usable way is kept.
- The picture is inverted, after VOI, if and only if the photometric interpretation is MONOCHROME1. PresentationLUTShape
  never inverts: INVERSE with MONOCHROME1 refers to the same inversion; with MONOCHROME2 it is a contradiction and
  causes a warning.
- A missing HighBit is taken as BitsStored - 1; any other value is an error, because viewers interpret it differently.
- Padding (PixelPaddingValue, to PixelPaddingRangeLimit) gets the grey level of its value, as in pydicom; it only counts
  as padding when contrast is measured, unless it is the whole picture. Its 16 bits are signed like the pixels,
  whatever its VR.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reveal_bench.dicom.contrast import Counts, contrast_fault, counts_within_border
from reveal_bench.dicom.dataset import HeaderValues
from reveal_bench.dicom.files import DicomError

if TYPE_CHECKING:
    from pydicom import Dataset

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rescale:
    """Rescaling to slope * value + intercept; the slope may be negative but not 0."""

    slope: float
    intercept: float


@dataclass(frozen=True, slots=True)
class Lut:
    """A look-up table; values up to `first` map to the first entry, values beyond the end to the last entry.

    Entries have `bits` bits.
    """

    first: int
    entries: npt.NDArray[np.integer[Any]]
    bits: int


@dataclass(frozen=True, slots=True)
class Window:
    """A VOI window; `function` is LINEAR (width at least 1), LINEAR_EXACT or SIGMOID (width above 0)."""

    center: float
    width: float
    function: str = "LINEAR"


@dataclass(frozen=True, slots=True)
class DisplaySettings:
    """The steps that turn stored values into grey levels.

    Without `voi`, black to white is the full range of the stored bits (after `modality`), not the range of values in
    the picture, so that two pictures from the same detector stay comparable.
    """

    bits_stored: int
    is_signed: bool
    modality: Rescale | Lut | None = None
    voi: Window | Lut | None = None
    invert: bool = False

    @property
    def stored_range(self) -> tuple[int, int]:
        """(lowest, highest) value that BitsStored allows."""
        if self.is_signed:
            return -(1 << self.bits_stored - 1), (1 << self.bits_stored - 1) - 1
        return 0, (1 << self.bits_stored) - 1

    @property
    def modality_range(self) -> tuple[float, float]:
        """(lowest, highest) value after the modality step."""
        low, high = self.stored_range
        if isinstance(self.modality, Lut):
            return 0.0, float((1 << self.modality.bits) - 1)
        if isinstance(self.modality, Rescale):
            ends = [self.modality.slope * end + self.modality.intercept for end in (low, high)]
            return min(ends), max(ends)
        return float(low), float(high)


def grey_table(display: DisplaySettings, *, container_bits: int) -> npt.NDArray[np.uint8]:
    """Return the grey level of every bit pattern of a pixel.

    Parameters
    ----------
    display : DisplaySettings
    container_bits : int
        BitsAllocated: 8 or 16.

    Returns
    -------
    uint8 array, shape (2 ** container_bits,)
        Grey level of each pattern, which is read as an unsigned index; 0 is black.

    Examples
    --------
    >>> grey_table(DisplaySettings(8, is_signed=False, voi=Window(128, 256)), container_bits=8)[[0, 100, 255]].tolist()
    [0, 100, 255]
    """
    low, high = display.modality_range
    values = _after_modality(_stored_values(display, container_bits), display.modality)
    if isinstance(display.voi, Lut):
        levels = _look_up(values, display.voi) / ((1 << display.voi.bits) - 1)
    elif isinstance(display.voi, Window):
        levels = _windowed(values, display.voi)
    else:
        levels = (values - low) / (high - low)
    if display.invert:
        levels = 1 - levels
    return np.rint(levels * 255).astype(np.uint8)


def _stored_values(display: DisplaySettings, container_bits: int) -> Floats:
    """Return the value of each bit pattern: its lowest BitsStored bits, in two's complement if signed."""
    patterns = np.arange(1 << container_bits) & ((1 << display.bits_stored) - 1)
    if display.is_signed:
        patterns = np.where(patterns >> (display.bits_stored - 1), patterns - (1 << display.bits_stored), patterns)
    return patterns.astype(np.float64)


def _after_modality(values: Floats, modality: Rescale | Lut | None) -> Floats:
    if isinstance(modality, Lut):
        return _look_up(values, modality)
    if isinstance(modality, Rescale):
        return values * modality.slope + modality.intercept
    return values


def _look_up(values: Floats, lut: Lut) -> Floats:
    index = np.clip(np.floor(values) - lut.first, 0, len(lut.entries) - 1).astype(np.intp)
    entries: Floats = lut.entries[index].astype(np.float64)
    return entries


@np.errstate(over="ignore")  # with a tiny width, infinities become black and white
def _windowed(values: Floats, window: Window) -> Floats:
    """Return the window's output as a fraction of its range (PS3.3 C.11.2.1.2.1, C.11.2.1.3.1 and C.11.2.1.3.2)."""
    center, width = window.center, window.width
    if window.function == "SIGMOID":
        return (1 + np.exp(np.clip(-4 * (values - center) / width, -700, 700))) ** -1.0
    if window.function == "LINEAR":
        center, width = center - 0.5, width - 1
    if width == 0:
        return (values > center).astype(np.float64)
    levels = (values - center) / width + 0.5
    return np.minimum(np.maximum(levels, 0), 1)


KEYWORDS = (
    "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "PhotometricInterpretation",
    "ModalityLUTSequence", "RescaleSlope", "RescaleIntercept", "VOILUTSequence", "WindowCenter", "WindowWidth",
    "VOILUTFunction", "PresentationLUTShape", "PresentationIntentType", "PixelPaddingValue", "PixelPaddingRangeLimit",
)  # fmt: skip
"""Keywords of the elements that determine the display."""

_FUNCTIONS = ("LINEAR", "LINEAR_EXACT", "SIGMOID")


@dataclass(frozen=True, slots=True)
class Voi:
    """A VOI step: its table or window, None for the full range of the stored bits, and its name in the pipeline."""

    way: Window | Lut | None
    step: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Display settings of a file without the VOI step, usable VOI steps in order of preference, and warnings.

    Attributes
    ----------
    display : settings without VOI
    modality_step : name of the modality step in the pipeline
    vois : VOI steps; the last is the full range of the stored bits
    padding : (lowest, highest) stored value of padding; None without padding
    warnings : notes on the file's values
    """

    display: DisplaySettings
    modality_step: str
    vois: tuple[Voi, ...]
    padding: tuple[int, int] | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChosenDisplay:
    """The chosen display of a picture.

    Attributes
    ----------
    display, steps : settings, and the names of all steps for the pipeline
    warnings : notes on the file's values, and on ways that showed nothing
    fault : what is wrong with the contrast, from :func:`~reveal_bench.dicom.contrast.contrast_fault`; "" if nothing
    """

    display: DisplaySettings
    steps: tuple[str, ...]
    warnings: tuple[str, ...]
    fault: str


def plan_display(dataset: Dataset) -> Plan:
    """Return the display settings that a file specifies.

    Raises
    ------
    DicomError
        If an element that determines the display is missing or unusable, other than a VOI table or window.
    """
    facts = HeaderValues(dataset)
    warnings: list[str] = []
    bits, is_signed = _bits(facts, warnings)
    modality, modality_step = _modality(dataset, facts, is_signed, warnings)
    display = DisplaySettings(bits, is_signed, modality, invert=_is_inverted(facts, warnings))
    low, high = display.modality_range
    if not 0 < high - low < float("inf"):  # also if it is not a number
        raise DicomError("RescaleSlope and RescaleIntercept must keep the values finite and different")
    vois = _vois(dataset, facts, low < 0, warnings)
    if facts.word("PresentationIntentType") == "FOR PROCESSING":
        warnings.append("FOR PROCESSING: raw detector values, not yet processed for display")
    return Plan(display, modality_step, vois, _padding(facts, is_signed), tuple(warnings))


def choose_display(
    plan: Plan, patterns: npt.NDArray[np.unsignedinteger], stream_bits: int | None = None
) -> ChosenDisplay:
    """Return the first of the planned ways that shows something; the first way of all if none does.

    Parameters
    ----------
    patterns : uint8 or uint16 array
        The bits of each pixel as stored.
    stream_bits : int or None
        Bits per sample of the compressed stream if they take precedence over BitsStored.
    """
    plan = replace(plan, display=replace(plan.display, bits_stored=stream_bits or plan.display.bits_stored))
    container_bits = 8 * patterns.dtype.itemsize
    counts = counts_within_border(patterns)
    stored = _stored_values(plan.display, container_bits)
    if plan.padding is not None:
        is_padding = (plan.padding[0] <= stored) & (stored <= plan.padding[1])
        counts = np.where(is_padding, 0, counts) if counts[~is_padding].any() else counts
    warnings, faults = list(plan.warnings), []
    for voi in (*plan.vois, *_ranges_of_values(stored[counts > 0], counts[counts > 0], plan.display)):
        display = replace(plan.display, voi=voi.way)
        levels = grey_table(display, container_bits=container_bits)
        fault = contrast_fault(np.bincount(levels, counts, 256).astype(np.int64))
        if not fault:
            break
        faults.append((display, voi, fault))
    else:
        display, voi, fault = faults[0]
    if faults:
        rest = f"so it uses the {voi.step}" if not fault else "and no other way shows more"
        warnings.append(f"{faults[0][1].step}: {faults[0][2]}, {rest}")
    steps = (plan.modality_step, voi.step, *["invert (MONOCHROME1)"] * display.invert, "8 bit")
    return ChosenDisplay(display, steps, tuple(warnings), fault)


def _ranges_of_values(stored: Floats, counts: Counts, display: DisplaySettings) -> list[Voi]:
    """Return the windows from the lowest to the highest of the picture's values, and of 98% of its pixels."""
    values = _after_modality(stored, display.modality)
    order = np.argsort(values)
    values, shares = values[order], np.cumsum(counts[order]) / counts.sum()
    inner = values[np.searchsorted(shares, (0.01, 0.99))]
    vois = []
    for (low, high), step in (
        ((values[0], values[-1]), "range of the picture's values"),
        (inner, "range of 98% of the picture's values"),
    ):
        if low < high:
            vois.append(Voi(Window(float(low + high) / 2, float(high - low), "LINEAR_EXACT"), step))
    return vois


def _padding(facts: HeaderValues, is_signed: bool) -> tuple[int, int] | None:
    value, limit = (facts.integer(key) for key in ("PixelPaddingValue", "PixelPaddingRangeLimit"))
    if value is None:
        return None
    low = -(1 << 15) if is_signed else 0
    ends = [(end - low) % (1 << 16) + low for end in (value, value if limit is None else limit)]
    return min(ends), max(ends)


def _bits(facts: HeaderValues, warnings: list[str]) -> tuple[int, bool]:
    bits, high, sign = (facts.integer(key) for key in ("BitsStored", "HighBit", "PixelRepresentation"))
    if bits is None or not 1 <= bits <= 16:
        raise DicomError(f"BitsStored must be in [1, 16], got {bits}")
    allocated = facts.integer("BitsAllocated")
    if allocated is not None and bits > allocated:
        raise DicomError(f"BitsStored {bits} is more than BitsAllocated {allocated}")
    if sign not in (0, 1):
        raise DicomError(f"PixelRepresentation must be 0 or 1, got {sign}")
    if high is None:
        warnings.append("HighBit is missing, so BitsStored - 1 is used")
    elif high != bits - 1:
        raise DicomError(f"HighBit must be BitsStored - 1 ({bits - 1}), got {high}")
    return bits, bool(sign)


def _is_inverted(facts: HeaderValues, warnings: list[str]) -> bool:
    photometric, shape = facts.word("PhotometricInterpretation"), facts.word("PresentationLUTShape")
    is_inverted = photometric == "MONOCHROME1"
    if shape is not None and (shape == "INVERSE") != is_inverted:
        done = "inverted" if is_inverted else "not inverted"
        warnings.append(f"PresentationLUTShape contradicts {photometric} and is ignored: {done}, got {shape}")
    return is_inverted


def _modality(
    dataset: Dataset, facts: HeaderValues, is_signed: bool, warnings: list[str]
) -> tuple[Rescale | Lut | None, str]:
    tables = _items(dataset, "ModalityLUTSequence")
    if tables:
        return _lut(tables[0], "ModalityLUTSequence", is_signed), "modality lut"
    slope, intercept = _number(facts, "RescaleSlope"), _number(facts, "RescaleIntercept")
    if slope is None and intercept is None:
        return None, "no modality step"
    if slope is None or intercept is None:
        warnings.append("only one of RescaleSlope and RescaleIntercept is given, so neither is applied")
        return None, "no modality step"
    if slope == 0:
        raise DicomError("RescaleSlope must not be 0")
    return Rescale(slope, intercept), "modality slope/intercept"


def _vois(dataset: Dataset, facts: HeaderValues, is_signed: bool, warnings: list[str]) -> tuple[Voi, ...]:
    """Return the usable VOI tables, then the usable windows, then the full range."""
    vois = []
    tables = _items(dataset, "VOILUTSequence")
    for i, item in enumerate(tables, start=1):
        try:
            lut = _lut(item, "VOILUTSequence", is_signed)
        except DicomError as error:
            warnings.append(f"voi lut {i} of {len(tables)} is unusable: {error}")
            continue
        highest, possible = int(lut.entries.max()), (1 << lut.bits) - 1
        if highest < possible // 2:
            warnings.append(f"VOILUTSequence only reaches {highest} of {possible}, so the picture is dark")
        vois.append(Voi(lut, f"voi lut {i} of {len(tables)}"))
    n_windows = max(len(facts.texts("WindowCenter")), len(facts.texts("WindowWidth")))
    for i in range(n_windows):
        try:
            vois.append(Voi(_window(facts, i), f"voi window {i + 1} of {n_windows} {_function(facts)}"))
        except DicomError as error:
            warnings.append(f"voi window {i + 1} of {n_windows} is unusable: {error}")
    if not vois:
        warnings.append("no usable VOI LUT or window, so the full range of the stored bits is shown")
    return (*vois, Voi(None, "full range"))


def _window(facts: HeaderValues, i: int) -> Window:
    center, width = (_number(facts, key, i) for key in ("WindowCenter", "WindowWidth"))
    function = _function(facts)
    if center is None or width is None:
        raise DicomError("only one of WindowCenter and WindowWidth is given")
    if function not in _FUNCTIONS:
        raise DicomError(f"VOILUTFunction must be one of {', '.join(_FUNCTIONS)}, got {function}")
    if width < 1 if function == "LINEAR" else width <= 0:
        least = "at least 1" if function == "LINEAR" else "above 0"
        raise DicomError(f"WindowWidth must be {least} for {function}, got {width:g}")
    return Window(center, width, function)


def _function(facts: HeaderValues) -> str:
    return facts.word("VOILUTFunction") or "LINEAR"


def _number(facts: HeaderValues, keyword: str, i: int = 0) -> float | None:
    """Return a value of an element, by default the first, as a number; None if the element does not have it."""
    text = next(islice(facts.texts(keyword), i, None), "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise DicomError(f"{keyword} must be a number, got {text!r}")
    return value


def _items(dataset: Dataset, keyword: str) -> list[Dataset]:
    try:
        return list(dataset.get(keyword) or ())
    except Exception:  # damaged sequences raise various exceptions in pydicom
        raise DicomError(f"{keyword} cannot be read") from None


def _lut(item: Dataset, sequence: str, is_signed: bool) -> Lut:
    """Return the look-up table (PS3.3 C.11.1.1) of a descriptor (number of entries, first value, bits) and its data.

    The data are 16-bit words, or bytes if entries have 8 bits. The first value is signed if the input values of the
    table are signed; its VR is ignored, because files with implicit VR have none.
    """
    descriptor, data = _words(item, "LUTDescriptor", sequence), _words(item, "LUTData", sequence)
    if len(descriptor) != 3:
        raise DicomError(f"{sequence} has a descriptor of {len(descriptor)} values instead of 3")
    n_entries, first, bits = int(descriptor[0]) or 1 << 16, int(descriptor[1]), int(descriptor[2])
    if not 8 <= bits <= 16:
        raise DicomError(f"{sequence} must have entries of 8 to 16 bits, got {bits}")
    if bits == 8 and len(data) == (n_entries + 1) // 2 and n_entries > 1:
        data = data.astype("<u2").view(np.uint8)[:n_entries]
    if len(data) != n_entries:
        raise DicomError(f"{sequence} contains {len(data)} entries, but its descriptor states {n_entries}")
    if data.max() >= 1 << bits:
        raise DicomError(f"{sequence} contains {data.max()}, which exceeds its {bits} bits")
    return Lut(first - (1 << 16) if is_signed and first >= 1 << 15 else first, data, bits)


def _words(item: Dataset, keyword: str, sequence: str) -> np.ndarray:
    """Return an element's 16-bit words as unsigned integers, whatever their VR."""
    from pydicom.dataelem import RawDataElement

    try:
        element = item.get_item(keyword)
        value = element.value
        is_little_endian = element.is_little_endian if isinstance(element, RawDataElement) else True
        if isinstance(value, bytes):
            return np.frombuffer(value[: len(value) // 2 * 2], "<u2" if is_little_endian else ">u2")
        return np.atleast_1d(np.asarray(value, dtype=np.int64)) & 0xFFFF
    except Exception:  # absent, or not numbers
        raise DicomError(f"{sequence} has no usable {keyword}") from None
