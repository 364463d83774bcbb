"""Value of a system's confidences: calibration, leaving uncertain cases to a reader, decisions by threshold.

Definitions are in :mod:`reveal_bench.metrics.calibration`. Means have 95% intervals by the jackknife over
patients (:mod:`reveal_bench.metrics.jackknife`), if at least :data:`~reveal_bench.metrics.jackknife.LEAST_UNITS`
patients have the event and as many have a case without it. The expected calibration error and the area under the curve
of risk have none, because no interval covers them: the first is biased upwards. Intervals of risks and net benefits
hold for each coverage and threshold separately, with the answered cases taken as fixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.kinds.scored import Confidences
from reveal_bench.metrics.bootstrap import (
    MACRO,
    bootstrap_means,
    code_cases,
    intervals_of,
    macro_first,
    resampling_counts,
)
from reveal_bench.metrics.calibration import (
    Bin,
    Binning,
    area_under_risk,
    calibration_error,
    net_benefits,
    recalibration,
    reliability,
    risk_coverage,
)
from reveal_bench.metrics.intervals import Estimate, Resampling
from reveal_bench.metrics.jackknife import LEAST_UNITS, evidence_of_groups

POOLED = "all"
"""Name used instead of a finding's for the answers of all findings together."""
COVERAGES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Proportions of answered cases in tables."""
LEAST_UNITS_OF_SLOPE = 15
"""Number of patients with the event, and without it, below which slope and intercept have no interval."""
THRESHOLDS = tuple(round(0.05 * i, 2) for i in range(1, 20))
"""Probability thresholds of decision curves."""


@dataclass(frozen=True, slots=True)
class FindingCalibration:
    """Fit of the probabilities of a finding, or the mean over all, to the events.

    Attributes
    ----------
    finding : name of the finding, or "macro" for the unweighted mean over findings
    n, n_events : numbers of cases, and of cases with the event; for a macro, the number of findings, and 0
    brier : Brier score
    brier_of_rate : Brier score of always stating the rate of the event
    excess : mean probability minus the rate of the event
    error : expected calibration error
    slope : calibration slope; the macro is the mean over the findings that have one
    intercept : calibration-in-the-large, on the scale of logits; the macro is formed as for the slope
    undefined : reason why slope, or slope and intercept, are undefined; empty if both are defined
    """

    finding: str
    n: int
    n_events: int
    brier: Estimate
    brier_of_rate: float
    excess: Estimate
    error: float
    slope: Estimate
    intercept: Estimate
    undefined: str


@dataclass(frozen=True, slots=True)
class CoveragePoint:
    """Risk of a finding, or of all together, if only the most confident cases are answered.

    Attributes
    ----------
    finding : name of the finding, or "all"
    wanted, coverage : requested and actual proportion of answered cases: equally confident cases stay together
    n : number of answered cases
    least : the lowest confidence among them
    risk : proportion of wrong answers among them
    """

    finding: str
    wanted: float
    coverage: float
    n: int
    least: float
    risk: Estimate


@dataclass(frozen=True, slots=True)
class NetBenefit:
    """Net benefit of acting on a finding from a threshold of probability on, and of always acting; never acting: 0."""

    finding: str
    threshold: float
    system: Estimate
    act_always: float


@dataclass(frozen=True)
class CalibrationResult:
    """Calibration, risk by coverage and net benefit of a system's confidences.

    Attributes
    ----------
    confidences : the assessed confidences
    calibration : the macro, then every finding with a case
    bins : finding -> its bins of reliability
    answered : points at each of :data:`COVERAGES`, for all findings together, then for each
    curves : finding, "all" first -> coverage and risk at every level of confidence
    areas : finding, "all" first -> area under that curve
    benefits : at each of :data:`THRESHOLDS`, per finding; none unless the cases are a whole split
    """

    confidences: Confidences
    calibration: Sequence[FindingCalibration]
    bins: dict[str, list[Bin]]
    answered: Sequence[CoveragePoint]
    curves: dict[str, tuple[FloatArray, FloatArray]]
    areas: dict[str, float]
    benefits: Sequence[NetBenefit]


def judge_confidences(confidences: Confidences, *, n_bins: int = 10, binning: Binning = "width") -> CalibrationResult:
    """Return calibration, risk and coverage, and net benefit of a system.

    Parameters
    ----------
    n_bins, binning : bins of reliability, see :func:`reveal_bench.metrics.calibration.reliability`

    Raises
    ------
    ArgumentError
        If no case is given, or an option breaks its rule.
    """
    if not len(confidences):
        raise ArgumentError("predictions", "must state a confidence for at least one case", "none")
    cases = _GroupedCases.of(confidences)
    findings = cases.groups
    bins = {
        name: reliability(confidences.probabilities[own], confidences.happened[own], n_bins=n_bins, binning=binning)
        for name, own in cases.parts()
    }
    errors = {name: calibration_error(bins[name]) for name in findings}
    calibration = _calibration(cases, confidences, errors)
    curves = {name: risk_coverage(confidences.sureness[own], confidences.right[own]) for name, own in cases.wholes()}
    areas = {name: area_under_risk(confidences.sureness[own], confidences.right[own]) for name, own in cases.wholes()}
    answered = [
        _answered(cases, confidences, name, own, share, *curves[name])
        for name, own in cases.wholes()
        for share in COVERAGES
    ]
    benefits = _benefits(cases, confidences) if confidences.whole_split else []
    return CalibrationResult(confidences, calibration, bins, answered, curves, areas, benefits)


@dataclass(frozen=True)
class _GroupedCases:
    """Findings with a case, and for each case the code of its finding and of its patient."""

    groups: tuple[str, ...]
    codes: IntArray
    units: IntArray
    n_units: int

    @classmethod
    def of(cls, confidences: Confidences) -> _GroupedCases:
        groups = tuple(name for name in confidences.groups if name in set(confidences.case_groups))
        units = sorted(confidences.all_patients)
        _, codes, of_case = code_cases(confidences.case_groups, confidences.case_patients, findings=groups, units=units)
        return cls(groups, codes, of_case, len(units))

    def parts(self) -> list[tuple[str, BoolArray]]:
        """Return every finding and the mask of its cases."""
        return [(name, self.codes == i) for i, name in enumerate(self.groups)]

    def wholes(self) -> list[tuple[str, BoolArray]]:
        """Return all cases together, then every finding, with their masks."""
        return [(POOLED, np.ones(len(self.codes), bool)), *self.parts()]

    def means(
        self, values: FloatArray, codes: IntArray, n_groups: int, bounds: tuple[float, float], chosen: BoolArray
    ) -> list[Estimate]:
        """Return the macro of `values` and their mean per group with intervals, over the `chosen` cases."""
        counts = resampling_counts(self.n_units, Resampling(1))  # the jackknife draws nothing
        means = bootstrap_means(
            values[chosen], codes[chosen], self.units[chosen], n_groups=n_groups, counts=counts, bounds=bounds
        )
        return intervals_of(means, "jackknife", bounds=bounds).estimates()

    def fewest(self, happened: BoolArray) -> IntArray:
        """Return each finding's number of patients with the event or without it, whichever is smaller, (n_groups,)."""
        sides = [
            [len(np.unique(self.units[own & (happened == side)])) for side in (True, False)] for _, own in self.parts()
        ]
        fewest: IntArray = np.array(sides).min(axis=1)
        return fewest


