"""A prober against the release policy, the ladder and the quota, in one process; and against a board without them.

The labels are drawn at random, and the prober's model is good: AUROC 0.95 on every label. What he gains is the F1 of
the calls that he could send in the end over that of his own model's, a mean over draws of the labels.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pytest
from reveal_leaderboard.release.ranking import compare_document
from reveal_leaderboard.release.release import ReleasedScore, climb, release
from reveal_leaderboard.settings import ReleasePolicy, load_settings
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.metrics import f1_score, roc_auc_score

from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.findings.scoring import StudyRows
from tests.leaderboard.probing import (
    STRATEGIES,
    Answer,
    BoolArray,
    BudgetSpentError,
    FloatArray,
    Prober,
    Strategy,
    count_in_both,
)

WORLDS = {"668 studies": (668, (10, 30, 35, 85, 120, 309)), "120 studies": (120, (10, 30, 35, 50, 60))}
PAIRED_WORLD = (400, (10, 45, 100))
"""Studies, and how many of them have each label; the first label is always too rare to be shown."""
RARE = 0
DRAWS: dict[Strategy, int] = {"focused": 40, "random": 12, "splitting": 12}
"""Of the labels; the standard error of the gain on the rarest label shown is some 0.006 with 40."""
SETTINGS = load_settings().of("reveal-cxr")
MOST_GAINED = 0.05


@dataclass(frozen=True)
class World:
    """Labels nobody knows, and what the prober's model makes of them."""

    labels: tuple[str, ...]
    present: BoolArray
    beliefs: FloatArray

    def f1(self, calls: BoolArray) -> FloatArray:
        scores: npt.NDArray[np.float64] = f1_score(self.present, calls, average=None, zero_division=0)
        return scores


def draw(name: str, seed: int) -> World:
    n_studies, counts = WORLDS.get(name, PAIRED_WORLD)
    rng = np.random.default_rng(seed)
    present = np.column_stack([rng.permutation(n_studies) < n for n in counts])
    shift = np.sqrt(2) * norm.ppf(0.95)
    scores = rng.normal(size=present.shape) + shift * present
    beliefs = expit(shift * scores - shift**2 / 2 + logit(np.array(counts) / n_studies))  # Bayes' rule
    return World(tuple(f"label of {n}" for n in counts), present, np.clip(beliefs, 1e-4, 1 - 1e-4))


@dataclass
class GuardedBoard:
    """What the leaderboard shows a team: released figures, its best again while the ladder holds, until the quota."""

    world: World
    policy: ReleasePolicy
    quota: int
    best: ReleasedScore | None = None
    n_scored: int = 0
    shown: list[StudyRows] = field(default_factory=list)

    def ask(self, calls: BoolArray) -> Answer | None:
        if self.n_scored == self.quota:
            raise BudgetSpentError
        self.n_scored += 1
        rows = self._rows(calls)
        new = release(rows, self.policy)
        if not climb(new, self.best, self.policy):
            return None
        self.best = new
        self.shown.append(rows)
        answer: dict[str, dict[str, float]] = defaultdict(dict)
        for figure in new.figures:
            answer[figure.metric][figure.finding] = figure.value
        return answer

    def compare(self, i: int, j: int, *, paired: bool) -> dict[str, float]:
        """Standard errors of the differences of F1 of two scores that were shown, as far as their intervals tell."""
        errors = {}
        for row in compare_document(self.shown[i], self.shown[j], self.policy, paired=paired)["rows"]:
            if row["metric"] == "f1" and row["finding"] in self.world.labels and row["low"] is not None:
                step = self.policy.step_of(int(row["finding"].removeprefix("label of ")))
                width = row["high"] - row["low"] - step  # each end is rounded outwards, by half a step on average
                errors[row["finding"]] = max(width, 0.0) / 2 / norm.ppf(0.975)
        return errors

    def _rows(self, calls: BoolArray) -> StudyRows:
        studies = tuple(StudyRecord(f"s{i}", f"p{i}", ()) for i in range(len(calls)))
        given = np.ones(len(calls), bool)
        return StudyRows(self.world.labels, studies, calls, self.world.present, None, given)


@dataclass
class OpenBoard:
    """Exact scores of every label, as often as one asks."""

    world: World
    asked: list[BoolArray] = field(default_factory=list)

    def ask(self, calls: BoolArray) -> Answer:
        self.asked.append(calls)
        return {"f1": dict(zip(self.world.labels, self.world.f1(calls).tolist(), strict=True))}


def attack_guarded(world: World, strategy: Strategy, *, seed: int) -> tuple[FloatArray, BoolArray]:
    """Gain per label, and which labels' calls the prober changed. One submission is left to post what he found."""
    quota = SETTINGS.quota.total
    policy = replace(SETTINGS.release, n_resamples=10)  # he does not use the intervals
    steps = {x: policy.step_of(int(n)) for x, n in zip(world.labels, world.present.sum(axis=0), strict=True)}
    board = GuardedBoard(world, policy, quota)
    prober = Prober(world.labels, world.beliefs, step=steps, seed=seed)
    calls, own = prober.attack(board.ask, strategy, most=quota - 1), prober.own_calls()
    assert board.n_scored == quota - 1
    return world.f1(calls) - world.f1(own), (calls != own).any(axis=0)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", WORLDS)
