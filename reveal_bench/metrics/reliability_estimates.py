"""Agreement of any number of readers with intervals over patients.

Conventions as in :mod:`reveal_bench.metrics.estimates`; the metrics are in :mod:`reveal_bench.metrics.reliability`. A
finding's interval by the jackknife is symmetric on Fisher's scale, ``arctanh(value)``. The bounds for the mean of k
readers follow from those for one reader by the formula of Spearman and Brown: ``r -> k r / (1 + (k - 1) r)``. A macro
has ``value - bias +- t se`` on its own scale (:mod:`reveal_bench.metrics.jackknife`).

Supporting patients are those with two equal ratings that are not in the most common category. A finding has no interval
if fewer than :data:`LEAST_UNITS_OF_READERS` support it, or if at most one patient has unequal ratings. A macro has no
interval if no finding has that many, if fewer than :data:`~reveal_bench.metrics.jackknife.LEAST_UNITS_IN_MACRO`
patients support some finding, or if readers always agree on some finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray, IntArray
from reveal_bench.metrics.agreement import resample_tables
from reveal_bench.metrics.bootstrap import (
    Counts,
    blocks_of_counts,
    bounds_of,
    estimates_of_rows,
    macro_first,
    replicates_of,
)
from reveal_bench.metrics.estimates import POOLED, resampled_units
from reveal_bench.metrics.intervals import Estimate, Intervals, Resampling, check_interval, find_intervals
from reveal_bench.metrics.jackknife import LEAST_UNITS_IN_MACRO, Evidence, evidence_of_groups
from reveal_bench.metrics.reliability import (
    alpha_from_coincidences,
    coincidences,
    fleiss_from_sums,
    fleiss_sums,
    icc_from_sums,
    icc_sums,
    rating_counts,
)

LEAST_UNITS_OF_READERS = 15
"""Smallest number of supporting patients for an interval, because simulated intervals from fewer are too narrow."""
NOMINAL = ("fleiss_kappa", "krippendorff_alpha")
"""Metrics of categories that need no order."""

_Statistic = Callable[[FloatArray], FloatArray]
_OF_SUMS: dict[str, tuple[str, _Statistic]] = {
    "fleiss_kappa": ("fleiss", fleiss_from_sums),
    "krippendorff_alpha": ("coincidences", alpha_from_coincidences),
    "krippendorff_alpha_ordinal": ("coincidences", partial(alpha_from_coincidences, level="ordinal")),
    "krippendorff_alpha_interval": ("coincidences", partial(alpha_from_coincidences, level="interval")),
    "icc_1_1": ("icc", partial(icc_from_sums, form="1,1")),
    "icc_2_1": ("icc", partial(icc_from_sums, form="2,1")),
    "icc_3_1": ("icc", partial(icc_from_sums, form="3,1")),
    "icc_1_k": ("icc", partial(icc_from_sums, form="1,k")),
    "icc_2_k": ("icc", partial(icc_from_sums, form="2,k")),
    "icc_3_k": ("icc", partial(icc_from_sums, form="3,k")),
}
"""Metric -> kind of sums over cases, and the function that computes the metric from them."""
_UNBOUNDED = (-np.inf, np.inf)
_NO_RATING = 1e-9  # smaller sums without a patient are due to rounding


@dataclass(frozen=True)
class _UnitSums:
    """For each resampled unit and finding, the sums over cases that a metric needs.

    Attributes
    ----------
    sums : float array (n_units, n_findings, ...)
    n_cases : int array (n_findings,), number of cases used
    n_behind : int array (n_findings,), number of units that support the metric
    """

    sums: FloatArray
    n_cases: IntArray
    n_behind: IntArray

    @property
    def left_out(self) -> FloatArray:
        """The sums without each unit in turn, for the jackknife."""
        remaining = self.sums.sum(axis=0) - self.sums
        return np.where(np.abs(remaining) < _NO_RATING, 0.0, remaining)


def estimate_reliability(
    ratings: npt.ArrayLike,
    *,
    n_categories: int,
    metrics: Sequence[str] | None = None,
    is_ordered: bool = True,
    findings: Sequence[str] | None = None,
    patients: Sequence[str] | None = None,
    all_patients: Sequence[str] | None = None,
    resampling: Resampling = Resampling(),
) -> list[Estimate]:
    """Return Fleiss' kappa, Krippendorff's alpha and intraclass correlations of all readers together.

    Parameters
    ----------
    ratings : int array (n_cases, n_readers), values in [0, n_categories), -1 without a rating
    metrics : metrics to return; by default all
    is_ordered : True if categories have an order; otherwise only the metrics of :data:`NOMINAL` are returned
    findings : a name per case; one finding :data:`~reveal_bench.metrics.estimates.POOLED` by default
    patients, all_patients, resampling : as for :func:`~reveal_bench.metrics.estimates.estimate_labels`

    Returns
    -------
    list of Estimate: per metric the macro over findings, then one per finding; `n` counts the cases that the metric
    uses, those with two ratings or, for intraclass correlations, with a rating of every reader

    Raises
    ------
    ValueError
        If the input is empty, lengths differ, a code is out of range, or the interval does not apply.

    Examples
    --------
    >>> kappa, *_ = estimate_reliability([[0, 0, 0], [0, 0, 1], [1, 1, 1]], n_categories=2)
    >>> kappa.metric, kappa.finding, round(kappa.value, 3)
    ('fleiss_kappa', 'macro', 0.55)
    """
    check_interval(resampling.interval, resampling.n_resamples)
    codes = np.asarray(ratings)
    units, n_units = resampled_units(len(codes), patients, all_patients)
    names = [POOLED] * len(codes) if findings is None else list(findings)
    if len(names) != len(codes):
        raise ArgumentError("findings", f"must have the length of `ratings` ({len(codes)})", len(names), ("ratings",))
    labels = list(dict.fromkeys(names))
    places = units * len(labels) + np.array([labels.index(name) for name in names])
    chosen = [name for name in _OF_SUMS if (metrics is None or name in metrics) and (is_ordered or name in NOMINAL)]
    needed = {_OF_SUMS[name][0] for name in chosen}
    parts = {part: _unit_sums(part, codes, n_categories, places, (n_units, len(labels))) for part in sorted(needed)}

    def replicates(counts: Counts) -> dict[str, FloatArray]:
        drawn = {part: resample_tables(counts, one.sums) for part, one in parts.items()}
        return {name: _OF_SUMS[name][1](drawn[_OF_SUMS[name][0]]) for name in chosen}

    drawn = replicates_of(replicates, blocks_of_counts(n_units, resampling))
    estimates = []
    for name in chosen:
        own = parts[_OF_SUMS[name][0]]
        intervals = _intervals(name, own, drawn[name], resampling, n_readers=codes.shape[1])
        recipe = resampling.signature(name)
        estimates += estimates_of_rows(intervals, labels, own.n_cases, recipe=recipe)
    return estimates


def _unit_sums(part: str, codes: IntArray, n_categories: int, places: IntArray, shape: tuple[int, int]) -> _UnitSums:
    """Return one kind of sums of :data:`_OF_SUMS`; `places` are the indices of the cases' units and findings."""
    tallies = rating_counts(codes, n_categories=n_categories)
    is_used = tallies.sum(axis=1) >= (codes.shape[1] if part == "icc" else 2)
    tallies = np.where(is_used[:, None], tallies, 0)
    commonest = np.argmax(_summed(tallies, places, shape).sum(axis=0), axis=-1)
    equal = _summed(np.where(tallies >= 2, tallies, 0), places, shape)  # numbers of equal ratings of a case
    apart = equal.sum(axis=-1) - equal[:, np.arange(shape[1]), commonest]
    n_cases = _summed(is_used.astype(np.float64), places, shape).sum(axis=0).astype(np.int64)
    sums = _summed(_terms(part, codes, n_categories), places, shape)
    return _UnitSums(sums, n_cases, (apart > 0).sum(axis=0))


