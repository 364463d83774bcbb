"""Comparisons: a function of only two released scores."""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from reveal_leaderboard.boards.comparisons import compare_released
from reveal_leaderboard.release.release import ReleasedEstimate, ReleasedScore, release
from reveal_leaderboard.settings import ReleasePolicy
from reveal_leaderboard.web.pages.compare import compare_view
from scipy import stats

from reveal_bench.kinds import KINDS
from tests.leaderboard.test_board import entry
from tests.leaderboard.test_ranking import PAIRS, POLICY, cases, pointer, reader

LOCALIZATION, FINDINGS = "localization", "findings"


@pytest.mark.parametrize("kind", [LOCALIZATION, FINDINGS])
def test_comparison_uses_only_released_scores(kind: str) -> None:
    a: Any = pointer(0.8, 1) if kind == LOCALIZATION else reader(0.85, 1)
    b: Any = pointer(0.5, 2) if kind == LOCALIZATION else reader(0.6, 2)
    own, other = release(a, POLICY), release(b, POLICY)
    document = compare_released(own, other, kind, ids=("one", "two"))
    json.dumps(document, allow_nan=False)
    assert (document["schema"], document["kind"], document["a"], document["b"]) == (2, kind, "one", "two")
    rows = document["rows"]
    compared = [(figure.metric, figure.finding) for figure in own.figures if figure.metric != "grid_chance"]
    assert [(row["metric"], row["finding"]) for row in rows] == compared
    n_findings = sum(row["metric"] == rows[0]["metric"] and row["finding"] != "macro" for row in rows)
    for row in rows:
        x, y = (score.figure(row["metric"], row["finding"]) for score in (own, other))
        assert (row["a"], row["b"]) == (x.value, y.value)
        assert row["value"] == pytest.approx(x.value - y.value, abs=1e-9)
        tests = 1 if row["finding"] == "macro" else n_findings  # Bonferroni over the findings of a metric
        wider = stats.norm.isf(0.025 / tests) / stats.norm.isf(0.025)
        below = wider * math.sqrt((x.value - x.low) ** 2 + (y.high - y.value) ** 2)
        above = wider * math.sqrt((x.high - x.value) ** 2 + (y.value - y.low) ** 2)
        assert row["low"] == pytest.approx(row["value"] - below, abs=0.010001)
        assert row["high"] == pytest.approx(row["value"] + above, abs=0.010001)
    assert any(row["told_apart"] for row in rows)


def test_interval_and_word_on_the_page_agree_for_210_pairs() -> None:
    """The page prints no p, so a row says "yes" exactly if the interval that it prints excludes 0."""
    scores = [release(pointer(skill, i), POLICY) for i, skill in enumerate(np.linspace(0.3, 0.95, 21))]
    entries = [replace(entry(str(i), 0.5), score=score) for i, score in enumerate(scores)]
    words = []
    for a, b in combinations(entries, 2):
        document = compare_released(a.score, b.score, LOCALIZATION)
        markup = html.unescape(compare_view(document, a, b)).replace("−", "-")
        rows = re.findall(r'"rv-span"><.*?"rv-ci">(\S+) to (\S+)</span>.*?<td>(?:<b>)?(yes|no)\b', markup, re.DOTALL)
        rows += re.findall(r"A - B is \S+ points \((\S+) to (\S+)\), (not|significant)", markup)
        words += [word in ("yes", "significant") for *_, word in rows]
        assert len(rows) == 1 + len(document["rows"])
        assert [float(low) > 0 or float(high) < 0 for low, high, _ in rows] == words[-len(rows) :]
    assert 0.1 < np.mean(words) < 0.9


