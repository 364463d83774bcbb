"""Choose probability thresholds by a criterion, and estimate rates at operating points with intervals.

Prespecified thresholds, such as those tuned on another split, have the intervals of ``score``. Thresholds that reach a
given sensitivity or specificity are chosen on the same cases, and chosen again in every replicate. The other rate, and
PPV at a given sensitivity, have the interval of :func:`~reveal_bench.metrics.jackknife.share_bounds` with the standard
error of the replicates. The given rate has no interval. Other rates have none because they are optimistic on the cases
on which the threshold was chosen. Definitions are in
:mod:`reveal_bench.analyses.thresholds`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reveal_bench.analyses.thresholds import RATES, Criterion, Cuts, at_prevalence, cuts_of, predictive_bounds
from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.kinds.options import Thresholds
from reveal_bench.kinds.scored import Confidences, Rows
from reveal_bench.metrics.bootstrap import MACRO, Counts, blocks_of_counts, code_cases, replicates_of
from reveal_bench.metrics.intervals import UNDEFINED, Estimate, Resampling
from reveal_bench.metrics.jackknife import LEAST_UNITS, share_bounds
from reveal_bench.metrics.resampled import mean_of_defined
from reveal_bench.words import count_text

LEAST_BEYOND = 5.0
"""Minimum expected number of patients beyond a fixed rate for an interval. A sensitivity of 0.9 thus needs 50 patients
with the finding.
"""
LEAST_TO_TUNE = 5
"""Minimum number of cases with a finding, and without it, for choosing a threshold without a warning."""
_AS_SCORED = ("recall", "specificity", "precision", "npv")
"""Names in METRICS of the four rates."""
SENSITIVITY, SPECIFICITY, PPV, NPV = range(len(RATES))
_WEIGHTS_AT_ONCE = 2**21  # some 16 MB


@dataclass(frozen=True, slots=True)
class TunedThreshold:
    """The threshold of one finding, with the rates on the cases on which it was chosen.

    Attributes
    ----------
    finding : name of the finding
    threshold : lowest probability that is called positive; NaN if no threshold meets the criterion
    n, n_positive : numbers of cases, and of cases with the finding
    sensitivity, specificity, ppv, npv : rates on these cases, optimistic because the threshold was chosen on them
    reason : why there is no threshold; empty if there is one
    """

    finding: str
    threshold: float
    n: int
    n_positive: int
    sensitivity: float
    specificity: float
    ppv: float
    npv: float
    reason: str

    @property
    def sparse(self) -> str:
        """Warning about the number of cases behind the threshold; empty if they are enough."""
        n_negative = self.n - self.n_positive
        n, side = (self.n_positive, "with") if self.n_positive <= n_negative else (n_negative, "without")
        return f"only {count_text(n, 'case')} {side} it" if n < LEAST_TO_TUNE and not self.reason else ""


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """Rates of a finding at one threshold, or macro means over findings.

    Attributes
    ----------
    finding : name of the finding, or "macro" for unweighted means over the findings with a defined rate
    threshold : lowest probability that is called positive; NaN for a macro, or without a threshold
    n, n_positive : numbers of cases, and of cases with the finding; for a macro, the number of findings, and 0
    sensitivity, specificity, ppv, npv : rates with intervals
    prevalence : prevalence assumed for the next two values; NaN unless given
    ppv_at_prevalence, npv_at_prevalence : predictive values at that prevalence; undefined for a macro
    reason : why there is no threshold; empty if there is one
    """

    finding: str
    threshold: float
    n: int
    n_positive: int
    sensitivity: Estimate
    specificity: Estimate
    ppv: Estimate
    npv: Estimate
    prevalence: float = math.nan
    ppv_at_prevalence: Estimate = UNDEFINED
    npv_at_prevalence: Estimate = UNDEFINED
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FindingCases:
    """The cases of one finding.

    Attributes
    ----------
    scores : float array (n_cases,), probabilities in [0, 1]
    present : bool array (n_cases,), True for cases with the finding
    units : int array (n_cases,), code of each case's patient
    """

    scores: FloatArray
    present: BoolArray
    units: IntArray

    @property
    def cuts(self) -> Cuts:
        """Candidate thresholds, with the rates on all cases."""
        return cuts_of(self.scores, self.present)

    def drawn_cuts(self, counts: Counts) -> Iterator[Cuts]:
        """Yield the candidate thresholds in the replicates of `counts`, in order, several replicates at a time."""
        step = max(1, _WEIGHTS_AT_ONCE // len(self.scores))
        for start in range(0, len(counts), step):
            weights = counts[start : start + step, self.units].astype(np.float64)
            yield cuts_of(self.scores, self.present, weights)

    @property
    def n_units(self) -> tuple[int, int]:
        """Numbers of patients with the finding, and of patients without it."""
        return len(np.unique(self.units[self.present])), len(np.unique(self.units[~self.present]))


def cases_by_finding(confidences: Confidences) -> dict[str, FindingCases]:
    """Return finding -> its cases; patient codes index the sorted patients of the split."""
    units = sorted(confidences.all_patients)
    _, codes, of_case = code_cases(
        confidences.case_groups, confidences.case_patients, findings=confidences.groups, units=units
    )
    masks = {finding: codes == i for i, finding in enumerate(confidences.groups)}
    return {
        finding: FindingCases(confidences.probabilities[own], confidences.happened[own], of_case[own])
        for finding, own in masks.items()
    }


def confidences_of_decisions(rows: Rows) -> Confidences:
    """Return a system's probabilities for every case of the split.

    Raises
    ------
    ArgumentError
        If a case has no probability, or the kind of benchmark has no decisions on findings.
    """
    confidences = rows.confidences()
    if confidences is None or (confidences.are_probabilities and "specificity" not in rows.metrics()):
        raise ArgumentError("predictions", "must have a probability for every finding of every study", "none")
    if confidences.n_without_confidence:
        n = confidences.n_without_confidence
        raise ArgumentError("predictions", "must have a probability for every finding of every study", f"{n} without")
    return confidences


def tune(confidences: Confidences, criterion: Criterion) -> list[TunedThreshold]:
    """Choose the threshold of every finding by a criterion."""
    tuned = []
    for finding, cases in cases_by_finding(confidences).items():
        cuts = cases.cuts
        chosen = cuts.choose(criterion)
        reason = cuts.why_none(criterion)
        rates = cuts.rates(chosen, criterion) if not reason else np.full(len(RATES), np.nan)
        threshold = cuts.threshold(int(chosen)) if not reason else math.nan
        n, n_positive = int(cuts.n_positive + cuts.n_negative), int(cuts.n_positive)
        se, sp, ppv, npv = rates.tolist()
        tuned.append(TunedThreshold(finding, threshold, n, n_positive, se, sp, ppv, npv, reason))
    return tuned


def points_at(
    rows: Rows, thresholds: Thresholds, resampling: Resampling, prevalences: Mapping[str, float]
) -> list[OperatingPoint]:
    """Return the rates at the prespecified thresholds of `rows`: the macro, then every finding.

    Values and intervals equal those of :meth:`Rows.estimates`. `prevalences` maps findings.
    """
    if not set(_AS_SCORED) <= set(rows.metrics()):
        raise ArgumentError("thresholds", "must be given for scores outside [0, 1], or a rate that fixes them")
    scores = {(one.metric, one.finding): one for one in rows.estimates(resampling, metrics=_AS_SCORED)}
    positives = rows.positives
    points = []
    for finding in (MACRO, *rows.groups):
        rates = [scores[metric, finding] for metric in _AS_SCORED]
        fixed = thresholds.get(finding, 0.5) if isinstance(thresholds, Mapping) else thresholds
        if finding == MACRO:
            points.append(_point(finding, math.nan, len(rows.groups), 0, rates))
            continue
        prevalence = prevalences.get(finding, math.nan)
        at = _at_prevalence(rates[0], rates[1], prevalence)
        points.append(_point(finding, float(fixed), len(rows), positives[finding], [*rates, *at], prevalence))
    return points


def _point(
    finding: str,
    threshold: float,
    n: int,
    n_positive: int,
    estimates: Sequence[Estimate],
    prevalence: float = math.nan,
    reason: str = "",
) -> OperatingPoint:
    """Return an operating point from its estimated rates and, for a finding, predictive values at `prevalence`."""
    se, sp, ppv, npv, *at = estimates
    ppv_at, npv_at = at or (UNDEFINED, UNDEFINED)
    return OperatingPoint(finding, threshold, n, n_positive, se, sp, ppv, npv, prevalence, ppv_at, npv_at, reason)


def _at_prevalence(sensitivity: Estimate, specificity: Estimate, prevalence: float) -> list[Estimate]:
    """Return PPV and NPV at a prevalence, with intervals if both rates have one."""
    values = at_prevalence(sensitivity.value, specificity.value, prevalence).tolist()
    if not (sensitivity.has_interval and specificity.has_interval and prevalence > 0):
        return [Estimate(value) for value in values]
    rates = [(rate.value, rate.low, rate.high) for rate in (sensitivity, specificity)]
    ends = predictive_bounds(rates[0], rates[1], prevalence)
    return [Estimate(value, *own) for value, own in zip(values, ends, strict=True)]


def points_chosen(
    confidences: Confidences, criterion: Criterion, resampling: Resampling, prevalences: Mapping[str, float]
) -> list[OperatingPoint]:
    """Return the rates at thresholds chosen on the same cases: the macro, then every finding.

    Predictive values at another prevalence are computed from the other rate and the fixed rate, which is taken as
    exact.

    Raises
    ------
    ArgumentError
        If the criterion fixes neither sensitivity nor specificity.
    """
    if criterion.name not in ("sensitivity", "specificity") or criterion.target is None:
        raise ArgumentError("criterion", "must fix sensitivity or specificity", criterion.in_words)
    cases = cases_by_finding(confidences)
    cuts = [own.cuts for own in cases.values()]
    chosen = [own.choose(criterion) for own in cuts]
    rates = np.stack([own.rates(index, criterion) for own, index in zip(cuts, chosen, strict=True)])

    def replicates(counts: Counts) -> dict[str, FloatArray]:
        return {finding: _drawn_rates(own, counts, criterion) for finding, own in cases.items()}

    drawn = replicates_of(replicates, blocks_of_counts(len(confidences.all_patients), resampling))
    macro = [Estimate(value) for value in mean_of_defined(rates.T).tolist()]
    points = [_point(MACRO, math.nan, len(cuts), 0, macro)]
    for i, (finding, own) in enumerate(zip(cases, cuts, strict=True)):
        reason, prevalence = own.why_none(criterion), prevalences.get(finding, math.nan)
        n_units = (0, 0) if reason else cases[finding].n_units
        estimates = _chosen_rates(rates[i], drawn[finding], criterion, *n_units)
        exact = Estimate(criterion.target, criterion.target, criterion.target)
        is_sensitivity = criterion.name == "sensitivity"
        pair = (exact, estimates[SPECIFICITY]) if is_sensitivity else (estimates[SENSITIVITY], exact)
        threshold = own.threshold(int(chosen[i])) if chosen[i] >= 0 else math.nan
        n, n_positive = int(own.n_positive + own.n_negative), int(own.n_positive)
        estimates += _at_prevalence(*pair, math.nan if reason else prevalence)
        points.append(_point(finding, threshold, n, n_positive, estimates, prevalence, reason))
    return points


def _drawn_rates(cases: FindingCases, counts: Counts, criterion: Criterion) -> FloatArray:
    """Return a finding's rates (n_replicates, 4) in every replicate of `counts`, each with its own chosen threshold."""
    return np.concatenate([own.rates(own.choose(criterion), criterion) for own in cases.drawn_cuts(counts)])


