"""Five teams probe locations of findings: hit rates and IoU as oracles, against the release policy and the quota.

For every case of a finding the teams have a model's location and a less likely second one. A file has one of the two
for each case, and its rounded score reveals the number of correct ones (or the mean IoU). The teams combine all answers
of a board: hit rates for findings with enough cases, overlap where there are more, through masks at separate locations,
and all averages, including the grid hit rate. Their knowledge is a normal distribution of the gain of each exchange. A
rounded score truncates it to one step, and the result is approximated by a normal distribution with the same mean and
variance. Files exchange half of the cases with the least certain gain. From many such halves the teams send the one
whose expected score is nearest to a rounding edge, where the answer reveals most. Finally they use the better location
of each case. The ladder is omitted: every answer is shown, more than on a board.
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
"""Number of cases of each released finding."""
MODELS = ((0.7, 0.45), (0.5, 0.45), (0.7, 0.6), (0.5, 0.3), (0.5, 0.6))
"""Rates at which a model's location is correct, and its second one if the first is wrong."""
EVEN = (0.4, 0.8)
"""A model that does not know which of its two locations is correct."""
LEAST = 1e-8  # smallest variance, so that none becomes negative
EXACT = 1e-3
"""A step that reveals the exact number of hits in about a hundred cases."""
IOU, IOU_SPREAD = 0.5, 0.2
"""Mean overlap of a mask that hits, and its standard deviation."""
CELL_SPREAD = 0.1
"""Variance of a cell hit, given the hit of its location."""


@dataclass(frozen=True)
class Places:
    """The unknown gain of each case by the exchange, and the belief of the teams."""

    first: float
    gains: FloatArray
    believed: FloatArray
    spread: FloatArray


def hits(n: int, rng: np.random.Generator, right: float, second: float, alike: float = 5) -> Places:
    """Return hits of a calibrated model and of its second choice; with `alike`, its confidence is similar for all."""
    sure = rng.beta(alike * right, alike * (1 - right), n)
    other = (1 - sure) * second
    drawn = rng.random(n)
    is_first, is_second = drawn < sure, (drawn >= sure) & (drawn < sure + other)
    believed = other - sure
    spread = np.sqrt(sure + other - believed**2)
    return Places(float(is_first.sum()), is_second.astype(float) - is_first, believed, spread)


def hits_alike(n: int, rng: np.random.Generator, right: float, second: float) -> Places:
    """Return hits of a model whose confidence has a standard deviation of 0.07."""
    return hits(n, rng, right, second, alike=48)


def overlaps(n: int, rng: np.random.Generator, right: float, second: float) -> Places:
    """Return the IoU of a model's masks, and of the same masks grown, shrunk or moved."""
    believed = np.full(n, -0.05)
    spread = np.full(n, 0.15)
    first = np.clip(rng.normal(0.5, 0.2, n), 0, 1)
    return Places(float(first.sum()), rng.normal(believed, spread), believed, spread)


Make = Callable[[int, np.random.Generator, float, float], Places]


@dataclass
class Knowledge:
    """A normal distribution of all gains, then of the model's own sums, one per finding."""

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
        # the sums are uncertain before the first answer
        guessed = firsts + self.rng.normal(0, doubts)
        self.estimate = np.concatenate([*(one.believed for one in self.findings), guessed])
        self.covariance = np.diag(np.concatenate([self.spread, doubts]) ** 2)

    def ask(self, steps: FloatArray) -> FloatArray:
        """Return the weights of a file's exchanges in the mean of each finding, (n_findings, n), rounded to `steps`."""
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

    def learn(self, weights: FloatArray, answer: float, step: float, more: float) -> None:
        """Update from an answer rounded to `step`: `weights` times the truth, plus an error of variance `more`."""
        shared = self.covariance @ weights
        spread = np.sqrt(max(weights @ shared, 0) + more + LEAST)
        expected = weights @ self.estimate
        low, high = ((answer + side * step / 2 - expected) / spread for side in (-1, 1))
        inside = norm.cdf(high) - norm.cdf(low)
        if inside < 1e-9:  # further away than they would believe
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
        visible: Sequence[int],
    ) -> None:
        """Figures of the findings `shown` and the average of all; `scale` is what each hit counts, and `error` the
        variance of each figure about what it would be if all counted alike."""
        exact, unit = weights @ (scale * self.truth), scale[-1]
        for i in visible:
            self.learn(weights[i], round(exact[i] / steps[i]) * steps[i] / unit, steps[i] / unit, error[i])
        self.hear_macro(weights, exact.mean() / unit, macro_step / unit, error)

    def hear_macro(self, weights: FloatArray, exact: float, step: float, error: FloatArray) -> None:
        """Update from a rounded average over findings."""
        more = float(error.sum()) / len(error) ** 2
        self.learn(weights.mean(axis=0), round(exact / step) * step, step, more)

    def gained(self) -> float:
        """Return the mean gain per case over the findings, with the locations that now seem better."""
        after = []
        for one, n, end in zip(self.findings, self.n_cases, self.ends, strict=True):
            better = self.estimate[end - n : end] > 0
            after.append((one.gains[better].sum() - one.gains[one.believed > 0].sum()) / n)
        return float(np.mean(after))


