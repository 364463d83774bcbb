"""Scores of groups of patients, such as women and men, and each group's difference from all other patients.

Groups consist of patients (:mod:`reveal_bench.analyses.patient_groups`). Each group has the macro and the score of
every finding, with the intervals that `score` prints for these patients. The difference from the rest has a p and an
interval that are adjusted for all groups (:mod:`reveal_bench.analyses.group_differences`). Proportions of right
answers also have an odds ratio (:mod:`reveal_bench.analyses.odds_ratio`), which is not adjusted for several groups.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from reveal_bench.analyses.group_differences import GroupDifferences, differ_from_rest
from reveal_bench.analyses.odds_ratio import odds_ratio
from reveal_bench.analyses.patient_groups import MISSING, group_order
from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, IntArray
from reveal_bench.evaluation.compare import own_interval
from reveal_bench.kinds.scored import Rows
from reveal_bench.metrics.bootstrap import MACRO, bounds_of, estimates_from
from reveal_bench.metrics.intervals import UNDEFINED, Estimate, Resampling
from reveal_bench.metrics.resampled import Resampled

PROPORTIONS = ("point_hit", "grid_hit", "recall", "specificity", "precision", "npv")
"""Metrics with odds ratios: proportions of right answers among cases."""
_WITHOUT_TEST = ("average_precision",)


@dataclass(frozen=True, slots=True)
class Subgroup:
    """Scores of one group of patients by one metric and finding.

    Attributes
    ----------
    by, group : the column, or several joined by ", ", and the value
    metric, finding : name of the metric; a finding, or "macro"
    n : number of patients with a case that counts
    estimate : the group's score
    difference : the group's score minus that of all other patients; for a macro, over the findings that enough patients
        of both sides support
    n_compared : number of findings in the difference of macros; 0 for a finding or without a difference
    p : p of the difference, adjusted for all groups; for a finding, adjusted for all groups and findings
    odds_ratio : odds of a right answer in the group divided by the odds in all other patients, not adjusted for several
        groups; NaN for a macro, and for metrics that are not in :data:`PROPORTIONS`
    flag : reason why the score has no interval or the difference no p; empty if they have
    """

    by: str
    group: str
    metric: str
    finding: str
    n: int
    estimate: Estimate
    difference: Estimate = UNDEFINED
    p: float = math.nan
    odds_ratio: Estimate = UNDEFINED
    flag: str = ""
    n_compared: int = 0


def score_subgroups(
    rows: Rows,
    groupings: Mapping[str, Mapping[str, str]],
    metrics: Sequence[str],
    resampling: Resampling = Resampling(),
) -> list[Subgroup]:
    """Score every group of patients by every metric: the macro and every finding.

    Parameters
    ----------
    groupings : column -> patient -> group, as returned by
        :func:`~reveal_bench.analyses.patient_groups.group_patients`
    metrics : metrics that apply to `rows`
    resampling : method of the intervals of scores, over patients

    Returns
    -------
    list of Subgroup, ordered by metric, column, finding (the macro first) and group; "several" and "missing" come last

    Raises
    ------
    ArgumentError
        If a metric does not apply.
    """
    for metric in metrics:
        if metric not in rows.metrics():
            raise ArgumentError("metric", f"must be one of {', '.join(rows.metrics())}", repr(metric))
    patients = sorted(rows.patients())
    names = [
        (by, name) for by, group_of in groupings.items() for name in sorted(set(group_of.values()), key=group_order)
    ]
    masks = np.array([[groupings[by].get(patient, MISSING) == name for patient in patients] for by, name in names])
    once = Resampling(1)
    whole = _score_part(rows, patients, metrics, once)
    inside = [_score_part(rows, _select(patients, mask), metrics, resampling) for mask in masks]
    outside = [_score_part(rows, _select(patients, ~mask), metrics, once) for mask in masks]
    order = list(groupings)
    scored: list[Subgroup] = []
    for metric in metrics:
        sides = [(_of_metric(own, metric), _of_metric(rest, metric)) for own, rest in zip(inside, outside, strict=True)]
        blocks = [
            list(_describe(rows, name, metric, *pair, resampling)) for name, pair in zip(names, sides, strict=True)
        ]
        if whole is not None:
            blocks = _with_differences(rows, blocks, sides, whole[metric], masks)
        by_finding = [one for column in zip(*blocks, strict=True) for one in column]
        scored += sorted(by_finding, key=lambda one: order.index(one.by))
    return scored


def _of_metric(part: Mapping[str, Resampled] | None, metric: str) -> Resampled | None:
    return None if part is None else part[metric]


def _in_macro(rows: Rows) -> BoolArray:
    """Return a bool array, True for the findings that the macro averages."""
    return np.isin(rows.groups, rows.macro_over(rows.groups))


def _with_differences(
    rows: Rows,
    blocks: Sequence[Sequence[Subgroup]],
    sides: Sequence[tuple[Resampled | None, Resampled | None]],
    whole: Resampled,
    masks: BoolArray,
) -> list[list[Subgroup]]:
    """Return the subgroups of one metric with their differences from all other patients."""
    metric = blocks[0][0].metric
    low, high = bounds_of(metric)
    differences = differ_from_rest(
        [own for own, _ in sides],
        [rest for _, rest in sides],
        whole,
        masks=masks,
        averaged=_in_macro(rows),
        widest=high - low,
        with_test=metric not in _WITHOUT_TEST,
    )
    return [
        [_with_difference(one, differences, (i, k)) for k, one in enumerate(block)] for i, block in enumerate(blocks)
    ]


def _select(patients: Sequence[str], mask: BoolArray) -> list[str]:
    return [patient for patient, is_in in zip(patients, mask, strict=True) if is_in]


def _score_part(
    rows: Rows, patients: Collection[str], metrics: Sequence[str], resampling: Resampling
) -> Mapping[str, Resampled] | None:
    """Return metric -> scores of the given patients; None if these patients have no case."""
    part = rows.of_patients(patients)
    return part.resample([part], resampling, metrics=metrics, groups=rows.groups)[0] if len(part) else None


def _describe(
    rows: Rows,
    group: tuple[str, str],
    metric: str,
    own: Resampled | None,
    rest: Resampled | None,
    resampling: Resampling,
) -> Iterator[Subgroup]:
    """Yield the scores of one group, the macro first, without differences."""
    findings, averaged = (MACRO, *rows.groups), _in_macro(rows)
    if own is None:
        yield from (Subgroup(*group, metric, finding, 0, UNDEFINED) for finding in findings)
        return
    printed, in_macro = own_interval(rows, own, resampling.interval), np.flatnonzero(averaged)
    recipe = resampling.by(printed).signature(metric)
    asked = printed if printed == "shifted" else resampling.interval
    estimates = estimates_from(own, rows.groups, recipe=recipe, interval=asked, averaged=in_macro)
    ratios = [UNDEFINED] * len(findings)
    if rest is not None and metric in PROPORTIONS:
        ratios[1:] = _odds_ratios(own, rest)
    n = _count_patients(own, averaged)
    for finding, size, estimate, ratio in zip(findings, n.tolist(), estimates, ratios, strict=True):
        yield Subgroup(*group, metric, finding, size, estimate, odds_ratio=ratio, flag=estimate.missing_interval)


def _count_patients(side: Resampled, averaged: BoolArray) -> IntArray:
    """Return the numbers of patients with a case, (1 + n_findings,): for any finding in the macro, then for each
    finding.
    """
    weights, parts = side.weights, side.ratio_parts()
    if weights is None:
        if parts is None:  # detection scores count images
            return np.append(side.n.max(initial=0), side.n)
        weights = parts[1]
    has_case = weights > 0
    return np.append(has_case[:, averaged].any(axis=1).sum(), has_case.sum(axis=0))


def _odds_ratios(own: Resampled, rest: Resampled) -> list[Estimate]:
    parts, others = own.ratio_parts(), rest.ratio_parts()
    if parts is None or others is None:
        return [UNDEFINED] * len(own.values)
    return [odds_ratio(*columns) for columns in zip(*(part.T for part in (*parts, *others)), strict=True)]


def _with_difference(one: Subgroup, differences: GroupDifferences, at: tuple[int, int]) -> Subgroup:
    estimate = Estimate(float(differences.values[at]), float(differences.low[at]), float(differences.high[at]))
    reason = one.flag or estimate.missing_interval
    n_compared = int(differences.n_averaged[at[0]]) if at[1] == 0 else 0
    return replace(one, difference=estimate, p=float(differences.p[at]), flag=reason, n_compared=n_compared)
