"""Estimates with 95% intervals, computed by the jackknife or from replicates (percentiles, BCa, or CheXlocalize's).

Conventions
-----------
Replicates are float, shape (n_resamples, n_columns): with a column per finding, macro or difference. NaN is a
replicate without a value; it is left out and counted. Bounds are those of the central 95%.

Sources: jackknife, the default for scores, see :mod:`reveal_bench.metrics.jackknife`. Percentile as in papers 000
(section 3.3) and 002 (Results), interpolated linearly between order statistics. Shifted: percentiles minus three times
the bias seen in the replicates, once for the replicates' own bias and twice for that of the value in the data. Efron
(1982, chapter 5) subtracts the second bias once. For average precision, this bias is twice as large
(docs/statistics.md), because the best of several precisions, which replaces each, approaches its true value more slowly
than a mean does. If few patients support a score, the percentiles are widened around the replicates' mean, as for
Student's t. BCa: Efron and Tibshirani, An Introduction to the Bootstrap (1993), equation 14.10, with the jackknife over
resampled units in equation 14.15; replicates that tie with the value count half, as in `scipy.stats.bootstrap`.
chexlocalize: `eval.py` of rajpurkarlab/cheXlocalize.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Integral
from statistics import NormalDist
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.jackknife import FEW, LEAST_UNITS, TOO_WIDE, WIDEST, t_quantile
from reveal_bench.metrics.resampled import AnyEvidence, mean_of_defined

Interval = Literal["jackknife", "percentile", "shifted", "bca", "chexlocalize"]
INTERVALS: tuple[Interval, ...] = get_args(Interval)

SHARES = 0.025, 0.975
"""Quantiles of the replicates that are the bounds of a 95% interval, of scores and of ranks."""
_NORMAL = NormalDist()
_SAME = 1e-12  # scores are fractions, so smaller differences between replicates are due to rounding


@dataclass(frozen=True, slots=True)
class Resampling:
    """Method of intervals: the resampled unit, the number of replicates, and the kind of bounds.

    The available units and intervals depend on the kind of benchmark, and on whether scores or differences are
    computed.

    Attributes
    ----------
    n_resamples : number of replicates, at least 1
    seed : random seed, at least 0
    unit : resampled unit: "patient", or depending on the kind of benchmark "image", "study" or "task"
    interval : see :func:`find_intervals`
    part : text that names the part of the split that is scored; empty for the whole split

    Raises
    ------
    ArgumentError
        If `n_resamples` or `seed` is not a whole number, or too small.

    Examples
    --------
    >>> Resampling(seed=3).signature("point_hit", 1)
    'point_hit|b:1000|seed:3|unit:patient|i:jackknife|v:1'
    >>> Resampling(50, unit="study").by("percentile").signature("f1", 2)
    'f1|b:50|seed:0|unit:study|v:2'
    """

    n_resamples: int = 1000
    seed: int = 0
    unit: str = "patient"
    interval: Interval = "jackknife"
    part: str = ""

    def __post_init__(self) -> None:
        for name, least in (("n_resamples", 1), ("seed", 0)):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, Integral) or number < least:
                raise ArgumentError(name, f"must be a whole number of at least {least}", repr(number))
            # Such as a whole number of another library, which JSON cannot write
            object.__setattr__(self, name, int(number))

    def by(self, interval: Interval) -> Resampling:
        """Return the resampling with the same replicates and another interval."""
        return replace(self, interval=interval)

    def signature(self, metric: str, version: int | None = None, *, method: str | None = None) -> str:
        """Return the signature of an Estimate; it names the method (by default, the interval) unless "percentile".

        `version` is by default the metric's version in METRICS.
        """
        method = method or self.interval
        version = METRICS[metric].version if version is None else version
        how = "" if method == "percentile" else f"|i:{method}"
        part = f"|part:{self.part}" if self.part else ""
        return f"{metric}|b:{self.n_resamples}|seed:{self.seed}|unit:{self.unit}{how}{part}|v:{version}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Number with its 95% interval and the counts that support it, such as a score, a difference or a slope.

    Attributes
    ----------
    metric, finding : str
        Name in METRICS, and the finding or "macro"; empty for a number that is not the score of a finding.
    value, low, high : float
        Point estimate in the data and the bounds of its 95% interval; NaN if undefined.
    n : int
        Number of defined rows of a finding, or of findings in a macro; 0 if the table with the estimate has other
        counts.
    n_undefined : int
        Number of rows (for a macro: findings) left out because they are undefined.
    n_empty_replicates : int
        Number of replicates left out because they have no defined row (for a macro: no defined finding); 0 for
        intervals without replicates.
    signature : str
        Recipe of the number, such as ``point_hit|b:1000|seed:0|unit:patient|v:1``.
    reason : str
        Reason why both bounds are missing, if it is known; see :attr:`missing_interval`.
    """

    metric: str = field(default="", kw_only=True)
    finding: str = field(default="", kw_only=True)
    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    n_undefined: int = 0
    n_empty_replicates: int = 0
    signature: str = ""
    reason: str = field(default="", kw_only=True)

    @property
    def has_interval(self) -> bool:
        """True if the bounds of the interval are defined."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    @property
    def missing_interval(self) -> str:
        """Reason why a defined value has no interval; empty if the value has at least one bound, or is undefined."""
        is_missing = math.isnan(self.low) and math.isnan(self.high) and not math.isnan(self.value)
        return (self.reason or FEW) if is_missing else ""

    @property
    def n_rows(self) -> int:
        """Number of rows, defined or not; for a macro, number of findings."""
        return self.n + self.n_undefined

    def times(self, factor: float) -> Estimate:
        """Return value and interval on another scale, such as percent."""
        return Estimate(factor * self.value, factor * self.low, factor * self.high, self.n)


UNDEFINED = Estimate(math.nan)


def as_record(row: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as a dictionary, with three fields for each estimate.

    The field `estimate` becomes `value`, `low` and `high`; another field X becomes X, `X_low` and `X_high`.

    Examples
    --------
    >>> @dataclass
    ... class Row:
    ...     estimate: Estimate
    ...     slope: Estimate
    >>> as_record(Row(Estimate(0.5, 0.25, 0.75), Estimate(1, 0, 2)))
    {'value': 0.5, 'low': 0.25, 'high': 0.75, 'slope': 1, 'slope_low': 0, 'slope_high': 2}
    """
    record: dict[str, Any] = {}
    for name in (one.name for one in fields(row)):
        value = getattr(row, name)
        if isinstance(value, Estimate):
            columns = ("value", "low", "high") if name == "estimate" else (name, f"{name}_low", f"{name}_high")
            record |= dict(zip(columns, (value.value, value.low, value.high), strict=True))
        else:
            record[name] = value
    return record


