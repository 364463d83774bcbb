"""Closed-form intervals of AUROC and average precision that hold with few positive patients and for good models.

Conventions
-----------
The variance of a finding's score is c times g. g is the variance that the score would have with independent patients
and a usual shape of the curve:

* for AUROC, Hanley and McNeil's with ``N = (m + n) / 2 - 1`` instead of ``m - 1`` and ``n - 1`` (Newcombe's method 5),
  where m and n are the numbers of patients with the finding and without it;
* for average precision, ``theta (1 - theta) / m``, as if it were a proportion of the m patients with the finding.

c is a ratio of variances: the variance computed from the influences of patients (for AUROC, DeLong's with patients as
clusters) divided by g at the score. With few patients, this ratio says little: it is 0 for a perfect ranking. So the
ratio is averaged with 1, which counts for :data:`PRIOR_FREEDOM` degrees of freedom; the ratio's own degrees of freedom
are the number of patients in the smaller class (for average precision, with the finding) minus 1. In a macro of AUROC,
the weighted mean of the findings' ratios and of one further ratio of 1 replaces 1, and the ratio of a perfect ranking,
because all findings together show how their variances compare with g.

* The bounds of one finding's interval are the values that are 1.96 standard errors away from the score, with the
  variance at the bound. For average precision, t replaces 1.96: for the lower bound always, because the score of few
  patients is mostly too high if it errs, for the upper bound if fewer patients lack the finding than have it. Its
  degrees of freedom are the number of patients in the smaller class minus 1.
* A macro M has the Wilson interval of its effective sample size ``M (1 - M) / se**2`` with a t quantile. se combines
  the covariances of influences with the findings' variances, at scores shrunk towards the common score as if by one
  further patient; degrees of freedom follow by Satterthwaite's formula. For average precision, se is multiplied by
  :func:`~reveal_bench.metrics.jackknife.safety`.
* Average precision is biased upwards, because each positive study counts itself among those ranked at least as high.
  Its intervals are centred at a proportion :data:`CORRECTED` of the way from the value to a corrected value, in which a
  positive study counts itself only in part (`_without_own`). They always include the value.

Sources: Newcombe (2006), Stat. Med. 25, 559-573, method 5; Hanley and McNeil (1982), Radiology 143; DeLong, DeLong and
Clarke-Pearson (1988), Biometrics 44; clusters as in Obuchowski (1997), Biometrics 53. `benchmarks/calibration.py`
measures the coverage; docs/statistics.md has its table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.metrics.jackknife import TOO_WIDE, UNEVEN, WIDEST, Z, has_uneven_rows, safety, t_quantile, wilson
from reveal_bench.metrics.labels import Ranking, ranking_influences

PRIOR_FREEDOM = 12.0
"""Degrees of freedom of the ratio 1 with which a finding's own ratio of variances is averaged."""
CORRECTED = 0.4
"""Intervals are centred at this proportion of the way from average precision to the value without a study's own count.
The corrected value is too low for good rankings and right for random ones.
"""
LEAST_UNITS_OF_CLASS = 5
"""Smallest number of patients with a finding, and of patients without it, for an interval."""
SPARSE = 0.25
"""Largest proportion of a macro's findings that may have fewer patients, for average precision."""
HALF_UNITS = 0.06
"""Number of further patients, half of them with right results, who raise the variance of a finding's difference."""
_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class RankingEvidence:
    """Inputs of the intervals of AUROC or average precision of findings, and of their macro.

    Attributes
    ----------
    metric : {"auroc", "average_precision"}
    centres : float array (n_groups,), where intervals are centred
    influences : float array (n_units, n_groups), derivatives of the score by the weight of each unit; 0 if undefined
    n_positive, n_negative : int arrays (n_groups,), units with the finding and without it
    averaged : groups in the macro
    has_study : bool array (n_units, n_groups), True for units with a study
    is_uneven : True if the units' numbers of studies are too unequal for any interval
    """

    metric: Ranking
    centres: FloatArray
    influences: FloatArray
    n_positive: IntArray
    n_negative: IntArray
    averaged: IntArray
    has_study: BoolArray
    is_uneven: bool = False

    def over(self, averaged: IntArray) -> RankingEvidence:
        """Return the evidence with a macro over the given groups."""
        return replace(self, averaged=averaged)

    @property
    def n_smaller(self) -> IntArray:
        """Number of units of the smaller class of each group, (n_groups,)."""
        return np.minimum(self.n_positive, self.n_negative)

    def ends(self, values: FloatArray) -> FloatArray:
        """Return both bounds of the macro and every group, (2, 1 + n_groups); NaN if there is no interval."""
        singles = self._single_ends(values[1:])
        averaged = self.averaged
        macro = singles[:, averaged[0]] if len(averaged) == 1 else self._macro_ends(values[1:], averaged)
        ends = np.column_stack([macro, singles])
        ends = np.stack([np.fmin(ends[0], values), np.fmax(ends[1], values)])
        is_few = np.array([bool(reason) for reason in self.few(values)])
        return np.where(is_few | np.isnan(values) | (ends[1] - ends[0] > WIDEST), np.nan, ends)

    def missing_reasons(self, values: FloatArray, ends: FloatArray) -> list[str]:
        """Return, for each column, why it has no interval; empty if it has an interval, or no value."""
        is_missing = np.isnan(ends).all(axis=0) & ~np.isnan(values)
        return [
            (reason or TOO_WIDE) if missing else ""
            for reason, missing in zip(self.few(values), is_missing.tolist(), strict=True)
        ]

    def few(self, values: FloatArray) -> list[str]:
        """Return, for each column, why there are too few patients for an interval; empty if there are enough."""
        is_few, averaged = self.n_smaller < LEAST_UNITS_OF_CLASS, self.averaged
        least = f"{LEAST_UNITS_OF_CLASS} patients with it or without it"
        macro = ""
        if len(averaged) == 1:
            macro = f"fewer than {least}" if is_few[averaged[0]] else ""
        elif is_few[averaged].all():
            macro = f"no finding with {least.replace('or', 'and')}"
        elif self.metric == "average_precision" and is_few[averaged].mean() > SPARSE:
            macro = f"{is_few[averaged].sum()} of {len(averaged)} findings have fewer than {least}"
        reasons = [macro, *(f"fewer than {least}" if few else "" for few in is_few)]
        return [reason or UNEVEN for reason in reasons] if self.is_uneven else reasons

    def _variance(self, scores: FloatArray) -> FloatArray:
        """Return the variance g of each group at `scores`."""
        positive, negative = np.maximum(self.n_positive, 1), np.maximum(self.n_negative, 1)
        if self.metric == "auroc":
            return area_variance(scores, positive, negative)
        return scores * (1 - scores) / positive

    def _ratios(self, values: FloatArray) -> FloatArray:
        """Return the ratio c of each group."""
        ratios, weights = self._own_ratios(values)
        averages: FloatArray = weights * np.where(np.isnan(ratios), 1, ratios) + 1 - weights
        return averages

    def _own_ratios(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the ratio of variances of each group, NaN at 0 and 1, and its weight in the average."""
        n, freedom = len(self.influences), np.maximum(self._sizes() - 1, 0)
        own = n / max(n - 1, 1) * (self.influences**2).sum(axis=0)
        inside = np.clip(values, 0.02, 1 - 1 / (4 * np.maximum(self.n_positive, 1)))
        ratios = np.where((values > 0) & (values < 1), own / self._variance(inside), np.nan)
        return ratios, freedom / (freedom + PRIOR_FREEDOM)

    def _macro_ratios(self, values: FloatArray) -> FloatArray:
        """Return the ratio c of each group in a macro.

        For AUROC, it is averaged with the mean ratio of the macro's findings and of one further finding with ratio 1.
        Findings with an AUROC of 0 or 1 have the mean ratio.
        """
        if self.metric != "auroc":
            return self._ratios(values)
        ratios, weights = self._own_ratios(values)
        known = np.isin(np.arange(len(values)), self.averaged) & ~np.isnan(ratios)
        common = ((weights * ratios)[known].sum() + 1) / (weights[known].sum() + 1)
        averages: FloatArray = weights * np.where(np.isnan(ratios), common, ratios) + (1 - weights) * common
        return averages

    def _single_ends(self, values: FloatArray) -> FloatArray:
        ratios = self._ratios(values)
        if self.metric == "average_precision":
            below = t_quantile((self.n_smaller - 1).astype(np.float64))
            above = np.where(self.n_negative < self.n_positive, below, Z)
            low, high = (wilson(self.centres, self.n_positive / ratios, t) for t in (below, above))
            return np.stack([low[0], high[1]])
        return np.stack([self._bound(values, ratios, end) for end in (0.0, 1.0)])

    def _bound(self, values: FloatArray, ratios: FloatArray, end: float) -> FloatArray:
        """Return, by bisection, the score towards `end` that is Z of its own standard errors away from the values."""
        near, far = values.copy(), np.full(values.shape, end)
        for _ in range(_HALVINGS):
            middle = (near + far) / 2
            is_outside = (values - middle) ** 2 > Z**2 * ratios * self._variance(middle)
            near, far = np.where(is_outside, near, middle), np.where(is_outside, middle, far)
        return far

    def _macro_ends(self, values: FloatArray, averaged: IntArray) -> FloatArray:
        if not len(averaged):
            return np.full(2, np.nan)
        drawn = self._drawn_together(averaged)
        variance, freedom = self._macro_variance(self._macro_ratios(values) * self._variance(drawn), averaged)
        at, factor = drawn[averaged].mean(), 1.0 if self.metric == "auroc" else safety(len(self.influences)) ** 2
        size = np.array([at * (1 - at) / (factor * variance)])
        quantile = t_quantile(np.array([freedom]))
        return wilson(np.array([self.centres[averaged].mean()]), size, quantile)[:, 0]

    def _sizes(self) -> IntArray:
        return self.n_smaller if self.metric == "auroc" else self.n_positive

    def _drawn_together(self, averaged: IntArray) -> FloatArray:
        """Return the scores of the macro's findings, shrunk towards the common score; the common score for other
        findings.
        """
        sizes, centres = self._sizes()[averaged], self.centres[averaged]
        common = ((sizes * centres).sum() + 0.5) / (sizes.sum() + 1)
        drawn = np.full(self.centres.shape, common)
        drawn[averaged] = (sizes * centres + common) / (sizes + 1)
        return drawn

    def _macro_variance(self, variances: FloatArray, averaged: IntArray) -> tuple[float, float]:
        """Return the variance of a macro and its degrees of freedom, from the variances of the findings."""
        own, n = variances[averaged], len(self.influences)
        covariance = n / max(n - 1, 1) * self.influences[:, averaged].T @ self.influences[:, averaged]
        total = own.sum() + covariance.sum() - np.trace(covariance)
        total = max(float(total), float(own.sum()) / 4) / len(averaged) ** 2
        freedom = own.sum() ** 2 / (own**2 / (np.maximum(self._sizes()[averaged] - 1, 0) + PRIOR_FREEDOM)).sum()
        return total, float(freedom)

    def variances(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the variances used for a difference between systems, and their degrees of freedom, (1 + n_groups,)
        each.

        The variance of a finding is computed at a score that is shrunk towards 1/2, as if :data:`HALF_UNITS` further
        patients had the score 1/2. The macro of average precision combines these variances. The macro of AUROC has its
        own variance, as in :meth:`ends`, because the combined variances would hardly show differences between good
        systems.
        """
        sizes = self._sizes()
        drawn = (sizes * self.centres + HALF_UNITS / 2) / (sizes + HALF_UNITS)
        ratios, averaged = self._ratios(values[1:]), self.averaged
        own = ratios * self._variance(drawn)
        together = own
        if self.metric == "auroc" and len(averaged) > 1:
            together = self._macro_ratios(values[1:]) * self._variance(self._drawn_together(averaged))
        macro, freedom = self._macro_variance(together, averaged) if len(averaged) else (np.nan, np.nan)
        return np.append(macro, own), np.append(freedom, np.maximum(sizes - 1, 0) + PRIOR_FREEDOM)

    def ratio_parts(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return numerators and denominators of each group's score, (n_units, n_groups) each.

        The denominator of a unit with a study is 1. Its numerator is the score plus the number of units times the
        derivative of the score by the unit's weight. The derivatives add up to 0. For AUROC they follow from the
        placements of DeLong, DeLong and Clarke-Pearson (1988, Biometrics 44).
        """
        denominators = self.has_study.astype(np.float64)
        return denominators * values + denominators.sum(axis=0) * self.influences, denominators

    def macro_first(self, columns: FloatArray, values: FloatArray) -> FloatArray:
        """Return columns of groups after a first column, the mean over the macro's groups."""
        averaged = self.averaged
        macro = columns[..., averaged].sum(axis=-1, keepdims=True) / max(len(averaged), 1)
        return np.concatenate([macro, columns], axis=-1)


def area_variance(scores: FloatArray, n_positive: IntArray, n_negative: IntArray) -> FloatArray:
    """Return the variance of an AUROC by Newcombe's method 5 (2006, Stat. Med. 25).

    Examples
    --------
    >>> area_variance(np.array([0.75]), np.array([10]), np.array([20])).round(5).tolist()
    [0.00919]
    """
    size = (n_positive + n_negative) / 2 - 1
    factor = 1 + size * (1 - scores) / (2 - scores) + size * scores / (1 + scores)
    variance: FloatArray = scores * (1 - scores) * factor / (n_positive * n_negative)
    return variance


def ranking_evidence(
    metric: Ranking,
    columns: Sequence[tuple[FloatArray, BoolArray, IntArray]],
    values: FloatArray,
    n_units: int,
) -> RankingEvidence:
    """Return the inputs of the intervals of AUROC or average precision.

    Parameters
    ----------
    columns : (scores, references, unit of each study) of every group
    values : float array (n_groups,), the scores on the data
    n_units : number of resampled units
    """
    influences = np.zeros((n_units, len(columns)))
    classes = np.zeros((2, len(columns)), np.int64)
    centres = values.copy()
    for i, (scores, present, units) in enumerate(columns):
        classes[:, i] = [np.count_nonzero(np.bincount(units[part])) for part in (present, ~present)]
        if np.isnan(values[i]):
            continue
        influences[:, i] = np.bincount(units, ranking_influences(metric, scores, present), n_units)
        if metric == "average_precision":
            centres[i] += CORRECTED * (_without_own(scores, present, values[i]) - values[i])
    studies = np.column_stack([np.bincount(units, minlength=n_units) for _, _, units in columns])
    averaged, is_uneven = np.flatnonzero(~np.isnan(values)), has_uneven_rows(studies)
    return RankingEvidence(metric, centres, influences, classes[0], classes[1], averaged, studies > 0, is_uneven)


def _without_own(scores: FloatArray, present: BoolArray, value: float) -> float:
    """Return the average precision in which each positive study counts itself as this value instead of 1.

    The other positive studies count more, so that the number of positives stays the same. With a single positive study,
    return `value`.
    """
    positive, negative = np.sort(scores[present]), np.sort(scores[~present])
    n = len(positive)
    if n < 2:
        return value
    others = (n - np.searchsorted(positive, positive, "left") - 1) * n / (n - 1)
    called = others + len(negative) - np.searchsorted(negative, positive, "left") + 1
    return float((others / called).mean() / (1 - (1 / called).mean()))  # solves v = mean((others + v) / called)
