"""Comparisons of systems on one split: paired differences, relative decreases, ranks and tiers.

Conventions
-----------
All results share the same replicates: in replicate b all systems are averaged over the same resampled patients (or
images), so differences are paired. Each system's mean is over its own defined rows. Systems have the same rows if a
benchmark asks only for present findings; otherwise, or if a system submits an empty mask, the numbers of defined rows
may differ, and both are reported.

The macro of a comparison averages the findings for which *all* systems are defined, on the data and again in each
replicate: a system neither gains nor loses by a finding that another one left undefined. It may thus differ from a
system's own macro in :meth:`~reveal_bench.kinds.scored.Rows.estimates`.

By default intervals come from :mod:`reveal_bench.metrics.jackknife`, a two-sided p from flipping the signs of patients'
differences, and tiers from the same flips of all pairs (:mod:`reveal_bench.evaluation.permutation`). With
``interval="percentile"``, and always for AUROC, average precision and scores of detectors, intervals are percentile
intervals (shifted ones for a detector in a ranking, as for its scores), and tiers come from p corrected by Holm. Then p
is ``2 (min(n_low, n_high) + 1) / (n + 1)``, at most 1: n_low of n replicates have a difference of at most 0, n_high one
of at least 0. It is never 0, and 1 for equal systems. Signatures name the method.

Source: relative decrease from the human benchmark as in paper 002, Extended Data Figs. 5 and 6, always over the
reference; the paired bootstrap as in Efron and Tibshirani (1993), chapter 16; Holm (1979).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.evaluation.margin import Margin, Verdict, tails_of_replicates
from reveal_bench.evaluation.permutation import Signs, contributions, draw_signs, lacks_positives, paired_p, step_down_p
from reveal_bench.evaluation.tiers import find_tiers, rank_bounds
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.scored import Rows
from reveal_bench.metrics import METRICS, Metric
from reveal_bench.metrics.bootstrap import MACRO, Resampled, are_means, macro_first
from reveal_bench.metrics.intervals import (
    Estimate,
    Interval,
    Intervals,
    Resampling,
    as_record,
    drop_sparse_intervals,
    find_intervals,
    with_width,
)
from reveal_bench.metrics.jackknife import Evidence, evidence_of_groups, tails_beyond

ALPHA = 0.05
"""Two systems differ significantly if the corrected p of their difference is at most this."""

_SAME = 1e-12  # smaller differences of macros are rounding errors


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two systems compared on one finding.

    Attributes
    ----------
    metric, finding : str
        `finding` may be "macro".
    a, b : float
        The two systems' own values.
    estimate : Estimate
        ``a - b``, or for a relative decrease ``(b - a) / b``; NaN if undefined.
    p : float
        Two-sided p for a true value of 0; NaN if too few patients support the difference, or differ.
    n_a, n_b : int
        Number of defined rows of a finding; for a macro, of the findings that both systems have.
    n_empty_replicates : int
        Replicates left out because one of the two, or the decrease (b is 0), has no value.
    signature : str
    margin, verdict : Margin and Verdict
        Set if differences are tested against a margin, see :mod:`reveal_bench.evaluation.margin`.
    """

    metric: str
    finding: str
    a: float
    b: float
    estimate: Estimate
    p: float
    n_a: int
    n_b: int
    n_empty_replicates: int
    signature: str
    margin: Margin | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class RankedSystem:
    """One system's rank among several.

    Attributes
    ----------
    name, metric : str
    rank : int
        1 + number of systems that are better on the data; equal ones share a rank.
    rank_low, rank_high : int
        Range of possible ranks: below all significantly better systems, above all significantly worse ones.
    tier : int
        1 for the best. No two systems of a tier differ significantly.
    estimate : Estimate
        Macro over the findings that all systems have.
    n : int
        Those findings.
    signature : str
    """

    name: str
    metric: str
    rank: int
    rank_low: int
    rank_high: int
    tier: int
    estimate: Estimate
    n: int
    signature: str


