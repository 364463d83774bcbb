"""Five teams who probe where findings are: hit rates and IoU as oracles, against the release policy and the quota.

For every case of a finding the teams have a model's place and another that they believe in less; a file takes for each
case one of the two, and its figures tell, rounded, how many were right (or the mean IoU). Whatever a board answers is
put together: the hit rate of every finding with cases enough, overlap where there are more, by masks at places of their
own, and all averages, that of the grid hit rate, too. What is learnt is kept as a normal distribution of what each
exchange would gain; a rounded figure cuts it to one step, and what is left is made normal again with the same mean and
spread. The cases asked about are those whose gain is least certain. Of many ways to exchange half of them, that one is
sent whose figure is expected nearest to the edge between two rounded ones, where the answer tells most. In the end
whatever seems better is taken. The ladder is left out: every answer is shown, which is more than a board does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from reveal_leaderboard.release.exposure import answer_bits, label_bits
from reveal_leaderboard.release.release import ReleasedEstimate, release
from reveal_leaderboard.release.rounding import Rounding
from reveal_leaderboard.settings import load_settings
from scipy.stats import norm

from reveal_bench.arrays import FloatArray
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.localization.disclosure import FOR_OVERLAP
from reveal_bench.metrics.bootstrap import MACRO
from tests.leaderboard.test_release import hits as hits_of
from tests.leaderboard.test_release import make_rows

SETTINGS = load_settings().of("chexlocalize")
ROUNDING, MIN_CELL, PLACE_CELL = Rounding(SETTINGS.release), SETTINGS.release.min_cell, SETTINGS.release.place_cell
TEAMS, FOCUS, WAYS = 5, 18, 200
MOST_GAINED = 0.05
WORLDS = {
    "usual": (30, 45, 60, 80, 120, 160),
    "few cases": (30, 35, 40),
    "fewest cases": (30, 30, 30, 30, 30),
    "fewest with figures of their own": (50, 50, 50, 50, 50),
    "fewest with overlap": (75, 75, 75, 75, 75),
    "many cases": (80, 120, 160),
}
"""How many cases each finding has that is shown."""
MODELS = ((0.7, 0.45), (0.5, 0.45), (0.7, 0.6), (0.5, 0.3), (0.5, 0.6))
"""How often a model's place is right, and its second one where the first is wrong."""
EVEN = (0.4, 0.8)
"""A model that cannot tell which of its two places is right."""
LEAST = 1e-8  # variance, so that none becomes negative
EXACT = 1e-3
"""A step that tells the hits of some hundred cases exactly."""
IOU, IOU_SPREAD = 0.5, 0.2
"""Overlap of a mask that hits."""
CELL_SPREAD = 0.1
"""Variance of whether the cell of a place hits, where it is known whether the place does."""


@dataclass(frozen=True)
class Places:
    """What each case gains by the exchange, which nobody knows, and what the teams believe of it."""

    first: float
    gains: FloatArray
    believed: FloatArray
    spread: FloatArray


def hits(n: int, rng: np.random.Generator, right: float, second: float, alike: float = 5) -> Places:
    """Hits of a model that knows how sure it is, and of its second choice; with `alike`, it is about as sure of all."""
    sure = rng.beta(alike * right, alike * (1 - right), n)
    other = (1 - sure) * second
    drawn = rng.random(n)
    is_first, is_second = drawn < sure, (drawn >= sure) & (drawn < sure + other)
    believed = other - sure
    spread = np.sqrt(sure + other - believed**2)
    return Places(float(is_first.sum()), is_second.astype(float) - is_first, believed, spread)


def hits_alike(n: int, rng: np.random.Generator, right: float, second: float) -> Places:
    """Hits of a model whose sureness has a standard deviation of 0.07."""
    return hits(n, rng, right, second, alike=48)


def overlaps(n: int, rng: np.random.Generator, right: float, second: float) -> Places:
    """IoU of a model's masks, and of the same masks grown, shrunk or moved."""
    believed = np.full(n, -0.05)
    spread = np.full(n, 0.15)
    first = np.clip(rng.normal(0.5, 0.2, n), 0, 1)
    return Places(float(first.sum()), rng.normal(believed, spread), believed, spread)


Make = Callable[[int, np.random.Generator, float, float], Places]