_UNBOUNDED = (-math.inf, math.inf)


def _per_finding(
    cases: _GroupedCases, values: FloatArray, happened: BoolArray, bounds: tuple[float, float] = _UNBOUNDED
) -> list[Estimate]:
    """Return the macro and the findings; a finding with too few patients on either side has no interval."""
    everything = np.ones(len(values), bool)
    macro, *means = cases.means(values, cases.codes, len(cases.groups), bounds, everything)
    return [macro, *_drop_sparse(means, cases.fewest(happened) >= LEAST_UNITS)]


def _drop_sparse(means: Sequence[Estimate], enough: BoolArray) -> list[Estimate]:
    return [one if has else Estimate(one.value) for one, has in zip(means, enough, strict=True)]


def _calibration(cases: _GroupedCases, confidences: Confidences, errors: dict[str, float]) -> list[FindingCalibration]:
    excess = confidences.probabilities - confidences.happened
    brier = _per_finding(cases, excess**2, confidences.happened, (0.0, 1.0))
    over = _per_finding(cases, excess, confidences.happened)
    n = np.bincount(cases.codes, minlength=len(cases.groups))
    n_events = np.bincount(cases.codes[confidences.happened], minlength=len(cases.groups))
    rates = n_events / n
    of_rate = rates * (1 - rates)
    mean_error = sum(errors.values()) / len(errors)
    slopes, intercepts, reasons = _recalibrations(cases, confidences)
    names = [MACRO, *cases.groups]
    counts = [(len(n), 0), *zip(n.tolist(), n_events.tolist(), strict=True)]
    briers_of_rate = [float(of_rate.mean()), *of_rate.tolist()]
    each_error = [mean_error, *(errors[name] for name in cases.groups)]
    return [
        FindingCalibration(name, *counts[i], brier[i], briers_of_rate[i], over[i], each_error[i], slopes[i],
                           intercepts[i], reasons[i])
        for i, name in enumerate(names)
    ]  # fmt: skip


