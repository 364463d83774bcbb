"""Simulate how often reader studies of equal modalities find a difference: ``python benchmarks/reader_studies.py``.

Ratings are normal (Roe and Metz, Academic Radiology 4, 1997). The variances of case, case x modality, case x reader and
error are 0.3, 0.3, 0.2 and 0.2. The mean difference between cases with and without the finding is 1.5; it varies with
variance 0.05 between readers and 0.05 between a reader's modalities. There are six readers and 120 cases, half of them
with the finding. The figure of merit is the area under the ROC curve; readers and cases are random. For each design,
the script prints the proportion of studies with p of at most 0.05, and how often the 95% interval of the difference
covers 0. In designs with a system, its area equals the readers' average.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import numpy.typing as npt

from reveal_bench.reader_studies.analysis import analyse
from reveal_bench.reader_studies.study import ReaderStudy, figures_of

READERS, CASES = 6, 120
CASE, OF_MODALITY, OF_READER, REST = 0.3, 0.3, 0.2, 0.2
APART, SKILL, INTERACTION = 1.5, 0.05, 0.05
DESIGNS = ("all read all", "pairs read 40 each", "each reads a random half", "from 30 to 110 cases", "a system beside")

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def ratings(rng: np.random.Generator, truth: npt.NDArray[np.int64], *, system: bool) -> FloatArray:
    """Return ratings of two equal modalities (2, READERS, CASES); with a system, the first is the system's."""

    def normal(variance: float, *shape: int) -> FloatArray:
        return math.sqrt(variance) * rng.standard_normal(shape)

    case = normal(CASE, CASES) + normal(OF_MODALITY, 2, 1, CASES)
    distance = APART + normal(SKILL, 1, READERS, 1) + normal(INTERACTION, 2, READERS, 1)
    read = distance * truth + case + normal(OF_READER, 1, READERS, CASES) + normal(REST, 2, READERS, CASES)
    if system:  # variation of the difference between readers lowers the expected area like additional noise
        own = APART * math.sqrt(2 / (2 + SKILL + INTERACTION))
        read[0] = own * truth + case[0] + normal(OF_READER + REST, 1, CASES)
    return read


def unread(rng: np.random.Generator, truth: npt.NDArray[np.int64], design: str) -> BoolArray:
    """Return a mask (READERS, CASES) of unread cases, equally many with and without the finding."""
    if design in ("all read all", "a system beside"):
        return np.zeros((READERS, CASES), bool)
    if design == "pairs read 40 each":
        return np.arange(CASES) // 40 != np.arange(READERS)[:, None] // 2
    sizes = [CASES // 4] * READERS if design == "each reads a random half" else [15 + 8 * j for j in range(READERS)]
    left_out = np.ones((READERS, CASES), bool)
    for j, size in enumerate(sizes):
        for present in (0, 1):
            left_out[j, rng.permutation(np.flatnonzero(truth == present))[:size]] = False
    return left_out


def main() -> None:
    """Print a line per design."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    n_trials = parser.parse_args().trials
    truth = np.arange(CASES) % 2
    names = tuple(f"case {i}" for i in range(CASES)), tuple(f"reader {j}" for j in range(READERS))
    print(f"{n_trials:,} studies each; design, proportion with p <= 0.05, proportion of intervals that cover 0")
    for number, design in enumerate(DESIGNS):
        rng = np.random.default_rng([7, number])
        n_significant = n_covered = 0
        for _ in range(n_trials):
            scores = ratings(rng, truth, system=design == "a system beside")
            scores[:, unread(rng, truth, design)] = math.nan
            study = ReaderStudy(("a", "b"), names[1], names[0], scores, truth, np.arange(CASES))
            (difference,) = analyse(*figures_of(study, "auc"), modalities="ab", readers=names[1]).differences
            n_significant += difference.p <= 0.05
            n_covered += difference.estimate.low <= 0 <= difference.estimate.high
        print(f"{design:26} {n_significant / n_trials:.3f}  {n_covered / n_trials:.3f}", flush=True)


if __name__ == "__main__":
    main()
