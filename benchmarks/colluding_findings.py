"""Simulate five colluding teams with a strong attack on boards of findings.

The teams share a calibrated model, every score that the board shows to any team, and the number of studies with each
label. A file calls a random subset of the doubtful studies positive, together with some certain positives and certain
negatives. The number of hits among certain studies is known; they shift the total against the rounding steps of F1,
recall and kappa, so that these scores together reveal the number of hits more finely than any one alone. Of many such
files, the teams send the one after whose answer they expect the best F1. A file's probabilities order the doubtful
studies randomly within called and uncalled studies, so that AUROC reveals a second number.

Every answer is a linear observation of the labels. Given all answers, the teams' probabilities have maximum entropy
relative to the model's (an exponential tilt per answer). The final calls have the best expected F1. The ladder, which
hides scores that do not beat a team's best, is ignored, so the gains are upper bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from reveal_leaderboard.release.ranking import OPEN_STEP
from reveal_leaderboard.release.rounding import Rounding
from reveal_leaderboard.settings import ReleasePolicy
from scipy.special import expit, logit
from scipy.stats import norm

from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.kinds.findings.disclosure import RANKED_LABELS

WORLDS: dict[int, tuple[int, ...]] = {
    100: (30, 35, 40, 50),
    150: (30, 40, 60, 70),
    300: (30, 38, 46, 60, 75, 100, 140),
    1000: (30, 60, 120, 300, 400),
}
"""Number of held-out studies -> number of studies with each visible label."""
RARE = (30,) * 5
"""A board on which every label has just enough studies to be shown."""
N_FILES = 48
"""Number of candidate files among which the attackers choose."""
_NOISE = 1e-3


@dataclass
class Attackers:
    """The teams' knowledge about several boards at once; a row is one label of one board.

    Attributes
    ----------
    present : bool array (n_rows, n_studies), the held-out labels
    prior : float array (n_rows, n_studies), the model's probabilities
    n_labels : number of labels of a board; rows are ordered by board
    """

    present: BoolArray
    prior: FloatArray
    n_labels: int
    rng: np.random.Generator
    asked: FloatArray = field(init=False)
    observed: FloatArray = field(init=False)
    noise: FloatArray = field(init=False)
    tilt: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        n_rows = len(self.present)
        self.n_with = self.present.sum(axis=1).astype(float)
        self.asked = np.ones((n_rows, 1, self.present.shape[1]))
        self.observed, self.noise = self.n_with[:, None], np.full((n_rows, 1), _NOISE)
        self.tilt = np.zeros((n_rows, 1))

    def beliefs(self) -> FloatArray:
        """Return the maximum-entropy probabilities (n_rows, n_studies), relative to the prior and given all answers.

        The tilts minimise the convex dual by damped Newton steps.
        """
        start = logit(self.prior)
        for _ in range(12):
            p = expit(start + np.einsum("rj,rjn->rn", self.tilt, self.asked))
            slope = np.einsum("rjn,rn->rj", self.asked, p) - self.observed + self.noise * self.tilt
            curvature = np.einsum("rjn,rn,rkn->rjk", self.asked, p * (1 - p), self.asked, optimize=True)
            curvature += np.eye(slope.shape[1]) * (self.noise[:, :, None] + 1e-6)
            step = np.linalg.solve(curvature, slope[..., None])[..., 0]
            change = np.abs(np.einsum("rj,rjn->rn", step, self.asked)).max(axis=1, keepdims=True)
            self.tilt = self.tilt - step * np.minimum(1, 4 / np.maximum(change, 1e-9))
        return np.clip(expit(start + np.einsum("rj,rjn->rn", self.tilt, self.asked)), 1e-6, 1 - 1e-6)

    def covariances(self, p: FloatArray, weights: FloatArray) -> FloatArray:
        """Return each study's covariance with the sum of `weights` after all answers, (n_rows, n_files, n_studies)."""
        spread = p * (1 - p)
        scaled = self.asked * spread[:, None]
        among = np.einsum("rjn,rkn->rjk", scaled, self.asked) + np.eye(scaled.shape[1]) * self.noise[:, :, None]
        shared = np.einsum("rjn,rcn->rjc", scaled, weights)
        explained = np.einsum("rjn,rjc->rcn", scaled, np.linalg.solve(among, shared))
        covariances: FloatArray = weights * spread[:, None] - explained
        return covariances

    def note(
        self, weights: FloatArray, mean: FloatArray, variance: FloatArray, now: FloatArray, after: FloatArray
    ) -> None:
        """Add an answer about sums of `weights`, given their mean and variance before and after the answer."""
        after = np.clip(after, 1e-4 * variance, 0.999 * variance)
        noise = 1 / (1 / after - 1 / variance)
        self.asked = np.concatenate([self.asked, weights[:, None]], axis=1)
        self.observed = np.column_stack([self.observed, now + noise / variance * (now - mean)])
        self.noise = np.column_stack([self.noise, noise])
        self.tilt = np.column_stack([self.tilt, np.zeros(len(now))])