def gain(
    cases: Sequence[int], model: tuple[float, float], n_files: int, seed: int, *, make: Make = hits, exact: bool = False
) -> float:
    """Return the gain in the macro over findings of `n_cases` cases, in one draw."""
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
    """Return the mean gain of five teams with `each` answers per team."""
    return float(np.mean([gain(cases, model, TEAMS * each, seed, make=make) for seed in range(n_draws)]))


def answers_of(cases: Sequence[int]) -> int:
    return SETTINGS.quota.on(KINDS["localization"].release.most_answers).total


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
    ],
)
def test_five_teams_gain_little_from_the_answers_of_a_board(
    world: str, model: tuple[float, float], make: Make, n_draws: int
) -> None:
    gained = mean_gain(WORLDS[world], model, answers_of(WORLDS[world]), n_draws, make=make)
    assert 0 < gained <= MOST_GAINED


def test_scores_for_findings_of_few_cases_would_reveal_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not released for this reason: the same teams, with scores for each of five findings of 30 cases."""
    monkeypatch.setitem(globals(), "PLACE_CELL", MIN_CELL)
    assert mean_gain(WORLDS["fewest cases"], EVEN, 1, 30, make=hits_alike) > 1.2 * MOST_GAINED


@pytest.mark.parametrize("make", [hits, overlaps])
def test_exact_scores_without_a_quota_would_reveal_all(make: Make) -> None:
    """The test above can fail: the same teams with exact scores and no quota."""
    gained = [gain((80, 90), MODELS[0], 100, seed, make=make, exact=True) for seed in range(3)]
    assert np.mean(gained) > {hits: 2, overlaps: 0.5}[make] * MOST_GAINED


@pytest.mark.parametrize("n_cases", [30, 49, 119, 120, PLACE_CELL])
def test_meter_watches_findings_in_averages_when_five_teams_have_spent_their_quotas(n_cases: int) -> None:
    """The meter says "watch" then unless a finding has many cases, and "close" only after more answers."""
    names = ["point_hit"] if n_cases >= PLACE_CELL else []
    figures = [ReleasedEstimate(name, "x", 0.5, None, None, ROUNDING.band(n_cases), "") for name in names]
    bits = answer_bits(figures, None, n_averages=1 - len(names))
    share = TEAMS * answers_of([n_cases]) * bits / label_bits(figures, None)
    assert share < SETTINGS.exposure.close_bits
    assert (share > SETTINGS.exposure.watch_bits) == (n_cases < PLACE_CELL)


def test_board_releases_no_more_than_assumed() -> None:
    """The average hit rate alone, with enough cases for one average."""
    hit = {f"of {n}": hits_of(n // 2, n) for n in WORLDS["usual"]}
    overlap = {finding: [0.5] * len(values) for finding, values in hit.items()}
    rows = make_rows({"point_hit": hit, "grid_hit": hit, "mask_iou_all": overlap, "box_iou": overlap})
    assert {(figure.metric, figure.finding) for figure in release(rows).figures} == {("point_hit", MACRO)}
    beside = make_rows({"point_hit": hit, "grid_hit": hit})
    beside.cell_kinds[0] = "cell"
    assert {figure.metric for figure in release(beside).figures} == {"point_hit"}
    assert release(beside).note == (
        "All findings are shown. The grid hit rate is not shown: the file names cells other than those of its points. "
        f"Counted only in averages, because the cases are too few: {', '.join(hit)}."
    )