def as_records(items: Sequence[Comparison] | Sequence[RankedSystem]) -> list[dict[str, Any]]:
    """Return the fields of each item for JSON; undefined values are None."""
    return [
        {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in _fields(item).items()}
        for item in items
    ]


def _fields(item: Comparison | RankedSystem) -> dict[str, Any]:
    record = as_record(item)
    if isinstance(item, Comparison):
        del record["margin"], record["verdict"]
        if item.margin is not None and item.verdict is not None:
            record |= item.margin.fields(item.verdict)
    return record


def compare(
    a: Rows,
    b: Rows,
    resampling: Resampling = Resampling(),
    *,
    metrics: Sequence[str] | None = None,
    findings: Sequence[str] | None = None,
    margin: Margin | None = None,
) -> list[Comparison]:
    """Return paired differences ``a - b``: per metric the macro, then the findings.

    Parameters
    ----------
    a, b : rows of two systems of one kind on the same split
    resampling : with interval "jackknife" or "percentile"
    metrics : those that apply to both, and have a better direction, by default
    findings : findings, labels or criteria to report and to average in the macro; by default all of the benchmark's
    margin : margin for a verdict on each difference

    Raises
    ------
    ValueError
        If the splits differ, no metric applies to both, a metric or finding is unknown, or the margin is too wide.
    """
    return _compare(a, b, np.subtract, resampling, metrics, findings, margin)


def relative_decrease(
    model: Rows,
    reference: Rows,
    resampling: Resampling = Resampling(),
    *,
    metrics: Sequence[str] | None = None,
    findings: Sequence[str] | None = None,
) -> list[Comparison]:
    """Return paired relative decreases ``(reference - model) / reference``, with `model` as a and `reference` as b.

    The decrease of the macro compares the two macros; it is not the mean over findings. If the reference is 0 the
    decrease is undefined; replicates in which it is 0 are left out and counted.

    Parameters
    ----------
    model, reference : rows of one kind on the same split, such as a model's and the human benchmark's
    resampling, metrics, findings : as in :func:`compare`

    Raises
    ------
    ValueError
        As :func:`compare`.
    """
    return _compare(model, reference, decrease, resampling, metrics, findings)


def decrease(model: npt.ArrayLike, reference: npt.ArrayLike) -> FloatArray:
    """Return the relative decrease ``(reference - model) / reference``; NaN if the reference is 0.

    Examples
    --------
    >>> decrease([0.5, 0.75, 0.5], [1.0, 0.5, 0.0]).tolist()
    [0.5, -0.5, nan]
    """
    model, reference = np.asarray(model, np.float64), np.asarray(reference, np.float64)
    shares: FloatArray = np.divide(
        reference - model, reference, out=np.full(reference.shape, np.nan), where=reference != 0
    )
    return shares


def _compare(
    a: Rows,
    b: Rows,
    combine: Callable[[FloatArray, FloatArray], FloatArray],
    resampling: Resampling,
    metrics: Sequence[str] | None,
    findings: Sequence[str] | None,
    margin: Margin | None = None,
) -> list[Comparison]:
    interval = resampling.interval
    if interval not in ("jackknife", "percentile"):
        raise ArgumentError("interval", "must be 'jackknife' or 'percentile'", repr(interval))
    names = _shared_metrics([a, b]) if metrics is None else list(metrics)
    if not names:
        raise ValueError(f"a metric must apply to both systems, got {a.metrics()} and {b.metrics()}")
    if margin is not None:
        margin.check(names)
    chosen = tuple(a.groups if findings is None else findings)
    of_macro = a.macro_over(chosen)
    figures = a.resample([a, b], resampling, metrics=names, groups=chosen)
    of_macros = figures if of_macro == chosen else a.resample([a, b], resampling, metrics=names, groups=of_macro)
    comparisons = []
    signs: Signs | None = None
    for name in names:
        left_out = figures[0][name].left_out()
        own: Interval = interval if left_out is not None else "percentile"
        recipe = resampling.by(own).signature(name, METRICS[name].version)
        if own == "jackknife" and signs is None and left_out is not None:
            signs = draw_signs(len(left_out), resampling)
        flips = signs if own == "jackknife" else None
        (macro, *_), (_, *others) = (
            compare_resampled(
                both[0][name],
                both[1][name],
                groups,
                recipe=recipe,
                combine=combine,
                signs=flips,
                margin=margin,
                fewest=both[0][name].behind if own != interval else None,
            )
            for both, groups in ((of_macros, of_macro), (figures, chosen))
        )
        comparisons += [macro, *others]
    return comparisons