def draw(n_studies: int, auroc: float, counts: Sequence[int], n_draws: int, seed: int) -> Attackers:
    """Return attackers of `n_draws` boards with random labels, who have a calibrated model with this AUROC."""
    rng = np.random.default_rng(seed)
    present = np.array([rng.permutation(n_studies) < n for _ in range(n_draws) for n in counts])
    shift = np.sqrt(2) * norm.ppf(auroc)
    scores = rng.normal(size=present.shape) + shift * present
    beliefs = expit(shift * scores - shift**2 / 2 + logit(present.mean(axis=1, keepdims=True)))
    return Attackers(present, np.clip(beliefs, 1e-4, 1 - 1e-4), len(counts), np.random.default_rng([seed, 1]))


def f1_promised(p: FloatArray, n_with: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return the best expected F1, and the number of calls that gives it; studies are on the last axis."""
    hits = np.cumsum(-np.sort(-p, axis=-1), axis=-1)
    promised = 2 * hits / (np.arange(1, p.shape[-1] + 1) + n_with[..., None])
    return promised.max(axis=-1), promised.argmax(axis=-1) + 1


def f1_of(attackers: Attackers, p: FloatArray) -> FloatArray:
    """Return the actual F1 (n_rows,) of the calls with the best expected F1."""
    _, n_called = f1_promised(p, attackers.n_with)
    ranks = np.argsort(np.argsort(-p, axis=1, kind="stable"), axis=1)
    calls = ranks < n_called[:, None]
    f1: FloatArray = 2 * (calls & attackers.present).sum(axis=1) / (n_called + attackers.n_with)
    return f1


def scores_of(hits: FloatArray, n_called: FloatArray, n_with: FloatArray, n_studies: int) -> tuple[FloatArray, ...]:
    """Return F1, recall and kappa for given numbers of hits."""
    chance = n_with * n_called / n_studies
    agreed = (n_with + n_called) / 2 - chance
    return 2 * hits / (n_with + n_called), hits / n_with, (hits - chance) / np.maximum(agreed, 1e-9)


def cells_of(hits: FloatArray, n_called: FloatArray, n_with: FloatArray, n_studies: int, step: FloatArray) -> IntArray:
    """Return a group number for each number of hits; groups have the same rounded F1, recall and kappa."""
    rounded = np.stack(np.broadcast_arrays(*(np.round(s / step) for s in scores_of(hits, n_called, n_with, n_studies))))
    changes = (np.diff(rounded, axis=-1) != 0).any(axis=0)
    return np.concatenate([np.zeros((*changes.shape[:-1], 1), int), np.cumsum(changes, axis=-1)], axis=-1)


@dataclass(frozen=True)
class Board:
    """Rounding steps of the scores that a board shows.

    Attributes
    ----------
    step_of : step to which the scores of a label with n studies are rounded
    macro_step : step to which average F1 and ranks together reveal the average F1
    auroc_step : step of the average AUROC, shown if enough labels have one
    """

    step_of: Callable[[int], float]
    macro_step: float
    auroc_step: float

    @classmethod
    def of(cls, policy: ReleasePolicy) -> Board:
        """Return the rounding steps of a board with this release policy."""
        return cls(Rounding(policy).step_of, OPEN_STEP, policy.resolution)


def attack(attackers: Attackers, board: Board, n_answers: int) -> FloatArray:
    """Return the gain in macro F1 of each board (n_draws,) after `n_answers` answers."""
    before = f1_of(attackers, attackers.prior)
    for _ in range(n_answers):
        _ask(attackers, board)
    gain = f1_of(attackers, attackers.beliefs()) - before
    return gain.reshape(-1, attackers.n_labels).mean(axis=1)


def _ask(attackers: Attackers, board: Board) -> None:
    """Send the most promising of `N_FILES` files, and record the board's answer."""
    p, n_with = attackers.beliefs(), attackers.n_with
    n_rows, n_studies = p.shape
    files = _files(attackers, p)
    covariances = attackers.covariances(p, files)
    variances = np.maximum((covariances * files).sum(axis=-1), 1e-6)
    means = (files * p[:, None]).sum(axis=-1)
    steps = np.array([board.step_of(int(n)) for n in n_with])
    hits = np.arange(n_with.max() + 1)
    n_called = files.sum(axis=-1)
    cells = cells_of(hits, n_called[..., None], n_with[:, None, None], n_studies, steps[:, None, None])
    chances = _chances(hits, means, variances)
    chances[np.broadcast_to(hits > n_with[:, None, None], chances.shape)] = 1e-30
    cell_means, cell_spreads = _by_cell(chances, cells, hits)
    # on average, the answer changes expected hits by `moves`; probabilities change by their covariance with hits
    moves = np.sqrt(np.maximum((chances * (cell_means - means[..., None]) ** 2).sum(axis=-1), 0))
    shift = covariances * (moves / variances)[..., None]
    promised = sum(f1_promised(np.clip(p[:, None] + side * shift, 0, 1), n_with[:, None])[0] for side in (-1, 1))
    best = np.asarray(promised).argmax(axis=1)
    rows = np.arange(n_rows)
    calls, mean, variance = files[rows, best], means[rows, best], variances[rows, best]
    n_hits = (calls * attackers.present).sum(axis=1).astype(int)
    now, after = cell_means[rows, best, n_hits], cell_spreads[rows, best, n_hits]
    weights = 2 / (n_called[rows, best] + n_with)
    now, after = _narrow(attackers, weights, n_hits, now, after, board.macro_step)
    attackers.note(calls, mean, variance, now, after)
    if attackers.n_labels >= RANKED_LABELS:
        _ask_ranking(attackers, calls, board.auroc_step)


def best_files(attackers: Attackers) -> FloatArray:
    """Return the file (n_rows, n_studies) with the best expected F1 after the board's answer."""
    p = attackers.beliefs()
    files = _files(attackers, p, padded=False)
    covariances = attackers.covariances(p, files)
    spread = np.sqrt(np.maximum((covariances * files).sum(axis=-1), 1e-6))
    shift = covariances / spread[..., None]
    promised = sum(
        f1_promised(np.clip(p[:, None] + side * shift, 0, 1), attackers.n_with[:, None])[0] for side in (-1, 1)
    )
    return files[np.arange(len(p)), np.asarray(promised).argmax(axis=1)]


def _files(attackers: Attackers, p: FloatArray, *, padded: bool = True) -> FloatArray:
    """Return random files (n_rows, N_FILES, n_studies): some doubtful studies, some certain ones of both classes."""
    n_rows, n_studies = p.shape
    rng = attackers.rng
    doubt_rank = np.argsort(np.argsort(-p * (1 - p), axis=1), axis=1)[:, None]
    n_doubtful = np.maximum(6, attackers.n_with[:, None, None] * rng.uniform(0.2, 1.5, (n_rows, N_FILES, 1)))
    part = rng.choice([0.3, 0.5, 0.5, 0.7], (n_rows, N_FILES, 1))
    is_doubtful = doubt_rank < n_doubtful
    # the most certain studies of both classes pad the file
    n_sure = n_studies - doubt_rank
    padding = n_sure < rng.uniform(-0.2, 0.6, (n_rows, N_FILES, 1)) * n_studies
    draws = rng.random((n_rows, N_FILES, n_studies))
    files: FloatArray = np.where(is_doubtful, draws < part, padding & ~is_doubtful & padded).astype(float)
    return files


def _chances(hits: FloatArray, means: FloatArray, variances: FloatArray) -> FloatArray:
    edges = np.concatenate([hits - 0.5, hits[-1:] + 0.5])
    edges[0], edges[-1] = -1e3, 1e4
    below = norm.cdf((edges - means[..., None]) / np.sqrt(variances)[..., None])
    return np.diff(below, axis=-1) + 1e-15


def _by_cell(chances: FloatArray, cells: IntArray, hits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of the hits given the group of each number of hits, both shaped like `chances`."""
    n = chances.shape[-1]
    flat = (cells + n * np.arange(chances[..., 0].size).reshape(*chances.shape[:-1], 1)).ravel()
    sums = [np.bincount(flat, (chances * hits**power).ravel())[flat].reshape(chances.shape) for power in range(3)]
    mean = sums[1] / sums[0]
    return mean, np.maximum(sums[2] / sums[0] - mean**2, 0)


def _narrow(
    attackers: Attackers, weights: FloatArray, n_hits: IntArray, now: FloatArray, after: FloatArray, step: float
) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of the hits, also given the macro (`weights` times hits) rounded to `step`."""
    n_labels = attackers.n_labels
    of_board = (weights / n_labels).reshape(-1, n_labels)
    mean, spread = now.reshape(-1, n_labels), after.reshape(-1, n_labels) + 1e-6
    macro = np.round((of_board * n_hits.reshape(-1, n_labels)).sum(axis=1) / step) * step
    gain = of_board * spread / ((of_board**2 * spread).sum(axis=1) + step**2 / 12)[:, None]
    mean = mean + gain * (macro - (of_board * mean).sum(axis=1))[:, None]
    return mean.ravel(), (spread * (1 - gain * of_board)).ravel()


def _ask_ranking(attackers: Attackers, calls: FloatArray, step: float) -> None:
    """Record the average AUROC, rounded to `step`, of rankings with random doubtful studies first on both sides."""
    p = attackers.beliefs()
    n_with, n_studies = attackers.n_with[:, None], p.shape[1]
    is_doubtful = np.argsort(np.argsort(-p * (1 - p), axis=1), axis=1) < n_with
    order = np.where(is_doubtful, attackers.rng.choice([-1.0, 2.0], p.shape), p) + 10 * calls
    ranks = np.argsort(np.argsort(order, axis=1), axis=1) + 1.0
    weights = ranks / (n_with * (n_studies - n_with)) / attackers.n_labels
    observe_average(attackers, weights - weights.mean(axis=1, keepdims=True), step)  # the sum over all studies is known


def observe_average(attackers: Attackers, weights: FloatArray, step: float) -> None:
    """Record each board's sum of `weights` over present labels, rounded to `step` from a random offset."""
    p, n_labels = attackers.beliefs(), attackers.n_labels
    covariances = attackers.covariances(p, weights[:, None])[:, 0]
    variance = np.maximum((covariances * weights).sum(axis=1), 1e-12).reshape(-1, n_labels)
    mean = (weights * p).sum(axis=1).reshape(-1, n_labels)
    exact = (weights * attackers.present).sum(axis=1).reshape(-1, n_labels).sum(axis=1, keepdims=True)
    answer = exact + (attackers.rng.random(exact.shape) - 0.5) * step
    total = variance.sum(axis=1, keepdims=True) + step**2 / 12
    now = mean + variance / total * (answer - mean.sum(axis=1, keepdims=True))
    after = variance * (1 - variance / total)
    spread = np.sqrt(variance.ravel())  # scale the sum by its standard deviation
    is_asked = spread > 1e-5
    spread = np.where(is_asked, spread, 1)
    attackers.note(
        np.where(is_asked[:, None], weights, 0) / spread[:, None],
        np.where(is_asked, mean.ravel(), 0) / spread,
        np.ones(len(spread)),
        np.where(is_asked, now.ravel(), 0) / spread,
        np.where(is_asked, after.ravel() / spread**2, 0.999),
    )
