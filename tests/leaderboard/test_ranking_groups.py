"""Entries of teams that may be one: nothing that is said of two of them depends on how they overlap."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from reveal_leaderboard.release.ranking import compare_document, rank_document
from reveal_leaderboard.release.release import release
from scipy import stats

from tests.leaderboard.test_ranking import PAIRS, POLICY, SHOWN, cases, pointer, reader


@pytest.mark.parametrize("kind", ["cases", "studies"])
def test_entries_of_one_group_are_compared_by_released_figures_alone(kind: str) -> None:
    a: Any = pointer(0.8, 1) if kind == "cases" else reader(0.85, 1)
    b: Any = pointer(0.5, 2) if kind == "cases" else reader(0.6, 2)
    own, other = release(a, POLICY), release(b, POLICY)
    rows = compare_document(a, b, POLICY, paired=False)["rows"]
    assert len(rows) > 3
    p = []
    for row in rows:
        x, y = (score.figure(row["metric"], row["finding"]) for score in (own, other))
        below = math.sqrt((x.value - x.low) ** 2 + (y.high - y.value) ** 2)
        above = math.sqrt((x.high - x.value) ** 2 + (y.value - y.low) ** 2)
        assert row["low"] == pytest.approx(math.floor((row["value"] - below) * 100 + 1e-9) / 100, abs=1e-9)
        assert row["high"] == pytest.approx(math.ceil((row["value"] + above) * 100 - 1e-9) / 100, abs=1e-9)
        towards_none = below if row["value"] > 0 else above
        p.append(2 * stats.norm.sf(stats.norm.ppf(0.975) * abs(row["value"]) / towards_none))
    left, told = sorted(range(len(p)), key=p.__getitem__), set()
    while left and p[left[0]] <= 0.05 / len(left):
        told.add(left.pop(0))
    assert {i for i, row in enumerate(rows) if row["told_apart"]} == told
    assert told


@pytest.mark.parametrize("is_hit", [True, False])
def test_an_edit_within_a_group_has_the_interval_of_any_other(is_hit: bool) -> None:
    # Not even whether there is an interval says how many of the cases were scored differently.
    hits = pointer(0.6, 1).values["point_hit"].copy()
    hits[0], edited = 0.0, hits.copy()
    edited[0] = float(is_hit)
    rows = compare_document(cases(edited), cases(hits), POLICY, paired=False)["rows"]
    assert all(row["low"] < 0 < row["high"] and not row["told_apart"] for row in rows)


def test_inside_a_group_the_overlap_of_two_has_no_part_in_their_places() -> None:
    # The same two hit rates, once nested and once as far from each other as can be: paired, the first is told apart.
    low, nested, far = np.zeros((3, len(PAIRS)))
    for finding in SHOWN:
        own = [i for i, (_, of) in enumerate(PAIRS) if of == finding]
        half, more = len(own) // 2, len(own) // 2 + len(own) // 12
        low[own[:half]] = nested[own[:more]] = far[own[-more:]] = 1
    tiers_of = {}
    for name, other in (("nested", nested), ("far", far)):
        for groups in (None, {"a": "one", "b": "one"}, {"a": "one", "b": "two"}):
            entries = rank_document({"a": cases(other), "b": cases(low)}, POLICY, groups=groups)["entries"]
            tiers_of[name, str(groups and groups["b"])] = entries["b"]["tier"]
    assert (tiers_of["nested", "None"], tiers_of["nested", "two"]) == ("B", "B")
    assert {tiers_of[name, group] for name, group in tiers_of if group == "one"} == {"A"}
