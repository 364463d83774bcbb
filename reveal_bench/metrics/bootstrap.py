"""Bootstrap of means over patients: resampling counts, replicates, and estimates with intervals.

Conventions
-----------
Values are per-case rows, shape (n_cases,), float, NaN if undefined. `groups` contains the finding of each case and
`units` the patient (or image) that is resampled, both as integer codes from 0. All findings, metrics and systems share
the same resampling counts, shape (n_resamples, n_units), so that macros and paired differences come from the same
replicates. Units without a defined row are also drawn (papers 000 and 002: all images).

Counts are whole numbers in single precision. Sums of hits are whole numbers, too. Single precision adds them up without
an error while they stay below 2**24, so the replicates equal double-precision ones bit for bit. Other numbers (IoU),
and larger sums, are added up in double precision.

Source: 1,000 replicates as in papers 000 (section 3.3) and 002 (Results); the papers resample images, this package
patients by default. :mod:`reveal_bench.metrics.intervals` defines the intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray, IntArray
from reveal_bench.findings import FindingGroups, check_finding_groups
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.intervals import (
    Estimate,
    Interval,
    Intervals,
    Resampling,
    drop_sparse_intervals,
    drop_wide_intervals,
    find_intervals,
    with_width,
)
from reveal_bench.metrics.jackknife import Evidence, evidence_of_groups, has_uneven_rows
from reveal_bench.metrics.resampled import Resampled, mean_of_defined

MACRO = "macro"
"""Finding in the Estimate of an unweighted mean over findings."""

Counts = npt.NDArray[np.float32]

_DRAWS = 1 << 17  # number of draws counted at a time, which fit in a cache
_PRODUCTS = 1 << 18  # number of products added up at a time, so few that BLAS starts no threads, which would cost more
_LEAST_ROWS = 16  # smallest number of rows of a matrix product
_MANY_UNITS = 1 << 14  # from here on, products have _LEAST_ROWS rows, so that sums do not depend on the blocks' size
_COUNTS_AT_ONCE = 1 << 22  # number of counts in memory, for many units
_UNITS_AT_ONCE = 256  # number of units left out at a time, to bound the memory of their counts
_EXACT = 1 << 24  # whole numbers up to here are exact in single precision


@dataclass(frozen=True)
class BootstrapMeans:
    """Mean of each finding, and their macro, in the data and in every replicate.

    Attributes
    ----------
    values : float array (n_groups,), replicates : float array (n_resamples, n_groups)
        Mean over defined rows; NaN without any.
    n, n_undefined : int arrays (n_groups,)
    sums, rows : float arrays (n_units, n_groups)
        Sum of each unit's defined rows, and their number.
    bounds : lowest and highest possible value of a row
    """

    values: FloatArray
    replicates: FloatArray
    n: IntArray
    n_undefined: IntArray
    sums: FloatArray
    rows: FloatArray
    bounds: tuple[float, float] = (0.0, 1.0)

    @property
    def weights(self) -> FloatArray:
        """Number of rows of each unit."""
        return self.rows

    @property
    def positive_units(self) -> None:
        """None, because every unit with a row counts."""

    @property
    def behind(self) -> None:
        """None, because :attr:`rows` gives the units that support each mean."""

    def macro(self) -> tuple[float, FloatArray]:
        """Return the unweighted mean over the defined groups, in the data and in each replicate."""
        return float(mean_of_defined(self.values)), mean_of_defined(self.replicates)

    def evidence(self, averaged: IntArray | None = None) -> Evidence:
        """Return the inputs of the intervals of the macro and of each mean."""
        whole = (self.sums == np.rint(self.sums)) & (self.sums >= 0) & (self.sums <= self.rows)
        behind = (self.rows > 0).sum(axis=0)
        is_share = whole.all(axis=0) & (self.bounds == (0, 1))
        evidence = evidence_of_groups(
            macro_first(self.left_out()),
            behind,
            is_share=is_share,
            bounds=self.bounds,
            of_means=True,
            is_uneven=has_uneven_rows(self.rows),
        )
        return evidence if averaged is None else evidence.over(averaged)

    def left_out(self) -> FloatArray:
        """Return the means without each unit in turn, (n_units, n_groups), in closed form, for the jackknife."""
        return _divide(self.sums.sum(axis=0) - self.sums, self.rows.sum(axis=0) - self.rows)

    def ratio_parts(self) -> tuple[FloatArray, FloatArray]:
        """Return the sum of each unit's rows, and their number."""
        return self.sums, self.rows