@dataclass(frozen=True, slots=True)
class Intervals:
    """Values with the bounds of their intervals, one per column.

    Attributes
    ----------
    values, low, high : float arrays (n_columns,)
        Values in the data, or for "chexlocalize" the means of the replicates, with their bounds.
    n_empty : int array (n_columns,)
        Replicates without a value.
    reasons : sequence of str
        For each column, why both bounds are missing; empty if no reason is known.
    """

    values: FloatArray
    low: FloatArray
    high: FloatArray
    n_empty: IntArray
    reasons: Sequence[str] = ()

    def estimates(
        self,
        findings: Sequence[str] = (),
        n: Sequence[int] = (),
        n_undefined: Sequence[int] = (),
        *,
        metric: str = "",
        signature: str = "",
    ) -> list[Estimate]:
        """Return an estimate per column; `findings`, `n` and `n_undefined` have one entry per column."""
        zeros, empty = [0] * len(self.values), [""] * len(self.values)
        ends = zip(self.low.tolist(), self.high.tolist(), strict=True)
        counts = zip(n or zeros, n_undefined or zeros, self.n_empty.tolist(), strict=True)
        rows = zip(findings or empty, self.values.tolist(), ends, counts, self.reasons or empty, strict=True)
        return [
            Estimate(value, *own_ends, *own_counts, signature, metric=metric, finding=finding, reason=reason)
            for finding, value, own_ends, own_counts, reason in rows
        ]


