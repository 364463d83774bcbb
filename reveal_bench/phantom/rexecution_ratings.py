"""Readers' scores of imaginary models' answers, with known error rates.

Every answer has a true score per criterion, drawn from the model's distribution; a reader gives it, or with the
reader's error rate one step more or less (at 1 and 5 the step goes inwards). So the agreement that is to be expected
can be computed: :func:`expected_kappa`. Criteria are independent of each other, which those of real answers are not.

Distributions are near those of paper 001 (Tables 1 to 3): plans are good, execution is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reveal_bench.task_records import CRITERIA, Rating

__all__ = ["MODELS", "READERS", "draw_ratings", "expected_kappa", "score_distribution"]

MODELS = {"phantom-large": 0.3, "phantom-small": 0.0, "phantom-text": -0.4}
"""Model -> how much better or worse than the mean below its answers are."""
ANSWERED = {"phantom-large": 1.0, "phantom-small": 0.81, "phantom-text": 1.0}
"""Share of the tasks that a model answers; the others have no rating."""
DRAWS = {"phantom-large": 0.9}
"""Share of the tasks that require boxes for which a model draws some; the other models draw none."""
READERS = {"reader-1": 0.15, "reader-2": 0.35}
"""Reader -> share of scores that are one step off. The first reads everything, the second every fourth task."""
SECOND_READS = 4
SPREADS = {
    "process": (4.1, 0.9), "execution": (2.9, 1.4), "synthesis": (3.7, 1.1), "language": (4.2, 0.8),
    "image_content": (3.0, 1.2), "image_style": (3.6, 1.3),
}  # fmt: skip
"""Mean and SD of the normal density that is evaluated at 1 to 5."""

Float = npt.NDArray[np.float64]


def score_distribution(model: str, criterion: str) -> Float:
    """Probabilities of the true scores 1 to 5."""
    mean, sd = SPREADS[criterion]
    density: Float = np.exp(-(((np.arange(1, 6) - mean - MODELS[model]) / sd) ** 2) / 2)
    density /= density.sum()
    return density


def draw_ratings(tasks: Sequence[tuple[str, bool]], *, seed: int) -> list[Rating]:
    """Ratings of the answers to `tasks`, given as (task_id, requires_boxes); a task's do not depend on the others'."""
    ratings = []
    distributions = {(model, name): score_distribution(model, name) for model in MODELS for name in CRITERIA}
    kernels = {reader: _kernel(error) for reader, error in READERS.items()}
    for j, (task_id, requires_boxes) in enumerate(tasks):
        for m, model in enumerate(MODELS):
            rng = np.random.default_rng([seed, 3, j, m])
            answered, draws = rng.random(2) < (ANSWERED[model], DRAWS.get(model, 0.0))
            if not answered:
                continue
            criteria = CRITERIA if requires_boxes and draws else CRITERIA[:4]
            true = {name: _pick(rng, distributions[model, name]) for name in criteria}
            for r, (reader, kernel) in enumerate(kernels.items()):
                if r == 0 or j % SECOND_READS == 0:
                    given = {name: _pick(rng, kernel[score - 1]) for name, score in true.items()}
                    ratings.append(Rating(task_id, model, reader, **given))
    return ratings


def _pick(rng: np.random.Generator, probabilities: Float) -> int:
    """A score from 1 to 5."""
    return 1 + min(int(np.searchsorted(np.cumsum(probabilities), rng.random(), side="right")), 4)


def _kernel(error: float) -> Float:
    """Row t: probabilities of the scores 1 to 5 that a reader gives to a true score of t + 1."""
    kernel = np.diag(np.full(5, 1 - error))
    for t in range(5):
        steps = [t + step for step in (-1, 1) if 0 <= t + step < 5]
        kernel[t, steps] = error / len(steps)
    return kernel


def expected_kappa(criterion: str) -> float:
    """Quadratic-weighted kappa of the two readers over the answers of all models, for infinitely many tasks.

    Examples
    --------
    >>> 0.8 < expected_kappa("execution") < 0.9
    True
    """
    answering = {model: ANSWERED[model] for model in MODELS}
    if criterion in CRITERIA[4:]:
        answering = {model: ANSWERED[model] * share for model, share in DRAWS.items()}
    total = sum(answering.values())
    true = sum(
        (share / total * score_distribution(model, criterion) for model, share in answering.items()), np.zeros(5)
    )
    first, second = (_kernel(error) for error in READERS.values())
    joint = first.T @ np.diag(true) @ second
    distance = (np.arange(5)[:, None] - np.arange(5)) ** 2
    by_chance = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    return float(1 - (distance * joint).sum() / (distance * by_chance).sum())
