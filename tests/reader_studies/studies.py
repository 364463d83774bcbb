"""Simulated reader studies."""

from __future__ import annotations

import numpy as np

from reveal_bench.reader_studies.study import ReaderStudy


def drawn(rng: np.random.Generator, *, t: int, r: int, n: int, per_patient: int = 1) -> ReaderStudy:
    """Scores of 1 to 5 that lean to the truth; every case a patient's own, or so many of each patient."""
    truth = (np.arange(n) % 3 == 0).astype(np.int64)
    surety = truth + 0.7 * rng.standard_normal((t, r, n)) + 0.5 * rng.standard_normal(n)
    names = (tuple(f"{letter}{i}" for i in range(count)) for letter, count in zip("mrc", (t, r, n), strict=True))
    return ReaderStudy(*names, np.clip(np.round(2 * surety + 2), 1, 5), truth, np.arange(n) // per_patient)
