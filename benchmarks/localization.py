"""Speed of localization scoring on size L, as ratios to decoding every mask and working on it with numpy.

Size L is CheXlocalize's test set: 668 images of 2320 x 2828 pixels, 10 findings, 1,534 positive pairs, two files of RLE
strings. The masks are synthetic (smooth random outlines, about as many characters a string as the real ones). Peer and
ours are measured in turn in this one process on the same pairs; a ratio is the median of five, each of CPU seconds.
The peer is measured on every twentieth pair, since decoding all would take minutes; ours also on all pairs.

Run it with ``make bench``; it writes ``benchmarks/results.json``.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from pycocotools import mask as coco

from reveal_bench.geometry import Grid
from reveal_bench.masks import Rle, encode_mask, pack_masks
from reveal_bench.metrics.bootstrap import bootstrap_means, percentile_interval, resampling_counts
from reveal_bench.metrics.localization import grid_hit, mask_iou, point_hit

HEIGHT, WIDTH = 2320, 2828
N_PAIRS, STRIDE, ROUNDS = 1534, 20, 5
N_IMAGES, N_FINDINGS, N_RESAMPLES = 668, 10, 1000


def outline(rng: np.random.Generator, wiggle: float) -> Rle:
    """A mask with a smooth random outline: a few low frequencies and `wiggle` of high ones."""
    angle = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    radius = np.ones_like(angle)
    for k in (2, 3, 5, 8, 40):
        radius += rng.normal(0, wiggle if k == 40 else 0.2 / k) * np.cos(k * angle + rng.uniform(0, 6.3))
    size = rng.uniform(120, 600)
    x = rng.uniform(700, 2100) + size * radius * np.cos(angle)
    y = rng.uniform(600, 1700) + size * radius * np.sin(angle)
    canvas = Image.new("1", (WIDTH, HEIGHT))
    ImageDraw.Draw(canvas).polygon(list(zip(x.tolist(), y.tolist(), strict=True)), fill=1, outline=1)
    return encode_mask(np.asarray(canvas))


def cpu_seconds(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def compare(name: str, peer: Callable[[], object], ours: Callable[[], object]) -> dict[str, float | str]:
    """Both in turn, five times; their results must be equal."""
    assert np.array_equal(np.asarray(peer()), np.asarray(ours()), equal_nan=True), name
    times = [(cpu_seconds(peer), cpu_seconds(ours)) for _ in range(ROUNDS)]
    ratio = statistics.median(p / o for p, o in times)
    return {"work": name, "ratio": round(ratio, 1), "peer_s": times[0][0], "ours_s": times[0][1]}


def decoded(rle: Rle) -> np.ndarray:
    return coco.decode({"size": list(rle.size), "counts": rle.counts.encode()})


def peer_iou(predictions: list[Rle], references: list[Rle]) -> list[float]:
    result = []
    for a, b in zip(predictions, references, strict=True):
        mask_a, mask_b = decoded(a), decoded(b)
        union = np.sum(np.logical_or(mask_a, mask_b))
        result.append(np.sum(np.logical_and(mask_a, mask_b)) / union if union else np.nan)
    return result


def peer_points(points: list[list[tuple[float, float]]], references: list[Rle]) -> list[float]:
    result = []
    for some, reference in zip(points, references, strict=True):
        mask = decoded(reference)
        result.append(np.nan if mask.sum() == 0 else float(any(mask[int(y), int(x)] for x, y in some)))
    return result


def peer_cells(cells: list[list[str]], references: list[Rle], grid: Grid) -> list[float]:
    result = []
    left = (WIDTH - HEIGHT) // 2
    side = HEIGHT // grid.n
    for names, reference in zip(cells, references, strict=True):
        square = decoded(reference)[:, left : left + HEIGHT]
        share = square.reshape(grid.n, side, grid.n, side).mean(axis=(1, 3))
        good = share >= 0.5 if (share >= 0.5).any() else share > 0
        places = [grid.parse(name) for name in names]
        result.append(float(any(good[r, c] for c, r in places)) if good.any() else np.nan)
    return result


def bootstrap(rng: np.random.Generator) -> dict[str, float | str]:
    """A pandas loop over resampled tables (with images as unit) against counts @ values; each draws for itself."""
    import pandas as pd

    table = np.where(rng.random((N_IMAGES, N_FINDINGS)) < 0.75, np.nan, rng.random((N_IMAGES, N_FINDINGS)))
    frame = pd.DataFrame(table)

    def peer() -> None:
        draws = np.random.RandomState(0)
        means = [frame.iloc[draws.choice(N_IMAGES, N_IMAGES)].mean() for _ in range(N_RESAMPLES)]
        np.nanpercentile(np.array(means), [2.5, 97.5], axis=0)

    values = table.ravel()
    groups, units = np.tile(np.arange(N_FINDINGS), N_IMAGES), np.repeat(np.arange(N_IMAGES), N_FINDINGS)

    def ours() -> None:
        counts = resampling_counts(N_IMAGES, n_resamples=N_RESAMPLES)
        means = bootstrap_means(values, groups, units, n_groups=N_FINDINGS, counts=counts)
        for column in means.replicates.T:
            percentile_interval(column)

    times = [(cpu_seconds(peer), cpu_seconds(ours)) for _ in range(ROUNDS)]
    ratio = statistics.median(p / o for p, o in times)
    return {
        "work": "1,000 replicates x 10 findings",
        "ratio": round(ratio, 1),
        "peer_s": times[0][0],
        "ours_s": times[0][1],
    }


def main() -> None:
    rng = np.random.default_rng(0)
    distinct = [(outline(rng, 0.06), outline(rng, 0.01)) for _ in range(59)]
    pairs = [distinct[i % len(distinct)] for i in range(N_PAIRS)]
    predictions, references = [a for a, _ in pairs], [b for _, b in pairs]
    points = [[(float(x), float(y))] for x, y in rng.uniform(0, (WIDTH, HEIGHT), (N_PAIRS, 2))]
    grid = Grid(8)
    cells = [[grid.cells[k]] for k in rng.integers(0, 64, N_PAIRS)]
    few = slice(None, None, STRIDE)

    start = time.perf_counter()
    mask_iou(pack_masks(predictions[:1]), pack_masks(references[:1]), slice="all")
    first_call = time.perf_counter() - start
    results = [
        compare(
            "IoU from RLE strings",
            lambda: peer_iou(predictions[few], references[few]),
            lambda: mask_iou(pack_masks(predictions[few]), pack_masks(references[few]), slice="all"),
        ),
        compare(
            "point in mask",
            lambda: peer_points(points[few], references[few]),
            lambda: point_hit(points[few], pack_masks(references[few])),
        ),
        compare(
            "grid hit, exact coverage",
            lambda: peer_cells(cells[few], references[few], grid),
            lambda: grid_hit(cells[few], pack_masks(references[few]), grid=grid),
        ),
        bootstrap(rng),
    ]
    whole = {
        "IoU": cpu_seconds(lambda: mask_iou(pack_masks(predictions), pack_masks(references), slice="all")),
        "point hit": cpu_seconds(lambda: point_hit(points, pack_masks(references))),
        "grid hit": cpu_seconds(lambda: grid_hit(cells, pack_masks(references), grid=grid)),
    }
    characters = [round(statistics.mean(len(rle.counts) for rle in rles)) for rles in (predictions, references)]
    print(f"size L: {N_PAIRS} pairs of {WIDTH} x {HEIGHT}, {characters[0]} and {characters[1]} characters a string")
    print(f"first call (loading or compiling the kernels): {first_call:.1f} s wall")
    for row in results:
        print(f"  {row['work']:<32} {row['ratio']:>8.1f} x as fast as its peer")
    print("all of L, ours: " + ", ".join(f"{name} {1000 * seconds:.0f} ms CPU" for name, seconds in whole.items()))
    packages = ("reveal-bench", "numpy", "numba", "pycocotools", "pandas")
    document = {
        "results": results,
        "all_of_L_cpu_s": whole,
        "characters": characters,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
    }
    Path(__file__).with_name("results.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
