"""Simulate five colluding teams with a strong attack on localization boards.

For each case, the teams know two positions and the probability that each is right; at most one is right. A file gives
each case its first position, its second one, or a position that is certainly wrong. Wrong positions exclude cases from
the answer, and shift the number of hits to where a rounded score reveals most. Of many such files, about some or all
cases, the teams send the one after whose answer they expect the most hits. If a board also shows overlap or the grid
hit rate, these reveal similar numbers about other cases of the same file.

Every rounded score is a linear observation of the cases. Given all answers, the teams' probabilities have maximum
entropy relative to the model's (an exponential tilt per answer). In the end, the teams give each case its more probable
position. The ladder, which hides scores that do not beat a team's best, is ignored, so the gains are upper bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from reveal_leaderboard.release.release import shown_places
from reveal_leaderboard.release.rounding import Rounding
from reveal_leaderboard.settings import ReleasePolicy
from scipy.stats import norm

from reveal_bench.arrays import FloatArray, IntArray
from reveal_bench.kinds.localization.disclosure import FOR_OVERLAP

N_FILES = 100
"""Number of candidate files among which the attackers choose."""


@dataclass(frozen=True)
class Model:
    """How often a model's first and second positions are right, and how much it knows about single cases.

    Attributes
    ----------
    first, second : mean probabilities that the first and the second position are right; their sum is at most 1
    concentration : sum of the parameters of the beta distribution of the first position's share; large if the model is
        equally uncertain in every case
    """

    first: float
    second: float
    concentration: float

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Return random probabilities of both positions, (2, *shape)."""
        either = self.first + self.second
        part = self.first / either
        firsts = rng.beta(self.concentration * part, self.concentration * (1 - part), shape)
        return np.clip(np.stack([either * firsts, either * (1 - firsts)]), 1e-4, 1)


COIN = Model(0.47, 0.47, 1e4)
MODELS = {
    "coin toss (47% and 47%)": COIN,
    "even (40% and 48%)": Model(0.40, 0.48, 48),
    "unsure (50% and 30%)": Model(0.50, 0.30, 5),
    "usual (70% and 14%)": Model(0.70, 0.14, 5),
}
WORLDS = (
    (100,),
    (150,),
    (50,) * 5,
    (60,) * 3,
    (75,) * 5,
    (120,) * 3,
    (30, 120),
    (300,),
    (30, 45, 60, 80, 120, 160),
    (250,) * 4,
    (350, 350),
)
"""Numbers of cases of each finding, by board."""


@dataclass(frozen=True)
class Board:
    """Rounding steps of the scores that a board shows; each type of score reveals a separate number.

    Attributes
    ----------
    steps : rounding step of each finding's scores
    n_scores : number of separate scores of each finding
    macro_step : rounding step of each average
    n_averages : number of averages
    """

    steps: Sequence[float]
    n_scores: Sequence[int]
    macro_step: float
    n_averages: int

    @classmethod
    def of(cls, policy: ReleasePolicy, n_cases: Sequence[int]) -> Board:
        """Return the rounding steps of a board with this release policy, for files with points, cells and masks."""
        rounding = Rounding(policy)
        steps = [rounding.step_of(n, positional=True) for n in n_cases]
        overlap = {i: n for i, n in enumerate(n_cases) if n >= FOR_OVERLAP * policy.min_cell}
        shown = shown_places([dict(enumerate(n_cases)), {}, overlap], policy.place_cell)
        n_scores = [sum(i in findings for findings in shown) for i in range(len(n_cases))]
        n_averages = sum(map(bool, shown))
        return cls(steps, n_scores, rounding.macro_step(n_cases, positional=True), n_averages)