def _recalibrations(cases: _GroupedCases, confidences: Confidences) -> tuple[list[Estimate], list[Estimate], list[str]]:
    """Return slopes, intercepts and the reasons why they are undefined: the macro, then the findings."""
    fits = [
        recalibration(
            confidences.probabilities[own], confidences.happened[own], units=cases.units[own], n_units=cases.n_units
        )
        for _, own in cases.parts()
    ]
    sides = cases.fewest(confidences.happened)
    columns = [
        ([fit.slope for fit in fits], [fit.slopes for fit in fits]),
        ([fit.intercept for fit in fits], [fit.intercepts for fit in fits]),
    ]
    slopes, intercepts = (_ml_estimates(np.array(own), np.column_stack(without), sides) for own, without in columns)
    reason = "" if slopes[0].value == slopes[0].value else "no finding has a slope"
    return slopes, intercepts, [reason, *(fit.reason for fit in fits)]


def _ml_estimates(values: FloatArray, left_out: FloatArray, n_units: IntArray) -> list[Estimate]:
    """Return the macro and the findings, with `n_units` patients on the smaller side of each finding."""
    averaged = np.flatnonzero(~np.isnan(values))
    evidence = evidence_of_groups(macro_first(left_out), n_units, averaged=averaged, bounds=_UNBOUNDED)
    evidence = replace(evidence, enough=evidence.enough & (evidence.n_units >= LEAST_UNITS_OF_SLOPE))
    figures = macro_first(values)
    low, high = evidence.ends(figures)
    return [Estimate(*row) for row in zip(figures.tolist(), low.tolist(), high.tolist(), strict=True)]


def _answered(
    cases: _GroupedCases,
    confidences: Confidences,
    name: str,
    own: BoolArray,
    wanted: float,
    coverage: FloatArray,
    risk: FloatArray,
) -> CoveragePoint:
    level = int(np.searchsorted(coverage, wanted - 1e-9))
    least = np.sort(np.unique(confidences.sureness[own]))[::-1][level]
    chosen = own & (confidences.sureness >= least)
    wrong = (~confidences.right).astype(np.float64)
    # Risks are proportions from 0 to 1; with few cases they have Wilson's interval
    mean = cases.means(wrong, np.zeros(len(wrong), np.int64), 1, (0.0, 1.0), chosen)[1]
    return CoveragePoint(name, wanted, float(coverage[level]), int(chosen.sum()), float(least), mean)


def _benefits(cases: _GroupedCases, confidences: Confidences) -> list[NetBenefit]:
    thresholds = np.array(THRESHOLDS)
    added = net_benefits(confidences.probabilities, confidences.happened, thresholds)
    always = net_benefits(np.ones(len(confidences)), confidences.happened, thresholds)
    rows = []
    for k, threshold in enumerate(THRESHOLDS):
        system = _per_finding(cases, added[:, k], confidences.happened)[1:]
        rows += [
            NetBenefit(name, threshold, system[i], float(always[own, k].mean()))
            for i, (name, own) in enumerate(cases.parts())
        ]
    return sorted(rows, key=lambda row: cases.groups.index(row.finding))  # stable