def _divide(sums: FloatArray, rows: FloatArray) -> FloatArray:
    """Return means; NaN for a sum over no rows."""
    means: FloatArray = np.divide(sums, rows, out=np.full(sums.shape, np.nan), where=rows > 0)
    return means


def bounds_of(metric: str) -> tuple[float, float]:
    """Return the lowest and the highest value of a metric; infinite if there is no bound."""
    return (METRICS[metric].low, METRICS[metric].high) if metric in METRICS else (-np.inf, np.inf)


def macro_first(means: FloatArray, averaged: IntArray | None = None) -> FloatArray:
    """Return `means` (..., n_groups) after a first column, their mean over the defined, or the `averaged`, groups."""
    chosen = means if averaged is None else means[..., averaged]
    return np.concatenate([mean_of_defined(chosen)[..., None], means], axis=-1)


def resampling_counts(n_units: int, resampling: Resampling = Resampling()) -> Counts:
    """Return how often each unit is drawn in each replicate.

    The draws are ``default_rng(seed).integers(0, n_units, (n_resamples, n_units))``; row b contains the counts of draw
    b. Drawing and counting in blocks does not change the counts.

    Returns
    -------
    float32 array (n_resamples, n_units), whole numbers; each row sums to n_units

    Raises
    ------
    ValueError
        If n_units is below 1.

    Examples
    --------
    >>> resampling_counts(3, Resampling(2)).sum(axis=1).tolist()
    [3.0, 3.0]
    """
    return _next_counts(_generator(n_units, resampling), resampling.n_resamples, n_units)


def _generator(n_units: int, resampling: Resampling) -> np.random.Generator:
    if n_units < 1:
        raise ArgumentError("n_units", "must be at least 1", n_units)
    return np.random.default_rng(resampling.seed)