@dataclass
class Attackers:
    """The teams' knowledge about the cases of many boards at once.

    Attributes
    ----------
    prior : float array (n_boards, 2, n_cases), probabilities that each position is right
    is_right : float array of the same shape, 1 for right positions
    weights : float array (n_cases,), contribution of a hit to the average score
    finding : int array (n_cases,)
    """

    prior: FloatArray
    is_right: FloatArray
    weights: FloatArray
    finding: IntArray
    rng: np.random.Generator
    asked: FloatArray = field(init=False)
    observed: FloatArray = field(init=False)
    noise: FloatArray = field(init=False)
    tilt: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        n_boards = len(self.prior)
        self.asked = np.zeros((n_boards, 0, *self.prior.shape[1:]))
        self.observed = self.noise = self.tilt = np.zeros((n_boards, 0))

    def beliefs(self) -> FloatArray:
        """Return the maximum-entropy probabilities, relative to the prior and given all answers."""
        n_answers = self.asked.shape[1]
        p = self._tilted()
        for _ in range(10 if n_answers else 0):
            slope = np.einsum("rjsn,rsn->rj", self.asked, p) - self.observed + self.noise * self.tilt
            moved = _times_covariance(p[:, None], self.asked)
            curvature = np.einsum("rjsn,rksn->rjk", self.asked, moved, optimize=True)
            curvature += np.eye(n_answers) * (self.noise[:, :, None] + 1e-9)
            step = np.linalg.solve(curvature, slope[..., None])[..., 0]
            change = np.abs(np.einsum("rj,rjsn->rsn", step, self.asked)).max(axis=(1, 2))[:, None]
            self.tilt = self.tilt - step * np.minimum(1, 3 / np.maximum(change, 1e-9))
            p = self._tilted()
        return p

    def _tilted(self) -> FloatArray:
        odds = self.prior * np.exp(np.clip(np.einsum("rj,rjsn->rsn", self.tilt, self.asked), -30, 30))
        neither = np.clip(1 - self.prior.sum(axis=1, keepdims=True), 1e-6, 1)
        p: FloatArray = odds / (odds.sum(axis=1, keepdims=True) + neither)
        return p

    def covariances(self, p: FloatArray, files: FloatArray) -> FloatArray:
        """Return each position's covariance with each file's sum after all answers, shaped like `files`."""
        moved = _times_covariance(p[:, None], files)
        if not self.asked.shape[1]:
            return moved
        scaled = _times_covariance(p[:, None], self.asked)
        among = np.einsum("rjsn,rksn->rjk", scaled, self.asked, optimize=True)
        among += np.eye(among.shape[1]) * self.noise[:, :, None]
        shared = np.einsum("rjsn,rcsn->rjc", scaled, files, optimize=True)
        return moved - np.einsum("rjsn,rjc->rcsn", scaled, np.linalg.solve(among, shared), optimize=True)

    def learn(self, file: FloatArray, step: float) -> None:
        """Record the sum of `file` (n_boards, 2, n_cases) over right positions, rounded to `step`."""
        scale = 1 / max(file.max(), 1e-12)  # in units of hits, so that tilts have similar sizes
        p = self.beliefs()
        covariance = self.covariances(p, file[:, None])[:, 0]
        variance = np.maximum((covariance * file).sum(axis=(1, 2)), 1e-10)
        mean = (file * p).sum(axis=(1, 2))
        answer = np.round((file * self.is_right).sum(axis=(1, 2)) / step) * step
        moved, left = _truncated(mean, variance, answer - step / 2, answer + step / 2)
        noise = 1 / (1 / (np.clip(left, 1e-4, 0.999) * variance) - 1 / variance)
        value = mean + moved * np.sqrt(variance) * (1 + noise / variance)
        self.asked = np.concatenate([self.asked, file[:, None] * scale], axis=1)
        self.observed = np.column_stack([self.observed, value * scale])
        self.noise = np.column_stack([self.noise, noise * scale**2])
        self.tilt = np.column_stack([self.tilt, np.zeros(len(value))])

    def promised(self, p: FloatArray, files: FloatArray, step: float) -> FloatArray:
        """Return the expected average score after the answer to each file, (n_boards, n_files)."""
        covariance = self.covariances(p, files)
        variance = np.maximum((covariance * files).sum(axis=(2, 3)), 1e-10)
        mean = (files * p[:, None]).sum(axis=(2, 3))
        spread = np.sqrt(variance)
        edges = np.floor(mean / step)[..., None] + np.arange(-3, 5) - 0.5
        edges[..., 0], edges[..., -1] = -1e6, 1e6
        z = (edges * step - mean[..., None]) / spread[..., None]
        chance = np.diff(norm.cdf(z), axis=-1)
        by_cell = -np.diff(norm.pdf(z), axis=-1) / np.maximum(chance, 1e-9)
        moves = np.sqrt((chance * np.minimum(by_cell**2, 30)).sum(axis=-1)) / spread
        shift = covariance * moves[..., None, None]
        return sum((np.max(p[:, None] + side * shift, axis=2) @ self.weights) / 2 for side in (-1, 1))


