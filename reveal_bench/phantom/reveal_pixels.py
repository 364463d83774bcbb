"""Convert grey levels of synthetic images to stored values, which a viewer converts back to the same grey levels.

A detector may store 10 to 15 bits, with high or low values for bright pixels, with a rescale step, and with one window,
several windows, a look-up table or none of these. A program that follows the header (modality step, then VOI, then
inversion of MONOCHROME1) always shows the image as rendered, to within one of 256 grey levels. A program that skips or
repeats a step shows another image.

:data:`SHARES` are from 7,469 real headers of the NLM / Open-i collection, counted in the header table of
torchxrayvision. Values that this table lacks are chosen, as comments state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.phantom.choices import choose

N_HEADERS = 7469
SHARES: dict[str, dict[str, float]] = {
    "photometric": {"MONOCHROME1": 3584 / N_HEADERS, "MONOCHROME2": 1 - 3584 / N_HEADERS},
    "bits": {"10": 61 / N_HEADERS, "12": 5906 / N_HEADERS, "14": 26 / N_HEADERS, "15": 1476 / N_HEADERS},
    "voi": {"window": 4051 / N_HEADERS, "lut": 3037 / N_HEADERS, "both": 26 / N_HEADERS, "neither": 355 / N_HEADERS},
    "windows": {"1": 1 - 26 / 4103, "3": 26 / 4103},
    "rescale": {"LOG_E REL": 2878 / N_HEADERS, "US": 0.35, "": 1 - 2878 / N_HEADERS - 0.35},  # the last two are chosen
    "shape": {"INVERSE": 572 / 3584, "": 1 - 572 / 3584},  # among MONOCHROME1; INVERSE never occurs with MONOCHROME2
    "function": {"": 0.90, "LINEAR": 0.06, "LINEAR_EXACT": 0.02, "SIGMOID": 0.02},  # chosen
    "slope": {"1": 0.6, "-1": 0.4},  # among LOG_E REL; chosen
}
"""Probability of every storage option; `draw_storage(force=...)` accepts the same names and values."""

WINDOW_NAMES = ["NORMAL", "HARDER", "SOFTER"]
GREYS = np.arange(256) / 255


@dataclass(frozen=True, slots=True)
class PixelStorage:
    """One way to store an image.

    Attributes
    ----------
    choices : name in SHARES -> chosen value
    attributes : DICOM keyword (or (group, element, VR)) -> value
    lowest, n_values : for each grey level, the lowest stored value that shows this level, and the number of such values
    """

    choices: Mapping[str, str]
    photometric: str
    bits_stored: int
    attributes: dict[Any, Any] = field(repr=False)
    lowest: npt.NDArray[np.uint16] = field(repr=False)
    n_values: int


def draw_storage(rng: np.random.Generator, *, force: Mapping[str, str] | None = None) -> PixelStorage:
    """Choose at random how an image is stored; `force` fixes some options.

    Examples
    --------
    >>> draw_storage(np.random.default_rng(0), force={"bits": "10", "photometric": "MONOCHROME1"}).bits_stored
    10
    """
    drawn = {name: choose(rng, shares) for name, shares in SHARES.items()}
    choices = {**drawn, **(force or {})}
    bits = int(choices["bits"])
    top = (1 << bits) - 1
    attributes: dict[Any, Any] = {}
    slope, intercept = _rescale(choices, top, attributes)
    levels = GREYS if choices["photometric"] == "MONOCHROME2" else 1 - GREYS
    values = _before_voi(rng, levels, choices, bits, attributes)
    stored = np.clip(np.rint((values - intercept) / slope), 0, top).astype(np.int64)
    if choices["photometric"] == "MONOCHROME1" and choices["shape"]:
        attributes["PresentationLUTShape"] = choices["shape"]
    elif choices["photometric"] == "MONOCHROME2" and rng.random() < 0.5:
        attributes["PresentationLUTShape"] = "IDENTITY"
    n_values = max(int(np.abs(np.diff(stored)).min()), 1)
    lowest = np.clip(stored - n_values // 2, 0, top - n_values + 1).astype(np.uint16)
    return PixelStorage(choices, choices["photometric"], bits, attributes, lowest, n_values)


def stored_values(
    grey: npt.NDArray[np.uint8], storage: PixelStorage, rng: np.random.Generator
) -> npt.NDArray[np.uint16]:
    """Return the stored pixels, uint16 (height, width), of an image with grey levels `grey`."""
    values: npt.NDArray[np.uint16] = np.take(storage.lowest, grey)
    if storage.n_values > 1:  # a detector distinguishes more levels than a screen
        height, width = grey.shape
        noise = rng.integers(0, storage.n_values, (256, 256), dtype=np.uint16)
        values += np.tile(noise, (-(-height // 256), -(-width // 256)))[:height, :width]
    return values


def _rescale(choices: Mapping[str, str], top: int, attributes: dict[Any, Any]) -> tuple[float, float]:
    if not choices["rescale"]:
        return 1.0, 0.0
    slope, intercept = (-1, top) if choices["rescale"] == "LOG_E REL" and choices["slope"] == "-1" else (1, 0)
    attributes.update(RescaleSlope=str(slope), RescaleIntercept=str(intercept), RescaleType=choices["rescale"])
    return float(slope), float(intercept)


def _before_voi(
    rng: np.random.Generator,
    levels: npt.NDArray[np.float64],
    choices: Mapping[str, str],
    bits: int,
    attributes: dict[Any, Any],
) -> npt.NDArray[np.float64]:
    """Return the values that the VOI step converts to `levels` (0 to 1), and add this step to `attributes`."""
    top = (1 << bits) - 1
    if choices["voi"] == "neither":
        return levels * top
    if choices["voi"] in ("lut", "both"):
        values = _look_up_table(rng, levels, bits, attributes)
        if choices["voi"] == "both":  # viewers use the table and ignore this window, which would give a pale image
            attributes.update(WindowCenter=str(top // 3), WindowWidth=str(4 * top))
        return values
    width = round(rng.uniform(0.5, 0.8) * top)
    center = round(rng.uniform(0.45, 0.55) * top)
    factors = [(0, 1.0)]
    if choices["windows"] == "3":
        factors += [(0, 0.7), (0, 1.4)]
        attributes["WindowCenterWidthExplanation"] = WINDOW_NAMES
    if choices["function"]:
        attributes["VOILUTFunction"] = choices["function"]
    if choices["function"] == "SIGMOID":
        width //= 4  # keeps black and white within the stored bits
    attributes["WindowCenter"] = "\\".join(str(center + shift) for shift, _ in factors)
    attributes["WindowWidth"] = "\\".join(str(round(width * factor)) for _, factor in factors)
    if choices["function"] == "SIGMOID":
        inner = np.clip(levels, 0.3 / 255, 1 - 0.3 / 255)
        return center + width / 4 * np.log(inner / (1 - inner))
    if choices["function"] == "LINEAR_EXACT":
        return (levels - 0.5) * width + center
    return (levels - 0.5) * (width - 1) + center - 0.5


def _look_up_table(
    rng: np.random.Generator, levels: npt.NDArray[np.float64], bits: int, attributes: dict[Any, Any]
) -> npt.NDArray[np.float64]:
    """Return a look-up table with the S shape of a film's characteristic curve."""
    n_entries, entry_bits = 1 << bits, int(rng.choice([12, 15, 16]))
    steepness, middle = rng.uniform(3.5, 5.5), rng.uniform(0.42, 0.58)
    curve = np.tanh(steepness * (np.linspace(0, 1, n_entries) - middle) / 2)
    curve = (curve - curve[0]) / (curve[-1] - curve[0])
    entries = np.rint(curve * ((1 << entry_bits) - 1)).astype("<u2")
    attributes["VOILUTSequence"] = [
        {
            "LUTDescriptor": [n_entries, 0, entry_bits],
            "LUTExplanation": "NORMAL",
            # Written as words, because the values do not fit into an explicit US.
            (0x0028, 0x3006, "OW"): entries.tobytes(),
        }
    ]
    return np.interp(levels, curve, np.arange(n_entries))
