"""Pixel statistics of masks (paper 002, Ext. Data Fig. 2), and the agreement of masks along their boundaries.

Pixels: precision, recall, specificity, negative predictive value
-----------------------------------------------------------------
The images are those on which at least one finding is drawn, as in the published ground-truth file. Every finding counts
on each of these images; a missing mask, predicted or drawn, counts as empty. Pooled scores are ratios of pixel counts
summed over the images, with 95% intervals by the jackknife over patients; means are over the images for which the ratio
is defined. Pooled scores and means both have a macro over the findings.

If a benchmark asks only for present findings, prediction files contain no masks of absent ones. False positives are
then counted only on images with the finding, so specificity and negative predictive value are higher than for a system
that marks every image.

The published figure heads its columns "specificity (precision)" and "sensitivity (recall)"; their contents are
described in ``submissions/reference/chexlocalize/README.md``.

Boundaries: Dice, boundary IoU, normalised surface distance, Hausdorff 95
-------------------------------------------------------------------------
A case is an image and a finding with a reference mask that is not empty; a missing predicted mask counts as empty.
Distances are in mm if every image states its spacing, otherwise in pixels; the tolerance is 2 mm or 2 pixels. The mean
of Hausdorff 95 is over the cases with a finite value; `n_infinite` counts the other cases, whose prediction is empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray, IntArray
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.masks import Rle, empty_rle, pack_masks
from reveal_bench.metrics.bootstrap import MACRO, bootstrap_means, intervals_of, macro_first, no_counts
from reveal_bench.metrics.intervals import Estimate
from reveal_bench.metrics.jackknife import evidence_of_groups
from reveal_bench.metrics.mask_agreement import boundary_iou, dice, hausdorff_95, surface_distance
from reveal_bench.metrics.pixelwise import shared_areas

TP, FP, FN, TN = range(4)
STATISTICS = {"precision": (TP, FP), "recall": (TP, FN), "specificity": (TN, FP), "npv": (TN, FN)}
"""Name -> kinds of pixels that are right and wrong; the statistic is the proportion of right pixels."""


@dataclass(frozen=True, slots=True)
class PixelStatistic:
    """One pixel statistic of a finding.

    Attributes
    ----------
    finding : name of the finding, or "macro" for the unweighted mean over findings
    statistic : one of :data:`STATISTICS`
    pooled : statistic over the pixels of all images
    mean_of_images : mean of the statistic over images
    n : number of images for which the statistic is defined; for a macro, number of findings
    right_px, wrong_px : numbers of pixels; 0 for a macro
    """

    finding: str
    statistic: str
    pooled: Estimate
    mean_of_images: Estimate
    n: int
    right_px: int
    wrong_px: int


def pixel_statistics(
    predictions: Sequence[LocalizationPrediction], records: Sequence[LocalizationRecord], findings: Sequence[str]
) -> list[PixelStatistic]:
    """Return every statistic for the macro and for every finding.

    Raises
    ------
    ArgumentError
        If no mask is predicted, or no reference is a mask.
    """
    masks = _masks_by_case(predictions, "whose pixels are counted")
    images = [record for record in records if _drawn(record)]
    if not images:
        raise ArgumentError("bench", "must have masks as references, because pixels are counted", "none")
    patients = sorted({record.patient_id for record in images})
    units = np.array([patients.index(record.patient_id) for record in images])
    counts = np.stack([_counts(finding, images, masks) for finding in findings], axis=1)
    return [row for name, parts in STATISTICS.items() for row in _of_statistic(name, parts, counts, units, findings)]


def _masks_by_case(predictions: Sequence[LocalizationPrediction], use: str) -> dict[tuple[str, str], Rle]:
    """Return (image, finding) -> predicted mask; if there is no mask, raise ArgumentError with their `use`."""
    masks = {(p.image_id, p.finding): p.mask for p in predictions if p.mask is not None}
    if not masks:
        raise ArgumentError("predictions", f"must have masks, {use}", "none")
    return masks


def _drawn(record: LocalizationRecord) -> bool:
    return any(a.reader == "ground_truth" and a.rle is not None and a.area_px > 0 for a in record.annotations)


def _counts(finding: str, images: Sequence[LocalizationRecord], masks: Mapping[tuple[str, str], Rle]) -> IntArray:
    """Return the numbers of TP, FP, FN and TN pixels in each image, (n_images, 4)."""
    references = [record.reference(finding) for record in images]
    drawn = pack_masks(
        [empty_rle(r.size) if a is None or a.rle is None else a.rle for r, a in zip(images, references, strict=True)]
    )
    predicted = pack_masks([masks.get((record.image_id, finding)) or empty_rle(record.size) for record in images])
    both = shared_areas(predicted, drawn)
    pixels = drawn.sizes.prod(axis=1)
    counts: IntArray = np.stack(
        [both, predicted.areas - both, drawn.areas - both, pixels - predicted.areas - drawn.areas + both], axis=1
    )
    return counts


def _of_statistic(
    name: str, parts: tuple[int, int], counts: IntArray, units: IntArray, findings: Sequence[str]
) -> list[PixelStatistic]:
    right, wrong = (counts[:, :, part].astype(np.float64) for part in parts)
    total = right + wrong
    pooled = _pooled(right, total, units)
    shares = np.divide(right, total, out=np.full(total.shape, np.nan), where=total > 0)
    means = _means(shares, units)
    n = (~np.isnan(shares)).sum(axis=0)
    n_macro = int((n > 0).sum())
    rows = [PixelStatistic(MACRO, name, pooled[0], means[0], n_macro, 0, 0)]
    return rows + [
        PixelStatistic(
            finding, name, pooled[i + 1], means[i + 1], int(n[i]), int(right[:, i].sum()), int(wrong[:, i].sum())
        )
        for i, finding in enumerate(findings)
    ]


def _pooled(right: FloatArray, total: FloatArray, units: IntArray) -> list[Estimate]:
    """Return ratios of sums with intervals, macro first; patients with pixels in the denominator support a ratio."""
    own_right, own_total = (
        np.stack([np.bincount(units, column) for column in part.T], axis=1) for part in (right, total)
    )
    behind = (own_total > 0).sum(axis=0)
    figures = macro_first(_ratio(own_right.sum(axis=0), own_total.sum(axis=0)))
    left_out = macro_first(_ratio(own_right.sum(axis=0) - own_right, own_total.sum(axis=0) - own_total))
    return _with_ends(figures, evidence_of_groups(left_out, behind).ends(figures))


def _means(shares: FloatArray, units: IntArray) -> list[Estimate]:
    n_images, n_findings = shares.shape
    codes = np.tile(np.arange(n_findings), n_images)
    counts = no_counts(int(units.max()) + 1)
    means = bootstrap_means(shares.ravel(), codes, np.repeat(units, n_findings), n_groups=n_findings, counts=counts)
    return intervals_of(means, "jackknife", bounds=means.bounds).estimates()


def _ratio(right: FloatArray, total: FloatArray) -> FloatArray:
    ratio: FloatArray = np.divide(right, total, out=np.full(np.shape(total), np.nan), where=total > 0)
    return ratio


def _with_ends(figures: FloatArray, ends: FloatArray) -> list[Estimate]:
    return [Estimate(*row) for row in zip(figures.tolist(), *ends.tolist(), strict=True)]


TOLERANCE = 2.0
"""Distance up to which boundaries agree, in mm or pixels."""
BOUNDARY_METRICS = ("dice", "boundary_iou", "surface_distance", "hausdorff_95")


@dataclass(frozen=True, slots=True)
class BoundaryMean:
    """Mean of one metric over the cases of a finding.

    Attributes
    ----------
    finding : name of the finding, or "macro" for the unweighted mean over findings
    metric : name in METRICS
    value : mean over `n` cases, NaN without any; for a macro, mean over findings
    n, n_infinite : number of cases (for a macro, findings) in the mean, and number of infinite cases left out
    unit : unit of `hausdorff_95` and of the tolerance of `surface_distance`, "mm" or "pixels"
    """

    finding: str
    metric: str
    value: float
    n: int
    n_infinite: int
    unit: str


def boundary_means(
    predictions: Sequence[LocalizationPrediction], records: Sequence[LocalizationRecord], findings: Sequence[str]
) -> list[BoundaryMean]:
    """Return the means of each metric: the macro, then every finding.

    Raises
    ------
    ArgumentError
        If no mask is predicted, or no reference is a mask.
    """
    masks = _masks_by_case(predictions, "whose boundaries are compared")
    cases = [
        (record, finding, drawn.rle)
        for finding in findings
        for record in records
        if (drawn := record.reference(finding)) is not None and drawn.rle is not None and drawn.area_px
    ]
    if not cases:
        raise ArgumentError("bench", "must have masks as references, because boundaries are compared", "none")
    in_mm = all(record.spacing_mm is not None for record, _, _ in cases)
    values = np.full((len(BOUNDARY_METRICS), len(cases)), np.nan)
    for i, (record, finding, reference) in enumerate(cases):
        own = pack_masks([masks.get((record.image_id, finding)) or empty_rle(record.size)])
        other = pack_masks([reference])
        spacing = record.spacing_mm if in_mm and record.spacing_mm is not None else (1.0, 1.0)
        values[0, i] = dice(own, other)[0]
        values[1, i] = boundary_iou(own, other)[0]
        values[2, i] = surface_distance(own, other, tolerance=TOLERANCE, spacing=spacing)[0]
        values[3, i] = hausdorff_95(own, other, spacing=spacing)[0]
    of_finding = np.array([finding for _, finding, _ in cases])
    unit = "mm" if in_mm else "pixels"
    by_metric = zip(BOUNDARY_METRICS, values, strict=True)
    return [one for metric, row in by_metric for one in _means_of_cases(metric, row, of_finding, findings, unit)]


def _means_of_cases(
    metric: str, values: FloatArray, of_finding: npt.NDArray[np.str_], findings: Sequence[str], unit: str
) -> list[BoundaryMean]:
    means = []
    for finding in findings:
        own = values[of_finding == finding]
        finite = own[np.isfinite(own)]
        value = float(finite.mean()) if len(finite) else float("nan")
        means.append(BoundaryMean(finding, metric, value, len(finite), int(np.isinf(own).sum()), unit))
    defined = [one.value for one in means if one.n]
    macro = float(np.mean(defined)) if defined else float("nan")
    return [BoundaryMean(MACRO, metric, macro, len(defined), sum(one.n_infinite for one in means), unit), *means]