def compare_resampled(
    a: Resampled,
    b: Resampled,
    findings: Sequence[str],
    *,
    recipe: str,
    combine: Callable[[FloatArray, FloatArray], FloatArray] = np.subtract,
    signs: Signs | None = None,
    margin: Margin | None = None,
    fewest: IntArray | None = None,
) -> list[Comparison]:
    """Return :func:`compare` for one metric, from values on the same replicates: the macro, then each of `findings`.

    With `signs`, intervals come from the jackknife and p from sign flips; without `signs`, both come from the
    replicates. Findings with fewer patients (`fewest`, if known) than the jackknife needs then have no interval and no
    p.
    """
    values, replicates = side_by_side([a, b])
    parts = None if signs is None else contributions([a, b])
    if parts is None or signs is None:
        intervals = find_intervals(combine(*values), combine(*replicates))
        intervals = intervals if fewest is None else drop_sparse_intervals(intervals, fewest)
        p_values = np.array([_two_sided(column) for column in combine(*replicates).T])
        p_values[np.isnan(intervals.low)] = np.nan
        intervals = with_width(intervals)
        if margin is not None:
            tails = np.array([tails_of_replicates(column, margin.width) for column in combine(*replicates).T])
    else:
        evidence = _evidence_of_pair(a, b, values, parts[1], combine, are_means(recipe.split("|", 1)[0]))
        intervals = find_intervals(combine(*values), combine(*replicates), interval="jackknife", evidence=evidence)
        unknown = ~evidence.enough | np.isnan(intervals.values) | lacks_positives(a)
        p_values = np.where(unknown, np.nan, paired_p(*parts, signs))
        if margin is not None:
            at_most, at_least = (
                tails_beyond(intervals.values, evidence, bound) for bound in (-margin.width, margin.width)
            )
            tails = np.column_stack([at_most[0], at_least[1]])
    scale = METRICS[recipe.split("|", 1)[0]]
    if combine is np.subtract:  # no difference exceeds the width of the metric's scale
        widest = scale.high - scale.low
        intervals = replace(intervals, low=np.maximum(intervals.low, -widest), high=np.minimum(intervals.high, widest))
    elif scale.low == 0:  # and no decrease exceeds 1
        intervals = replace(intervals, high=np.minimum(intervals.high, 1))
    n_shared = int((~np.isnan(values[0, 1:])).sum())
    comparisons, metric = [], recipe.split("|", 1)[0]
    for i, (finding, estimate) in enumerate(zip((MACRO, *findings), intervals.estimates(), strict=True)):
        n = (n_shared, n_shared) if i == 0 else (int(a.n[i - 1]), int(b.n[i - 1]))
        own = values[:, 0] if i == 0 else (a.values[i - 1], b.values[i - 1])
        figures = float(own[0]), float(own[1]), estimate, float(p_values[i])
        one = Comparison(metric, finding, *figures, *n, estimate.n_empty_replicates, recipe)
        if margin is not None:
            bounds, beyond = (estimate.low, estimate.high), (float(tails[i, 0]), float(tails[i, 1]))
            one = replace(one, margin=margin, verdict=margin.judge(metric, bounds, one.p, beyond))
        comparisons.append(one)
    return comparisons


