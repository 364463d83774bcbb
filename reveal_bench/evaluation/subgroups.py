"""Scores of groups of patients, such as women and men, and each group's difference from all other patients.

Conventions
-----------
A column of the dataset folder gives the group of a row. Groups consist of patients: a patient whose rows have several
values is in the group "several", a patient whose rows have no value in "missing". So a group and the rest share no
patient, and their difference has the variance ``se_group**2 + se_rest**2`` of two independent samples, with the
jackknife's standard errors of each (:mod:`reveal_bench.metrics.jackknife`). The subtracted macros are over the findings
that both sides have; the group's own macro is over all its findings.

p and interval hold for all groups of the column together. Patients are randomly assigned to groups of the same sizes,
and p is the proportion of permutations in which the largest Welch statistic of any group is at least the group's own.
The statistic that 5 % of the permutations reach is the half-length of the interval in standard errors, so the interval
excludes 0 exactly if p is at most 0.05. The permuted values are the patients' contributions to the macro of the whole
split, the pseudo-values ``n value - (n - 1) left_out``. Sign flips do not suit unpaired groups. Student's t with
Holm's correction found differences between four equal groups of hits in 0.069 of trials. The permutations are exact if
groups do not differ, and the statistic uses each group's own variance, because groups may vary unequally.

Only n and the value are given if fewer than :data:`~reveal_bench.metrics.jackknife.LEAST_UNITS` patients are on either
side.

Sources: Welch (1947), Biometrika 34; permutation of studentized statistics as in Janssen (1997), Stat. Probab. Lett.
36; maxima as in Westfall and Young, Resampling-Based Multiple Testing (1993).
"""

from __future__ import annotations

import bisect
import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.evaluation.permutation import ALPHA
from reveal_bench.kinds.folder import read_rows, split_shards
from reveal_bench.kinds.scored import Rows
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import bounds_of, intervals_of, macro_first
from reveal_bench.metrics.intervals import UNDEFINED, Estimate, Resampling
from reveal_bench.metrics.jackknife import (
    LEAST_UNITS,
    Evidence,
    evidence_of_groups,
    spread,
)
from reveal_bench.metrics.resampled import Resampled

MISSING, SEVERAL = "missing", "several"
"""Names of the groups of patients whose rows have no value, and whose rows have several values."""
N_DEALS = 2000
"""Number of random permutations of patients over groups, for p."""
_SAME = 1e-9
_MOST_GROUPS = 30
_NO_GROUPS = ("_id", "_ids", "_sha256", "labels", "label_vector")  # endings of columns that say who, or the answer


@dataclass(frozen=True, slots=True)
class Subgroup:
    """Patients of one group on one metric.

    Attributes
    ----------
    by, group, metric : name of the column, its value, name of the metric
    n : number of patients with a case
    estimate : the group's macro
    difference : the group's macro minus that of all other patients
    p : p of the difference, for all groups of the column together
    """

    by: str
    group: str
    metric: str
    n: int
    estimate: Estimate
    difference: Estimate
    p: float


def groups_of_column(
    folder: Path, config: str, split: str, column: str, bands: Sequence[float] | None = None
) -> dict[str, str]:
    """Return the group of each patient, from a column of the rows of a split.

    Parameters
    ----------
    bands : rising limits that cut a column of numbers: 40 and 65 make "below 40", "40 to below 65", "65 or more"

    Raises
    ------
    ArgumentError
        If the column is missing or unsuitable for groups, or the bands do not fit it.
    """
    from datasets import Features
    from pyarrow import parquet

    limits = _limits(bands)
    shards = split_shards(folder, config, split)
    features = Features.from_arrow_schema(parquet.read_schema(shards[0]))
    plain = {name: _names_of(feature) for name, feature in features.items() if not name.endswith(_NO_GROUPS)}
    useful = {name: names for name, names in plain.items() if names is not None}
    if column not in useful:
        known = ", ".join(useful)
        raise ArgumentError("by", f"must be a column of the dataset folder: {known}", repr(column))
    if limits and useful[column]:
        raise ArgumentError("bands", f"needs a column of numbers, {column} has names", ", ".join(useful[column]))
    values: dict[str, set[str]] = defaultdict(set)
    for row in (row for shard in shards for row in read_rows(shard, ["patient_id", column])):
        own = values[row["patient_id"]]
        for value in row[column] if isinstance(row[column], list) else [row[column]]:
            if value is not None and value != "":
                own.add(_banded(column, value, limits) if limits else _named(value, useful[column] or ()))
    groups = {patient: MISSING if not own else SEVERAL if len(own) > 1 else min(own) for patient, own in values.items()}
    if len(set(groups.values())) > _MOST_GROUPS:
        rule = f"must have at most {_MOST_GROUPS} different values, or be cut by `bands`"
        raise ArgumentError("by", rule, f"{column}, which has {len(set(groups.values()))}")
    return groups