def blocks_of_counts(n_units: int, resampling: Resampling) -> Iterator[Counts]:
    """Yield :func:`resampling_counts` in blocks: a single one below 16,384 units, otherwise of at most 16 MiB each."""
    generator, n_resamples = _generator(n_units, resampling), resampling.n_resamples
    fitting = max(_LEAST_ROWS, _COUNTS_AT_ONCE // n_units // _LEAST_ROWS * _LEAST_ROWS)
    step = n_resamples if n_units < _MANY_UNITS else fitting
    for start in range(0, n_resamples, step):
        yield _next_counts(generator, min(step, n_resamples - start), n_units)


def needed_blocks(n_units: int, resampling: Resampling) -> Iterable[Counts]:
    """Return :func:`blocks_of_counts`, or no replicates for jackknife intervals, which need none."""
    return [no_counts(n_units)] if resampling.interval == "jackknife" else blocks_of_counts(n_units, resampling)


def no_counts(n_units: int) -> Counts:
    """Return empty counts, (0, n_units), for jackknife intervals, which need no replicates."""
    return np.empty((0, n_units), np.float32)


Name = TypeVar("Name")


def replicates_of(
    statistics: Callable[[Counts], Mapping[Name, FloatArray]], blocks: Iterable[Counts]
) -> dict[Name, FloatArray]:
    """Return the results of `statistics` in every replicate.

    Parameters
    ----------
    statistics : function of float32 counts (n_replicates, n_units) that returns name -> one value or row of values per
        replicate, each computed from only this replicate
    blocks : from :func:`blocks_of_counts`, so that only one block of counts is in memory at a time

    Examples
    --------
    >>> blocks = blocks_of_counts(3, Resampling(2))
    >>> replicates = replicates_of(lambda counts: {"n": counts.sum(axis=1)}, blocks)
    >>> replicates["n"].tolist()
    [3.0, 3.0]
    """
    parts = [statistics(counts) for counts in blocks]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _next_counts(generator: np.random.Generator, n_resamples: int, n_units: int) -> Counts:
    counts = np.empty((n_resamples, n_units), np.float32)
    step = max(1, _DRAWS // n_units)
    offsets = n_units * np.arange(step)[:, None]
    for start in range(0, n_resamples, step):
        draws = generator.integers(0, n_units, (min(step, n_resamples - start), n_units))
        draws += offsets[: len(draws)]
        counts[start : start + step] = np.bincount(draws.ravel(), minlength=draws.size).reshape(draws.shape)
    return counts


def leave_one_out(statistic: Callable[[Counts], FloatArray], n_units: int) -> FloatArray:
    """Return `statistic` without each unit in turn, (n_units, ...): the jackknife values for "bca".

    Parameters
    ----------
    statistic : function of float32 counts (n_replicates, n_units): one value or row of values per replicate
    """
    blocks = []
    for start in range(0, n_units, _UNITS_AT_ONCE):
        left_out = np.arange(start, min(start + _UNITS_AT_ONCE, n_units))
        counts = np.ones((len(left_out), n_units), np.float32)
        counts[np.arange(len(left_out)), left_out] = 0
        blocks.append(statistic(counts))
    return np.concatenate(blocks)


def bootstrap_means(
    values: FloatArray,
    groups: IntArray,
    units: IntArray,
    *,
    n_groups: int,
    counts: Counts,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> BootstrapMeans:
    """Return the mean of `values` for each group, in the data and in every replicate of `counts`.

    Parameters
    ----------
    values : float array (n_cases,), NaN if undefined, infinities are refused
    groups : int array (n_cases,), in [0, n_groups)
    units : int array (n_cases,), in [0, counts.shape[1])
    counts : float array (n_resamples, n_units), from :func:`resampling_counts`
    bounds : lowest and highest possible value

    Raises
    ------
    ValueError
        If lengths differ, a code is out of range, or a value is infinite.
    """
    (means,) = bootstrap_columns([values], groups, units, n_groups=n_groups, n_units=counts.shape[1], blocks=[counts])
    return replace(means, bounds=bounds)


def bootstrap_columns(
    columns: Sequence[FloatArray],
    groups: IntArray,
    units: IntArray,
    *,
    n_groups: int,
    n_units: int,
    blocks: Iterable[Counts],
) -> list[BootstrapMeans]:
    """Return :func:`bootstrap_means` of each of `columns`, which have the same cases and share each block of counts.

    Raises
    ------
    ValueError
        As :func:`bootstrap_means`.
    """
    held = [_sums_and_rows(values, groups, units, (n_units, n_groups)) for values in columns]
    resampled = [[weighted_sums(counts, own) for own in held] for counts in blocks]
    means = []
    for own, drawn in zip(held, zip(*resampled, strict=True), strict=True):
        replicates = np.concatenate([_divide(part[:, :n_groups], part[:, n_groups:]) for part in drawn])
        sums, rows = own[:, :n_groups], own[:, n_groups:]
        n = rows.sum(axis=0).astype(np.int64)
        n_undefined = np.bincount(groups, minlength=n_groups) - n
        values = _divide(sums.sum(axis=0), rows.sum(axis=0))
        means.append(BootstrapMeans(values, replicates, n, n_undefined, sums, rows))
    return means


def _sums_and_rows(values: FloatArray, groups: IntArray, units: IntArray, shape: tuple[int, int]) -> FloatArray:
    """Return the sums of the defined values per unit and group, then their numbers: (n_units, 2 n_groups)."""
    n_units, n_groups = shape
    _check_codes("groups", groups, len(values), n_groups)
    _check_codes("units", units, len(values), n_units)
    if np.isinf(values).any():
        raise ArgumentError("values", "must be finite or NaN", values[np.isinf(values)][0])
    defined = ~np.isnan(values)
    cells = units[defined] * n_groups + groups[defined]
    sums = _add_up(values[defined], cells, shape)
    return np.concatenate([sums, _add_up(np.ones(len(cells)), cells, shape)], axis=1)


def _add_up(weights: FloatArray, cells: IntArray, shape: tuple[int, int]) -> FloatArray:
    return np.asarray(np.bincount(cells, weights=weights, minlength=shape[0] * shape[1]), np.float64).reshape(shape)


def weighted_sums(counts: Counts, columns: FloatArray) -> FloatArray:
    """Return ``counts @ columns`` in double precision, computed in single precision if that is exact."""
    largest = np.abs(columns).max(initial=0.0)
    exact = len(columns) * largest < _EXACT and np.array_equal(columns, np.rint(columns))
    factors: npt.NDArray[Any] = columns.astype(np.float32 if exact else np.float64)
    result = np.zeros((len(counts), columns.shape[1]))
    width = max(1, _PRODUCTS // max(1, _LEAST_ROWS * columns.shape[1])) if exact else max(1, len(columns))
    for first in range(0, len(columns), width):  # the order does not change sums of whole numbers
        own = factors[first : first + width]
        step = max(_LEAST_ROWS, _PRODUCTS // max(1, own.size))
        for start in range(0, len(counts), step):
            drawn = counts[start : start + step, first : first + width].astype(factors.dtype, copy=False)
            result[start : start + step] += drawn @ own
    return result


def _check_codes(name: str, codes: IntArray, n_cases: int, limit: int) -> None:
    if len(codes) != n_cases:
        raise ValueError(f"`{name}` must have the length of `values` ({n_cases}), got {len(codes)}")
    if len(codes) and (codes.min() < 0 or codes.max() >= limit):
        raise ValueError(f"`{name}` must be in [0, {limit}), got {codes.min()} to {codes.max()}")


def interval_of(recipe: str) -> str:
    """Return the kind of interval named in a signature.

    Examples
    --------
    >>> interval_of("ap_50|b:1000|seed:0|unit:patient|i:shifted|v:1"), interval_of("ap_50|b:9|seed:0|unit:image|v:1")
    ('shifted', 'percentile')
    """
    return next((part.removeprefix("i:") for part in recipe.split("|") if part.startswith("i:")), "percentile")


def code_cases(
    case_findings: Sequence[str], case_units: Sequence[str], *, findings: Sequence[str], units: Sequence[str]
) -> tuple[npt.NDArray[np.bool_], IntArray, IntArray]:
    """Return the findings and units of cases as codes, the positions in `findings` and `units`.

    Returns
    -------
    kept : bool array (n_cases,), True for cases of `findings`
    groups, units : int arrays (n_kept,), their codes

    Raises
    ------
    ValueError
        If the lengths differ or a case belongs to a unit that is not in `units`.
    """
    if len(case_findings) != len(case_units):
        raise ArgumentError(
            "case_units",
            f"must have the length of `case_findings` ({len(case_findings)})",
            len(case_units),
            ("case_findings",),
        )
    unit_code = {unit: i for i, unit in enumerate(units)}
    unlisted = sorted(set(case_units) - set(unit_code))
    if unlisted:
        raise ArgumentError(
            "units", f"must hold every unit of `case_units`, {unlisted[0]!r} is missing", None, ("case_units",)
        )
    finding_code = {finding: i for i, finding in enumerate(findings)}
    groups = np.array([finding_code.get(finding, -1) for finding in case_findings], np.int64)
    kept = groups >= 0
    return kept, groups[kept], np.array([unit_code[unit] for unit in case_units], np.int64)[kept]


def estimate_means(
    values: FloatArray,
    case_findings: Sequence[str],
    case_units: Sequence[str],
    *,
    findings: Sequence[str],
    units: Sequence[str],
    counts: Counts,
    recipe: str,
    interval: Interval = "percentile",
) -> list[Estimate]:
    """Return the macro and the mean of each finding, with their intervals.

    Parameters
    ----------
    values : float array (n_cases,), NaN if undefined
    case_findings, case_units : names (n_cases,); cases of findings that are not in `findings` are ignored
    findings : findings to report, in order; the macro averages only these
    units : names of all resampled units, including those without cases, one for each column of `counts`
    counts : float array (n_resamples, n_units), from :func:`resampling_counts`
    recipe : from :meth:`Resampling.signature <reveal_bench.metrics.intervals.Resampling.signature>`; its first part
        names the metric
    interval : {"jackknife", "percentile", "bca", "chexlocalize"}
        See :func:`~reveal_bench.metrics.intervals.find_intervals`.

    Returns
    -------
    list of Estimate: the macro, then one per finding. A replicate in which a finding has no defined row is left out for
    that finding; the macro of a replicate averages the other findings.

    Raises
    ------
    ValueError
        If the lengths differ, a case belongs to a unit that is not in `units`, or the interval does not apply.
    """
    if len(case_findings) != len(values):
        rule = f"must have the length of `values` ({len(values)})"
        raise ArgumentError("case_findings", rule, len(case_findings), ("values",))
    kept, groups, codes = code_cases(case_findings, case_units, findings=findings, units=units)
    bounds = bounds_of(recipe.split("|", 1)[0])
    means = bootstrap_means(values[kept], groups, codes, n_groups=len(findings), counts=counts, bounds=bounds)
    return estimates_from(means, findings, recipe=recipe, interval=interval)


def intervals_of(
    figures: Resampled, interval: Interval, *, averaged: IntArray | None = None, bounds: tuple[float, float]
) -> Intervals:
    """Return the intervals of the macro over the `averaged` groups, by default all, and of every group.

    The intervals of all single scores come from this function, so they depend neither on the command that prints them
    nor on other systems.

    Parameters
    ----------
    interval : see :func:`~reveal_bench.metrics.intervals.find_intervals`; scores that cannot be computed without each
        unit get percentiles instead of "jackknife" and "bca", unless too few units support them or all replicates agree
    bounds : lowest and highest possible value, which no interval exceeds
    """
    if averaged is not None:
        averaged = averaged[~np.isnan(figures.values[averaged])]
    evidence = figures.evidence(averaged) if interval == "jackknife" else None
    left_out = figures.left_out() if interval == "bca" else None
    is_replaced = interval in ("jackknife", "bca") and evidence is None and left_out is None
    interval = "percentile" if is_replaced else interval
    behind = figures.behind
    intervals = find_intervals(
        macro_first(figures.values, averaged),
        macro_first(figures.replicates, averaged),
        interval=interval,
        left_out=None if left_out is None else macro_first(left_out, averaged),
        evidence=evidence,
        behind=None if behind is None else np.append(np.inf, behind),
    )
    if (interval == "shifted" or is_replaced) and behind is not None:
        intervals = drop_sparse_intervals(intervals, behind)
    intervals = with_width(intervals) if is_replaced else intervals
    intervals = replace(intervals, low=np.clip(intervals.low, *bounds), high=np.clip(intervals.high, *bounds))
    return drop_wide_intervals(intervals, bounds) if interval == "shifted" else intervals


def estimates_from(
    figures: Resampled,
    findings: Sequence[str],
    *,
    recipe: str,
    interval: Interval = "percentile",
    averaged: IntArray | None = None,
) -> list[Estimate]:
    """Return the estimates of the macro and the `findings`, in the order of the groups of `figures`.

    The macro averages the `averaged` groups, by default all. If `figures` have no jackknife, `interval` must be one
    that is computed from replicates.
    """
    metric = recipe.split("|", 1)[0]
    intervals = intervals_of(figures, interval, averaged=averaged, bounds=bounds_of(metric))
    undefined = [0] * len(findings) if figures.n_undefined is None else figures.n_undefined.tolist()
    counted = figures.n if averaged is None else figures.n[averaged]
    n_defined = int((counted > 0).sum())
    n, n_undefined = [n_defined, *figures.n.tolist()], [len(counted) - n_defined, *undefined]
    return intervals.estimates((MACRO, *findings), n, n_undefined, metric=metric, signature=recipe)


def estimates_of_rows(intervals: Intervals, findings: Sequence[str], n: IntArray, *, recipe: str) -> list[Estimate]:
    """Return the estimates of the macro and the `findings`; rows of a finding without a value count as undefined.

    Parameters
    ----------
    intervals : intervals of the macro, then of each finding
    n : int array (n_findings,), number of rows of each finding
    """
    is_defined = ~np.isnan(intervals.values[1:])
    n_defined = [int(is_defined.sum()), *np.where(is_defined, n, 0).tolist()]
    n_undefined = [int((~is_defined).sum()), *np.where(is_defined, 0, n).tolist()]
    metric = recipe.split("|", 1)[0]
    return intervals.estimates([MACRO, *findings], n_defined, n_undefined, metric=metric, signature=recipe)


def estimate_cases(
    metric: str,
    version: int,
    values: FloatArray,
    *,
    findings: Sequence[str] | None = None,
    patients: Sequence[str] | None = None,
    all_patients: Sequence[str] | None = None,
    resampling: Resampling = Resampling(),
) -> list[Estimate]:
    """Return :func:`estimate_means` for values that do not come from a dataset folder.

    Parameters
    ----------
    findings : a name per case; one finding "all" by default
    patients : a name per case; by default, every case is its own patient
    all_patients : all patients of the split, needed if some have no case
    resampling : resampling of patients; interval "jackknife", "percentile", "bca" or "chexlocalize"

    Raises
    ------
    ValueError
        If the input is empty, the lengths differ, or the interval does not apply.
    """
    if len(values) == 0:
        raise ValueError("`predictions` and `references` must hold at least one case, got none")
    of_case = [f"{i:09d}" for i in range(len(values))] if patients is None else list(patients)
    units = sorted(set(of_case if all_patients is None else all_patients))
    names = ["all"] * len(values) if findings is None else list(findings)
    return estimate_means(
        values,
        names,
        of_case,
        findings=list(dict.fromkeys(names)),
        units=units,
        counts=np.concatenate([*needed_blocks(len(units), resampling)]),
        recipe=resampling.signature(metric, version),
        interval=resampling.interval,
    )


def case_result(
    name: str,
    metric: str,
    values: FloatArray,
    *,
    findings: Sequence[str] | None = None,
    patients: Sequence[str] | None = None,
    all_patients: Sequence[str] | None = None,
    finding_groups: FindingGroups | None = None,
    resampling: Resampling = Resampling(),
) -> dict[str, Any]:
    """Return :func:`estimate_cases` as the flat dictionary of `evaluate` modules, with the macro under `name`.

    Parameters
    ----------
    finding_groups : group name -> findings; adds the macro of each group under "per_group", see
        :func:`macros_over_groups`
    """
    of_metric = partial(estimate_cases, metric, METRICS[metric].version, resampling=resampling)
    macro, *rest = of_metric(values, findings=findings, patients=patients, all_patients=all_patients)
    of_case = np.array(["all"] * len(values) if findings is None else findings)
    of_patients = np.array([f"{i:09d}" for i in range(len(values))] if patients is None else patients)

    def estimate(some: Sequence[str]) -> list[Estimate]:
        own = np.isin(of_case, some)
        everybody = of_patients.tolist() if all_patients is None else all_patients
        names = {"findings": of_case[own].tolist(), "patients": of_patients[own].tolist()}
        return of_metric(values[own], **names, all_patients=everybody)

    def figures(estimate: Estimate, key: str) -> dict[str, Any]:
        return {
            key: estimate.value,
            "low": estimate.low,
            "high": estimate.high,
            "n": estimate.n,
            "n_undefined": estimate.n_undefined,
        }

    per_finding = {estimate.finding: figures(estimate, "value") for estimate in rest}
    macros = macros_over_groups(finding_groups, [one.finding for one in rest], estimate)
    per_group = {group: figures(own, name) for group, (own,) in macros.items()}
    result = {**figures(macro, name), "signature": macro.signature, "per_finding": per_finding}
    return result | ({"per_group": per_group} if per_group else {})


def macros_over_groups(
    groups: FindingGroups | None, findings: Sequence[str], estimate: Callable[[Sequence[str]], Sequence[Estimate]]
) -> dict[str, list[Estimate]]:
    """Return group name -> macros over the group's findings, one per metric; {} without groups.

    Parameters
    ----------
    findings : all findings
    estimate : function that returns the estimates of the given findings, including their macro

    Raises
    ------
    ArgumentError
        If a group is empty, has a reserved name, or has a finding that is not among `findings`.
    """
    checked = {} if groups is None else check_finding_groups(groups, findings)
    return {name: [one for one in estimate(members) if one.finding == MACRO] for name, members in checked.items()}