@dataclass
class Knowledge:
    """A normal distribution of all exchanges, then of the sums of the model's own places, one per finding."""

    findings: Sequence[Places]
    rng: np.random.Generator
    estimate: FloatArray = field(init=False)
    covariance: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.n_cases = [len(one.gains) for one in self.findings]
        self.ends = np.cumsum(self.n_cases)
        firsts, doubts = [one.first for one in self.findings], 0.1 * np.array(self.n_cases)
        self.truth = np.concatenate([*(one.gains for one in self.findings), firsts])
        self.spread = np.concatenate([one.spread for one in self.findings])
        # of the sums little is known before the first answer
        guessed = firsts + self.rng.normal(0, doubts)
        self.estimate = np.concatenate([*(one.believed for one in self.findings), guessed])
        self.covariance = np.diag(np.concatenate([self.spread, doubts]) ** 2)

    def ask(self, steps: FloatArray) -> FloatArray:
        """Weights with which a file's exchanges stand in the mean of each finding, (n_findings, n), told to `steps`."""
        weights = np.zeros((len(self.findings), len(self.truth)))
        for i, (n, end, step) in enumerate(zip(self.n_cases, self.ends, steps, strict=True)):
            cases, own = np.arange(end - n, end), self.ends[-1] + i
            doubt = np.sqrt(np.maximum(np.diag(self.covariance)[cases], 0)) - np.abs(self.estimate[cases])
            asked = cases[np.argsort(doubt)[::-1][:FOCUS]]
            ways = self.rng.random((WAYS, len(asked))) < 0.5
            expected = (ways @ self.estimate[asked] + self.estimate[own]) / n / step
            weights[i, asked] = ways[np.argmin(np.abs(expected % 1 - 0.5))]
            weights[i, own] = 1
        return weights / np.array(self.n_cases)[:, None]

    def learn(self, weights: FloatArray, told: float, step: float, more: float) -> None:
        """From a figure rounded to `step` that is `weights` times what is true but for an error of variance `more`."""
        shared = self.covariance @ weights
        spread = np.sqrt(max(weights @ shared, 0) + more + LEAST)
        expected = weights @ self.estimate
        low, high = ((told + side * step / 2 - expected) / spread for side in (-1, 1))
        inside = norm.cdf(high) - norm.cdf(low)
        if inside < 1e-9:  # further off than they would believe
            moved, left = (low + high) / 2, 0.0
        else:
            moved = (norm.pdf(low) - norm.pdf(high)) / inside
            left = 1 + (low * norm.pdf(low) - high * norm.pdf(high)) / inside - moved**2
        self.estimate = self.estimate + shared / spread * moved
        self.covariance = self.covariance - np.outer(shared, shared) / spread**2 * (1 - np.clip(left, 0, 1))

    def hear(
        self,
        weights: FloatArray,
        steps: FloatArray,
        macro_step: float,
        scale: FloatArray,
        error: FloatArray,
        shown: Sequence[int],
    ) -> None:
        """Figures of the findings `shown` and the average of all; `scale` is what each hit counts, and `error` the
        variance of each figure about what it would be if all counted alike."""
        exact, unit = weights @ (scale * self.truth), scale[-1]
        for i in shown:
            self.learn(weights[i], round(exact[i] / steps[i]) * steps[i] / unit, steps[i] / unit, error[i])
        self.hear_macro(weights, exact.mean() / unit, macro_step / unit, error)

    def hear_macro(self, weights: FloatArray, exact: float, step: float, error: FloatArray) -> None:
        """An average over findings, rounded."""
        more = float(error.sum()) / len(error) ** 2
        self.learn(weights.mean(axis=0), round(exact / step) * step, step, more)

    def gained(self) -> float:
        """Mean over the findings of what is gained per case by what seems better now."""
        after = []
        for one, n, end in zip(self.findings, self.n_cases, self.ends, strict=True):
            better = self.estimate[end - n : end] > 0
            after.append((one.gains[better].sum() - one.gains[one.believed > 0].sum()) / n)
        return float(np.mean(after))


def gain(
    cases: Sequence[int], model: tuple[float, float], n_files: int, seed: int, *, make: Make = hits, exact: bool = False
) -> float:
    """What is gained of the macro over findings of so many cases, in one draw."""
    rng = np.random.default_rng(seed)
    known = Knowledge([make(n, rng, *model) for n in cases], rng)
    iou = np.clip(rng.normal(IOU, IOU_SPREAD, len(known.spread)), 0.05, 1)
    steps = np.array([EXACT if exact else ROUNDING.step_of(n, positional=True) for n in cases])
    macro_step = EXACT if exact else ROUNDING.macro_step(cases)
    single = [i for i, n in enumerate(cases) if exact or n >= PLACE_CELL]
    many = [i for i, n in enumerate(cases) if n >= FOR_OVERLAP * MIN_CELL]
    of_places, of_masks = np.ones(len(known.truth)), np.concatenate([iou, np.full(len(cases), IOU)])
    by_cell = CELL_SPREAD / np.array(cases)
    for _ in range(n_files):
        weights = known.ask(steps)
        known.hear(weights, steps, macro_step, of_places, np.zeros(len(cases)), single)
        if make is overlaps:
            continue
        cells = float((weights @ known.truth + rng.normal(0, np.sqrt(by_cell))).mean())
        known.hear_macro(weights, cells, macro_step, by_cell)
        if many:
            masks = known.ask(steps / IOU)[many]
            error = (masks[:, : len(iou)] ** 2) @ known.spread**2 * (IOU_SPREAD / IOU) ** 2
            known.hear(masks, steps[many], macro_step, of_masks, error, range(len(many)))
    return known.gained()