def test_a_prober_gains_next_to_nothing_within_the_quota(name: str, strategy: Strategy) -> None:
    attacks = [attack_guarded(draw(name, seed), strategy, seed=seed) for seed in range(DRAWS[strategy])]
    gains = np.mean([gain for gain, _ in attacks], axis=0)
    assert (gains[1:] <= MOST_GAINED).all(), gains.round(3)
    assert not any(changed[RARE] for _, changed in attacks)  # nothing at all is learnt of what is hidden
    assert any(changed[1:].any() for _, changed in attacks)  # and of the others something is: the attack works


def pairs_board(seed: int) -> GuardedBoard:
    """One that shows every score: the ladder would only keep some of the pairs back."""
    return GuardedBoard(draw("pairs", seed), replace(SETTINGS.release, n_resamples=200, ladder_step=-1.0), 10)


def test_ten_submissions_and_their_45_comparisons_tell_no_more_than_ten_submissions() -> None:
    gains = []
    for seed in range(4):
        board = pairs_board(seed)
        world = board.world
        steps = {x: board.policy.step_of(int(n)) for x, n in zip(world.labels, world.present.sum(axis=0), strict=True)}
        prober = Prober(world.labels, world.beliefs, step=steps, seed=seed)
        alone = world.f1(prober.attack(board.ask, "focused", most=board.quota))
        assert len(board.shown) == 10
        gains.append(world.f1(prober.attack_pairs(lambda i, j: board.compare(i, j, paired=False))) - alone)  # noqa: B023
    assert (np.mean(gains, axis=0) <= 0.01).all(), np.round(gains, 3)


def test_a_paired_interval_would_tell_the_count_in_both() -> None:
    """What the leaderboard keeps from entries of one group: so that the test above can fail."""
    wrong: dict[bool, list[float]] = {True: [], False: []}
    rng = np.random.default_rng(5)
    board = pairs_board(0)
    present = board.world.present[:, 2]
    for k in range(3):
        order = rng.permutation(len(present))
        a, b = (np.isin(np.arange(len(present)), own) for own in (order[:100], order[50:150]))
        board.shown += [board._rows(np.repeat(calls[:, None], 3, axis=1)) for calls in (a, b)]
        for paired in wrong:
            error = board.compare(2 * k, 2 * k + 1, paired=paired)["label of 100"]
            counts = (float((calls & present).sum()) for calls in (a, b))
            found = count_in_both(a, b, 100, *counts, error)
            wrong[paired].append(abs(found - float((a & b & present).sum())))
    assert max(wrong[True]) <= 3 < min(wrong[False]), wrong


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_the_policy_he_gets_what_is_hidden_too(strategy: Strategy) -> None:
    """The same prober on exact scores, without small cells hidden, without a quota: so the test above can fail."""
    reached = []
    for seed in range(2):
        world = draw("120 studies", seed)
        prober = Prober(world.labels, world.beliefs, step=1e-6, seed=seed)
        calls = prober.attack(OpenBoard(world).ask, strategy, most=70)
        assert (world.f1(prober.own_calls())[:3] < 0.87).all()
        reached.append(world.f1(calls))
    assert (np.mean(reached, axis=0)[:3] >= 0.9).all(), np.round(reached, 2)


def test_with_five_times_the_quota_he_succeeds_in_spite_of_the_rest() -> None:
    """Neither rounding nor the ladder protects without a quota: why it belongs to the organization."""
    gains = []
    for seed in range(3):
        world = draw("120 studies", seed)
        steps = dict.fromkeys(world.labels, 0.1) | {world.labels[-1]: 0.01}
        board = GuardedBoard(world, ReleasePolicy(n_resamples=10, ladder_step=0.0), 10**6)
        prober = Prober(world.labels, world.beliefs, step=steps, seed=seed)
        gains.append(world.f1(prober.attack(board.ask, "focused", most=50)) - world.f1(prober.own_calls()))
    assert np.mean(gains, axis=0)[1:].max() > MOST_GAINED, np.round(gains, 3)


def test_a_board_that_answers_nothing_teaches_nothing() -> None:
    world = draw("120 studies", 0)
    prober = Prober(world.labels, world.beliefs)
    for strategy in STRATEGIES:
        assert (prober.attack(lambda calls: None, strategy, most=5) == prober.own_calls()).all()


def test_the_model_is_as_good_as_it_should_be() -> None:
    worlds = [draw("668 studies", seed) for seed in range(10)]
    aurocs = [roc_auc_score(world.present[:, -1], world.beliefs[:, -1]) for world in worlds]
    assert np.mean(aurocs) == pytest.approx(0.95, abs=0.01)
