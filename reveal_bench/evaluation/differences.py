"""Interval, p and one-sided p of every paired difference, computed from the distribution of swapped answers.

Conventions
-----------
:mod:`reveal_bench.evaluation.permutation` defines contributions, flips and standard errors. A relative decrease ``(b -
a) / b`` has the p of the difference. Its interval follows the same rule, with the standard error of the ratio. Bounds,
p and one-sided p are NaN

* for a finding that fewer than :data:`~reveal_bench.metrics.jackknife.LEAST_UNITS` patients support, and for a macro if
  no finding has that many;
* for a relative decrease of macros, if any finding has fewer than
  :data:`~reveal_bench.metrics.jackknife.LEAST_UNITS_IN_MACRO`;
* if the systems differ on too few patients, or no flip has p of 0.05 or less. Systems that differ on no patient have p
  1.

If the difference is the same in all patients, p is defined and only the bounds are NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.evaluation.permutation import (
    ALPHA,
    LEAST_DIFFERING,
    FlipDistribution,
    Paired,
    Signs,
    flip_distributions,
    flipped_t,
    n_differing,
    t_of,
)
from reveal_bench.evaluation.tilting import Distances, Student, distances_of, student_of
from reveal_bench.metrics.intervals import Intervals, drop_sparse_intervals, with_width
from reveal_bench.metrics.jackknife import LEAST_UNITS, LEAST_UNITS_IN_MACRO, safety
from reveal_bench.metrics.resampled import Resampled

_SAME = 1e-12  # smaller differences of scores are due to rounding
# A shorter interval promises too much, such as that of a perfect system minus one that is always wrong
_NO_LENGTH = 1e-6


@dataclass(frozen=True, slots=True)
class FlipTest:
    """Test of one difference, or of one relative decrease, by flips.

    Attributes
    ----------
    value : difference, or relative decrease
    t, n : statistic of the data, and number of units that count for the score
    below, above : statistics for the bounds that the flips do not determine
    student : distribution of the statistics in `below` and `above`
    distribution : distribution of t over the flips
    """

    value: float
    t: float
    n: int
    below: Distances
    above: Distances
    student: Student
    distribution: FlipDistribution

    @property
    def p(self) -> float:
        """Two-sided p of the hypothesis that the true difference is 0."""
        return float(self.distribution.p(np.array([self.t]))[0])

    def ends(self, q: float) -> tuple[float, float]:
        """Return the bounds of the interval for the critical value `q` of t; NaN if the interval is too short to be
        credible.

        The interval excludes 0 if and only if t is above `q`. The bounds that the flips do not determine are farther
        out for a larger `q`.
        """
        critical = self.student.critical * q / self.distribution.critical()
        low, high = self.value - self.below.reach(critical), self.value + self.above.reach(critical)
        if self.t <= q:
            low, high = min(low, 0.0), max(high, 0.0)
        elif self.value > 0:
            low = self.value - self._near(q)
        else:
            high = self.value + self._near(q)
        return (low, high) if high - low > _NO_LENGTH else (math.nan, math.nan)

    def _near(self, q: float) -> float:
        """Return the distance from the value to the bound nearer to 0, for a difference that is significant by the
        flips.
        """
        return abs(self.value) * _student(q, self.n) / max(_student(self.t, self.n), 1e-9)

    def tails(self, margin: float, q: float) -> tuple[float, float]:
        """Return the one-sided p of the hypotheses that the true value is at most ``-margin``, and that it is at least
        `margin`.

        Each p is at most 0.025 if and only if the interval for the critical value `q` excludes these values.
        """
        is_near = self.t > q and self.value > 0, self.t > q and self.value < 0
        below = self._tail(self.value + margin, self.below, self.above, is_near[0], q)
        return below, self._tail(margin - self.value, self.above, self.below, is_near[1], q)

    def _tail(self, distance: float, to_margin: Distances, away: Distances, is_near: bool, q: float) -> float:
        scale = self.distribution.critical() / q
        if distance <= 0:
            return 1 - self.student.upper_tail(scale * away.statistic(-distance))
        if is_near:
            near = self._near(q)
            return self.student.upper_tail(self.student.critical * distance / near if near > 0 else math.inf)
        return self.student.upper_tail(scale * to_margin.statistic(distance))


def _student(t: float, n: int) -> float:
    """Convert `t`, with a standard error estimated around 0, into the t with one estimated around the difference."""
    rest = 1 - t**2 / n
    return t / math.sqrt(rest) if rest > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Tested:
    """Intervals and p of differences: arrays (1 + n_groups,) with the macro first; NaN if undefined.

    Attributes
    ----------
    low, high, p : interval and two-sided p of each difference
    low_adjusted, high_adjusted, p_adjusted : interval and p adjusted for all findings; for the macro, not adjusted
    tails : float array (1 + n_groups, 2), one-sided p for ``-margin`` and for `margin`, adjusted like the intervals;
        NaN without a margin
    """

    low: FloatArray
    high: FloatArray
    p: FloatArray
    low_adjusted: FloatArray
    high_adjusted: FloatArray
    p_adjusted: FloatArray
    tails: FloatArray


def find_differences(
    paired: Paired,
    signs: Signs,
    values: tuple[FloatArray, FloatArray],
    n_behind: IntArray,
    unknown: BoolArray,
    *,
    relative: bool = False,
    margin: float | None = None,
) -> Tested:
    """Return intervals and p of all differences between two systems.

    Parameters
    ----------
    values : scores of A and of B, (1 + n_groups,) each, macro first
    n_behind : number of units (patients or images) that support each group, (n_groups,)
    unknown : bool array (1 + n_groups,), True for differences that get no p for other reasons
    relative : True for the relative decrease ``(b - a) / b``, False for ``a - b``
    margin : margin for the one-sided p
    """
    flipped = flipped_t(paired.contributions, signs, paired.swaps)
    tests = [
        _test(paired, column, distribution, values, relative=relative)
        for column, distribution in enumerate(flip_distributions(paired.contributions, flipped, paired.swaps))
    ]
    enough = np.concatenate([[has_enough(n_behind[~np.isnan(values[0][1:])], relative)], n_behind >= LEAST_UNITS])
    kept = [None if missing else test for test, missing in zip(tests, unknown | ~enough, strict=True)]
    result = np.full((6, len(kept)), np.nan)
    tails = np.full((len(kept), 2), np.nan)
    for i, test in enumerate(kept):
        if test is None:
            if enough[i] and not unknown[i] and _agree(paired.contributions[:, i]):
                result[[2, 5], i] = 1.0
            continue
        q = test.distribution.critical()
        low, high = test.ends(q)
        result[:, i] = low, high, test.p, low, high, test.p
        if margin is not None:
            tails[i] = test.tails(margin, q)
    findings = [i for i in range(1, len(kept)) if kept[i] is not None]
    if len(findings) > 1:
        together = FlipDistribution.of(np.fmax.reduce(flipped[:, findings], axis=1))
        for i in findings:
            test = kept[i]
            assert test is not None
            p = max(float(together.p(np.array([test.t]))[0]), test.p)
            q = max(together.critical(), test.distribution.critical())
            result[3:, i] = *test.ends(q), p
            if margin is not None:
                tails[i] = test.tails(margin, q)
    return Tested(result[0], result[1], result[2], result[3], result[4], result[5], tails)


def differ_in_few(paired: Paired) -> BoolArray:
    """Return a bool array (1 + n_groups,), True if the systems differ on some units, but on too few for a p."""
    n = np.array([n_differing(column) for column in paired.contributions.T])
    few: BoolArray = (n > 0) & (n < LEAST_DIFFERING)
    return few


def _agree(contributions: FloatArray) -> bool:
    return not np.isnan(contributions).any() and n_differing(contributions) == 0


def units_behind(a: Resampled, b: Resampled) -> IntArray:
    """Return the number of patients or images that support each finding's score in either system."""
    weights = [side.weights for side in (a, b) if side.weights is not None]
    return np.array(np.any([weight > 0 for weight in weights], axis=0).sum(axis=0), np.int64)


