"""The board as data and as HTML, from scores put into the store directly."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from reveal_leaderboard.pages import board as board_page
from reveal_leaderboard.pages.drawing import lint_view
from reveal_leaderboard.release import POLICY, Figure, ReleasedScore
from reveal_leaderboard.standings import Standings, standings, to_csv, to_json
from reveal_leaderboard.store import NewSubmission, Store

from reveal_bench.predictions import LintReport, Problem
from tests.leaderboard.conftest import BENCHMARK, METADATA, RARE, Board

XSS = '<img src=x onerror="alert(1)">'


def score(value: float | None, *, metrics: tuple[str, ...] = ("point_hit", "grid_hit")) -> ReleasedScore:
    figures = [
        Figure(metric, finding, value, value - 0.05, value + 0.05, "30-59", f"{metric}|b:1000")
        for metric in metrics
        for finding in ("macro", "Edema")
        if value is not None
    ]
    return ReleasedScore(tuple(figures), ("Edema",), (RARE,), "note", {"min_cell": POLICY.min_cell})


class Scores:
    """A store into which scores can be put."""

    def __init__(self, root: Path, board: Board) -> None:
        self.store, self.board = Store(f"sqlite:///{root / 'board.sqlite'}"), board

    def add(self, name: str, value: float | None, *, team: str = "Team", **options: tuple[str, ...]) -> None:
        manifest = self.board.manifest
        new = NewSubmission(
            benchmark=BENCHMARK,
            version=manifest.version,
            split=manifest.split,
            team=team,
            model_name=name,
            kind="cnn",
            prompt_style=None,
            metadata=METADATA,
            filename="p",
            sha256=name,
            size=1,
        )
        self.store.add_submission(new, who="test")
        claimed = self.store.claim("w", served=[(BENCHMARK, manifest.version)])
        assert claimed is not None
        released = score(value, **options).to_json()
        assert self.store.finish(
            claimed.id, claimed.fence, who="w", released=released, signature="s", reference_hash="h"
        )

    def standings(self) -> Standings:
        return standings(self.store, self.board.published)


@pytest.fixture
def scores(tmp_path: Path, board: Board) -> Scores:
    return Scores(tmp_path, board)


def test_equal_figures_share_a_rank_and_an_unscored_row_comes_last(scores: Scores) -> None:
    for name, value in (("low", 0.3), ("none", None), ("high", 0.6), ("also high", 0.6)):
        scores.add(name, value)
    ranks = [(entry.model, entry.rank) for entry in scores.standings().entries]
    assert ranks == [("high", 1), ("also high", 1), ("low", 3), ("none", None)]


def test_a_board_shows_percents_intervals_and_what_is_hidden(scores: Scores) -> None:
    scores.add("Model A", 0.6)
    html = board_page.render(scores.standings(), "Hit rate")
    assert '<span class="rv-value">60</span><span class="rv-ci">55–65</span>' in html
    assert 'title="fewer than 30 cases: not shown">–' in html
    assert "higher is better" in html
    assert f"Here: {RARE}." in html


def test_a_metric_that_the_file_had_nothing_for_is_not_available(scores: Scores) -> None:
    scores.add("Points only", 0.6)
    html = board_page.render(scores.standings())
    assert 'title="the file has nothing that this metric needs">n/a' in html


def test_an_empty_board_says_so(scores: Scores) -> None:
    assert "No submission is scored yet" in board_page.render(scores.standings())


def test_reference_rows_stand_apart_unranked_with_their_source(scores: Scores) -> None:
    scores.add("Model A", 0.1)
    html = board_page.render(replace(scores.standings(), synthetic=False, comparable=True))
    assert "for reference, not ranked" in html
    assert "Saporta et al. 2022" in html
    assert html.count("Human benchmark") == 1  # the row that repeats it is left out


@pytest.mark.parametrize(("synthetic", "name"), [(True, "this synthetic benchmark"), (False, "other-bench")])
def test_on_other_data_the_published_rows_are_called_not_comparable(scores: Scores, synthetic: bool, name: str) -> None:
    scores.add("Model A", 0.1)
    other = scores.standings()
    assert (other.synthetic, other.comparable) == (True, False)
    if not synthetic:
        other = replace(other, benchmark="other-bench", synthetic=False)
    html = board_page.render(other)
    before, after = html.split("<details", 1)
    assert ("synthetic" in before) is synthetic
    assert "Human benchmark" not in before
    assert f"not comparable with {name}" in after
    assert to_json(other)["references"] == []
    assert "Human benchmark" not in to_csv(other)


def test_exports_hold_the_reference_rows_of_the_real_benchmark(scores: Scores) -> None:
    real = replace(scores.standings(), synthetic=False, comparable=True)
    rows = list(csv.DictReader(io.StringIO(to_csv(real))))
    human = next(row for row in rows if row["model"] == "Human benchmark" and row["finding"] == "Pneumothorax")
    assert (human["rank"], human["kind"]) == ("", "human")
    assert "Human benchmark" in [row["name"] for row in to_json(real)["references"]]


def test_texts_of_submitters_are_escaped_everywhere(scores: Scores) -> None:
    scores.add(XSS, 0.6, team=XSS)
    for view in board_page.VIEWS:
        html = board_page.render(scores.standings(), view)
        assert XSS not in html
        assert "&lt;img" in html
    problem = Problem("error", XSS, 3, XSS, XSS, XSS, XSS, XSS)
    report = LintReport(XSS, XSS, 1, (problem,), (), (), {XSS: {XSS: 1}})
    assert XSS not in lint_view(report)


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "\tx"])
def test_csv_cells_are_no_formulas(scores: Scores, name: str) -> None:
    scores.add(name, 0.6)
    rows = list(csv.DictReader(io.StringIO(to_csv(scores.standings()))))
    assert rows[0]["model"] == f"'{name}"
    assert rows[0]["value"] == "0.6"