def _chosen_rates(
    rates: FloatArray, drawn: FloatArray, criterion: Criterion, n_with: int, n_without: int
) -> list[Estimate]:
    """Return a finding's rates, with intervals where these are valid.

    Parameters
    ----------
    rates, drawn : rates on the data (4,) and in replicates (n_resamples, 4)
    n_with, n_without : numbers of patients with the finding and without it; 0 if no threshold was chosen
    """
    estimates = [Estimate(value) for value in rates.tolist()]
    target, fixes_sensitivity = criterion.target or 0.0, criterion.name == "sensitivity"
    n_fixed, n_other = (n_with, n_without) if fixes_sensitivity else (n_without, n_with)
    n_beyond = n_fixed * min(target, 1 - target) + 1e-9  # in floating point, 50 * (1 - 0.9) is a little below 5
    if n_other < LEAST_UNITS or n_beyond < LEAST_BEYOND:
        return estimates
    for k in (SPECIFICITY, PPV) if fixes_sensitivity else (SENSITIVITY,):
        value, error = rates[k : k + 1], np.nanstd(drawn[:, k : k + 1], axis=0, ddof=1)
        n = n_other if k != PPV else n_with if value == 1 else n_with + n_without
        low, high = share_bounds(value, error, np.array([n]))[:, 0].tolist()
        estimates[k] = Estimate(float(rates[k]), low, high)
    return estimates