def check_interval(interval: Interval, n_resamples: int) -> None:
    """Raise ValueError if the interval is unknown, or needs more replicates."""
    if interval not in INTERVALS:
        raise ArgumentError("interval", f"must be one of {', '.join(INTERVALS)}", repr(interval))
    if interval == "chexlocalize" and int(SHARES[0] * n_resamples) < 1:
        raise ArgumentError(
            "n_resamples",
            "must be at least 40 for interval 'chexlocalize', whose low end is the sorted replicates' element "
            "int(0.025 * n_resamples) - 1",
            n_resamples,
        )


def find_intervals(
    values: FloatArray,
    replicates: FloatArray,
    *,
    interval: Interval = "percentile",
    left_out: FloatArray | None = None,
    evidence: AnyEvidence | None = None,
    behind: FloatArray | None = None,
) -> Intervals:
    """Return the bounds of every column's interval.

    Parameters
    ----------
    values : float array (n_columns,), values in the data
    replicates : float array (n_resamples, n_columns)
    interval : {"jackknife", "percentile", "shifted", "bca", "chexlocalize"}
        * jackknife: see :mod:`reveal_bench.metrics.jackknife`, and for AUROC and average precision
          :mod:`reveal_bench.metrics.ranking_intervals`, without replicates.
        * percentile: interpolated linearly between the order statistics of the defined replicates.
        * shifted: percentiles minus three times the difference between the replicates' mean and the value, extended to
          include the value; for scores such as average precision, which are too high with few cases. NaN if all
          replicates agree.
        * bca: bias-corrected and accelerated. If all replicates agree, both bounds are the value; if all are on one
          side of the value, both are NaN.
        * chexlocalize: elements int(0.025 B) - 1 and int(0.975 B) - 1 of the B sorted replicates, undefined ones last
          and counted in B; value and bounds are rounded to three digits.
    left_out : float array (n_units, n_columns); needed only for "bca"
        The value without each resampled unit; NaN is left out.
    evidence : inputs of the closed forms; needed only for "jackknife"
    behind : float array (n_columns,), number of patients of each column, inf for a macro; few patients widen "shifted"

    Raises
    ------
    ValueError
        If `interval` is unknown, lacks `left_out` or `evidence`, or needs more replicates.
    """
    check_interval(interval, len(replicates))
    n_empty = np.isnan(replicates).sum(axis=0)
    if interval == "chexlocalize":
        ordered = np.sort(replicates, axis=0)
        low, high = (ordered[int(share * len(replicates)) - 1] for share in SHARES)
        return Intervals(mean_of_defined(ordered.T).round(3), low.round(3), high.round(3), n_empty)
    if interval == "jackknife":
        if evidence is None:
            raise ArgumentError("evidence", "must be given for interval 'jackknife'", "None")
        ends = evidence.ends(values)
        return Intervals(values, ends[0], ends[1], n_empty, evidence.missing_reasons(values, ends))
    if interval == "bca":
        if left_out is None:
            raise ArgumentError("left_out", "must be given for interval 'bca'", "None")
        low, high = np.array([_bca(*column) for column in zip(values, replicates.T, left_out.T, strict=True)]).T
    else:
        low, high = _percentiles(replicates)
    if interval == "shifted":
        means = mean_of_defined(replicates.T)
        wider = 1.0 if behind is None else _as_of_few(behind)
        centres = values - 2 * (means - values)
        low = np.minimum(centres + (low - means) * wider, values)
        high = np.maximum(centres + (high - means) * wider, values)
        return with_width(Intervals(values, low, high, n_empty))
    return Intervals(values, low, high, n_empty)


