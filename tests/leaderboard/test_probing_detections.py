"""Five teams probe a board's released detection scores for the presence and absence of findings.

The teams share a calibrated model with an AUROC of about 0.85 for the findings of each image. Every file raises a
random half of the least certain detections above all others and lowers the other half below them. The teams get both
macros to 0.005, finer than on a board. They combine the answers by the best linear estimate: they simulate many
references from their beliefs and compute the answers to each file for them. Finally they rank all detections again, and
call a finding absent where they believe so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from reveal_leaderboard.release.release import release
from reveal_leaderboard.settings import load_settings
from scipy.special import expit, logit
from sklearn.metrics import f1_score

from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.detection.scoring import RULES, DetectionRows
from reveal_bench.metrics.intervals import Resampling
from tests.leaderboard.probing import MACRO_STEP, best_calls

POLICY = replace(load_settings().of("chestx-det-detection").release, n_resamples=100)
TEAMS, FINDINGS, FOCUS, DRAFTS = 5, 6, 24, 1000
"""Each file asks about `FOCUS` images per finding."""
RATES = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
"""False alarms per image for the sensitivities in CPM."""
MOST_GAINED = 0.05


@dataclass(frozen=True)
class World:
    """A model's single detection per image and finding, with the belief in it and its correctness."""

    belief: FloatArray
    is_there: BoolArray

    @classmethod
    def of(cls, n_images: int, seed: int) -> World:
        rng = np.random.default_rng([seed, 1])
        counts = np.linspace(max(30, 0.12 * n_images), max(36, 0.4 * n_images), FINDINGS).astype(int)
        is_there = np.column_stack([rng.permutation(n_images) < n for n in counts])
        scores = rng.normal(1.5 * is_there, 1)
        belief = expit(1.5 * scores - 1.125 + logit(counts / n_images))  # Bayes' rule
        return cls(np.clip(belief, 1e-4, 1 - 1e-4), is_there)

    def rows(self, score: FloatArray) -> DetectionRows:
        """Return the rows of a file."""
        image, finding = np.nonzero(self.is_there)
        lesion = np.full(self.is_there.shape, -1, np.int32)
        lesion[image, finding] = np.arange(len(image))
        marked, own = np.nonzero(score)
        return DetectionRows(
            findings=tuple(f"finding {i}" for i in range(FINDINGS)),
            images=tuple((f"i{i}", f"p{i}") for i in range(len(score))),
            known=np.ones(self.is_there.shape, bool),
            lesion_image=image,
            lesion_finding=finding,
            lesion_share=np.full(len(image), 0.1),
            mark_image=marked,
            mark_finding=own,
            mark_score=score[marked, own],
            mark_hit=np.tile(lesion[marked, own], (len(RULES), 1)),
            mask_hit=np.zeros(0, np.int32),
            mask_iou=np.zeros(0),
            thresholds=np.full(FINDINGS, 0.5),
        )

    def exact(self, score: FloatArray) -> FloatArray:
        """Return both macros, (2,)."""
        rows, metrics = self.rows(score), KINDS["detection"].release.metrics
        (figures,) = DetectionRows.resample([rows], Resampling(1, unit="image"), metrics=metrics, groups=rows.findings)
        return np.array([figures[metric].values.mean() for metric in metrics])

    def f1(self, belief: FloatArray) -> float:
        """Return the macro F1 of presence and absence."""
        pairs = zip(self.is_there.T, belief.T, strict=True)
        return float(np.mean([f1_score(truth, best_calls(one, one.sum())) for truth, one in pairs]))


def figures_of_drafts(score: FloatArray, drafts: BoolArray) -> FloatArray:
    """Return both macros of a file, (n, 2), for each simulated reference, (n, n_images, findings)."""
    n_images, macros = len(score), np.zeros((len(drafts), 2))
    rank = np.arange(1, n_images + 1)
    for order, draft in zip(np.argsort(-score, axis=0, kind="stable").T, np.moveaxis(drafts, 2, 0), strict=True):
        hits = draft[:, order].astype(float)
        n_hits, n_there = hits.cumsum(axis=1), np.maximum(hits.sum(axis=1), 1)
        macros[:, 0] += (hits * n_hits / rank).sum(axis=1) / n_there
        for rate in RATES:
            macros[:, 1] += np.where(rank - n_hits <= rate * n_images, n_hits, 0).max(axis=1) / n_there / len(RATES)
    return macros / FINDINGS


