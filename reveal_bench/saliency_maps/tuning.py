"""Thresholds of heat maps tuned on a split with references: the mean IoU of each finding over the threshold.

The IoU at every threshold of a grid comes from two histograms of the map, of all pixels and of those in the reference,
so that a map is brought to the size of its image once. As published, the mean is over the cases in which the mask is
not empty (the true-positive slice), and the first of equal means counts. Where no threshold has a value, the published
code takes the first of the grid; here the finding is refused, for nothing speaks for that one.

Source: paper 002, Methods and Extended Data Fig. 1a.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reveal_bench import kernels
from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.masks import pack_regions
from reveal_bench.metrics.heat_maps import Map, laid_over
from reveal_bench.saliency_maps.maps import FoundMaps, read_map

__all__ = ["Tuned", "check_grid", "iou_at", "tune_thresholds"]


@dataclass(frozen=True)
class Tuned:
    """What was found.

    Attributes
    ----------
    split : that it was tuned on
    grid : thresholds that were tried
    thresholds : finding -> the best
    curves : finding -> mean IoU at each threshold, NaN where no mask has a pixel
    n_cases : finding -> maps with a reference
    """

    split: str
    grid: tuple[float, ...]
    thresholds: Mapping[str, float]
    curves: Mapping[str, FloatArray]
    n_cases: Mapping[str, int]

    def to_csv(self) -> str:
        """A row per finding and threshold: finding, threshold, mean IoU, cases, whether it is the best."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["finding", "threshold", "mean_iou", "n_cases", "is_best"])
        for finding, curve in self.curves.items():
            for threshold, value in zip(self.grid, curve.tolist(), strict=True):
                shown = "" if math.isnan(value) else value
                best = int(threshold == self.thresholds[finding])
                rows.writerow([finding, threshold, shown, self.n_cases[finding], best])
        return text.getvalue()


def iou_at(fine: npt.NDArray[np.float32], reference: BoolArray, grid: Sequence[float]) -> FloatArray:
    """IoU of the pixels above each threshold with a reference; NaN where none is above.

    Parameters
    ----------
    fine : scaled map at the size of the image, single precision
    grid : rising thresholds

    Examples
    --------
    >>> fine = np.array([[0.1, 0.4, 0.9, 1.0]], np.float32)
    >>> iou_at(fine, np.array([[False, False, True, True]]), [0.2, 0.5]).round(3).tolist()
    [0.667, 1.0]
    """
    return _ious(fine, np.array([0, 1], np.float32), reference, grid)


def _ious(fine: Map, ends: Map, reference: BoolArray, grid: Sequence[float]) -> FloatArray:
    """The same of a map that is not scaled yet, from `ends` onto [0, 1]."""
    above, inside = kernels.counts_above(fine, ends, reference, np.asarray(grid, np.float32))
    union = above + int(reference.sum()) - inside
    found: FloatArray = np.divide(inside, union, out=np.full(len(grid), np.nan), where=above > 0)
    return found


def iou_of_map(heat_map: npt.ArrayLike, reference: BoolArray, grid: Sequence[float]) -> FloatArray:
    """:func:`iou_at` of a map that is laid over its image and scaled first; NaN throughout for a constant one."""
    fine, ends, _ = laid_over(heat_map, (reference.shape[0], reference.shape[1]))
    return np.full(len(grid), np.nan) if ends[0] == ends[1] else _ious(fine, ends, reference, grid)


def tune_thresholds(
    found: FoundMaps,
    records: Sequence[LocalizationRecord],
    split: str,
    *,
    grid: Sequence[float],
    progress: Callable[..., None] | None = None,
) -> Tuned:
    """The best threshold of each finding that has maps and references.

    Raises
    ------
    ArgumentError
        If the grid does not rise within [0, 1), no map has a reference, or a finding has no value at any threshold.
    ValueError
        If a map is damaged; the message names its file.
    """
    tried = check_grid(grid)
    jobs = [
        (record, finding)
        for record in records
        for finding in record.asked("present")
        if (record.image_id, finding) in found.files
    ]
    if not jobs:
        raise ArgumentError("maps", f"must hold maps of split {split!r} that have a reference", "none")
    curves: dict[str, list[FloatArray]] = {}
    for i, (record, finding) in enumerate(jobs, start=1):
        annotation = record.reference(finding)
        assert annotation is not None
        region = annotation.rle or annotation.boxes_xywh
        reference = pack_regions([region], [record.size]).dense(0).astype(bool)
        curve = iou_of_map(read_map(found.files[record.image_id, finding]).values, reference, tried)
        curves.setdefault(finding, []).append(curve)
        if progress is not None:
            progress("maps", i, len(jobs))
    means = {finding: _means(np.stack(rows)) for finding, rows in curves.items()}
    empty = [finding for finding, curve in means.items() if np.isnan(curve).all()]
    if empty:
        raise ArgumentError("maps", "must have a pixel above some threshold", f"none for {', '.join(empty)}")
    best = {finding: tried[int(np.nanargmax(curve))] for finding, curve in means.items()}
    return Tuned(split, tried, best, means, {finding: len(rows) for finding, rows in curves.items()})


def check_grid(grid: Sequence[float]) -> tuple[float, ...]:
    """The numbers that are tried; raises ArgumentError unless they rise within [0, 1)."""
    tried = tuple(grid)
    if not tried or list(tried) != sorted(set(tried)) or not all(0 <= one < 1 for one in tried):
        raise ArgumentError("grid", "must be numbers in [0, 1) that rise", list(tried))
    return tried


def _means(rows: FloatArray) -> FloatArray:
    """Over the cases that are defined."""
    defined = ~np.isnan(rows)
    n = defined.sum(axis=0)
    means: FloatArray = np.divide(np.nansum(rows, axis=0), n, out=np.full(rows.shape[1], np.nan), where=n > 0)
    return means