def drop_sparse_intervals(intervals: Intervals, behind: npt.ArrayLike) -> Intervals:
    """Return the intervals of a macro and its groups, with NaN bounds for groups with fewer than LEAST_UNITS patients.

    The macro keeps its interval if any group does.

    Examples
    --------
    >>> intervals = Intervals(*(np.array([0.5, 0.4, 0.6]) for _ in range(3)), n_empty=np.zeros(3, int))
    >>> drop_sparse_intervals(intervals, [30, 2]).low.tolist()
    [0.5, 0.4, nan]
    """
    units = np.asarray(behind)
    return _without(intervals, np.append(units.max(initial=0), units) < LEAST_UNITS)


def drop_wide_intervals(intervals: Intervals, bounds: tuple[float, float]) -> Intervals:
    """Return the intervals; those that cover more than WIDEST of a scale with two ends get NaN bounds and a reason.

    Examples
    --------
    >>> wide = Intervals(np.array([0.4, 0.6]), np.array([0.1, 0.3]), np.array([0.9, 0.8]), np.zeros(2, int))
    >>> drop_wide_intervals(wide, (0, 1)).reasons
    ['wider than 75% of its scale', '']
    """
    is_wide = intervals.high - intervals.low > WIDEST * (bounds[1] - bounds[0])
    reasons = intervals.reasons or [""] * len(is_wide)
    reasons = [TOO_WIDE if wide else reason for wide, reason in zip(is_wide.tolist(), reasons, strict=True)]
    return replace(_without(intervals, is_wide), reasons=reasons)


def with_width(intervals: Intervals) -> Intervals:
    """Return the intervals, with NaN bounds where all replicates agree and so say nothing about other patients."""
    return _without(intervals, ~(intervals.low < intervals.high))


def _without(intervals: Intervals, which: BoolArray) -> Intervals:
    return replace(intervals, low=np.where(which, np.nan, intervals.low), high=np.where(which, np.nan, intervals.high))


def _percentiles(replicates: FloatArray) -> FloatArray:
    percents = [100 * share for share in SHARES]
    ends = np.full((len(percents), replicates.shape[1]), np.nan)
    if not len(replicates):
        return ends
    complete = ~np.isnan(replicates).any(axis=0)
    if complete.any():
        ends[:, complete] = np.percentile(replicates[:, complete], percents, axis=0)
    for column in np.flatnonzero(~complete):
        defined = _defined(replicates[:, column])
        if len(defined):
            ends[:, column] = np.percentile(defined, percents)
    return ends


def _as_of_few(behind: FloatArray) -> FloatArray:
    """Return the factor that widens percentiles for few patients: t / z times the root of n / (n - 1)."""
    freedom = np.maximum(behind - 1, 1)
    wider: FloatArray = t_quantile(freedom) / _NORMAL.inv_cdf(SHARES[1]) * np.sqrt(1 + 1 / freedom)
    return wider


def _bca(value: float, replicates: FloatArray, left_out: FloatArray) -> tuple[float, float]:
    undefined = float("nan"), float("nan")
    replicates = _defined(replicates)
    if len(replicates) == 0:
        return undefined
    if np.ptp(replicates) <= _SAME:
        return value, value
    below = float((replicates < value).mean() + (replicates <= value).mean()) / 2
    if not 0 < below < 1:
        return undefined
    bias = _NORMAL.inv_cdf(below)
    left_out = _defined(left_out)
    deviations = left_out.mean() - left_out if len(left_out) else left_out
    spread = (deviations**2).sum()
    acceleration = (deviations**3).sum() / (6 * spread**1.5) if spread > 0 else 0.0
    moved = bias + np.array([_NORMAL.inv_cdf(share) for share in SHARES])
    with np.errstate(divide="ignore"):
        scores = bias + moved / (1 - acceleration * moved)
    low, high = np.percentile(replicates, [100 * _NORMAL.cdf(score) for score in scores])
    return float(low), float(high)


def _defined(values: FloatArray) -> FloatArray:
    return values[~np.isnan(values)]