def learnt(world: World, n_answers: int, seed: int, *, step: float = MACRO_STEP) -> FloatArray:
    """Return the beliefs of the teams after `n` answers."""
    # not the random stream of `world`: questions drawn from it would know the truth
    rng, before = np.random.default_rng([seed, 2]), world.belief
    drafts, now = rng.random((DRAFTS, *before.shape)) < before, before
    asked, answers, expected = np.zeros(before.shape, bool), [], []
    for _ in range(n_answers):
        score = 0.25 + now / 2
        for finding in range(FINDINGS):
            doubtful = np.argsort(-now[:, finding] * (1 - now[:, finding]), kind="stable")[:FOCUS]
            is_raised = rng.random(FOCUS) < 0.5
            score[doubtful, finding] = np.where(is_raised, 0.8, 0) + 0.2 * now[doubtful, finding]
            asked[doubtful, finding] = True
        answers.append(np.round(world.exact(score) / step) * step)
        expected.append(figures_of_drafts(score, drafts))
        away = np.hstack(expected) - np.hstack(expected).mean(axis=0)
        covariance = away.T @ away / DRAFTS + step**2 / 12 * np.eye(away.shape[1])
        weights = away @ np.linalg.solve(covariance, np.hstack(answers) - np.hstack(expected).mean(axis=0))
        moved = np.where(asked, np.tensordot(weights, drafts - drafts.mean(axis=0), axes=(0, 0)) / DRAFTS, 0)
        by_chance = np.where(asked, before * (1 - before) * (weights @ weights) / DRAFTS**2, 0).sum()
        trust = max(0, 1 - by_chance / (moved**2).sum())  # few drafts also change beliefs by chance
        now = np.clip(before + trust * moved, 1e-3, 1 - 1e-3)
    return now


def mean_gain(n_images: int, n_answers: int, *, n_draws: int, step: float = MACRO_STEP) -> tuple[float, float]:
    """Return the teams' gain in macro AP 50 and in macro F1 of presence and absence."""
    gains = []
    for seed in range(n_draws):
        world = World.of(n_images, seed)
        after = learnt(world, n_answers, seed, step=step)
        by_ap = world.exact(after)[0] - world.exact(world.belief)[0]
        gains.append((by_ap, world.f1(after) - world.f1(world.belief)))
    ap, f1 = np.mean(gains, axis=0)
    return float(ap), float(f1)


@pytest.mark.parametrize(("n_images", "n_draws"), [(100, 4), (300, 2)])
def test_five_teams_learn_little_about_presence_from_a_board(n_images: int, n_draws: int) -> None:
    gained = mean_gain(n_images, TEAMS * KINDS["detection"].release.most_answers, n_draws=n_draws)
    assert max(gained) <= MOST_GAINED, gained


def test_more_and_exact_answers_would_reveal_presence() -> None:
    """The test above can fail: thirty exact answers gain in one draw; 120 gain more than a board may allow."""
    world = World.of(100, 1)
    after = learnt(world, 30, 1, step=1e-6)
    likelihood = [np.log(np.where(world.is_there, belief, 1 - belief)).sum() for belief in (world.belief, after)]
    assert likelihood[1] > likelihood[0] + 5
    assert world.f1(after) > world.f1(world.belief) + MOST_GAINED / 2


def test_board_releases_no_more_than_assumed() -> None:
    """A board releases no finding and both macros no finer than assumed; scores of simulated references are right."""
    world = World.of(100, 1)
    released = release(world.rows(world.belief), POLICY)
    assert {(figure.metric, figure.finding) for figure in released.figures} == {("ap_50", "macro"), ("cpm", "macro")}
    exact = world.exact(world.belief)
    for figure, value in zip(released.figures, exact, strict=True):
        step = 0.02  # six findings of at least 30 images: 0.1 / 6, rounded up
        assert step > MACRO_STEP
        assert figure.value == pytest.approx(round(value / step) * step)
    assert figures_of_drafts(world.belief, world.is_there[None])[0] == pytest.approx(exact, abs=0.02)
