"""What five colluding teams learn of a holdout, and what the protection costs honest ones (docs/operating.md).

    python -m benchmarks.colluding            # some minutes on four processors

Labels are drawn at random; a model is calibrated scores of a given AUROC, called at its best threshold for F1. Leak:
the gain of macro F1 over the shown labels of five teams who share a model and whatever each is told, asking as
"focused" in `tests/leaderboard/probing.py`. Usefulness: five models whose scores have a correlation of 0.5 given the
labels; how many of their ten pairs an open board tells apart, and a closed one; and how wide intervals are.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import mean

import numpy as np
from reveal_leaderboard.release.ranking import rank_document
from reveal_leaderboard.release.release import release
from reveal_leaderboard.settings import ReleasePolicy
from scipy.special import expit, logit
from scipy.stats import norm

from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.findings.scoring import StudyRows
from tests.leaderboard import test_probing_simulation as attack
from tests.leaderboard.probing import best_calls

DRAWS = 24
WORLDS: dict[str, tuple[int, tuple[int, ...]]] = {
    "100": (100, (10, 30, 35, 40, 50)),
    "150": (150, (10, 30, 40, 60, 70)),
    "300": (300, (10, 30, 38, 46, 60, 75, 100, 140)),
    "668": (668, (10, 30, 35, 50, 85, 120, 200, 309)),
    "1000": (1000, (10, 30, 60, 120, 300, 400)),
}
"""Studies, and how many have each label; the first label is too rare to be shown."""
attack.WORLDS |= {name: (n, 0.9, counts) for name, (n, counts) in WORLDS.items()}
EACH = (1, 2, 3, 5, 10)
SKILLS = (0.80, 0.83, 0.86, 0.89, 0.92)


def leak(name: str, each: int, seed: int) -> float:
    """Gain of macro F1 over the labels shown, in one draw."""
    gain, _ = attack.attack_together(attack.draw(name, seed), "focused", seed=seed, each=each)
    return float(gain[attack.RARE + 1 :].mean())


def systems(name: str, seed: int) -> dict[str, StudyRows]:
    """Five models on one draw of the labels."""
    n_studies, counts = WORLDS[name]
    rng = np.random.default_rng([seed, 1])
    present = np.column_stack([rng.permutation(n_studies) < n for n in counts])
    shared = rng.normal(size=present.shape)
    studies = tuple(StudyRecord(f"s{i}", f"p{i}", ()) for i in range(n_studies))
    labels = tuple(f"label {i}" for i in range(len(counts)))
    made = {}
    for skill in SKILLS:
        shift = np.sqrt(2) * norm.ppf(skill)
        scores = np.sqrt(0.5) * (shared + rng.normal(size=present.shape)) + shift * present
        beliefs = expit(shift * scores - shift**2 / 2 + logit(present.mean(axis=0)))
        calls = np.column_stack([best_calls(belief, belief.sum()) for belief in beliefs.T])
        made[f"AUROC {skill}"] = StudyRows(labels, studies, calls, present, None, np.ones(n_studies, bool))
    return made


def usefulness(name: str, seed: int) -> tuple[int, int, float, float]:
    """Pairs that an open board and a closed one tell apart; widths of the macro's interval and the rarest label's."""
    models, policy = systems(name, seed), ReleasePolicy()
    told = []
    for paired in (False, True):
        places = rank_document(models, policy, paired=paired)["entries"].values()
        told.append(sum(a["tier"] != b["tier"] for a, b in itertools.combinations(places, 2)))
    figures = {f.finding: f for f in release(models["AUROC 0.86"], policy).figures if f.metric == "f1"}
    widths = [(figures[of].high or 0) - (figures[of].low or 0) for of in ("macro", "label 1")]
    return told[0], told[1], widths[0], widths[1]


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for row in (head, ["---"] * len(head), *rows):
        print("| " + " | ".join(row) + " |")


def main() -> None:
    with ProcessPoolExecutor() as pool:
        rows = []
        for name in WORLDS:
            gains = [mean(pool.map(leak, [name] * DRAWS, [each] * DRAWS, range(DRAWS))) for each in EACH]
            rows.append([name, *(f"{gain:.3f}" for gain in gains)])
        print_table(["studies", *(f"{each} each" for each in EACH)], rows)
        rows = []
        for name in WORLDS:
            found = np.array(list(pool.map(usefulness, [name] * DRAWS, range(DRAWS)))).mean(axis=0)
            rows.append([name, f"{found[0]:.1f}", f"{found[1]:.1f}", f"{found[2]:.2f}", f"{found[3]:.2f}"])
        print()
        print_table(["studies", "open", "closed", "macro", "label with 30"], rows)


if __name__ == "__main__":
    main()
