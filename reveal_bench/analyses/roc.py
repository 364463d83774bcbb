"""Compute ROC and precision-recall curves of findings with confidence bands, and partial areas under ROC curves.

Conventions
-----------
Curves have a point for every probability that occurs; cases with at least that probability are called positive. ROC
points are joined by straight lines, starting at (0, 0). Precision at a recall is that of the first point with at least
this recall.

Bands are pointwise: at each false positive rate or recall, they are the 95% interval of that point only, not of the
whole curve. Bounds are computed as for proportions, from standard errors over resampled patients
(:func:`~reveal_bench.metrics.jackknife.share_bounds`), because percentiles would have zero width where the curve is at
1. Sensitivities, and areas divided by `max_fpr`, are proportions of the patients with the finding; precisions are
proportions of those called positive. Bands and intervals are undefined if fewer than
:data:`~reveal_bench.metrics.jackknife.LEAST_UNITS` patients have or lack the finding, or if the rate on the horizontal
axis leaves fewer than :data:`LEAST_BEYOND` patients on one side.

A partial area is the area under the ROC curve up to a false positive rate (1 - specificity) of ``max_fpr``. Its
standardized form (McClish 1989, Med. Decis. Making 9) is 0.5 for guessing and 1 for a perfect system, and equals
`sklearn.metrics.roc_auc_score(max_fpr=...)`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reveal_bench.analyses.operating import FindingCases, cases_by_finding
from reveal_bench.analyses.thresholds import Cuts
from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.kinds.scored import Confidences, Curve
from reveal_bench.metrics.agreement import divide
from reveal_bench.metrics.bootstrap import MACRO, Counts, blocks_of_counts, replicates_of
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.metrics.jackknife import LEAST_UNITS, share_bounds

GRID = np.linspace(0, 1, 101)
"""False positive rates and recalls at which bands are computed."""
LEAST_BEYOND = 2.0
"""Minimum number of patients on both sides of a false positive rate or recall for a band: 2 of 100 at 0.02."""
_SAME = 1e-9  # smaller differences between rates are rounding errors


@dataclass(frozen=True, slots=True)
class LabelBand:
    """A finding's sensitivity at a false positive rate in :data:`GRID`, or precision at a recall, with interval."""

    finding: str
    at: float
    height: Estimate


@dataclass(frozen=True, slots=True)
class PartialArea:
    """Partial area under a finding's ROC curve, as an area and in McClish's standardized form.

    `area.n` is the number of cases with the finding.
    """

    finding: str
    max_fpr: float
    area: Estimate
    standardized: Estimate


@dataclass(frozen=True, slots=True)
class LabelCurves:
    """Curves of the findings that have both positive and negative cases.

    Attributes
    ----------
    roc, precision_recall : finding -> (false positive rate, sensitivity), and (recall, precision)
    roc_bands, precision_bands : bands of the two curves, for each finding and point of :data:`GRID`
    areas : partial areas
    left_out : finding -> reason why it has no curves
    """

    roc: Mapping[str, Curve]
    precision_recall: Mapping[str, Curve]
    roc_bands: Sequence[LabelBand]
    precision_bands: Sequence[LabelBand]
    areas: Sequence[PartialArea]
    left_out: Mapping[str, str]

    def of(self, findings: Collection[str]) -> LabelCurves:
        """Return only the curves of the named findings."""
        return LabelCurves(
            {name: curve for name, curve in self.roc.items() if name in findings},
            {name: curve for name, curve in self.precision_recall.items() if name in findings},
            [one for one in self.roc_bands if one.finding in findings],
            [one for one in self.precision_bands if one.finding in findings],
            [one for one in self.areas if one.finding in findings],
            {name: reason for name, reason in self.left_out.items() if name in findings},
        )


@dataclass(frozen=True, slots=True)
class ReaderPoint:
    """Operating point of a reader, or of a system that only has decisions, compared with a finding's ROC curve.

    Attributes
    ----------
    below_curve : True if the curve has a higher sensitivity at the reader's false positive rate
    """

    finding: str
    reader: str
    false_positive_rate: float
    sensitivity: float
    below_curve: bool


