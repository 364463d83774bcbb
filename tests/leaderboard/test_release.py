"""What of a score leaves the worker."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from reveal_leaderboard.release import ReleasedScore, ReleasePolicy, release

from reveal_bench.scoring import CaseRows, score_localization
from tests.leaderboard.conftest import RARE, Board, guesses

COUNTS = {"A": 40, "B": 10, "C": 200}


def make_rows(values: Mapping[str, Mapping[str, Sequence[float]]]) -> CaseRows:
    """Rows of metric -> finding -> values; case i of every finding belongs to patient i."""
    first = next(iter(values.values()))
    cases = [(finding, i) for finding, numbers in first.items() for i in range(len(numbers))]
    n_patients = max(len(numbers) for numbers in first.values())
    return CaseRows(
        findings=tuple(first),
        image_ids=[f"i{i}" for _, i in cases],
        patient_ids=[f"p{i}" for _, i in cases],
        case_findings=[finding for finding, _ in cases],
        point_kinds=["point"] * len(cases),
        cell_kinds=["point"] * len(cases),
        values={
            metric: np.array([x for numbers in by_finding.values() for x in numbers], float)
            for metric, by_finding in values.items()
        },
        all_images=tuple((f"i{i}", f"p{i}") for i in range(n_patients)),
    )


def hits(n_hits: int, n: int) -> list[float]:
    return [1.0] * n_hits + [0.0] * (n - n_hits)


ROWS = make_rows({"point_hit": {"A": hits(13, 40), "B": hits(10, 10), "C": hits(77, 200)}})


def test_a_small_finding_is_hidden_and_not_in_the_macro() -> None:
    score = release(ROWS)
    assert (score.shown, score.hidden) == (("A", "C"), ("B",))
    assert score.figure("point_hit", "B") is None
    macro = score.figure("point_hit")
    assert macro is not None
    assert macro.value == 0.36  # (13/40 + 77/200) / 2 = (0.325 + 0.385) / 2 = 0.355; all three would give 0.57
    assert macro.n == "2"
    assert "B" in score.note


def test_figures_are_rounded_and_counts_are_bands() -> None:
    score = release(ROWS)
    figure = score.figure("point_hit", "C")
    assert figure is not None
    assert figure.value == 0.38  # 77/200 = 0.385, ties to even
    assert figure.n == "120+"
    numbers = [x for f in score.figures for x in (f.value, f.low, f.high) if x is not None]
    assert [round(x, 2) for x in numbers] == numbers
    assert figure.low is not None
    assert figure.high is not None
    assert figure.low < figure.value < figure.high


@pytest.mark.parametrize("n_hits", [0, 1, 5, 9])
def test_the_hidden_finding_changes_no_released_figure(n_hits: int) -> None:
    """Differencing: whatever is predicted for the hidden finding, all that is shown stays the same."""
    other = make_rows({"point_hit": {"A": hits(13, 40), "B": hits(n_hits, 10), "C": hits(77, 200)}})
    assert release(other) == release(ROWS)


def test_nothing_is_shown_of_a_split_of_small_findings() -> None:
    score = release(make_rows({"point_hit": {"A": hits(3, 29), "B": hits(1, 5)}}))
    assert score.figures == ()
    assert score.hidden == ("A", "B")
    assert "Nothing can be shown" in score.note
    assert score.signature == ""


def test_no_metric_is_released_whose_cases_the_submission_chooses() -> None:
    """An empty mask is undefined in `mask_iou`: handing in 39 of them would leave the score of one chosen case."""
    one_left = [0.1] + [float("nan")] * 39
    rows = make_rows({"point_hit": {"A": hits(13, 40)}, "mask_iou": {"A": one_left}, "mask_iou_all": {"A": [0.5] * 40}})
    assert {figure.metric for figure in release(rows).figures} == {"point_hit", "mask_iou_all"}


def test_an_undefined_metric_has_no_figure() -> None:
    nan = float("nan")
    rows = make_rows({"point_hit": {"A": hits(13, 40)}, "mask_iou_all": {"A": [nan] * 40}})
    assert {figure.metric for figure in release(rows).figures} == {"point_hit"}


def test_a_released_score_survives_json() -> None:
    score = release(ROWS)
    again = ReleasedScore.from_json(json.loads(json.dumps(score.to_json(), allow_nan=False)))
    assert again.figures == score.figures
    assert (again.shown, again.hidden, again.note) == (score.shown, score.hidden, score.note)


@pytest.mark.parametrize(
    ("n", "band"), [(29, "fewer than 30"), (30, "30-59"), (59, "30-59"), (60, "60-119"), (120, "120+"), (900, "120+")]
)
def test_bands(n: int, band: str) -> None:
    assert ReleasePolicy().band(n) == band


@pytest.mark.parametrize(("value", "rounded"), [(0.1249, 0.12), (0.999, 1.0), (0.0, 0.0), (0.0049, 0.0)])
def test_rounding(value: float, rounded: float) -> None:
    assert ReleasePolicy().round(value) == rounded
    assert ReleasePolicy(resolution=0.05).round(0.12) == 0.1
    assert ReleasePolicy().round(float("nan")) is None


def test_predictions_for_the_rare_finding_change_nothing_of_a_real_score(board: Board) -> None:
    """The same through the scorer: every prediction of the hidden finding is moved."""
    records = board.records
    predictions = guesses(board.manifest)
    moved = [replace(p, points=((0.5, 0.5),), mask=None) if p.finding == RARE else p for p in predictions]
    one, other = (
        score_localization(chosen, records, findings=board.manifest.findings) for chosen in (predictions, moved)
    )
    assert not np.array_equal(one.values["point_hit"], other.values["point_hit"])
    assert RARE in release(one).hidden
    assert release(one) == release(other)
