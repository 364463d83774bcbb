"""Five teams who probe where findings are, and where they are absent: detections against what a board releases.

The teams share a model that knows how sure it is, with an AUROC of about 0.85 for what each image shows. Every file
raises a random half of the detections they are least sure of above all others, and lowers the rest of these below them.
They are told both macros to 0.005, which is finer than a board shows them. What the answers tell is kept as the best
linear estimate: of many drafts of the truth, drawn from what they believe, they know what each file would have been
told. In the end they rank all detections anew, and call a finding absent where they believe it is.
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
"""`FOCUS` images of each finding are asked about in a file."""
RATES = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
"""False alarms per image at which CPM takes the sensitivity."""
MOST_GAINED = 0.05


@dataclass(frozen=True)
class World:
    """A model's one detection on each image and finding: how far it is believed, and whether it hits."""

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
        """The rows of a file."""
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
        """Both macros, (2,)."""
        rows, metrics = self.rows(score), KINDS["detection"].release.metrics
        (figures,) = DetectionRows.resample([rows], Resampling(1, unit="image"), metrics=metrics, groups=rows.findings)
        return np.array([figures[metric].values.mean() for metric in metrics])

    def f1(self, belief: FloatArray) -> float:
        """Macro F1 of the findings that would be called present, and so of those called absent."""
        pairs = zip(self.is_there.T, belief.T, strict=True)
        return float(np.mean([f1_score(truth, best_calls(one, one.sum())) for truth, one in pairs]))


def figures_of_drafts(score: FloatArray, drafts: BoolArray) -> FloatArray:
    """Both macros of a file for each draft of the truth (n, n_images, findings), (n, 2)."""
    n_images, told = len(score), np.zeros((len(drafts), 2))
    rank = np.arange(1, n_images + 1)
    for order, draft in zip(np.argsort(-score, axis=0, kind="stable").T, np.moveaxis(drafts, 2, 0), strict=True):
        hits = draft[:, order].astype(float)
        found, n_there = hits.cumsum(axis=1), np.maximum(hits.sum(axis=1), 1)
        told[:, 0] += (hits * found / rank).sum(axis=1) / n_there
        for rate in RATES:
            told[:, 1] += np.where(rank - found <= rate * n_images, found, 0).max(axis=1) / n_there / len(RATES)
    return told / FINDINGS


def learnt(world: World, n_answers: int, seed: int, *, step: float = MACRO_STEP) -> FloatArray:
    """What the teams believe after so many answers."""
    # not the stream that `world` came from: questions that are drawn as the truth was would know it
    rng, before = np.random.default_rng([seed, 2]), world.belief
    drafts, now = rng.random((DRAFTS, *before.shape)) < before, before
    asked, told, expected = np.zeros(before.shape, bool), [], []
    for _ in range(n_answers):
        score = 0.25 + now / 2
        for finding in range(FINDINGS):
            doubtful = np.argsort(-now[:, finding] * (1 - now[:, finding]), kind="stable")[:FOCUS]
            is_raised = rng.random(FOCUS) < 0.5
            score[doubtful, finding] = np.where(is_raised, 0.8, 0) + 0.2 * now[doubtful, finding]
            asked[doubtful, finding] = True
        told.append(np.round(world.exact(score) / step) * step)
        expected.append(figures_of_drafts(score, drafts))
        away = np.hstack(expected) - np.hstack(expected).mean(axis=0)
        covariance = away.T @ away / DRAFTS + step**2 / 12 * np.eye(away.shape[1])
        weights = away @ np.linalg.solve(covariance, np.hstack(told) - np.hstack(expected).mean(axis=0))
        moved = np.where(asked, np.tensordot(weights, drafts - drafts.mean(axis=0), axes=(0, 0)) / DRAFTS, 0)
        by_chance = np.where(asked, before * (1 - before) * (weights @ weights) / DRAFTS**2, 0).sum()
        trust = max(0, 1 - by_chance / (moved**2).sum())  # so few drafts move beliefs by chance, too
        now = np.clip(before + trust * moved, 1e-3, 1 - 1e-3)
    return now


def mean_gain(n_images: int, n_answers: int, *, n_draws: int, step: float = MACRO_STEP) -> tuple[float, float]:
    """What the teams gain in macro AP 50, and in macro F1 of presence and absence."""
    gains = []
    for seed in range(n_draws):
        world = World.of(n_images, seed)
        after = learnt(world, n_answers, seed, step=step)
        by_ap = world.exact(after)[0] - world.exact(world.belief)[0]
        gains.append((by_ap, world.f1(after) - world.f1(world.belief)))
    ap, f1 = np.mean(gains, axis=0)
    return float(ap), float(f1)


@pytest.mark.parametrize(("n_images", "n_draws"), [(100, 4), (300, 2)])
def test_five_teams_learn_little_of_presence_and_absence_with_the_answers_that_a_board_gives(
    n_images: int, n_draws: int
) -> None:
    gained = mean_gain(n_images, TEAMS * KINDS["detection"].release.answers_on(n_images), n_draws=n_draws)
    assert max(gained) <= MOST_GAINED, gained


def test_more_and_exact_answers_would_teach_them() -> None:
    """So the test above can fail: thirty exact answers, in one draw; 120 give more than a board may."""
    world = World.of(100, 1)
    after = learnt(world, 30, 1, step=1e-6)
    likelihood = [np.log(np.where(world.is_there, belief, 1 - belief)).sum() for belief in (world.belief, after)]
    assert likelihood[1] > likelihood[0] + 5
    assert world.f1(after) > world.f1(world.belief) + MOST_GAINED / 2


def test_a_file_is_told_no_more_than_was_taken() -> None:
    """Nothing of one finding, and both macros no finer than the teams were told them; the drafts' figures are right."""
    world = World.of(100, 1)
    shown = release(world.rows(world.belief), POLICY)
    assert {(figure.metric, figure.finding) for figure in shown.figures} == {("ap_50", "macro"), ("cpm", "macro")}
    exact = world.exact(world.belief)
    for figure, value in zip(shown.figures, exact, strict=True):
        step = POLICY.resolution
        assert step > MACRO_STEP
        assert figure.value == pytest.approx(round(value / step) * step)
    assert figures_of_drafts(world.belief, world.is_there[None])[0] == pytest.approx(exact, abs=0.02)