def reader_points(roc: Mapping[str, Curve], reader: str, estimates: Sequence[Estimate]) -> list[ReaderPoint]:
    """Return a reader's operating points beside ROC curves; `estimates` have recall and specificity."""
    rates = {(one.metric, one.finding): one.value for one in estimates}
    points = []
    for finding, curve in roc.items():
        sensitivity, fpr = rates["recall", finding], 1 - rates["specificity", finding]
        is_below = bool(sensitivity < np.interp(fpr + _SAME, *curve) - _SAME)
        points.append(ReaderPoint(finding, reader, fpr, sensitivity, is_below))
    return points


def count_below(points: Iterable[ReaderPoint], findings: Collection[str]) -> dict[str, float]:
    """Return the number of readers below the ROC curve: the mean over the findings (macro), then every finding.

    Source: "Num Rads Below Curve" on the leaderboard of Irvin et al. 2019 (CheXpert).
    """
    n_below = Counter(point.finding for point in points if point.below_curve)
    return {MACRO: n_below.total() / len(findings), **{name: n_below[name] for name in findings}}


def roc_curves(confidences: Confidences) -> dict[str, Curve]:
    """Return finding -> ROC curve, for findings with both positive and negative cases."""
    cases = cases_by_finding(confidences)
    return {finding: _roc(own.cuts) for finding, own in cases.items() if not own.cuts.one_class}


def partial_area(cuts: Cuts, max_fpr: float, *, standardized: bool) -> FloatArray:
    """Return the partial areas under ROC curves (...,); NaN if all cases have, or all lack, the finding.

    Parameters
    ----------
    max_fpr : in (0, 1]
    standardized : True for McClish's standardized form instead of the area

    Examples
    --------
    The sensitivity is 0.5 up to a false positive rate of 0.5:

    >>> from reveal_bench.analyses.thresholds import cuts_of
    >>> cuts = cuts_of(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))
    >>> float(partial_area(cuts, 0.5, standardized=False)), round(float(partial_area(cuts, 0.5, standardized=True)), 4)
    (0.25, 0.6667)
    """
    if not 0 < max_fpr <= 1:
        raise ArgumentError("max_fpr", "must be above 0 and at most 1", max_fpr)
    fpr, sensitivity = _roc(cuts)
    width = np.diff(fpr, axis=-1)
    inside = np.clip(max_fpr - fpr[..., :-1], 0, width)
    slope = np.divide(np.diff(sensitivity, axis=-1), width, out=np.zeros_like(width), where=width > 0)
    area: FloatArray = (inside * (sensitivity[..., :-1] + slope * inside / 2)).sum(axis=-1).clip(0, max_fpr)
    return _standardized(area, max_fpr) if standardized else area


def _standardized(area: FloatArray, max_fpr: float) -> FloatArray:
    """Return McClish's standardized form of partial areas."""
    least = max_fpr**2 / 2
    form: FloatArray = (1 + (area - least) / (max_fpr - least)) / 2
    return form