def _evidence_of_pair(
    a: Resampled,
    b: Resampled,
    values: FloatArray,
    behind: BoolArray,
    combine: Callable[[FloatArray, FloatArray], FloatArray],
    of_means: bool,
) -> Evidence:
    left_out = np.array([a.left_out(), b.left_out()], np.float64)
    left_out[:, np.isnan(left_out).any(axis=0)] = np.nan
    return evidence_of_groups(
        combine(*macro_first(left_out)),
        behind.sum(axis=0),
        averaged=np.flatnonzero(~np.isnan(values[0, 1:])),
        bounds=(-math.inf, math.inf),
        is_mean=combine is np.subtract,
        of_means=of_means,
    )


def _shared_metrics(systems: Sequence[Rows]) -> list[str]:
    shared = set.intersection(*(set(rows.metrics()) for rows in systems))
    return [name for name, metric in METRICS.items() if metric.better != "neither" and name in shared]


def side_by_side(systems: Sequence[Resampled]) -> tuple[FloatArray, FloatArray]:
    """Return values (n_systems, 1 + n_findings) and replicates (n_systems, n_resamples, 1 + n_findings), macros first.

    A finding for which one system is undefined is NaN for all systems, so that every macro is over the same findings.
    """
    sides = []
    for stack in (np.stack([means.values for means in systems]), np.stack([means.replicates for means in systems])):
        stack[:, np.isnan(stack).any(axis=0)] = np.nan
        sides.append(macro_first(stack))
    return sides[0], sides[1]


def _two_sided(replicates: FloatArray) -> float:
    defined = replicates[~np.isnan(replicates)]
    if len(defined) == 0:
        return float("nan")
    n_low, n_high = int((defined <= _SAME).sum()), int((defined >= -_SAME).sum())
    return min(1.0, 2 * (min(n_low, n_high) + 1) / (len(defined) + 1))


