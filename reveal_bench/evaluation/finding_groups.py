"""Macros over groups of findings: the groups of a dataset folder, and their scores, comparisons and rankings.

A group's macro averages only the findings of the group, in the estimates of
:meth:`~reveal_bench.kinds.scored.Rows.estimates`, in a comparison and in a ranking. It uses the same replicates as the
macro of all findings. In tables, the macro of group NAME is called "macro NAME".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.compare import Comparison, RankedSystem, rank
from reveal_bench.evaluation.compare import compare as compare_rows
from reveal_bench.findings import FindingGroups
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.finding_groups import (
    PREVALENCE,
    count_positives,
    groups_by_prevalence,
    parse_finding_groups,
)
from reveal_bench.kinds.folder import OpenFolder, split_shards
from reveal_bench.kinds.scored import Rows
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Estimate, Resampling


def resolve_finding_groups(inputs: Any, folder: OpenFolder) -> dict[str, tuple[str, ...]]:
    """Return name -> findings for the groups that a user asked for in a dataset folder.

    Raises
    ------
    ValueError
        If the benchmark has no findings, or for the reasons of
        :func:`~reveal_bench.kinds.finding_groups.parse_finding_groups`.
    """
    info = folder.info
    if not info.findings:
        raise ArgumentError("finding_groups", f"must be left out for {info.benchmark}, which asks for no findings")
    groups = parse_finding_groups(inputs, info.findings)
    return _by_prevalence(folder) if isinstance(groups, str) else groups


def _by_prevalence(folder: OpenFolder) -> dict[str, tuple[str, ...]]:
    kind, info = KINDS[folder.info.kind], folder.info
    public = [split for split in info.splits if split_shards(folder, kind.config, split)]
    if not public:
        rule = f"must not be {PREVALENCE!r} for a folder without references, such as {folder}"
        raise ArgumentError("finding_groups", rule)
    records = [record for split in public for record in kind.data.read_records(folder, split)]
    return groups_by_prevalence(*count_positives(records, info.findings))


def named_macros(macros: Mapping[str, Sequence[Estimate]]) -> list[Estimate]:
    """Return the macros of :meth:`Rows.group_macros` ordered by metric; the macro of group "tail" is called "macro
    tail".
    """
    named = [replace(one, finding=f"{MACRO} {name}") for name, estimates in macros.items() for one in estimates]
    order = list(dict.fromkeys(one.metric for one in named))
    return sorted(named, key=lambda one: order.index(one.metric))


def compare_groups(
    a: Rows, b: Rows, groups: FindingGroups, resampling: Resampling, comparisons: Sequence[Comparison], **options: Any
) -> list[Comparison]:
    """Return `comparisons` with the macro of every group inserted after the macro of each metric.

    Parameters
    ----------
    comparisons : result of :func:`~reveal_bench.evaluation.compare.compare` for all findings
    options : keyword arguments of that function
    """
    added = {
        name: {one.metric: one for one in compare_rows(a, b, resampling, findings=findings, **options)
               if one.finding == MACRO}
        for name, findings in groups.items()
    }  # fmt: skip
    extended = []
    for one in comparisons:
        extended.append(one)
        if one.finding == MACRO:
            extended += [replace(macros[one.metric], finding=f"{MACRO} {name}") for name, macros in added.items()]
    return extended


def rank_groups(
    systems: Mapping[str, Rows], groups: FindingGroups, *, metric: str, resampling: Resampling
) -> dict[str, list[RankedSystem]]:
    """Return group -> systems ranked by the group's macro, without groups that have no finding in common for all
    systems.
    """
    by_group = {}
    for name, findings in groups.items():
        try:
            by_group[name] = rank(systems, metric=metric, findings=findings, resampling=resampling)
        except ArgumentError as error:
            if error.argument != "systems":
                raise
    return by_group
