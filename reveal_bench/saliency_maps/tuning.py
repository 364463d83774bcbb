"""Tune each finding's threshold of heat maps on a split with references, by the mean of a metric at every threshold.

A metric of areas is computed at all thresholds of a grid from two histograms of a map: of all pixels, and of pixels in
the reference. The map is therefore resized to its image only once. A metric of boundaries needs a mask at each
threshold. As published, the default metric is the mean IoU over the cases with a nonempty mask (the true-positive
slice), and the first of equal means is used. If the metric is undefined at every threshold, the published code uses the
first threshold; here the finding gets none, because no data support that choice. For metrics of distance, an empty mask
is as far from its reference as the image's diagonal is long.

Source: paper 002, Methods and Extended Data Fig. 1a.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.masks import PackedMasks, pack_regions
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO, estimate_cases
from reveal_bench.metrics.heat_maps import laid_over
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.metrics.mask_agreement import Spacing, boundary_iou, hausdorff_95, surface_distance
from reveal_bench.saliency_maps.maps import FoundMaps, read_map

Case = tuple[str, FloatArray]
"""A map's (patient, metric at each threshold of the grid, NaN where undefined)."""
_Areas = Callable[[FloatArray, FloatArray, float, int], tuple[FloatArray, FloatArray]]
_OF_AREAS: dict[str, _Areas] = {
    # arguments: pixels above each threshold; such pixels in the reference; pixels of the reference; pixels of the image
    "mask_iou": lambda above, inside, area, n: (inside, np.where(above > 0, above + area - inside, 0)),
    "mask_iou_all": lambda above, inside, area, n: (inside, above + area - inside),
    "dice": lambda above, inside, area, n: (2 * inside, above + area),
    "pixel_sensitivity": lambda above, inside, area, n: (inside, np.full_like(above, area)),
    "pixel_specificity": lambda above, inside, area, n: (n - area - above + inside, np.full_like(above, n - area)),
}
_OF_MASKS: dict[str, Callable[[PackedMasks, PackedMasks, Spacing], FloatArray]] = {
    # `spacing` is mm between rows and between columns of the images, or (1, 1)
    "boundary_iou": lambda masks, references, spacing: boundary_iou(masks, references),
    "surface_distance": lambda masks, references, spacing: surface_distance(masks, references, spacing=spacing),
    "hausdorff_95": lambda masks, references, spacing: np.minimum(
        hausdorff_95(masks, references, spacing=spacing), np.hypot(*(masks.sizes[0] * spacing))
    ),
}
TUNING_METRICS = (*_OF_AREAS, *_OF_MASKS)
"""Metrics of METRICS that can tune thresholds: area metrics, and boundary metrics, which need masks."""


