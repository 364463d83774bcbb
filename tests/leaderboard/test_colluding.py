"""The better attackers of `benchmarks` against the default release policy and budgets.

Each test fails if a policy shows more, or a budget allows more answers, than docs/operating.md promises. A few boards
with a fixed seed keep the tests short; `python -m benchmarks.colluding` has the tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from reveal_leaderboard.release.release import release
from reveal_leaderboard.settings import load_settings

from benchmarks import colluding_detections, colluding_findings, colluding_places
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.findings.scoring import StudyRows
from reveal_bench.kinds.parts import cases_of_average

POLICY = load_settings().of("reveal-cxr").release
TEAMS = load_settings().of("reveal-cxr").exposure.colluding
MOST_GAINED = 0.05


def gain_of_findings(n_studies: int, counts: Sequence[int], each: int) -> float:
    attackers = colluding_findings.draw(n_studies, 0.9, counts, 24, 1)
    return float(colluding_findings.attack(attackers, colluding_findings.Board.of(POLICY), TEAMS * each).mean())


@pytest.mark.parametrize("counts", [colluding_findings.WORLDS[100], colluding_findings.RARE])
def test_five_teams_gain_little_macro_f1(counts: Sequence[int]) -> None:
    each = KINDS["findings"].release.most_answers
    assert 0.01 < gain_of_findings(100, counts, each) <= MOST_GAINED
    assert gain_of_findings(100, counts, each + 1) > MOST_GAINED  # the attack would notice a larger budget


def test_attackers_know_the_scores_of_a_board() -> None:
    """The number of hits that an attacker reads from F1, recall and kappa are those with equal released figures."""
    n_studies, n_with, n_called = 100, 30, 24
    present = np.arange(n_studies) < n_with
    figures = []
    for n_hits in range(n_called + 1):
        predicted = (np.arange(n_studies) >= n_with - n_hits) & (np.arange(n_studies) < n_with - n_hits + n_called)
        studies = tuple(StudyRecord(f"s{i}", f"p{i}", ()) for i in range(n_studies))
        rows = StudyRows(("A",), studies, predicted[:, None], present[:, None], None, np.ones(n_studies, bool))
        figures.append([f.value for f in release(rows, POLICY).figures if f.finding == "A"])
    expected = np.cumsum([0, *(a != b for a, b in itertools.pairwise(figures))])
    step = colluding_findings.Board.of(POLICY).step_of(n_with)
    hits = np.arange(n_called + 1.0)
    cells = colluding_findings.cells_of(hits, np.array(n_called), np.array(n_with), n_studies, np.array(step))
    assert cells.tolist() == expected.tolist()


def gain_of_places(n_cases: Sequence[int]) -> float:
    attackers = colluding_places.draw(n_cases, colluding_places.COIN, 48, 3)
    each = KINDS["localization"].release.most_answers
    return float(colluding_places.attack(attackers, colluding_places.Board.of(POLICY, n_cases), TEAMS * each).mean())


def test_five_teams_gain_little_of_a_hit_rate_unless_a_board_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model cannot tell two places of a case apart. The second board has half the cases that a board must have."""
    monkeypatch.setattr(colluding_places, "N_FILES", 60)
    allowed, refused = (120, 120, 120), (50, 50, 50)
    assert cases_of_average(allowed) >= POLICY.place_cell > cases_of_average(refused)
    assert 0.02 < gain_of_places(allowed) <= MOST_GAINED
    assert gain_of_places(refused) > MOST_GAINED


@pytest.mark.parametrize("n_findings", [1, 3])
def test_five_teams_gain_little_ap_50(n_findings: int) -> None:
    board = colluding_findings.draw(100, 0.85, (30, 36, 40)[:n_findings], 24, 1)
    n_answers = TEAMS * KINDS["detection"].release.most_answers
    step = colluding_detections.step_of(POLICY, n_findings)
    assert 0 < colluding_detections.attack(board, n_answers, step=step, asks="all findings").mean() <= MOST_GAINED
