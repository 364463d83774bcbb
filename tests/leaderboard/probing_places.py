"""Five teams who probe hit rates and mean IoU together: what they gain over their model's own answers.

Of every case the teams share some places where the finding may be, with the hit (0 or 1) or the IoU that their model
expects at each. A sending puts the least sure cases at random places; the released mean of each finding tells how many
were right, and the best linear estimate (updated with each answer) puts all of them together.

The teams are given more than a board gives: every answer is shown (there is no ladder), and their model's
probabilities are right. With `channels` 3 the point, the cells of the grid and the mask of one sending ask three
different questions about the same places. Intervals and comparisons are left out: they are made of the same figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean
from typing import Literal

import numpy as np
import numpy.typing as npt
from reveal_leaderboard.settings import load_settings

FloatArray = npt.NDArray[np.float64]
Measure = Literal["hit", "iou"]

TEAMS, PLACES, FOCUS = 5, 3, 24
COUNTS = (30, 35, 60, 85, 120, 309)
"""Cases of each finding that is shown, as on 668 studies."""
POLICY = load_settings().of("chexlocalize").release


@dataclass
class Guess:
    """What is believed of the worth of every place, `expected` (n, PLACES) with its covariance."""

    expected: FloatArray
    covariance: FloatArray

    def learn(self, question: FloatArray, answer: float, step: float) -> None:
        """Take in an answer that was rounded to `step`."""
        asked = question.ravel() / len(question)
        together = self.covariance @ asked
        gain = together / (asked @ together + step**2 / 12 + 1e-12)
        self.expected = self.expected + (gain * (answer - asked @ self.expected.ravel())).reshape(-1, PLACES)
        self.covariance = self.covariance - np.outer(gain, together)


def draw(measure: Measure, n: int, rng: np.random.Generator) -> tuple[FloatArray, Guess]:
    """What each place of `n` cases is worth, and what the model makes of it: at most one place of a case is right."""
    shares = -np.sort(-rng.dirichlet((3.0, 1.0, 0.5, 0.5), size=n), axis=1)[:, :PLACES]
    drawn, reached = rng.random((n, 1)), np.cumsum(shares, axis=1)
    worth = ((drawn < reached) & (drawn >= reached - shares)).astype(float)
    mean_worth, variance = 1.0, 0.0
    if measure == "iou":  # of a mask at the right place 0.3 to 0.9
        worth *= rng.uniform(0.3, 0.9, (n, 1))
        mean_worth, variance = 0.6, 0.03
    covariance = np.zeros((n, PLACES, n, PLACES))
    for i, share in enumerate(shares):
        single = np.diag(share * (mean_worth**2 + variance))
        covariance[i, :, i, :] = single - mean_worth**2 * np.outer(share, share)
    return worth, Guess(mean_worth * shares, covariance.reshape(n * PLACES, n * PLACES))


def gain(measure: Measure, n: int, *, answers: int, seed: int, step: float | None = None) -> float:
    """Of the mean over the `n` cases of a finding, after so many answers to all teams together."""
    rng = np.random.default_rng([seed, n])
    step = POLICY.step_of(n) if step is None else step
    worth, guess = draw(measure, n, rng)
    own = guess.expected.argmax(axis=1)
    for _ in range(answers):
        choice = guess.expected.argmax(axis=1)
        in_order = -np.sort(-guess.expected, axis=1)
        unsure = np.argsort(in_order[:, 0] - in_order[:, 1], kind="stable")[:FOCUS]
        choice[unsure] = rng.integers(0, PLACES, len(unsure))
        question = np.eye(PLACES)[choice]
        guess.learn(question, round(float((question * worth).sum() / n) / step) * step, step)
    cases = np.arange(n)
    return float(np.mean(worth[cases, guess.expected.argmax(axis=1)] - worth[cases, own]))


def mean_gain(measure: Measure, *, each: int, channels: int = 1, draws: int = 8, step: float | None = None) -> float:
    """Of the macro over the findings, a mean over draws, when each team had `each` sendings."""
    answers = TEAMS * each * channels
    return mean(gain(measure, n, answers=answers, seed=seed, step=step) for n in COUNTS for seed in range(draws))