def _times_covariance(p: FloatArray, files: FloatArray) -> FloatArray:
    """Return each position's covariance with the sum of `files`, before any answer."""
    product: FloatArray = p * (files - (p * files).sum(axis=-2, keepdims=True))
    return product


def _truncated(
    mean: FloatArray, variance: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return a normal variable's change of mean (in standard deviations) and relative variance when it is bounded."""
    a, b = (low - mean) / np.sqrt(variance), (high - mean) / np.sqrt(variance)
    inside = np.maximum(norm.cdf(b) - norm.cdf(a), 1e-9)
    moved = (norm.pdf(a) - norm.pdf(b)) / inside
    left = 1 + (a * norm.pdf(a) - b * norm.pdf(b)) / inside - moved**2
    return np.clip(moved, -4, 4), np.clip(left, 1e-4, 1)


def draw(n_cases: Sequence[int], model: Model, n_boards: int, seed: int) -> Attackers:
    """Return attackers of `n_boards` boards whose findings have these numbers of cases."""
    rng = np.random.default_rng(seed)
    finding = np.repeat(np.arange(len(n_cases)), n_cases)
    prior = np.moveaxis(model.draw((n_boards, len(finding)), rng), 0, 1)
    draws = rng.random((n_boards, len(finding)))
    first = draws < prior[:, 0]
    second = ~first & (draws < prior.sum(axis=1))
    weights = 1 / np.array(n_cases)[finding] / len(n_cases)
    return Attackers(
        prior, np.stack([first, second], 1).astype(float), weights, finding, np.random.default_rng([seed, 1])
    )


def attack(attackers: Attackers, board: Board, n_answers: int) -> FloatArray:
    """Return the gain in the average hit rate of each board (n_boards,) after `n_answers` answers."""
    before = _average(attackers, attackers.prior)
    for _ in range(n_answers):
        for average in range(board.n_averages):
            _ask(attackers, board, average)
    return _average(attackers, attackers.beliefs()) - before


def _average(attackers: Attackers, p: FloatArray) -> FloatArray:
    chosen = np.where(p[:, 0] >= p[:, 1], attackers.is_right[:, 0], attackers.is_right[:, 1])
    average: FloatArray = chosen @ attackers.weights
    return average


def _ask(attackers: Attackers, board: Board, average: int) -> None:
    p = attackers.beliefs()
    n_findings = len(board.steps)
    files = _files(attackers, p, n_findings)
    boards = np.arange(len(p))
    weights = attackers.weights * n_findings  # weight of one hit in its finding's rate
    visible = [i for i in range(n_findings) if board.n_scores[i] > average]
    best = attackers.promised(p, files * attackers.weights, board.macro_step).argmax(axis=1)
    chosen = files[boards, best]
    for i in visible:
        own = files * (attackers.finding == i)
        better = attackers.promised(p, own * weights, board.steps[i]).argmax(axis=1)
        chosen = np.where(attackers.finding == i, files[boards, better], chosen)
    for i in visible:
        attackers.learn(chosen * (attackers.finding == i) * weights, board.steps[i])
    attackers.learn(chosen * attackers.weights, board.macro_step)


def _files(attackers: Attackers, p: FloatArray, n_findings: int) -> FloatArray:
    """Return random files (n_boards, N_FILES, 2, n_cases), with 1 for the position given to a case."""
    rng = attackers.rng
    shape = (len(p), N_FILES, p.shape[2])
    of_findings = rng.random((len(p), N_FILES, n_findings)) < rng.choice([0.3, 0.6, 1], (len(p), N_FILES, 1))
    doubt = np.minimum(p[:, 0], p[:, 1])[:, None] + 0.02 * rng.random(shape)
    rank = np.argsort(np.argsort(-doubt, axis=2), axis=2) / shape[2]
    is_asked = (rank < rng.uniform(0.05, 1.1, (len(p), N_FILES, 1))) & of_findings[..., attackers.finding]
    is_second = rng.random(shape) < rng.choice([0.0, 0.5, 0.5, 1.0], (len(p), N_FILES, 1))
    is_kept = rng.random(shape) < rng.choice([0.0, 0.0, 0.5, 1.0], (len(p), N_FILES, 1))  # others surely miss
    firsts = np.where(is_asked, ~is_second, is_kept & (p[:, 0] >= p[:, 1])[:, None])
    seconds = np.where(is_asked, is_second, is_kept & (p[:, 0] < p[:, 1])[:, None])
    return np.stack([firsts, seconds], axis=2).astype(float)
