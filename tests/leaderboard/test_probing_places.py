"""Five teams who probe where findings are: hit rates and IoU as oracles, against the release policy and the quota.

For every case of a finding the teams have a model's place and another that they believe in less; a file takes for each
case one of the two, and its figure tells, rounded, how many were right (or the mean IoU). What they learn is kept as
the best linear estimate of what each exchange would gain (a Kalman filter over all cases of the finding), the cases
asked about are those whose gain is least certain, and in the end whatever seems better is taken. A file asks about two
places at once: by points and by cells that lie elsewhere, and about overlap by boxes and by masks; or about four, by
all of these, where an overlap tells of a hit as far as the overlap of a hit is known. The ladder is left out: every
answer is shown, which is more than a board does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from reveal_leaderboard.release.rounding import Rounding
from reveal_leaderboard.settings import load_settings

from reveal_bench.kinds import KINDS

FloatArray = npt.NDArray[np.float64]

SETTINGS = load_settings().of("chexlocalize")
TEAMS, ASKED_PER_FILE, FOCUS = 5, 2, 24
MOST_GAINED = 0.05
CASES = (30, 45, 60, 80, 120, 160)
FEW_CASES = (30, 35, 40)
"""Of each finding that is shown, on a usual holdout and on a small one."""
IOU, IOU_SPREAD = 0.5, 0.2
"""Overlap of a mask that hits."""
RIGHT, SECOND = 0.7, 0.45
"""How often the model's place is right, and its second one where the first is wrong."""


@dataclass(frozen=True)
class Places:
    """What a case gains by the exchange, which nobody knows, and what the teams believe of it."""

    first: float
    gains: FloatArray
    believed: FloatArray
    spread: FloatArray


def hits(n: int, rng: np.random.Generator) -> Places:
    """Hits of a model that knows how sure it is, and of its second choice."""
    sure = rng.beta(5 * RIGHT, 5 * (1 - RIGHT), n)
    second = (1 - sure) * SECOND
    drawn = rng.random(n)
    is_first, is_second = drawn < sure, (drawn >= sure) & (drawn < sure + second)
    believed = second - sure
    spread = np.sqrt(sure + second - believed**2)
    return Places(float(is_first.sum()), is_second.astype(float) - is_first, believed, spread)


def overlaps(n: int, rng: np.random.Generator) -> Places:
    """IoU of a model's masks, and of the same masks grown, shrunk or moved."""
    believed = np.full(n, -0.05)
    spread = np.full(n, 0.15)
    first = np.clip(rng.normal(0.5, 0.2, n), 0, 1)
    return Places(float(first.sum()), rng.normal(believed, spread), believed, spread)


def gain(places: Places, step: float, n_answers: int, rng: np.random.Generator, *, are_mixed: bool = False) -> float:
    """Mean gain per case after so many answers, each a multiple of `step`; with `are_mixed`, every other pair of them
    tells overlaps, from which hits are learnt."""
    n = len(places.gains)
    iou = np.clip(rng.normal(IOU, IOU_SPREAD, n), 0.05, 1)
    # the last element is the sum of the model's own places, of which little is known before the first answer
    estimate = np.append(places.believed, places.first + rng.normal(0, 0.1 * n))
    covariance = np.diag(np.append(places.spread**2, (0.1 * n) ** 2))
    for number in range(n_answers):
        by_overlap = are_mixed and number % 4 >= 2
        scale = iou if by_overlap else np.ones(n)
        uncertain = np.sqrt(np.maximum(np.diag(covariance)[:n], 0)) - np.abs(estimate[:n])
        asked = np.argsort(uncertain)[::-1][: min(FOCUS, n)]
        taken = np.zeros(n + 1)
        taken[asked] = rng.random(len(asked)) < 0.5
        unit = IOU if by_overlap else 1.0
        told = round((unit * places.first + taken[:n] @ (scale * places.gains)) / n / step) * step * n / unit
        noise = (step * n / unit) ** 2 / 12
        if by_overlap:
            noise += (IOU_SPREAD / unit) ** 2 * (taken[:n] @ places.spread**2)
        taken[n] = 1
        shared = covariance @ taken
        weight = shared / (taken @ shared + noise)
        estimate = estimate + weight * (told - taken @ estimate)
        covariance = covariance - np.outer(weight, shared)
    return float(places.gains[estimate[:n] > 0].sum() - places.gains[places.believed > 0].sum()) / n


def mean_gain(
    kind: str,
    each: int,
    *,
    step: float | None = None,
    n_draws: int = 40,
    cases: tuple[int, ...] = CASES,
    are_mixed: bool = False,
) -> float:
    """Of the macro over findings of so many cases, five teams asking `each` times."""
    make = {"hits": hits, "overlaps": overlaps}[kind]
    found = []
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        steps = [Rounding(SETTINGS.release).step_of(n) if step is None else step for n in cases]
        answers = TEAMS * each * ASKED_PER_FILE * (2 if are_mixed else 1)
        gains = [gain(make(n, rng), s, answers, rng, are_mixed=are_mixed) for n, s in zip(cases, steps, strict=True)]
        found.append(np.mean(gains))
    return float(np.mean(found))


@pytest.mark.parametrize(
    ("kind", "cases", "are_mixed"),
    [("hits", CASES, True), ("hits", CASES, False), ("hits", FEW_CASES, False), ("overlaps", CASES, False)],
    ids=["everything", "hits", "hits of few cases", "overlaps"],
)
def test_five_teams_gain_little_with_as_many_answers_as_a_board_gives(
    kind: str, cases: tuple[int, ...], are_mixed: bool
) -> None:
    each = SETTINGS.quota.on(KINDS["localization"].answers_on(sum(cases))).total
    gained = mean_gain(kind, each, cases=cases, are_mixed=are_mixed, n_draws=80)
    assert 0 < gained <= MOST_GAINED


@pytest.mark.parametrize("kind", ["hits", "overlaps"])
def test_exact_figures_without_a_quota_would_give_it_all(kind: str) -> None:
    """So the test above can fail: the same teams on exact figures, as often as they like."""
    assert mean_gain(kind, 20, step=1e-9, n_draws=3) > {"hits": 2, "overlaps": 0.7}[kind] * MOST_GAINED
