"""Stored values -> 8-bit grey levels, as one table with an entry for every stored value.

The steps of DICOM PS3.3 C.11.1 and C.11.2, in their order: modality LUT (a table, or slope and intercept), VOI (a
table or a window), inversion, 8 bits. Each is computed once for all 256 or 65,536 values a pixel can hold, in float64
and without rounding in between; only the last step rounds, half to even. A picture is then one look-up per pixel.

Bits above BitsStored (old files keep overlays there) are ignored. Pure: numpy and nothing of DICOM's file format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Display", "Lut", "Rescale", "Window", "grey_table"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rescale:
    """Output = slope * value + intercept; the slope may be negative, not 0."""

    slope: float
    intercept: float


@dataclass(frozen=True, slots=True)
class Lut:
    """Value `first` and all below map to the first entry, values past the end to the last; entries have `bits` bits."""

    first: int
    entries: npt.NDArray[np.integer[Any]]
    bits: int


@dataclass(frozen=True, slots=True)
class Window:
    """`function` is LINEAR, LINEAR_EXACT or SIGMOID; width >= 1 for LINEAR, > 0 for the others."""

    center: float
    width: float
    function: str = "LINEAR"


@dataclass(frozen=True, slots=True)
class Display:
    """How stored values are shown.

    Without `voi` the full range of the stored bits (after `modality`) spans black to white: not the range of the
    values that happen to occur, so two pictures of one detector stay comparable.
    """

    bits_stored: int
    is_signed: bool
    modality: Rescale | Lut | None = None
    voi: Window | Lut | None = None
    invert: bool = False

    @property
    def stored_range(self) -> tuple[int, int]:
        """Lowest and highest value that BitsStored can hold."""
        if self.is_signed:
            return -(1 << self.bits_stored - 1), (1 << self.bits_stored - 1) - 1
        return 0, (1 << self.bits_stored) - 1

    @property
    def modality_range(self) -> tuple[float, float]:
        """Lowest and highest value after the modality step."""
        low, high = self.stored_range
        if isinstance(self.modality, Lut):
            return 0.0, float((1 << self.modality.bits) - 1)
        if isinstance(self.modality, Rescale):
            ends = [self.modality.slope * end + self.modality.intercept for end in (low, high)]
            return min(ends), max(ends)
        return float(low), float(high)


def grey_table(display: Display, *, container_bits: int) -> npt.NDArray[np.uint8]:
    """Grey level of every bit pattern of a pixel.

    Parameters
    ----------
    display : Display
    container_bits : int
        BitsAllocated: 8 or 16.

    Returns
    -------
    uint8 array, shape (2 ** container_bits,)
        Indexed by the pattern taken as unsigned; 0 is black.

    Examples
    --------
    >>> grey_table(Display(8, is_signed=False, voi=Window(128, 256)), container_bits=8)[[0, 100, 255]].tolist()
    [0, 100, 255]
    """
    low, high = display.modality_range
    values = _after_modality(_stored_values(display, container_bits), display.modality)
    if isinstance(display.voi, Lut):
        shown = _look_up(values, display.voi) / ((1 << display.voi.bits) - 1)
    elif isinstance(display.voi, Window):
        shown = _windowed(values, display.voi)
    else:
        shown = (values - low) / (high - low)
    if display.invert:
        shown = 1 - shown
    return np.rint(shown * 255).astype(np.uint8)


def _stored_values(display: Display, container_bits: int) -> Floats:
    """The value of each pattern: its low BitsStored bits, as two's complement if signed."""
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
    found: Floats = lut.entries[index].astype(np.float64)
    return found


def _windowed(values: Floats, window: Window) -> Floats:
    """Share of the output range, in [0, 1]: PS3.3 C.11.2.1.2.1 (LINEAR), C.11.2.1.3.1 and C.11.2.1.3.2."""
    center, width = window.center, window.width
    if window.function == "SIGMOID":
        return (1 + np.exp(np.clip(-4 * (values - center) / width, -700, 700))) ** -1.0
    if window.function == "LINEAR":
        center, width = center - 0.5, width - 1
    if width == 0:
        return (values > center).astype(np.float64)
    shown = (values - center) / width + 0.5
    return np.minimum(np.maximum(shown, 0), 1)
