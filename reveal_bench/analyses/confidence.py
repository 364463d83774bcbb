"""Evaluate a system's confidence: calibration, selective answering of confident cases, and net benefit.

Definitions are in :mod:`reveal_bench.analyses.calibration`. Means have 95% intervals by the jackknife over patients
(:mod:`reveal_bench.metrics.jackknife`), if at least :data:`~reveal_bench.metrics.jackknife.LEAST_UNITS` patients have a
case with the event and as many have a case without it. The expected calibration error and the area under the
risk-coverage curve have no interval, because no method gives valid ones; the former is biased upwards. Intervals of
risks and net benefits are pointwise (for each coverage or threshold separately) and treat the selection of answered
cases as fixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from reveal_bench.analyses.calibration import (
    Bin,
    Binning,
    area_under_risk,
    calibration_error,
    net_benefits,
    recalibration,
    reliability,
    risk_coverage,
)
from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.kinds.scored import Confidences
from reveal_bench.metrics.bootstrap import (
    MACRO,
    bootstrap_means,
    code_cases,
    intervals_of,
    macro_first,
    no_counts,
)
from reveal_bench.metrics.intervals import Estimate
from reveal_bench.metrics.jackknife import LEAST_UNITS, evidence_of_groups

POOLED = "all"
"""Name for all findings together, instead of a finding's name."""
COVERAGES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Proportions of answered cases that tables show."""
LEAST_UNITS_OF_SLOPE = 15
"""Minimum number of patients with the event, and without it, for intervals of slope and intercept."""
THRESHOLDS = tuple(round(0.05 * i, 2) for i in range(1, 20))
"""Probability thresholds of decision curves."""


@dataclass(frozen=True, slots=True)
class FindingCalibration:
    """Calibration of a finding's probabilities, or the mean over findings.

    Attributes
    ----------
    finding : name of the finding, or "macro" for the unweighted mean over findings
    n, n_events : numbers of cases, and of cases with the event; for a macro, the number of findings, and 0
    brier : Brier score
    brier_of_rate : Brier score of a constant probability equal to the event rate
    excess : mean probability minus the event rate
    error : expected calibration error
    slope : calibration slope; the macro is the mean over findings with a defined slope
    intercept : calibration-in-the-large, on the scale of logits; the macro is the mean over findings with a defined
        intercept
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
    """Risk for one finding, or for all together, if only the most confident cases are answered.

    Attributes
    ----------
    finding : name of the finding, or "all"
    wanted, coverage : requested and actual proportion of answered cases; they differ if cases have equal confidence
    n : number of answered cases
    least : lowest confidence of an answered case
    risk : proportion of wrong answers among answered cases
    """

    finding: str
    wanted: float
    coverage: float
    n: int
    least: float
    risk: Estimate


@dataclass(frozen=True, slots=True)
class NetBenefit:
    """Net benefit of acting on a finding at or above a threshold probability, and of always acting."""

    finding: str
    threshold: float
    system: Estimate
    act_always: float


@dataclass(frozen=True)
class CalibrationResult:
    """Calibration, risk by coverage and net benefit of a system's confidences.

    Attributes
    ----------
    confidences : the evaluated confidences
    calibration : the macro, then every finding with a case
    bins : finding -> bins of the reliability diagram
    answered : risk at each of :data:`COVERAGES`, for all findings together, then for each finding
    curves : finding or "all" (first) -> coverage and risk at every level of confidence
    areas : finding or "all" (first) -> area under the curve in `curves`
    benefits : net benefit at each of :data:`THRESHOLDS` per finding; empty unless the cases are a whole split
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
    n_bins, binning : bins of the reliability diagram, see :func:`reveal_bench.analyses.calibration.reliability`

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
        name: _with_intervals(
            cases,
            confidences,
            own,
            reliability(confidences.probabilities[own], confidences.happened[own], n_bins=n_bins, binning=binning),
        )
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
    """Findings with at least one case, and each case's finding and patient as integer codes."""

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
        """Return (finding, mask of its cases) pairs."""
        return [(name, self.codes == i) for i, name in enumerate(self.groups)]

    def wholes(self) -> list[tuple[str, BoolArray]]:
        """Return (name, mask of its cases) pairs: all findings together, then every finding."""
        return [(POOLED, np.ones(len(self.codes), bool)), *self.parts()]

    def means(
        self, values: FloatArray, codes: IntArray, n_groups: int, bounds: tuple[float, float], chosen: BoolArray
    ) -> list[Estimate]:
        """Return the macro of `values` and their mean per group with intervals, over the `chosen` cases."""
        counts = no_counts(self.n_units)
        means = bootstrap_means(
            values[chosen], codes[chosen], self.units[chosen], n_groups=n_groups, counts=counts, bounds=bounds
        )
        return intervals_of(means, "jackknife", bounds=bounds).estimates()

    def fewest(self, happened: BoolArray) -> IntArray:
        """Return the smaller of the numbers of patients with and without the event, per finding (n_groups,)."""
        sides = [
            [len(np.unique(self.units[own & (happened == side)])) for side in (True, False)] for _, own in self.parts()
        ]
        fewest: IntArray = np.array(sides).min(axis=1)
        return fewest


def _with_intervals(cases: _GroupedCases, confidences: Confidences, own: BoolArray, bins: list[Bin]) -> list[Bin]:
    """Return a finding's bins, in the order of the cases' probabilities, with intervals of their rates."""
    order = np.flatnonzero(own)[np.argsort(confidences.probabilities[own], kind="stable")]
    codes = np.zeros(len(own), np.int64)
    codes[order] = np.repeat(np.arange(len(bins)), [one.n for one in bins])
    _, *rates = cases.means(confidences.happened.astype(np.float64), codes, len(bins), (0.0, 1.0), own)
    return [replace(one, rate=rate) for one, rate in zip(bins, rates, strict=True)]


_UNBOUNDED = (-math.inf, math.inf)


def _per_finding(
    cases: _GroupedCases, values: FloatArray, happened: BoolArray, bounds: tuple[float, float] = _UNBOUNDED
) -> list[Estimate]:
    """Return the macro and the findings; findings with too few patients with or without the event have no interval."""
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
    """Return slopes, intercepts, and reasons why these are undefined, each for the macro, then for the findings."""
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
    """Return the macro and the findings; `n_units` is the smaller number of patients, with or without the event."""
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
    # Bounds of 0 and 1 give risks based on few cases Wilson's interval
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
