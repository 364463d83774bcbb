"""Simulate what five colluding teams learn, and what protection costs honest ones (colluding.md).

    python -m benchmarks.colluding            # about forty minutes on one processor

The simplest attackers are "focused" in `tests/leaderboard/probing.py`; better ones are in
:mod:`benchmarks.colluding_findings`, :mod:`benchmarks.colluding_places` and :mod:`benchmarks.colluding_detections`.
Each table row is a mean over random boards, with the half-width of its 95% interval over 24 boards. On the most
vulnerable boards of findings, every label has only 30 studies. Boards have the default release policy and several
budgets of submissions.

The cost to honest teams is simulated with five models whose scores have a correlation of 0.5 given the labels. The
table shows how many of their ten pairs differ significantly on an open and on a closed board, the width of intervals,
and how often a label's interval covers the mean F1 of all draws.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import mean

import numpy as np
from reveal_leaderboard.release.ranking import rank_document
from reveal_leaderboard.release.release import release
from reveal_leaderboard.settings import ReleasePolicy
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.metrics import f1_score

from benchmarks import colluding_detections, colluding_findings, colluding_places
from reveal_bench.arrays import FloatArray
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.findings.scoring import StudyRows
from reveal_bench.kinds.parts import cases_of_average
from reveal_bench.metrics.bootstrap import MACRO
from tests.leaderboard import test_probing_simulation as attack
from tests.leaderboard.probing import best_calls

DRAWS = 24
TEAMS = 5
WORLDS: dict[str, tuple[int, tuple[int, ...]]] = {
    "100": (100, (10, 30, 35, 40, 50)),
    "150": (150, (10, 30, 40, 60, 70)),
    "300": (300, (10, 30, 38, 46, 60, 75, 100, 140)),
    "668": (668, (10, 30, 35, 50, 85, 120, 200, 309)),
    "1000": (1000, (10, 30, 60, 120, 300, 400)),
}
"""Numbers of studies, and of studies with each label; the first label is too rare for a separate score."""
attack.WORLDS |= {name: (n, 0.9, counts) for name, (n, counts) in WORLDS.items()}
EACH = (1, 2, 3, 5, 10)
SKILLS = (0.80, 0.83, 0.86, 0.89, 0.92)


def leak(name: str, each: int, seed: int) -> float:
    """Return the attackers' gain in macro F1 over the visible labels, in one draw."""
    gain, _ = attack.attack_together(attack.draw(name, seed), "focused", seed=seed, each=each)
    return float(gain[attack.RARE + 1 :].mean())


def systems(name: str, seed: int) -> dict[str, StudyRows]:
    """Return the labels of one draw, and five models' probabilities."""
    n_studies, counts = WORLDS[name]
    rng = np.random.default_rng([seed, 1])
    present = np.column_stack([rng.permutation(n_studies) < n for n in counts])
    shared = rng.normal(size=present.shape)
    studies = tuple(StudyRecord(f"s{i}", f"p{i}", ()) for i in range(n_studies))
    labels = tuple(f"label {i}" for i in range(len(counts)))
    models = {}
    for skill in SKILLS:
        shift = np.sqrt(2) * norm.ppf(skill)
        scores = np.sqrt(0.5) * (shared + rng.normal(size=present.shape)) + shift * present
        beliefs = expit(shift * scores - shift**2 / 2 + logit(present.mean(axis=0)))
        calls = np.column_stack([best_calls(belief, belief.sum()) for belief in beliefs.T])
        models[f"AUROC {skill}"] = StudyRows(labels, studies, calls, present, None, np.ones(n_studies, bool))
    return models


@dataclass(frozen=True)
class Usefulness:
    """Scores of honest teams in one draw: significantly different pairs on an open and a closed board, intervals of F1
    (n, 2) with the macro first, and the exact F1 of each visible label."""

    n_pairs_open: int
    n_pairs_closed: int
    intervals: FloatArray
    exact: FloatArray


def usefulness(name: str, seed: int) -> Usefulness:
    models, policy = systems(name, seed), ReleasePolicy()
    n_pairs = []
    for paired in (False, True):
        places = rank_document(models, policy, paired=paired)["entries"].values()
        n_pairs.append(sum(a["tier"] != b["tier"] for a, b in itertools.combinations(places, 2)))
    one = models["AUROC 0.86"]
    figures = [f for f in release(one, policy).figures if f.metric == "f1"]
    indices = [one.labels.index(f.finding) for f in figures if f.finding != MACRO]
    intervals = np.array([(f.low, f.high) for f in figures], float)
    return Usefulness(*n_pairs, intervals, f1_score(one.present[:, indices], one.predicted[:, indices], average=None))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for row in (head, ["---"] * len(head), *rows):
        print("| " + " | ".join(row) + " |")


