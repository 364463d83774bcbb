"""METRICS: what each metric means, in one table that the tests, the CLI and the pages walk.

Pure functions over arrays live in the modules beside this file; every score is a fraction, undefined is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["METRICS", "Metric"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of METRICS.

    Attributes
    ----------
    name, title : str
        Key, and what a table's head says.
    low, high : float
        Range of a defined value.
    better : {"higher", "lower", "neither"}
    undefined : str
        When a case has no value.
    source : str
        Paper and section.
    version : int
        Raised whenever the same input may give another number; part of every signature.
    """

    name: str
    title: str
    low: float
    high: float
    better: Literal["higher", "lower", "neither"]
    undefined: str
    source: str
    version: int = 1


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("point_hit", "Hit rate", 0, 1, "higher", "reference mask empty", "paper 002, Methods (pointing game)"),
        Metric("grid_hit", "Grid hit rate", 0, 1, "higher", "no cell has any coverage", "paper 000, section 3.3"),
        Metric("grid_chance", "Chance grid hit", 0, 1, "neither", "no cell has any coverage", "paper 000, section 4.1"),
        Metric("mask_iou", "mIoU", 0, 1, "higher", "either mask empty", "paper 002, Methods (true-positive slice)"),
        Metric("mask_iou_all", "mIoU, all", 0, 1, "higher", "both masks empty", "paper 002, Extended Data Fig. 4"),
        Metric("box_iou", "Box IoU", 0, 1, "higher", "reference empty", "boxes; tight box of a reference mask"),
    )
}
