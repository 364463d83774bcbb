"""What a detector finds at every threshold, finding by finding: curves, and the sizes of what it finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reveal_bench.arrays import FloatArray

__all__ = ["Band", "Curve", "Curves", "OfSize"]

Curve = tuple[FloatArray, FloatArray]
"""x and y of the points of a curve, in order."""


@dataclass(frozen=True, slots=True)
class Band:
    """Sensitivity at a rate of false alarms per image, with its 95 % interval."""

    finding: str
    false_alarms: float
    sensitivity: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class OfSize:
    """Share of the lesions of a size that are found at the threshold fixed beforehand, with its 95 % interval."""

    finding: str
    size: str
    n: int
    sensitivity: float
    low: float
    high: float


@dataclass(frozen=True)
class Curves:
    """Curves of the findings that have a lesion.

    Attributes
    ----------
    froc : finding -> false alarms per image, and share of lesions found
    bands : of every finding at the rates of FROC, in order of findings
    precision : finding -> recall, and precision, of hits by an IoU of a half
    sizes : of the macro, then of every finding
    """

    froc: Mapping[str, Curve]
    bands: Sequence[Band]
    precision: Mapping[str, Curve]
    sizes: Sequence[OfSize]