def _terms(part: str, codes: IntArray, n_categories: int) -> FloatArray:
    """Return each case's terms for one kind of sums of :data:`_OF_SUMS`."""
    if part == "fleiss":
        return fleiss_sums(codes, n_categories=n_categories)
    if part == "coincidences":
        return coincidences(codes, n_categories=n_categories)
    # Centred near 0, so that squares stay small
    return icc_sums(np.where(codes < 0, np.nan, codes - n_categories // 2))


def _summed(rows: FloatArray, places: IntArray, shape: tuple[int, int]) -> FloatArray:
    sums = np.zeros((shape[0] * shape[1], *rows.shape[1:]))
    np.add.at(sums, places, rows)
    return sums.reshape(*shape, *rows.shape[1:])


def _intervals(
    name: str, own: _UnitSums, replicates: FloatArray, resampling: Resampling, *, n_readers: int
) -> Intervals:
    """Return the macro and the findings with their intervals."""
    statistic = _OF_SUMS[name][1]
    total, left_out = own.sums.sum(axis=0), own.left_out
    values, without = statistic(total), macro_first(statistic(left_out))
    averaged = np.flatnonzero(~np.isnan(values))
    intervals = find_intervals(
        macro_first(values),
        macro_first(replicates),
        interval=resampling.interval,
        left_out=without,
        evidence=_evidence(values, without, own.n_behind, bounds_of(name)),
    )
    if resampling.interval != "jackknife":
        return intervals
    is_of_mean = name.endswith("_k")
    of_one = _OF_SUMS[f"{name[:-1]}1"][1] if is_of_mean else statistic
    with np.errstate(divide="ignore", invalid="ignore"):  # infinite without the only patient with unequal ratings
        centres, columns = np.arctanh(of_one(total)), np.arctanh(of_one(left_out))
        evidence = _evidence(centres, macro_first(columns), own.n_behind, _UNBOUNDED)
        low, high = np.tanh(evidence.ends(macro_first(centres)))
    if is_of_mean:
        low, high = _of_mean(low, n_readers), _of_mean(high, n_readers)
    if len(averaged) == 1:  # a macro of one finding is the score of that finding
        low[0], high[0] = low[averaged[0] + 1], high[averaged[0] + 1]
    else:
        low[0], high[0] = intervals.low[0], intervals.high[0]
    has_both = ~np.isnan(low + high + intervals.values)
    return replace(intervals, low=np.where(has_both, low, np.nan), high=np.where(has_both, high, np.nan))


def _evidence(values: FloatArray, left_out: FloatArray, n_behind: IntArray, bounds: tuple[float, float]) -> Evidence:
    """Return the inputs of the intervals of macro and findings; `left_out` are the values without each unit."""
    averaged = np.flatnonzero(~np.isnan(values))
    evidence = evidence_of_groups(left_out, n_behind, averaged=averaged, bounds=bounds)
    enough = evidence.enough & (evidence.n_units >= LEAST_UNITS_OF_READERS)
    enough[0] &= bool(np.all((n_behind >= LEAST_UNITS_IN_MACRO)[averaged] & (values[averaged] < bounds[1])))
    return replace(evidence, enough=enough)


def _of_mean(single: FloatArray, n_readers: int) -> FloatArray:
    """Return the intraclass correlation of the mean of readers; NaN if it has no lower bound."""
    denominator = 1 + (n_readers - 1) * single
    return n_readers * single / np.where(denominator > 0, denominator, np.nan)