def _limits(bands: Sequence[float] | None) -> list[float]:
    if bands is None:
        return []
    limits = list(bands)
    numbers = all(isinstance(one, Real) and not isinstance(one, bool) and math.isfinite(one) for one in limits)
    if not limits or not numbers or limits != sorted(set(limits)):
        raise ArgumentError("bands", "must be numbers that rise, such as 40,65", repr(bands))
    return limits


def _names_of(feature: Any) -> Sequence[str] | None:
    """Return the names of a column of codes, an empty list for other plain columns, None for unsuitable columns."""
    from datasets import ClassLabel, List, Value

    inner = feature.feature if isinstance(feature, List) else feature
    if isinstance(inner, ClassLabel):
        return list(inner.names)
    return () if isinstance(inner, Value) else None


def _named(value: Any, names: Sequence[str]) -> str:
    return (
        names[value] if names else {True: "yes", False: "no"}.get(value, "") if isinstance(value, bool) else str(value)
    )


def _banded(column: str, value: Any, limits: Sequence[float]) -> str:
    if isinstance(value, bool | str):
        raise ArgumentError("bands", f"needs a column of numbers, {column} has others", repr(value))
    at = bisect.bisect_right(limits, value)
    if at == 0:
        return f"below {limits[0]:g}"
    return f"{limits[at - 1]:g} or more" if at == len(limits) else f"{limits[at - 1]:g} to below {limits[at]:g}"


def _without_jackknife(rows: Rows, by: str, metric: str) -> ArgumentError:
    having = [
        name for name in rows.metrics() if (one := _figures(rows, rows.patients(), name)) and one.left_out() is not None
    ]
    if having:
        return ArgumentError("metric", f"must have an interval by the jackknife: {', '.join(having)}", repr(metric))
    rule = (
        f"must be left out for a benchmark of {rows.kind}: groups need intervals by the jackknife, which no metric has"
    )
    return ArgumentError("by", rule, repr(by))


def score_subgroups(rows: Rows, by: str, groups: Mapping[str, str], metric: str) -> list[Subgroup]:
    """Score every group of patients on one metric, by name; "several" and "missing" come last.

    Raises
    ------
    ArgumentError
        If the metric does not apply, or has no interval by the jackknife.
    """
    if metric not in rows.metrics():
        raise ArgumentError("metric", f"must be one of {', '.join(rows.metrics())}", repr(metric))
    names = sorted(set(groups.values()), key=_place)
    rows_by_group, statistics = [], []
    for name in names:
        inside = frozenset(patient for patient, group in groups.items() if group == name)
        sides = [_figures(rows, part, metric) for part in (inside, rows.patients() - inside)]
        if any(side is not None and side.left_out() is None for side in sides):
            raise _without_jackknife(rows, by, metric)
        one, statistic = _subgroup(by, name, metric, *sides)
        rows_by_group.append(one)
        statistics.append(abs(statistic))
    tested = [i for i, statistic in enumerate(statistics) if statistic == statistic]
    whole = _figures(rows, rows.patients(), metric)
    if not tested or whole is None:
        return rows_by_group
    maxima = _largest_of_deals(_pseudo_values(whole, metric), [one.n for one in rows_by_group], tested)
    # p is above 0.05 as soon as this many permutations are at least as extreme
    critical = np.sort(maxima)[-int(ALPHA * (1 + N_DEALS))]
    for i in tested:
        extreme = int((maxima >= statistics[i] - _SAME).sum())
        p = (1 + extreme) / (1 + N_DEALS)
        rows_by_group[i] = replace(rows_by_group[i], p=p, difference=_rescaled(rows_by_group[i].difference, critical))
    return rows_by_group


def _rescaled(difference: Estimate, critical: float) -> Estimate:
    """Return the interval of a difference whose bounds are one standard error away, from the critical statistic."""
    if not math.isfinite(critical):
        return Estimate(difference.value)
    centre, error = (difference.low + difference.high) / 2, (difference.high - difference.low) / 2
    reach = (critical + _SAME) * error
    return Estimate(difference.value, centre - reach, centre + reach)


