"""Comparison of systems on the same split: paired differences, relative decreases, ranks and tiers.

Conventions
-----------
All systems use the same replicates: in replicate b, every system's score is computed for the same resampled patients
(or images), so differences are paired. Each system's mean is over its own defined rows, the cases in which its score is
defined. Systems have the same defined rows if a benchmark asks only for present findings and no system submits an empty
mask. Otherwise their numbers may differ, and both numbers are reported.

The macro of a comparison averages the findings for which all systems have a score, in the data and again in each
replicate, so that a system neither gains nor loses if another has no score for a finding. This macro may therefore
differ from the system's own macro in :meth:`~reveal_bench.kinds.scored.Rows.estimates`.

By default, the interval and p of a difference come from swapping the two systems' answers patient by patient
(:mod:`reveal_bench.evaluation.permutation`), and for AUROC, balanced accuracy and average precision from closed forms
(:mod:`reveal_bench.evaluation.ranking_differences`). With ``interval="percentile"``, and always for MCC and detection
scores, interval and p come from the replicates (:func:`~reveal_bench.evaluation.differences.by_replicates`). An
interval excludes 0 if and only if its p is at most 0.05. The same is true of the intervals and p adjusted for all
findings of a metric. Tiers are computed from the p of all pairs of systems, corrected by Holm. Signatures name the
method used.

Sources: relative decrease as in paper 002, Extended Data Figs. 5 and 6, always divided by the reference's score; paired
bootstrap as in Efron and Tibshirani (1993), chapter 16; Holm (1979).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray, IntArray
from reveal_bench.evaluation.differences import by_replicates, differ_in_few, find_differences, has_enough, units_behind
from reveal_bench.evaluation.margin import Margin, Verdict
from reveal_bench.evaluation.permutation import (
    ALPHA,
    OUTWEIGHED,
    Signs,
    draw_signs,
    lacks_positives,
    outweighed,
    pair_up,
)
from reveal_bench.evaluation.ranking_differences import ranking_differences, ranking_of, untested_ranking
from reveal_bench.evaluation.tiers import compare_pairs, find_tiers, rank_bounds, significant_pairs
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.scored import Rows
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import MACRO, bounds_of, intervals_of, macro_first
from reveal_bench.metrics.intervals import (
    Estimate,
    Interval,
    Resampling,
    as_record,
    drop_wide_intervals,
    find_intervals,
)
from reveal_bench.metrics.jackknife import FEW
from reveal_bench.metrics.resampled import Resampled

PERMUTATION = "permutation"
"""Name in the signature if interval and p come from swapped answers."""
CLOSED_FORM = "closed-form"
"""Name in the signature if interval and p have a closed form, as for AUROC and average precision."""
_SAME = 1e-12  # smaller differences of macros are due to rounding


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of two systems on one finding.

    Attributes
    ----------
    metric, finding : str
        `finding` may be "macro".
    a, b : float
        Scores of the two systems.
    estimate : Estimate
        ``a - b``, or for a relative decrease ``(b - a) / b``; NaN if undefined.
    p : float
        Two-sided p of the hypothesis that the true value is 0; NaN if too few patients support the difference, or if
        the systems differ on too few.
    n_a, n_b : int
        Number of cases of the finding that have a score; for a macro, number of findings with a score of both systems.
    n_empty_replicates : int
        Number of replicates left out because a system's score or the decrease (if b is 0) is undefined; 0 for
        intervals without replicates.
    signature : str
    p_adjusted, low_adjusted, high_adjusted : float
        p and interval adjusted for all findings of the metric; for the macro, equal to its p and interval.
    margin, verdict : Margin and Verdict
        Set if differences are tested against a margin, see :mod:`reveal_bench.evaluation.margin`.
    reason : str
        Why there is no test: for a macro, the findings that prevent it; for a finding, that one patient outweighs all
        on whom the systems differ. With a p, why there is no interval. Otherwise empty.
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
    p_adjusted: float = math.nan
    low_adjusted: float = math.nan
    high_adjusted: float = math.nan
    margin: Margin | None = None
    verdict: Verdict | None = None
    reason: str = ""

    @property
    def is_significant(self) -> bool:
        """True if the adjusted p is at most 0.05."""
        return self.p_adjusted <= ALPHA

    @property
    def adjusted(self) -> Estimate:
        """The estimate with the adjusted interval; without an adjusted p, the estimate with its own interval."""
        if math.isnan(self.p_adjusted):
            return self.estimate
        return replace(self.estimate, low=self.low_adjusted, high=self.high_adjusted)


@dataclass(frozen=True, slots=True)
class RankedSystem:
    """Rank of one system among several.

    Attributes
    ----------
    name, metric : str
    rank : int
        1 + number of systems with a better score in the data; equal systems share a rank.
    rank_low, rank_high : int
        Best and worst possible rank: below all significantly better systems, and above all significantly worse ones;
        None if the systems are not tested.
    tier : int
        1 for the best. Systems in the same tier do not differ significantly. None if the systems are not tested.
    estimate : Estimate
        Macro over the findings for which all systems have a score.
    n : int
        Number of these findings.
    signature : str
    reason : str
        Why the systems are not tested; empty if they are.
    """

    name: str
    metric: str
    rank: int
    rank_low: int | None
    rank_high: int | None
    tier: int | None
    estimate: Estimate
    n: int
    signature: str
    reason: str = ""


def as_records(items: Sequence[Comparison] | Sequence[RankedSystem]) -> list[dict[str, Any]]:
    """Return the fields of each item as JSON values; undefined values are None."""
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
    """Return paired differences ``a - b``: for each metric the macro, then the findings.

    Parameters
    ----------
    a, b : scored rows of two systems, of the same kind of benchmark and split
    resampling : method of the intervals, "jackknife" or "percentile", and the replicates
    metrics : metrics to report; by default all that apply to both systems and for which higher or lower is better
    findings : findings, labels or criteria to report and to average in the macro; by default all
    margin : margin for a non-inferiority or equivalence verdict on each difference

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
    """Return paired relative decreases ``(reference - model) / reference``, where `model` is a and `reference` is b.

    The macro's decrease is computed from the two macros; it is not the mean of the findings' decreases. The decrease is
    undefined if the reference's score is 0; replicates in which it is 0 are left out and counted.

    Parameters
    ----------
    model, reference : scored rows of the same kind of benchmark and split, such as those of a model and of the human
        benchmark
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
        parts = figures[0][name].ratio_parts()
        own: Interval = interval if parts is not None else "percentile"
        method = own if own == "percentile" else PERMUTATION if ranking_of(figures[0][name]) is None else CLOSED_FORM
        recipe = resampling.signature(name, method=method)
        if own == "jackknife" and signs is None and parts is not None:
            signs = draw_signs(len(parts[0]), resampling)
        flips = signs if own == "jackknife" else None
        compared = [
            compare_resampled(
                both[0][name],
                both[1][name],
                groups,
                recipe=recipe,
                combine=combine,
                signs=flips,
                margin=margin,
                fewest=both[0][name].behind if interval == "jackknife" else None,
            )
            for groups, both in {of_macro: of_macros, chosen: figures}.items()
        ]
        comparisons += [compared[0][0], *compared[-1][1:]]
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
    """Return the comparisons of one metric from values on the same replicates: the macro, then each of `findings`.

    With `signs`, interval and p come from swapped answers, or for AUROC and average precision from a closed form.
    Without `signs`, they come from the replicates. Findings supported by too few patients have neither interval nor p;
    `fewest` gives the number of supporting patients if the scores do not contain it.
    """
    metric = recipe.split("|", 1)[0]
    values, replicates = side_by_side([a, b])
    paired = pair_up(a, b)
    width = None if margin is None else margin.width
    combined = combine(*values)
    drawn = np.where(np.isnan(combined), np.nan, combine(*replicates))
    intervals = find_intervals(combined, drawn)
    rankings, reason, relative = (ranking_of(a), ranking_of(b)), "", combine is not np.subtract
    minor = np.zeros(values.shape[1], bool) if paired is None else outweighed(paired)
    if signs is not None and rankings[0] is not None and rankings[1] is not None:
        both = values[0], values[1]
        tested = ranking_differences(rankings[0], rankings[1], both, relative=relative, margin=width)
        reason = untested_ranking(rankings[0], values[0])
    elif paired is None or signs is None:
        unknown = None if paired is None else differ_in_few(paired) | minor
        tested = by_replicates(intervals, drawn, fewest, width, unknown)
    else:
        unknown = np.isnan(intervals.values) | lacks_positives(a) | minor
        n_behind = units_behind(a, b) if fewest is None else fewest
        reason = "" if has_enough(n_behind[~np.isnan(values[0, 1:])], relative) else FEW
        tested = find_differences(
            paired, signs, (values[0], values[1]), n_behind, unknown, relative=relative, margin=width
        )
    scale = _widest(metric, relative=relative)
    own_ends, together = (
        drop_wide_intervals(replace(intervals, low=np.maximum(low, scale[0]), high=np.minimum(high, scale[1])), scale)
        for low, high in ((tested.low, tested.high), (tested.low_adjusted, tested.high_adjusted))
    )
    n_shared = int((~np.isnan(values[0, 1:])).sum())
    comparisons = []
    for i, (finding, estimate) in enumerate(zip((MACRO, *findings), own_ends.estimates(), strict=True)):
        n = (n_shared, n_shared) if i == 0 else (int(a.n[i - 1]), int(b.n[i - 1]))
        own = values[:, 0] if i == 0 else (a.values[i - 1], b.values[i - 1])
        figures = float(own[0]), float(own[1]), estimate, float(tested.p[i])
        one = Comparison(
            metric,
            finding,
            *figures,
            *n,
            estimate.n_empty_replicates,
            recipe,
            float(tested.p_adjusted[i]),
            float(together.low[i]),
            float(together.high[i]),
            reason=(reason if i == 0 else OUTWEIGHED if minor[i] else "") or together.reasons[i],
        )
        if margin is not None:
            bounds, beyond = (
                (one.low_adjusted, one.high_adjusted),
                (float(tested.tails[i, 0]), float(tested.tails[i, 1])),
            )
            verdict = margin.judge(metric, bounds, one.p_adjusted, beyond, reason=one.reason)
            one = replace(one, margin=margin, verdict=verdict)
        comparisons.append(one)
    return comparisons


def _widest(metric: str, *, relative: bool) -> tuple[float, float]:
    """Return the lowest and the highest value that a difference, or a relative decrease, can have."""
    scale = METRICS[metric]
    if relative:
        return -math.inf, 1.0 if scale.low == 0 else math.inf
    return scale.low - scale.high, scale.high - scale.low


def _shared_metrics(systems: Sequence[Rows]) -> list[str]:
    shared = set.intersection(*(set(rows.metrics()) for rows in systems))
    first = next((rows for rows in systems if rows.leading), systems[0])
    return [name for name in first.metrics() if METRICS[name].better != "neither" and name in shared]


def side_by_side(systems: Sequence[Resampled]) -> tuple[FloatArray, FloatArray]:
    """Return values (n_systems, 1 + n_findings) and replicates (n_systems, n_resamples, 1 + n_findings), macro first.

    A finding for which one system has no score is NaN for all systems, so that every macro averages the same findings.
    """
    sides = []
    for stack in (np.stack([means.values for means in systems]), np.stack([means.replicates for means in systems])):
        stack[:, np.isnan(stack).any(axis=0)] = np.nan
        sides.append(macro_first(stack))
    return sides[0], sides[1]


def own_interval(rows: Rows, figures: Resampled, interval: Interval) -> Interval:
    """Return the kind of interval that `score` computes for these scores if `interval` is requested.

    Scores without a jackknife get intervals from replicates.
    """
    has_form = figures.evidence() is not None if interval == "jackknife" else figures.left_out() is not None
    if interval not in ("jackknife", "bca") or has_form:
        return interval
    return "shifted" if "shifted" in KINDS[rows.kind].scoring.intervals else "percentile"


def rank(
    systems: Mapping[str, Rows],
    *,
    metric: str,
    findings: Sequence[str] | None = None,
    resampling: Resampling = Resampling(10_000),
) -> list[RankedSystem]:
    """Return the systems ordered from best to worst macro, with rank intervals and tiers.

    Two systems differ significantly if the p of their paired difference, corrected for all pairs, is at most 0.05.
    Tiers and rank intervals are computed from these pairs, see :mod:`reveal_bench.evaluation.tiers`.

    Parameters
    ----------
    systems : name -> scored rows, all of the same kind of benchmark and split
    metric : metric that applies to all systems and for which higher or lower is better
    findings : findings that the macro averages if all systems have a score for them; by default all
    resampling : method of the intervals, "jackknife" or "percentile", which also determines that of tiers and rank
        intervals

    Returns
    -------
    list of RankedSystem, best first; systems with equal scores ordered by name

    Raises
    ------
    ValueError
        If no system is given, the metric does not apply or neither direction is better, the splits differ, or no
        finding has a score of every system.
    """
    if not systems:
        raise ArgumentError("systems", "must contain at least one system", "none")
    if metric not in METRICS or METRICS[metric].better == "neither":
        raise ArgumentError("metric", "must be a metric for which higher or lower is better", repr(metric))
    for name, rows in systems.items():
        if metric not in rows.metrics():
            raise ArgumentError("metric", "must apply to every system", f"{metric!r}, which does not apply to {name!r}")
    first = next(iter(systems.values()))
    chosen = first.macro_over(first.groups if findings is None else findings)
    resampled = first.resample(list(systems.values()), resampling, metrics=[metric], groups=chosen)
    values, replicates = side_by_side([means[metric] for means in resampled])
    n_shared = int((~np.isnan(values[0, 1:])).sum())
    if n_shared == 0:
        without = [name for name, own in zip(systems, resampled, strict=True) if np.isnan(own[metric].values).all()]
        got = f"no {metric} of any finding for {', '.join(without)}" if without else "none"
        raise ArgumentError("systems", "must have a finding with a score of every system", got)
    sign = -1 if METRICS[metric].better == "lower" else 1
    is_better = sign * (values[:, 0] - values[:, :1]) > _SAME  # True if the column's system is better than the row's
    on_data = 1 + is_better.sum(axis=1)
    figures_of = [means[metric] for means in resampled]
    interval = resampling.interval
    tests = compare_pairs(figures_of, values, replicates[:, :, 0], resampling)
    differs = significant_pairs(tests.p)
    printed = own_interval(first, figures_of[0], interval)
    averaged, bounds = np.flatnonzero(~np.isnan(values[0, 1:])), bounds_of(metric)
    asked = printed if printed == "shifted" else interval
    intervals = [intervals_of(one, asked, averaged=averaged, bounds=bounds) for one in figures_of]
    rank_low, rank_high = rank_bounds(is_better, differs)
    names = list(systems)
    order = sorted(range(len(names)), key=lambda i: (on_data[i], names[i]))
    tiers = {i: tier for tier, members in enumerate(find_tiers(order, differs), start=1) for i in members}
    recipe = resampling.by(printed).signature(metric)
    ranked = []
    for i in order:
        one = RankedSystem(
            names[i],
            metric,
            int(on_data[i]),
            int(rank_low[i]),
            int(rank_high[i]),
            tiers[i],
            intervals[i].estimates()[0],
            n_shared,
            recipe,
        )
        if tests.untested:
            one = replace(one, rank_low=None, rank_high=None, tier=None, reason=tests.untested)
        ranked.append(one)
    return ranked