def holm(p: npt.ArrayLike) -> FloatArray:
    """Return Holm's correction of several p: of m sorted p, the i-th times m - i + 1, never falling, at most 1.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p, np.float64)
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    return corrected


def rank(
    systems: Mapping[str, Rows],
    *,
    metric: str,
    findings: Sequence[str] | None = None,
    resampling: Resampling = Resampling(10_000),
) -> list[RankedSystem]:
    """Return systems from best to worst by their macro, with rank intervals and tiers.

    Two systems differ significantly if the p of their paired difference, corrected for all pairs, is at most 0.05.
    Tiers and rank intervals follow from these pairs, see :mod:`reveal_bench.evaluation.tiers`.

    Parameters
    ----------
    systems : name -> rows, all of one kind and on the same split
    metric : metric that applies to all systems and has a better direction
    findings : findings that the macro averages if all systems have them; the vocabulary by default
    resampling : at least 40 replicates per pair of systems, or no p corrected by Holm could be as small as 0.05;
        interval "jackknife" or "percentile", which also decides the method of tiers and rank intervals

    Returns
    -------
    list of RankedSystem, best first; equal systems by name

    Raises
    ------
    ValueError
        If no system is given, the metric does not apply or has no direction, the splits differ, no finding is defined
        for all, or there are too few replicates.
    """
    if not systems:
        raise ArgumentError("systems", "must hold at least one system", "none")
    if metric not in METRICS or METRICS[metric].better == "neither":
        raise ArgumentError("metric", "must have a better direction", repr(metric))
    n_pairs = len(systems) * (len(systems) - 1) // 2
    if resampling.n_resamples < 2 / ALPHA * n_pairs:
        raise ArgumentError(
            "n_resamples",
            f"must be at least {2 / ALPHA:.0f} for each of the {n_pairs} pairs of systems "
            f"({2 / ALPHA * n_pairs:.0f}), or none could differ significantly",
            resampling.n_resamples,
        )
    for name, rows in systems.items():
        if metric not in rows.metrics():
            raise ArgumentError("metric", "must apply to every system", f"{metric!r}, which does not apply to {name!r}")
    first = next(iter(systems.values()))
    chosen = first.macro_over(first.groups if findings is None else findings)
    resampled = first.resample(list(systems.values()), resampling, metrics=[metric], groups=chosen)
    values, replicates = side_by_side([means[metric] for means in resampled])
    n_shared = int((~np.isnan(values[0, 1:])).sum())
    if n_shared == 0:
        raise ArgumentError("systems", "must share a finding that is defined for all of them", "none")
    macros = replicates[:, :, 0]
    macros = macros[:, ~np.isnan(macros[0])]
    sign = -1 if METRICS[metric].better == "lower" else 1
    is_better = sign * (values[:, 0] - values[:, :1]) > _SAME  # the column's system than the row's
    on_data = 1 + is_better.sum(axis=1)
    figures_of = [means[metric] for means in resampled]
    interval = resampling.interval
    parts = contributions(figures_of) if interval == "jackknife" else None
    if parts is None:
        has_shifted = "shifted" in KINDS[first.kind].scoring.intervals  # as `score` has by default
        interval = "shifted" if has_shifted and interval != "percentile" else "percentile"
        intervals, differs = find_intervals(values[:, 0], macros.T, interval=interval), _significantly_different(macros)
    else:
        intervals = _intervals_of_macros(figures_of, values, replicates, parts[1], METRICS[metric])
        signs = draw_signs(parts[0].shape[1], resampling)
        differs = step_down_p(parts[0][:, :, 0], signs) <= ALPHA
    rank_low, rank_high = rank_bounds(is_better, differs)
    names = list(systems)
    order = sorted(range(len(names)), key=lambda i: (on_data[i], names[i]))
    tiers = {i: tier for tier, members in enumerate(find_tiers(order, differs), start=1) for i in members}
    recipe = resampling.by(interval).signature(metric, METRICS[metric].version)
    ranked = []
    for i in order:
        ranks = int(on_data[i]), int(rank_low[i]), int(rank_high[i]), tiers[i]
        estimate = Estimate(float(values[i, 0]), float(intervals.low[i]), float(intervals.high[i]))
        ranked.append(RankedSystem(names[i], metric, *ranks, estimate, n_shared, recipe))
    return ranked


def _intervals_of_macros(
    systems: Sequence[Resampled], values: FloatArray, replicates: FloatArray, behind: BoolArray, metric: Metric
) -> Intervals:
    """Return the interval of every system's macro, over the groups that all systems have."""
    left_out = np.array([system.left_out() for system in systems], np.float64)
    left_out[:, np.isnan(left_out).any(axis=0)] = np.nan
    n_units, averaged = behind.sum(axis=0), np.flatnonzero(~np.isnan(values[0, 1:]))
    intervals = []
    for own, of_own, without in zip(values, replicates, left_out, strict=True):
        evidence = evidence_of_groups(
            macro_first(without),
            n_units,
            averaged=averaged,
            bounds=(metric.low, metric.high),
            of_means=are_means(metric.name),
        )
        intervals.append(find_intervals(own, of_own, interval="jackknife", evidence=evidence))
    columns = ("values", "low", "high", "n_empty")
    return Intervals(*(np.array([getattr(one, name)[0] for one in intervals]) for name in columns))


def _significantly_different(macros: FloatArray) -> BoolArray:
    """Return True for pairs of systems (n_systems, n_systems) that differ after Holm's correction for all pairs."""
    differs = np.zeros((len(macros), len(macros)), bool)
    i, j = np.triu_indices(len(macros), 1)
    corrected = holm([_two_sided(macros[a] - macros[b]) for a, b in zip(i, j, strict=True)])
    differs[i, j] = differs[j, i] = corrected <= ALPHA
    return differs