def mean_gain(cases: Sequence[int], model: tuple[float, float], each: int, n_draws: int, *, make: Make = hits) -> float:
    """Of five teams who ask `each` times."""
    return float(np.mean([gain(cases, model, TEAMS * each, seed, make=make) for seed in range(n_draws)]))


def answers_of(cases: Sequence[int]) -> int:
    return SETTINGS.quota.on(KINDS["localization"].release.answers_on(sum(cases))).total


@pytest.mark.parametrize(
    ("world", "model", "make", "n_draws"),
    [
        ("usual", MODELS[4], hits, 16),
        ("few cases", MODELS[0], hits, 30),
        ("few cases", MODELS[4], hits, 30),
        ("fewest cases", MODELS[4], hits, 30),
        ("fewest cases", EVEN, hits_alike, 30),
        ("fewest with figures of their own", EVEN, hits_alike, 100),
        ("fewest with overlap", MODELS[4], hits, 16),
        ("many cases", MODELS[1], overlaps, 16),
    ],
)
def test_five_teams_gain_little_with_as_many_answers_as_a_board_gives(
    world: str, model: tuple[float, float], make: Make, n_draws: int
) -> None:
    gained = mean_gain(WORLDS[world], model, answers_of(WORLDS[world]), n_draws, make=make)
    assert 0 < gained <= MOST_GAINED


def test_figures_of_few_cases_by_themselves_would_give_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """So they are not shown: the same teams, where five findings of 30 cases have their own."""
    monkeypatch.setitem(globals(), "PLACE_CELL", MIN_CELL)
    assert mean_gain(WORLDS["fewest cases"], EVEN, 1, 30, make=hits_alike) > 1.2 * MOST_GAINED


@pytest.mark.parametrize("make", [hits, overlaps])
def test_exact_figures_without_a_quota_would_give_it_all(make: Make) -> None:
    """So the test above can fail: the same teams on exact figures, as often as they like."""
    gained = [gain((80, 90), MODELS[0], 100, seed, make=make, exact=True) for seed in range(3)]
    assert np.mean(gained) > {hits: 2, overlaps: 0.5}[make] * MOST_GAINED


@pytest.mark.parametrize("n_cases", [30, 49, 50, 59, 75, 119, 120])
def test_the_meter_warns_when_five_teams_have_spent_their_answers(n_cases: int) -> None:
    """It says "watch" then, and "close" only after more answers."""
    least = {"point_hit": PLACE_CELL, "mask_iou_all": FOR_OVERLAP * MIN_CELL}
    names = [name for name, n in least.items() if n_cases >= n]
    figures = [ReleasedEstimate(name, "x", 0.5, None, None, ROUNDING.band(n_cases), "") for name in names]
    averages = {"point_hit", "grid_hit"}.difference(names)
    told = answer_bits(figures, None, n_averages=len(averages))
    share = TEAMS * answers_of([n_cases]) * told / label_bits(figures, None)
    assert SETTINGS.exposure.watch_bits < share < SETTINGS.exposure.close_bits


def test_a_file_is_told_no_more_than_was_taken() -> None:
    """One hit rate of each finding from 50 cases on, overlap from 75 on, and both with the grid hit rate on average."""
    hit = {f"of {n}": hits_of(n // 2, n) for n in WORLDS["usual"]}
    overlap = {finding: [0.5] * len(values) for finding, values in hit.items()}
    rows = make_rows({"point_hit": hit, "grid_hit": hit, "mask_iou_all": overlap, "box_iou": overlap})
    told = {(figure.metric, figure.finding) for figure in release(rows).figures}
    own = [finding for finding, values in hit.items() if len(values) >= 50]
    many = [finding for finding, values in hit.items() if len(values) >= 75]
    assert told == {
        *(("point_hit", finding) for finding in (*own, MACRO)),
        *(("mask_iou_all", finding) for finding in (*many, MACRO)),
        ("grid_hit", MACRO),
    }
    beside = make_rows({"point_hit": hit, "grid_hit": hit})
    beside.cell_kinds[0] = "cell"
    assert {figure.metric for figure in release(beside).figures} == {"point_hit"}
    assert release(beside).note == (
        "All findings are shown. The grid hit rate is not shown: the file names cells other than those of its points. "
        "Findings with fewer than 50 cases count in the averages only: of 30, of 45."
    )