def has_enough(n_behind: IntArray, relative: bool = False) -> bool:
    """Return True if the macro's difference is tested; `n_behind` are the supporting units of its findings."""
    least, most = n_behind.min(initial=LEAST_UNITS), n_behind.max(initial=0)
    return bool(least >= LEAST_UNITS_IN_MACRO if relative and len(n_behind) else most >= LEAST_UNITS)


def _test(
    paired: Paired,
    column: int,
    distribution: FlipDistribution | None,
    values: tuple[FloatArray, FloatArray],
    *,
    relative: bool,
) -> FlipTest | None:
    contributions = paired.contributions[:, column]
    if distribution is None or not math.isfinite(distribution.critical()):
        return None
    a, b = (float(side[column]) for side in values)
    own_a, own_b = (side[:, column] for side in paired.influences)
    if relative and b == 0:
        return None
    own, value = ((a / b * own_b - own_a) / b, (b - a) / b) if relative else (own_a - own_b, a - b)
    t, n = t_of(contributions), int(paired.support[column])
    rest = max(1 - t**2 / n, 0.0)
    of_flips = math.sqrt((contributions**2).sum() * rest) / (abs(b) if relative else 1.0)
    error = max(of_flips, math.sqrt((own**2).sum() * paired.steadied[column]))
    error *= safety(len(own)) if column == 0 and len(values[0]) > 2 else 1
    below, above = (distances_of(own, error, side) for side in (-1, 1))
    return FlipTest(value, t, n, below, above, student_of(own), distribution)


