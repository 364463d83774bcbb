"""Measure the speed of F1 and kappa intervals, against calling scikit-learn in every replicate.

There are 668 studies, 12 labels and 1,000 replicates; the peer is measured on 10 replicates and scaled. The package
computes everything from decisions to Estimates of all averages, exact match, Hamming loss and kappa. The peer only
computes F1 and kappa per label.
"""

from __future__ import annotations

import statistics
import warnings

import numpy as np
from localization import cpu_seconds  # in this folder
from sklearn.metrics import cohen_kappa_score, f1_score

from reveal_bench.findings import REVEAL_LABELS
from reveal_bench.metrics.estimates import estimate_labels
from reveal_bench.metrics.intervals import Resampling

N_STUDIES, N_RESAMPLES, PEER_RESAMPLES, ROUNDS = 668, 1000, 10, 5


def measure() -> list[dict[str, float | str]]:
    rng = np.random.default_rng(0)
    references = rng.random((N_STUDIES, len(REVEAL_LABELS))) < 0.2
    predictions = np.where(rng.random(references.shape) < 0.8, references, ~references)

    def peer() -> None:
        draws = np.random.default_rng(0)
        for _ in range(PEER_RESAMPLES):
            drawn = draws.integers(0, N_STUDIES, N_STUDIES)
            a, b = references[drawn], predictions[drawn]
            f1_score(a, b, average=None, zero_division=np.nan)
            for i in range(a.shape[1]):
                cohen_kappa_score(a[:, i], b[:, i])

    def ours() -> None:
        estimate_labels(predictions, references, labels=REVEAL_LABELS, resampling=Resampling(N_RESAMPLES))

    ours()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        times = [(cpu_seconds(peer) * N_RESAMPLES / PEER_RESAMPLES, cpu_seconds(ours)) for _ in range(ROUNDS)]
    ratio = statistics.median(p / o for p, o in times)
    return [{"work": "F1 and kappa intervals of 12 labels", "ratio": round(ratio, 1), "ours_s": times[0][1]}]
