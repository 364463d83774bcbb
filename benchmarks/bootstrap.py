"""Measure the speed of bootstrap intervals, as ratios to resampling a pandas table in a loop.

Size B has 668 images and 10 findings, with a value for a quarter of the pairs, and 1,000 or 10,000 replicates of hits
and IoU. There are two peers:

* published: the loop of CheXlocalize's code, with `iloc` on a table that has an id column, then a mean per finding
* lean: `iloc` on a purely numeric table, then one mean over all columns

Our time covers everything from values per case to Estimates with intervals, including the draw. Jackknife intervals,
the default, only use the replicates to find undefined scores. Peer and package are measured alternately in this
process; a ratio is the median over five rounds of CPU seconds (three rounds with 10,000 replicates). Peers compute one
metric, even where the package computes several. Before timing, our replicates are checked against the means of a
resampled table.
"""

from __future__ import annotations

import statistics
from functools import partial

import numpy as np
import pandas as pd
from localization import cpu_seconds  # in this folder

from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.localization.scoring import CaseRows, summarize
from reveal_bench.metrics.bootstrap import bootstrap_means, resampling_counts
from reveal_bench.metrics.intervals import Interval, Resampling

N_IMAGES, N_FINDINGS = 668, len(CHEXLOCALIZE_FINDINGS)
SHARE_DEFINED = 0.25


def published(table: pd.DataFrame, n_resamples: int) -> pd.DataFrame:
    stream = np.random.RandomState(0)
    replicates = []
    for _ in range(n_resamples):
        resampled = table.iloc[stream.choice(len(table), size=len(table))]
        replicates.append({finding: resampled[finding].mean() for finding in CHEXLOCALIZE_FINDINGS})
    return pd.DataFrame(replicates)


def lean(table: pd.DataFrame, n_resamples: int) -> pd.DataFrame:
    stream = np.random.RandomState(0)
    return pd.DataFrame([table.iloc[stream.choice(len(table), size=len(table))].mean() for _ in range(n_resamples)])


def case_rows(**values: np.ndarray) -> CaseRows:
    """Return values per image and finding of several metrics, defined for the same pairs."""
    image, finding = np.nonzero(~np.isnan(next(iter(values.values()))))
    ids = [f"patient{i:05d}_study1_view1_frontal" for i in range(N_IMAGES)]
    return CaseRows(
        findings=CHEXLOCALIZE_FINDINGS,
        image_ids=[ids[i] for i in image],
        patient_ids=[ids[i] for i in image],
        case_findings=[CHEXLOCALIZE_FINDINGS[k] for k in finding],
        point_kinds=["mask"] * len(image),
        cell_kinds=["mask"] * len(image),
        values={name: table[image, finding] for name, table in values.items()},
        all_images=tuple((name, name) for name in ids),
    )


def check(table: np.ndarray) -> None:
    """Check that our replicates equal the means of resampled tables."""
    draws = np.random.default_rng(0).integers(0, N_IMAGES, (50, N_IMAGES))
    groups, units = np.tile(np.arange(N_FINDINGS), N_IMAGES), np.repeat(np.arange(N_IMAGES), N_FINDINGS)
    counts = resampling_counts(N_IMAGES, Resampling(50))
    ours = bootstrap_means(table.ravel(), groups, units, n_groups=N_FINDINGS, counts=counts).replicates
    np.testing.assert_allclose(ours, [np.nanmean(table[draw], axis=0) for draw in draws], rtol=1e-12)


def measure() -> list[dict[str, float | str]]:
    results: list[dict[str, float | str]] = []
    rng = np.random.default_rng(0)
    empty = rng.random((N_IMAGES, N_FINDINGS)) >= SHARE_DEFINED
    hits = np.where(empty, np.nan, rng.integers(0, 2, empty.shape))
    iou = np.where(empty, np.nan, rng.random(empty.shape))
    check(hits)
    check(iou)
    numeric = pd.DataFrame(hits, columns=list(CHEXLOCALIZE_FINDINGS))
    named = numeric.assign(img_id=[f"patient{i:05d}_study1_view1_frontal" for i in range(N_IMAGES)])
    ours: dict[str, tuple[CaseRows, Interval]] = {
        "hits": (case_rows(point_hit=hits), "jackknife"),
        "hits, percentiles": (case_rows(point_hit=hits), "percentile"),
        "IoU": (case_rows(mask_iou=iou), "jackknife"),
        "five metrics, one draw": (
            case_rows(point_hit=hits, grid_hit=hits, grid_chance=iou, mask_iou=iou, mask_iou_all=iou),
            "jackknife",
        ),
        "hits, BCa": (case_rows(point_hit=hits), "bca"),
    }
    for n, rounds in ((1_000, 5), (10_000, 3)):
        times: dict[str, list[float]] = {}
        for _ in range(rounds):
            times.setdefault("published", []).append(cpu_seconds(lambda n=n: published(named, n)))
            times.setdefault("lean", []).append(cpu_seconds(lambda n=n: lean(numeric, n)))
            for name, (rows, interval) in ours.items():
                seconds = cpu_seconds(partial(summarize, rows, Resampling(n, interval=interval)))
                times.setdefault(name, []).append(seconds)
        for name in ours:
            for peer in ("published", "lean"):
                ratio = statistics.median(p / o for p, o in zip(times[peer], times[name], strict=True))
                work = f"{n:,} replicates, {name}, against the {peer} pandas loop"
                results.append({"work": work, "ratio": round(ratio, 1), "ours_s": statistics.median(times[name])})
    return results