def two_sided(replicates: FloatArray) -> float:
    """Return the two-sided p of replicates, ``2 (min(n_low, n_high) + 1) / (n + 1)``, at most 1.

    n_low is the number of replicates that are at most 0, n_high the number that are at least 0, and n the number of
    all. The p is never 0, and is 1 for equal systems.
    """
    defined = replicates[~np.isnan(replicates)]
    if len(defined) == 0:
        return math.nan
    n_low, n_high = int((defined <= _SAME).sum()), int((defined >= -_SAME).sum())
    return min(1.0, 2 * (min(n_low, n_high) + 1) / (len(defined) + 1))


def by_replicates(
    intervals: Intervals,
    replicates: FloatArray,
    fewest: IntArray | None,
    margin: float | None,
    unknown: BoolArray | None = None,
) -> Tested:
    """Return percentile intervals and p computed from replicates of differences, (n_resamples, 1 + n_groups).

    For m findings, adjusted intervals err in 0.05 / m, and adjusted p are m times as large (Bonferroni).

    Parameters
    ----------
    intervals : percentile intervals of the differences
    fewest : number of supporting patients of each group, which must be as many as the jackknife needs (LEAST_UNITS);
        None for no minimum
    margin : margin for the one-sided p, which are ``(n_beyond + 1) / (n + 1)``
    unknown : bool array (1 + n_groups,), True for differences that get neither interval nor p for other reasons
    """
    p = np.array([two_sided(column) for column in replicates.T])
    sparse = intervals if fewest is None else drop_sparse_intervals(intervals, fewest)
    if unknown is not None:
        sparse = replace(sparse, low=np.where(unknown, np.nan, sparse.low))
    p[np.isnan(sparse.low)] = np.nan
    known = with_width(sparse)
    has_interval = ~np.isnan(known.low)
    m = max(int(has_interval[1:].sum()), 1)
    adjusted = np.where(np.arange(len(p)) == 0, p, np.minimum(1, m * p))
    ends = np.full((4, len(p)), np.nan)
    for i in np.flatnonzero(has_interval):
        column = replicates[~np.isnan(replicates[:, i]), i]
        ends[:2, i] = _agreeing(known.low[i], known.high[i], p[i], ALPHA)
        share = ALPHA if i == 0 else ALPHA / m
        low, high = np.percentile(column, [50 * share, 100 - 50 * share])
        ends[2:, i] = _agreeing(low, high, p[i], share)
    tails = np.full((len(p), 2), np.nan)
    if margin is not None:
        n = (~np.isnan(replicates)).sum(axis=0)
        tails = np.column_stack([(replicates <= -margin).sum(axis=0), (replicates >= margin).sum(axis=0)]) + 1.0
        tails = np.where(n[:, None] > 0, tails / (n[:, None] + 1), np.nan)
        tails[1:] = np.minimum(1, m * tails[1:])
    return Tested(ends[0], ends[1], p, ends[2], ends[3], adjusted, tails)


def _agreeing(low: float, high: float, p: float, alpha: float) -> tuple[float, float]:
    """Return the bounds, moved to 0 if they exclude 0 only because percentiles interpolate between replicates."""
    if p > alpha and not low <= 0 <= high:
        return min(low, 0.0), max(high, 0.0)
    return low, high