def _pseudo_values(whole: Resampled, metric: str) -> FloatArray:
    """Return the contribution to the macro of each patient with a case."""
    values, evidence, _ = _evidence(whole, metric, ~np.isnan(whole.values))
    weights = whole.weights
    assert weights is not None
    left_out, n = evidence.left_out[weights.any(axis=1), 0], int(weights.any(axis=1).sum())
    pseudo_values: FloatArray = n * values[0] - (n - 1) * left_out
    return pseudo_values


def _largest_of_deals(contributed: FloatArray, sizes: Sequence[int], tested: Sequence[int]) -> FloatArray:
    """Return the largest absolute Welch statistic of the tested groups in every permutation, (N_DEALS,)."""
    rng = np.random.default_rng(0)
    centred = contributed - contributed.mean()
    largest = np.zeros(N_DEALS)
    ends = np.cumsum(sizes)
    dealt = rng.permuted(np.tile(centred, (N_DEALS, 1)), axis=1)
    for i in tested:
        inside = np.zeros(len(centred), bool)
        inside[ends[i] - sizes[i] : ends[i]] = True
        parts = [dealt[:, inside], dealt[:, ~inside]]
        variance = sum(part.var(axis=1, ddof=1) / part.shape[1] for part in parts)
        difference = np.abs(parts[0].mean(axis=1) - parts[1].mean(axis=1))
        statistic = np.divide(difference, np.sqrt(variance), out=np.full(N_DEALS, np.inf), where=variance > 0)
        largest = np.maximum(largest, statistic)
    return largest


def _place(name: str) -> tuple[bool, bool, float, str]:
    """Return the sort key of a group: bands by their numbers, then names, then "several" and "missing"."""
    number = re.match(r"-?\d+(\.\d+)?", name)
    return name in (MISSING, SEVERAL), not name.startswith("below "), float(number[0]) if number else math.inf, name


def _figures(rows: Rows, patients: Collection[str], metric: str) -> Resampled | None:
    part = rows.of_patients(patients)
    if len(part) == 0:
        return None
    over = part.macro_over(part.groups)
    return part.resample([part], Resampling(1), metrics=[metric], groups=over)[0][metric]


def _subgroup(
    by: str, name: str, metric: str, inside: Resampled | None, outside: Resampled | None
) -> tuple[Subgroup, float]:
    """Return a group without its p, and the Welch statistic of its difference, NaN without a test."""
    undefined = math.nan
    empty = Subgroup(by, name, metric, 0, UNDEFINED, UNDEFINED, undefined)
    if inside is None:
        return empty, undefined
    _, _, n = _evidence(inside, metric, ~np.isnan(inside.values))
    (estimate, *_) = intervals_of(inside, "jackknife", bounds=bounds_of(metric)).estimates()
    one = replace(empty, n=n, estimate=estimate if n >= LEAST_UNITS else Estimate(estimate.value))
    if outside is None:
        return one, undefined
    shared = ~np.isnan(inside.values) & ~np.isnan(outside.values)
    sides = [_evidence(side, metric, shared) for side in (inside, outside)]
    one = replace(one, difference=Estimate(float(sides[0][0][0] - sides[1][0][0])))
    if not shared.any() or not all(n >= LEAST_UNITS and evidence.enough[0] for _, evidence, n in sides):
        return one, undefined
    return _welch(one, sides)


def _welch(one: Subgroup, sides: Sequence[tuple[FloatArray, Evidence, int]]) -> tuple[Subgroup, float]:
    """Return a group with its difference, whose bounds are one standard error away, and the Welch statistic.

    Without a standard error above 0, the difference has no bounds and the statistic is NaN.
    """
    (bias, error, _), (bias_of_rest, error_of_rest, _) = (
        [float(column[0]) for column in spread(values, evidence)] for values, evidence, _ in sides
    )
    variance = error**2 + error_of_rest**2
    if variance == 0:
        return one, math.nan
    centre = one.difference.value - (bias - bias_of_rest)
    reach = math.sqrt(variance)
    difference = Estimate(one.difference.value, centre - reach, centre + reach)
    return replace(one, difference=difference), centre / math.sqrt(variance)


def _evidence(side: Resampled, metric: str, chosen: BoolArray) -> tuple[FloatArray, Evidence, int]:
    """Return the values of the macro over the chosen findings and of these findings, the evidence of their intervals,
    and the number of patients.
    """
    left_out, weights = side.left_out(), side.weights
    assert left_out is not None
    assert weights is not None
    behind = weights[:, chosen] > 0
    bounds = METRICS[metric].low, METRICS[metric].high
    evidence = evidence_of_groups(macro_first(left_out[:, chosen]), behind.sum(axis=0), bounds=bounds)
    return macro_first(side.values[chosen]), evidence, int(behind.any(axis=1).sum())
