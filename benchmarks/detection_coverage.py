"""Simulate how often intervals of detection metrics cover the true value.

Percentiles of replicates are compared with percentiles shifted by their bias. Some of the simulated images have one or
more lesions of the finding. The probability and score of a mark on a lesion depend on the difficulty of the image. The
number of false alarms has a Poisson distribution whose mean varies between images, and overlaps of hits have a beta
distribution. The true value is the mean over eight datasets of 20,000 images. Each cell has `TRIALS` datasets with 400
replicates each; a macro is over eight findings drawn in the same way.

``python -m benchmarks.detection_coverage`` prints the table of calibration.md (some ten minutes on four cores).
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from reveal_bench.metrics import METRICS
from reveal_bench.metrics.bootstrap import resampling_counts
from reveal_bench.metrics.detection import Matched, detection_figures
from reveal_bench.metrics.detection_matching import IOUS, RULES
from reveal_bench.metrics.intervals import Interval, Resampling, find_intervals

SHOWN = ("ap_50", "ap", "cpm", "froc_1", "wafroc", "lroc", "lesion_sensitivity", "false_alarms", "rsna_precision")
TRIALS, RESAMPLES, OF_MACRO = 2000, 400, 8
INTERVALS: tuple[Interval, ...] = ("percentile", "shifted")
CELLS = ((100, 0.2, 1), (300, 0.05, 1), (300, 0.2, 1), (300, 0.2, OF_MACRO))
"""Images, prevalence, findings."""
Array = np.ndarray[Any, np.dtype[Any]]


def logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def detector(rng: np.random.Generator, n: int, prevalence: float) -> Matched:
    """Return simulated marks of one finding on `n` images, one per patient."""
    hard = rng.normal(0, 0.5, n)
    lesion_image = np.repeat(np.arange(n), np.where(rng.random(n) < prevalence, 1 + rng.poisson(0.5, n), 0))
    is_marked = rng.random(len(lesion_image)) < logistic(np.log(3.0) + hard[lesion_image])
    indices = np.flatnonzero(is_marked)
    overlap = rng.beta(6, 3, len(indices))
    by_overlap = [np.where(overlap >= iou, indices, -1) for iou in IOUS]
    hit = np.array([*by_overlap, *[indices] * (len(RULES) - len(IOUS))], np.int32)
    score = logistic(1 + hard[lesion_image[indices]] + rng.normal(0, 1, len(indices)))
    alarms = np.repeat(np.arange(n), rng.poisson(np.exp(rng.normal(0, 0.5, n)), n))
    alarm_score = logistic(rng.normal(0, 1, len(alarms)) - 0.5 * hard[alarms])
    image = np.concatenate([lesion_image[indices], alarms])
    order = np.argsort(image, kind="stable")
    none = np.full((len(RULES), len(alarms)), -1, np.int32)
    scores = np.concatenate([score, alarm_score])
    return Matched(
        np.arange(n), image[order], scores[order], np.concatenate([hit, none], axis=1)[:, order], lesion_image
    )


def truths(prevalence: float) -> Array:
    values = []
    for seed in range(8):
        one = detector(np.random.default_rng(10_000 + seed), 20_000, prevalence)
        figures = detection_figures(one, SHOWN, np.ones((0, 20_000), np.float32))
        values.append([figures[name][0] for name in SHOWN])
    return np.mean(values, axis=0)


def trial(seed: int, n: int, prevalence: float, n_findings: int, truth: Array) -> Array:
    """Return (2 kinds of intervals, scores): 1 if an interval covers the true value, 0 if not, NaN if undefined."""
    rng = np.random.default_rng(seed)
    counts = resampling_counts(n, Resampling(RESAMPLES, seed))
    drawn = [detector(rng, n, prevalence) for _ in range(n_findings)]
    results = [detection_figures(one, SHOWN, counts) for one in drawn]
    n_having = np.inf if n_findings > 1 else len(np.unique(drawn[0].lesion_image))
    behind = np.array([n if name == "false_alarms" else n_having for name in SHOWN], np.float64)
    values = np.mean([[one[name][0] for name in SHOWN] for one in results], axis=0)
    replicates = np.mean([[one[name][1] for name in SHOWN] for one in results], axis=0).T
    held = []
    for interval in INTERVALS:
        ends = find_intervals(values, replicates, interval=interval, behind=behind)
        held.append(np.where(np.isnan(values), np.nan, (ends.low <= truth) & (truth <= ends.high)))
    return np.array(held)


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS
    print("| images | prevalence | findings | intervals |", " | ".join(METRICS[name].title for name in SHOWN), "|")
    print("|" + "---|" * (4 + len(SHOWN)))
    with ProcessPoolExecutor() as pool:
        for n, prevalence, n_findings in CELLS:
            work = partial(trial, n=n, prevalence=prevalence, n_findings=n_findings, truth=truths(prevalence))
            shares = np.nanmean(list(pool.map(work, range(trials), chunksize=20)), axis=0)
            for interval, row in zip(("percentile", "shifted"), shares, strict=True):
                cells = " | ".join(f"{share:.3f}" for share in row)
                print(f"| {n} | {prevalence:g} | {n_findings} | {interval} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