@dataclass(frozen=True)
class Tuned:
    """The result of tuning.

    Attributes
    ----------
    split : the split of the maps
    grid : thresholds that were tried
    thresholds : finding -> best threshold; findings without a value at any threshold are absent
    curves : finding -> mean of the metric at each threshold, NaN where the metric is undefined
    intervals : finding -> lower and upper bound of each mean's 95% interval (n_thresholds, 2), by the jackknife over
        patients; NaN if few patients have the finding
    n_cases : finding -> number of maps with a reference
    metric : the tuned metric
    """

    split: str
    grid: tuple[float, ...]
    thresholds: Mapping[str, float]
    curves: Mapping[str, FloatArray]
    intervals: Mapping[str, FloatArray]
    n_cases: Mapping[str, int]
    metric: str = "mask_iou"

    def lacking(self, findings: Collection[str]) -> list[str]:
        """Return the `findings` without a best threshold."""
        return sorted(set(findings) - set(self.thresholds))

    def for_all(self, findings: Collection[str]) -> dict[str, float | None]:
        """Return finding -> best threshold, or None if the finding has no best threshold."""
        return {**dict.fromkeys(self.lacking(findings)), **self.thresholds}

    def to_csv(self) -> str:
        """Return a row per finding and threshold: metric, mean, 95% interval, number of cases, 1 if best."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["finding", "threshold", "metric", "value", "low", "high", "n_cases", "is_best"])
        for finding, curve in self.curves.items():
            estimates = np.column_stack([curve, self.intervals[finding]]).tolist()
            for threshold, figures in zip(self.grid, estimates, strict=True):
                fields = ["" if math.isnan(value) else value for value in figures]
                best = int(threshold == self.thresholds.get(finding))
                rows.writerow([finding, threshold, self.metric, *fields, self.n_cases[finding], best])
        return text.getvalue()


def curve_of_map(
    heat_map: npt.ArrayLike,
    reference: PackedMasks,
    grid: Sequence[float],
    metric: str = "mask_iou",
    spacing: Spacing = (1.0, 1.0),
) -> FloatArray:
    """Return a metric of the pixels above each threshold, after resizing and scaling the map; NaN where undefined.

    Parameters
    ----------
    heat_map : array (h, w)
    reference : one mask of the size of the image
    grid : increasing thresholds
    metric : one of :data:`TUNING_METRICS`
    spacing : mm between rows and between columns, for distances in mm instead of pixels

    Examples
    --------
    >>> from reveal_bench.masks import pack_boxes
    >>> reference = pack_boxes([[(2, 0, 2, 1)]], [(1, 4)])
    >>> curve_of_map([[0.1, 0.4, 0.9, 1.0]], reference, [0.2, 0.5]).round(3).tolist()
    [0.667, 1.0]
    """
    height, width = reference.sizes[0].tolist()
    laid = laid_over(heat_map, (height, width))
    if metric in _OF_MASKS:
        values = [_OF_MASKS[metric](laid.above(threshold), reference, spacing) for threshold in grid]
        return np.concatenate(values)
    counts = laid.counts_above(grid, reference).astype(np.float64)
    right, of = _OF_AREAS[metric](counts[0], counts[1], float(reference.areas[0]), height * width)
    curve: FloatArray = np.divide(right, of, out=np.full(len(grid), np.nan), where=of > 0)
    return curve


def tune_thresholds(
    maps: FoundMaps,
    records: Sequence[LocalizationRecord],
    split: str,
    *,
    grid: Sequence[float],
    metric: str = "mask_iou",
    progress: Callable[..., None] | None = None,
) -> Tuned:
    """Return the best threshold of each finding that has maps and references.

    Raises
    ------
    ArgumentError
        If the grid does not increase within [0, 1), the metric is not in :data:`TUNING_METRICS`, no map has a
        reference, or no finding has a value at any threshold.
    ValueError
        If a map is damaged; the message names its file.
    """
    tried = check_grid(grid)
    if metric not in TUNING_METRICS:
        raise ArgumentError("metric", f"must be one of {', '.join(TUNING_METRICS)} to tune a threshold", repr(metric))
    jobs = [
        (record, finding)
        for record in records
        for finding in record.asked("present")
        if (record.image_id, finding) in maps.files
    ]
    if not jobs:
        raise ArgumentError("maps", f"must include maps of split {split!r} that have a reference", "none")
    in_mm = all(record.spacing_mm is not None for record, _ in jobs)
    cases: dict[str, list[Case]] = {}
    for i, (record, finding) in enumerate(jobs, start=1):
        annotation = record.reference(finding)
        assert annotation is not None
        region = annotation.rle or annotation.boxes_xywh
        reference = pack_regions([region], [record.size])
        spacing = record.spacing_mm if in_mm and record.spacing_mm is not None else (1.0, 1.0)
        heat = read_map(maps.files[record.image_id, finding]).values
        curve = curve_of_map(heat, reference, tried, metric, spacing)
        cases.setdefault(finding, []).append((record.patient_id, curve))
        if progress is not None:
            progress("maps", i, len(jobs))
    curves, intervals = mean_curves(metric, cases, records)
    first_best = np.nanargmin if METRICS[metric].better == "lower" else np.nanargmax
    best = {finding: tried[int(first_best(own))] for finding, own in curves.items() if not np.isnan(own).all()}
    if not best:
        raise ArgumentError("maps", "must have a pixel above some threshold", f"none for {', '.join(curves)}")
    return Tuned(split, tried, best, curves, intervals, {name: len(own) for name, own in cases.items()}, metric)


def check_grid(grid: Sequence[float]) -> tuple[float, ...]:
    """Return the grid as numbers; raise ArgumentError unless these increase within [0, 1)."""
    tried = tuple(grid)
    if not tried or list(tried) != sorted(set(tried)) or not all(0 <= one < 1 for one in tried):
        raise ArgumentError("grid", "must be increasing numbers in [0, 1)", list(tried))
    return tried


def mean_curves(
    metric: str, cases: Mapping[str, Sequence[Case]], records: Sequence[LocalizationRecord]
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Return each finding's means of defined values on the grid, and their 95% jackknife intervals.

    Parameters
    ----------
    cases : finding -> (patient, values) of the finding's maps
    records : records of the split, all of whose patients are resampled

    Returns
    -------
    dict finding -> float array (n_grid,), and finding -> float array (n_grid, 2)
    """
    everybody = sorted({record.patient_id for record in records})
    order = [finding for record in records[:1] for finding in record.label_status]
    cases = {finding: cases[finding] for finding in sorted(cases, key=order.index)}
    findings = [finding for finding, own in cases.items() for _ in own]
    patients = [patient for own in cases.values() for patient, _ in own]
    columns = np.stack([values for own in cases.values() for _, values in own]).T
    names: dict[str, Any] = {"findings": findings, "patients": patients, "all_patients": everybody}
    curves: dict[str, list[float]] = {finding: [] for finding in cases}
    intervals: dict[str, list[tuple[float, float]]] = {finding: [] for finding in cases}
    for values in columns:
        for one in estimate_cases(metric, METRICS[metric].version, values, resampling=Resampling(1), **names):
            if one.finding != MACRO:
                curves[one.finding].append(one.value)
                intervals[one.finding].append((one.low, one.high))
    means = {finding: np.array(curve) for finding, curve in curves.items()}
    return means, {finding: np.array(ends) for finding, ends in intervals.items()}