def gain_text(gains: FloatArray) -> str:
    """Return the mean gain and half the width of its 95% interval over `DRAWS` boards."""
    return f"{gains.mean():.3f} ± {1.96 * gains.std(ddof=1) / DRAWS**0.5:.3f}"


def print_findings(policy: ReleasePolicy) -> None:
    """Print the gain in macro F1 by number of studies, AUROC of the model and submissions per team."""
    board, rows = colluding_findings.Board.of(policy), []
    for auroc, (n, counts) in itertools.product((0.85, 0.9, 0.95), colluding_findings.WORLDS.items()):
        for labels in (counts, colluding_findings.RARE):
            gains = [
                colluding_findings.attack(colluding_findings.draw(n, auroc, labels, DRAWS, 1), board, TEAMS * each)
                for each in EACH[:3]
            ]
            rows.append([str(n), ", ".join(map(str, labels)), f"{auroc:.2f}", *map(gain_text, gains)])
    print_table(["studies", "with each label", "AUROC", *(f"{each} each" for each in EACH[:3])], rows)


def print_places(policy: ReleasePolicy) -> None:
    """Print the gain in the average hit rate with one submission per team, by number of cases and model."""
    rows = []
    for n_cases in colluding_places.WORLDS:
        board = colluding_places.Board.of(policy, n_cases)
        gains = [
            colluding_places.attack(colluding_places.draw(n_cases, model, DRAWS, 1), board, TEAMS)
            for model in colluding_places.MODELS.values()
        ]
        rows.append([", ".join(map(str, n_cases)), f"{cases_of_average(n_cases):.0f}", *map(gain_text, gains)])
    print_table(["cases of each finding", "in the average", *colluding_places.MODELS], rows)


def print_detections(policy: ReleasePolicy) -> None:
    """Print the gain of macro AP 50 by images, findings, AUROC of the model and submissions of each team."""
    worlds, rows = ((0.85, 1), (0.9, 1), (0.95, 1), (0.85, 3)), []
    for n, n_findings in itertools.product((100, 150, 300, 1000), (1, 3, 6)):
        counts = np.linspace(max(30, 0.12 * n), max(36, 0.4 * n), n_findings).astype(int).tolist()
        gains = [detection_gains(policy, n, counts, auroc, TEAMS * each) for auroc, each in worlds]
        rows.append([str(n), str(n_findings), *map(gain_text, gains)])
    print_table(["images", "findings", *(f"{each} each, AUROC {auroc:.2f}" for auroc, each in worlds)], rows)


def detection_gains(
    policy: ReleasePolicy, n_images: int, counts: Sequence[int], auroc: float, n_answers: int
) -> FloatArray:
    """Return the gain of macro AP 50 on each board, by the way of asking that gains most on average."""
    step = colluding_detections.step_of(policy, len(counts))
    gains = [
        colluding_detections.attack(
            colluding_findings.draw(n_images, auroc, counts, DRAWS, 1), n_answers, step=step, asks=asks
        )
        for asks in colluding_detections.WAYS
    ]
    return max(gains, key=lambda gain: float(gain.mean()))


def main() -> None:
    for print_gains in (print_findings, print_places, print_detections):
        print_gains(ReleasePolicy())
        print()
    with ProcessPoolExecutor() as pool:
        rows: list[list[str]] = []
        for name in WORLDS:
            gains = [mean(pool.map(leak, [name] * DRAWS, [each] * DRAWS, range(DRAWS))) for each in EACH]
            rows.append([name, *(f"{gain:.3f}" for gain in gains)])
        print_table(["studies", *(f"{each} each" for each in EACH)], rows)
        rows = []
        for name in WORLDS:
            outcomes = list(pool.map(usefulness, [name] * DRAWS, range(DRAWS)))
            intervals, exact = np.array([o.intervals for o in outcomes]), np.array([o.exact for o in outcomes])
            holds = (intervals[:, 1:, 0] <= exact.mean(axis=0)) & (exact.mean(axis=0) <= intervals[:, 1:, 1])
            widths = (intervals[..., 1] - intervals[..., 0]).mean(axis=0)
            mean_pairs = [
                mean(outcome.n_pairs_open for outcome in outcomes),
                mean(outcome.n_pairs_closed for outcome in outcomes),
            ]
            rows.append(
                [name, *(f"{n:.1f}" for n in mean_pairs), f"{widths[0]:.2f}", f"{widths[1]:.2f}", f"{holds.mean():.3f}"]
            )
        print()
        print_table(["studies", "open", "closed", "macro", "label with 30", "held"], rows)


if __name__ == "__main__":
    main()