def label_curves(confidences: Confidences, resampling: Resampling, max_fpr: float = 0.1) -> LabelCurves:
    """Return the curves of a system that has a probability for every finding.

    Parameters
    ----------
    resampling : unit "patient", at least 2 replicates
    max_fpr : false positive rate up to which partial areas are computed
    """
    if resampling.unit != "patient":
        raise ArgumentError("unit", "must be 'patient' for curves of findings", repr(resampling.unit))
    if resampling.n_resamples < 2:
        raise ArgumentError("n_resamples", "must be at least 2 for bands", resampling.n_resamples)
    cases = cases_by_finding(confidences)
    left_out = {finding: reason for finding, own in cases.items() if (reason := own.cuts.one_class)}
    cases = {finding: own for finding, own in cases.items() if finding not in left_out}
    cuts = {finding: own.cuts for finding, own in cases.items()}

    def replicates(counts: Counts) -> dict[str, FloatArray]:
        return {finding: _drawn_summaries(own, counts, max_fpr) for finding, own in cases.items()}

    drawn = replicates_of(replicates, blocks_of_counts(len(confidences.all_patients), resampling)) if cases else {}
    roc_bands, precision_bands, areas = [], [], []
    for finding, own in cases.items():
        *heights, area = _with_intervals(_summary(cuts[finding], max_fpr), drawn[finding], own.n_units, max_fpr)
        both = zip(GRID.tolist(), heights[: len(GRID)], heights[len(GRID) :], strict=True)
        for at, sensitivity, precision in both:
            roc_bands.append(LabelBand(finding, at, sensitivity))
            precision_bands.append(LabelBand(finding, at, precision))
        area = replace(area, n=int(own.cuts.n_positive))
        value, low, high = _standardized(np.array([area.value, area.low, area.high]), max_fpr).tolist()
        areas.append(PartialArea(finding, max_fpr, area, Estimate(value, low, high)))
    roc = {finding: _roc(own) for finding, own in cuts.items()}
    precision_recall = {finding: (own.tp / own.n_positive, own.tp / (own.tp + own.fp)) for finding, own in cuts.items()}
    return LabelCurves(roc, precision_recall, roc_bands, precision_bands, areas, left_out)


def _roc(cuts: Cuts) -> Curve:
    """Return false positive rates and sensitivities, each (..., 1 + n_cuts), starting at (0, 0)."""
    start = np.zeros((*cuts.tp.shape[:-1], 1))
    fpr = np.concatenate([start, divide(cuts.fp, cuts.n_negative[..., None])], axis=-1)
    return fpr, np.concatenate([start, divide(cuts.tp, cuts.n_positive[..., None])], axis=-1)


def _summary(cuts: Cuts, max_fpr: float) -> FloatArray:
    """Return sensitivity and precision on the grid, and the partial area, of one sample."""
    fpr, sensitivity = _roc(cuts)
    first = np.searchsorted(sensitivity[1:], GRID - 1e-12)
    precision = divide(cuts.tp, cuts.tp + cuts.fp)[np.minimum(first, len(cuts.tp) - 1)]
    area = partial_area(cuts, max_fpr, standardized=False)
    return np.concatenate([np.interp(GRID, fpr, sensitivity), precision, area[None]])


def _drawn_summaries(cases: FindingCases, counts: Counts, max_fpr: float) -> FloatArray:
    """Return :func:`_summary` of every replicate; NaN if a replicate has only positive or only negative cases."""
    undefined = np.full(2 * len(GRID) + 1, np.nan)
    rows = []
    for cuts in cases.drawn_cuts(counts):
        for tp, fp, p, n in zip(cuts.tp, cuts.fp, cuts.n_positive, cuts.n_negative, strict=True):
            rows.append(_summary(Cuts(cuts.thresholds, tp, fp, p, n), max_fpr) if p > 0 and n > 0 else undefined)
    return np.stack(rows)


def _with_intervals(values: FloatArray, drawn: FloatArray, n_units: tuple[int, int], max_fpr: float) -> list[Estimate]:
    """Return sensitivities and precisions on the grid, and the partial area, with intervals.

    Parameters
    ----------
    values, drawn : :func:`_summary` of the data, and of every replicate
    n_units : numbers of patients with the finding, and of patients without it
    """
    n_with, n_without = n_units
    precision = values[len(GRID) : -1]
    scale = np.append(np.ones(len(values) - 1), max_fpr)
    sizes = np.concatenate([np.full(len(GRID), n_with), divide(GRID * n_with, precision), [n_with]])
    inside = np.minimum(GRID, 1 - GRID) + _SAME
    beyond = np.concatenate([inside * n_without, inside * n_with, [max_fpr * n_without]])
    own = (beyond >= LEAST_BEYOND) & (min(n_units) >= LEAST_UNITS)
    errors = np.nanstd(drawn[:, own], axis=0, ddof=1) / scale[own]
    bounds = np.full((2, len(values)), np.nan)
    bounds[:, own] = scale[own] * share_bounds(values[own] / scale[own], errors, sizes[own])
    return [Estimate(*row) for row in zip(values.tolist(), *bounds.tolist(), strict=True)]
