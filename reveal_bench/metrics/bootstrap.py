"""Intervals by resampling patients, and the :class:`Estimate` that carries a number with its evidence.

Conventions
-----------
Values are per-case rows, shape (n_cases,), float, NaN where undefined. `groups` maps each case to the finding it
belongs to and `units` to the patient (or image) that is resampled, both as integer codes from 0. One draw of resampling
counts, shape (n_resamples, n_units), serves every finding, metric and system, so that macros and paired differences
come from the same replicates. Units without any defined row are drawn too (papers 000 and 002: all images).

Source: percentile bootstrap with 1,000 replicates, as papers 000 (section 3.3) and 002 (Results); the unit there is the
image, here the patient unless asked otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "MACRO",
    "BootstrapMeans",
    "Estimate",
    "as_result",
    "bootstrap_means",
    "estimate_cases",
    "estimate_means",
    "percentile_interval",
    "resampling_counts",
    "signature",
]

MACRO = "macro"
"""What stands for the finding in the Estimate of an unweighted mean over findings."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A score with its evidence.

    Attributes
    ----------
    metric : str
        Name in METRICS.
    finding : str
        Finding, or "macro" for the unweighted mean over findings.
    value, low, high : float
        Point estimate on the data and the ends of its 95 % interval; NaN where undefined.
    n : int
        Defined rows behind a finding; findings behind a macro.
    n_undefined : int
        Rows (for a macro: findings) left out because they are undefined.
    n_empty_replicates : int
        Replicates left out because they held no defined row (for a macro: no defined finding).
    signature : str
        Recipe of the number, such as ``point_hit|b:1000|seed:0|unit:patient|v:1``.
    """

    metric: str
    finding: str
    value: float
    low: float
    high: float
    n: int
    n_undefined: int
    n_empty_replicates: int
    signature: str


@dataclass(frozen=True)
class BootstrapMeans:
    """Means per finding, and their macro, on the data and in every replicate.

    Attributes
    ----------
    values : float array (n_groups,), replicates : float array (n_resamples, n_groups)
        Mean over defined rows; NaN where there is none.
    n, n_undefined : int arrays (n_groups,)
    """

    values: FloatArray
    replicates: FloatArray
    n: IntArray
    n_undefined: IntArray

    def macro(self) -> tuple[float, FloatArray]:
        """Unweighted mean over the groups that are defined: on the data, and per replicate."""
        return float(_nanmean(self.values)), _nanmean(self.replicates)


def _nanmean(values: FloatArray) -> FloatArray:
    defined = ~np.isnan(values)
    count = defined.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        mean: FloatArray = np.where(defined, values, 0.0).sum(axis=-1) / np.where(count == 0, np.nan, count)
    return mean


def resampling_counts(n_units: int, *, n_resamples: int = 1000, seed: int = 0) -> FloatArray:
    """How often each unit is drawn in each replicate.

    The draws are ``default_rng(seed).integers(0, n_units, (n_resamples, n_units))``; row b holds their counts.

    Returns
    -------
    float array (n_resamples, n_units), whole numbers; each row sums to n_units

    Raises
    ------
    ValueError
        If n_units or n_resamples is below 1.

    Examples
    --------
    >>> resampling_counts(3, n_resamples=2, seed=0).sum(axis=1).tolist()
    [3.0, 3.0]
    """
    if n_units < 1 or n_resamples < 1:
        raise ValueError(f"`n_units` and `n_resamples` must be at least 1, got {n_units} and {n_resamples}")
    draws = np.random.default_rng(seed).integers(0, n_units, (n_resamples, n_units))
    flat = draws + np.arange(n_resamples)[:, None] * n_units
    return np.bincount(flat.ravel(), minlength=n_resamples * n_units).reshape(n_resamples, n_units).astype(np.float64)


def bootstrap_means(
    values: FloatArray, groups: IntArray, units: IntArray, *, n_groups: int, counts: FloatArray
) -> BootstrapMeans:
    """Mean of `values` per group, on the data and in every replicate of `counts`.

    Parameters
    ----------
    values : float array (n_cases,), NaN = undefined, infinities refused
    groups : int array (n_cases,), in [0, n_groups)
    units : int array (n_cases,), in [0, counts.shape[1])
    counts : float array (n_resamples, n_units), from :func:`resampling_counts`

    Raises
    ------
    ValueError
        If lengths differ, a code is out of range, or a value is infinite.
    """
    n_units = counts.shape[1]
    _check_codes("groups", groups, len(values), n_groups)
    _check_codes("units", units, len(values), n_units)
    if np.isinf(values).any():
        raise ValueError(f"`values` must be finite or NaN, got {values[np.isinf(values)][0]}")
    defined = ~np.isnan(values)
    cells = units[defined] * n_groups + groups[defined]
    shape = (n_units, n_groups)
    sums = np.bincount(cells, weights=values[defined], minlength=n_units * n_groups).reshape(shape)
    rows = np.bincount(cells, minlength=n_units * n_groups).reshape(shape).astype(np.float64)
    with np.errstate(invalid="ignore"):
        replicates = (counts @ sums) / (counts @ rows)
        means = sums.sum(axis=0) / rows.sum(axis=0)
    n = rows.sum(axis=0).astype(np.int64)
    n_undefined = np.bincount(groups, minlength=n_groups) - n
    return BootstrapMeans(means, replicates, n, n_undefined)


def _check_codes(name: str, codes: IntArray, n_cases: int, limit: int) -> None:
    if len(codes) != n_cases:
        raise ValueError(f"`{name}` must have the length of `values` ({n_cases}), got {len(codes)}")
    if len(codes) and (codes.min() < 0 or codes.max() >= limit):
        raise ValueError(f"`{name}` must lie in [0, {limit}), got {codes.min()} to {codes.max()}")


def percentile_interval(replicates: FloatArray, *, level: float = 0.95) -> tuple[float, float, int]:
    """(low, high, number of undefined replicates) of the central `level` of the defined replicates.

    Linear interpolation between order statistics. NaN, NaN when no replicate is defined.
    """
    defined = replicates[~np.isnan(replicates)]
    n_empty = len(replicates) - len(defined)
    if len(defined) == 0:
        return float("nan"), float("nan"), n_empty
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(defined, [tail, 100 - tail])
    return float(low), float(high), n_empty


def signature(metric: str, version: int, *, n_resamples: int, seed: int, unit: str) -> str:
    """Recipe of an Estimate.

    Examples
    --------
    >>> signature("point_hit", 1, n_resamples=1000, seed=0, unit="patient")
    'point_hit|b:1000|seed:0|unit:patient|v:1'
    """
    return f"{metric}|b:{n_resamples}|seed:{seed}|unit:{unit}|v:{version}"


def estimate_means(
    values: FloatArray,
    case_findings: Sequence[str],
    case_units: Sequence[str],
    *,
    findings: Sequence[str],
    units: Sequence[str],
    counts: FloatArray,
    recipe: str,
) -> list[Estimate]:
    """Macro and mean per finding with percentile intervals.

    Parameters
    ----------
    values : float array (n_cases,), NaN = undefined
    case_findings, case_units : names (n_cases,); cases of findings that are not in `findings` take no part
    findings : findings to report, in order; the macro is over these alone
    units : names of all resampled units, those without cases included; `counts` has a column for each
    counts : float array (n_resamples, n_units), from :func:`resampling_counts`
    recipe : from :func:`signature`; its first part names the metric

    Returns
    -------
    list of Estimate: the macro, then one per finding. A replicate in which a finding has no defined row is left out for
    that finding; a macro replicate averages the findings it has.

    Raises
    ------
    ValueError
        If the lengths differ or a case belongs to a unit that is not in `units`.
    """
    for name, codes in (("case_findings", case_findings), ("case_units", case_units)):
        if len(codes) != len(values):
            raise ValueError(f"`{name}` must have the length of `values` ({len(values)}), got {len(codes)}")
    unit_code = {unit: i for i, unit in enumerate(units)}
    strangers = sorted(set(case_units) - set(unit_code))
    if strangers:
        raise ValueError(f"`units` must hold every unit of `case_units`, {strangers[0]!r} is missing")
    code = {finding: i for i, finding in enumerate(findings)}
    kept = np.array([finding in code for finding in case_findings], bool)
    groups = np.array([code[finding] for finding in case_findings if finding in code], np.int64)
    of_case = np.array([unit_code[unit] for unit in case_units], np.int64)
    means = bootstrap_means(values[kept], groups, of_case[kept], n_groups=len(code), counts=counts)

    metric = recipe.split("|", 1)[0]
    value, replicates = means.macro()
    low, high, n_empty = percentile_interval(replicates)
    n_defined = int((~np.isnan(means.values)).sum())
    estimates = [Estimate(metric, MACRO, value, low, high, n_defined, len(code) - n_defined, n_empty, recipe)]
    for finding, i in code.items():
        low, high, n_empty = percentile_interval(means.replicates[:, i])
        n, n_undefined = int(means.n[i]), int(means.n_undefined[i])
        estimates.append(Estimate(metric, finding, float(means.values[i]), low, high, n, n_undefined, n_empty, recipe))
    return estimates


def estimate_cases(
    metric: str,
    version: int,
    values: FloatArray,
    *,
    findings: Sequence[str] | None = None,
    patients: Sequence[str] | None = None,
    all_patients: Sequence[str] | None = None,
    n_resamples: int = 1000,
    seed: int = 0,
) -> list[Estimate]:
    """:func:`estimate_means` for values that come without a dataset around them.

    Parameters
    ----------
    findings : a name per case; one finding "all" by default
    patients : a name per case; every case its own patient by default
    all_patients : every patient of the split, when some have no case

    Raises
    ------
    ValueError
        If there is no case, or the lengths differ.
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
        counts=resampling_counts(len(units), n_resamples=n_resamples, seed=seed),
        recipe=signature(metric, version, n_resamples=n_resamples, seed=seed, unit="patient"),
    )


def as_result(name: str, estimates: Sequence[Estimate]) -> dict[str, Any]:
    """Estimates as the flat dictionary that `evaluate` modules return: macro under `name`, then `per_finding`."""

    def figures(estimate: Estimate, key: str) -> dict[str, Any]:
        return {
            key: estimate.value,
            "low": estimate.low,
            "high": estimate.high,
            "n": estimate.n,
            "n_undefined": estimate.n_undefined,
        }

    macro, *rest = estimates
    per_finding = {estimate.finding: figures(estimate, "value") for estimate in rest}
    return {**figures(macro, name), "signature": macro.signature, "per_finding": per_finding}
