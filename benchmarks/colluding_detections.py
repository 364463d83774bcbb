"""Simulate five colluding teams with a strong attack on detection boards.

A file that marks few images has few false alarms. CPM then is the mean proportion of lesions found, which reveals how
many marked images have the finding. AP 50 of the same file weights these images by their order, which reveals a second
number. The teams therefore mark some of their doubtful images, for one finding at a time or for all, and decode the
answers as in :mod:`benchmarks.colluding_findings`. Each image has at most one lesion of a finding, which a mark always
hits. AP 50 is treated as linear in the labels, with weights that the teams choose.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from reveal_leaderboard.release.rounding import Rounding
from reveal_leaderboard.settings import ReleasePolicy

from benchmarks.colluding_findings import Attackers, best_files, observe_average
from reveal_bench.arrays import FloatArray

Asks = Literal["one finding", "all findings"]
WAYS: tuple[Asks, ...] = ("one finding", "all findings")


def attack(attackers: Attackers, n_answers: int, *, step: float, asks: Asks) -> FloatArray:
    """Return the gain in macro AP 50 of each board (n_boards,) after `n_answers` answers."""
    before = average_precision(attackers, attackers.prior)
    n_labels = attackers.n_labels
    for answer in range(n_answers):
        marks = best_files(attackers)
        if asks == "one finding":
            marks[np.arange(len(marks)) % n_labels != answer % n_labels] = 0
        of_lesion = marks / attackers.n_with[:, None] / n_labels
        observe_average(attackers, of_lesion, step)  # CPM
        order = attackers.rng.random(marks.shape)
        observe_average(attackers, of_lesion * order, step)  # AP 50
    gain = average_precision(attackers, attackers.beliefs()) - before
    return gain.reshape(-1, n_labels).mean(axis=1)


def average_precision(attackers: Attackers, p: FloatArray) -> FloatArray:
    """Return the average precision of rankings by `p` (n_rows,)."""
    order = np.argsort(-p, axis=1, kind="stable")
    hits = np.take_along_axis(attackers.present, order, axis=1)
    precision = np.cumsum(hits, axis=1) / np.arange(1, p.shape[1] + 1)
    average: FloatArray = (hits * precision).sum(axis=1) / hits.sum(axis=1)
    return average


def step_of(policy: ReleasePolicy, n_findings: int) -> float:
    """Return the step to which a board rounds an average over `n_findings` findings."""
    return Rounding(policy).macro_step([policy.min_cell] * n_findings)