def test_no_difference_exceeds_the_scale_of_its_metric() -> None:
    labels = [f"finding {i}" for i in range(14)]

    def score(*figure: float) -> ReleasedScore:
        figures = tuple(ReleasedEstimate("point_hit", label, *figure, "60-119", "recipe") for label in labels)
        return ReleasedScore(figures, tuple(labels), (), "", {})

    # 0.9 + 1.5 sqrt(0.1^2 + 0.0^2) is 1.05 for 14 findings together
    (row, *_) = compare_released(score(0.9, 0.6, 1.0), score(0.0, 0.0, 0.3), LOCALIZATION)["rows"]
    assert (row["value"], row["high"], row["told_apart"]) == (0.9, 1.0, True)


@pytest.mark.parametrize("other", [1.0, 5.0])
def test_constant_scores_have_no_interval_and_do_not_differ_significantly(other: float) -> None:
    one, two = (
        ReleasedScore((ReleasedEstimate("rubric_mean", "macro", *[value] * 3, "60-119", "recipe"),), (), (), "", {})
        for value in (5.0, other)
    )
    (row,) = compare_released(one, two, "tasks")["rows"]
    assert (row["value"], row["low"], row["high"], row["told_apart"]) == (5 - other, None, None, False)


def test_swapping_the_systems_flips_every_sign() -> None:
    a, b = release(reader(0.85, 1), POLICY), release(reader(0.6, 2), POLICY)
    for one, other in zip(
        compare_released(a, b, FINDINGS)["rows"], compare_released(b, a, FINDINGS)["rows"], strict=True
    ):
        assert (one["value"], one["told_apart"]) == (-other["value"], other["told_apart"])
        assert (one["low"], one["high"]) == pytest.approx((-other["high"], -other["low"]))


@pytest.mark.parametrize("is_hit", [True, False])
def test_edited_submission_has_an_ordinary_interval(is_hit: bool) -> None:
    # The presence of an interval must not reveal how many cases were scored differently.
    hits = pointer(0.6, 1).values["point_hit"].copy()
    hits[0], edited = 0.0, hits.copy()
    edited[0] = float(is_hit)
    rows = compare_released(release(cases(edited), POLICY), release(cases(hits), POLICY), LOCALIZATION)["rows"]
    assert rows
    assert all(row["low"] < 0 < row["high"] and not row["told_apart"] for row in rows)


def test_equal_systems_do_not_differ_significantly() -> None:
    score = release(reader(0.8, 1), POLICY)
    for row in compare_released(score, score, FINDINGS)["rows"]:
        assert (row["value"], row["told_apart"]) == (0, False)


def test_score_without_an_interval_is_compared_without_one() -> None:
    score = release(reader(0.8, 1), POLICY)
    bare = replace(score, figures=tuple(replace(figure, low=None, high=None) for figure in score.figures))
    rows = compare_released(score, bare, FINDINGS)["rows"]
    assert rows
    assert {(row["low"], row["high"], row["told_apart"]) for row in rows} == {(None, None, False)}


def test_metric_of_only_one_system_is_not_compared() -> None:
    masks = cases(np.ones(len(PAIRS)), iou=np.full(len(PAIRS), 0.5))
    policy = replace(POLICY, place_cell=10)
    rows = compare_released(release(masks, policy), release(pointer(0.5, 1), policy), LOCALIZATION)["rows"]
    assert {row["metric"] for row in rows} == {"point_hit", "grid_hit"}


def test_nothing_released_is_nothing_compared() -> None:
    score = release(pointer(0.5, 1), ReleasePolicy(min_cell=1000))
    document = compare_released(score, score, LOCALIZATION)
    assert (document["rows"], document["note"]) == (
        [],
        "No score is released for both submissions, so nothing can be compared.",
    )


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_is_compared(kind: str) -> None:
    policy = ReleasePolicy(min_cell=1, bands=(1,), band_resolution=(0.01,), n_resamples=100)
    for rows in KINDS[kind].predictions.example_rows():
        score = release(rows, policy)
        compared = {row["metric"] for row in compare_released(score, score, kind)["rows"]}
        assert compared or not score.figures
        assert "cohen_kappa_quadratic" not in compared, "how far readers agree is not a merit of a system"
