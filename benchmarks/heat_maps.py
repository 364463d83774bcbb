"""Measure the speed of converting full-size heat maps to masks and points, and of tuning thresholds.

Maps have 14 x 14 values, like Grad-CAM of a DenseNet, for images of 2320 x 2828 pixels. CheXlocalize has ten maps per
image, 6,680 in total; 12 are measured here. The peer follows the authors' code with OpenCV, Pillow and pycocotools. The
peer resizes and scales the map, applies Otsu's threshold with 256 levels, fills the contours one by one, and encodes
the mask. For tuning, the peer makes a mask at every threshold and compares each with the reference. Peer and package
are measured alternately in this process on one thread, in CPU seconds; their masks must be equal.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from localization import HEIGHT, WIDTH, cpu_seconds, decoded, outline  # in this folder
from PIL import Image, ImageDraw
from pycocotools import mask as coco

from reveal_bench.masks import pack_masks
from reveal_bench.metrics.heat_maps import laid_over
from reveal_bench.saliency_maps.tuning import curve_of_map

N_MAPS, ROUNDS = 12, 5
GRID = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
GOALS = {"heat map to mask and point": 5.0, "sweep over seven thresholds": 15.0}
Map = np.ndarray[Any, np.dtype[np.float32]]


def maps(rng: np.random.Generator) -> list[Map]:
    """Return maps with two peaks over low noise."""
    y, x = np.mgrid[0:14, 0:14]
    results = []
    for _ in range(N_MAPS):
        hills = sum(
            np.exp(-((y - a) ** 2 + (x - b) ** 2) / s) for a, b, s in rng.uniform([2, 2, 3], [12, 12, 12], (2, 3))
        )
        results.append((hills + 0.1 * rng.random((14, 14))).astype(np.float32))
    return results


def fine_of_peer(heat: Map) -> Map:
    fine = cv2.resize(heat, (WIDTH, HEIGHT), interpolation=cv2.INTER_LINEAR)
    return (fine - fine.min()) / (fine.max() - fine.min())


def peer_mask(heat: Map) -> tuple[bytes, tuple[int, int]]:
    fine = fine_of_peer(heat)
    y, x = np.unravel_index(np.argmax(fine), fine.shape)
    _, binary = cv2.threshold((255 * fine).astype(np.uint8), 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    contours, _ = cv2.findContours(binary, cv2.RETR_TREE, cv2.CHAIN_APPROX_SIMPLE)
    canvas = Image.new("1", (WIDTH, HEIGHT))
    for contour in contours:
        if len(contour) > 1:
            ImageDraw.Draw(canvas).polygon(list(map(tuple, contour[:, 0].tolist())), outline=1, fill=1)
    mask = np.asarray(canvas, int)
    return coco.encode(np.asfortranarray(mask, dtype=np.uint8))["counts"], (int(x), int(y))


def our_mask(heat: Map) -> tuple[bytes, tuple[int, int]]:
    laid = laid_over(heat, (HEIGHT, WIDTH))
    x, y = laid.point() or (-1, -1)
    return laid.above_otsu(fill=True).rle(0).counts.encode(), (int(x), int(y))


def peer_sweep(heat: Map, reference: Any) -> list[float]:
    fine, truth = fine_of_peer(heat), decoded(reference).astype(bool)
    ious = []
    for threshold in GRID:
        mask = fine > threshold
        ious.append(np.logical_and(mask, truth).sum() / np.logical_or(mask, truth).sum())
    return ious


def our_sweep(heat: Map, reference: Any) -> list[float]:
    return curve_of_map(heat, pack_masks([reference]), GRID).tolist()


def compare(work: str, peer: Callable[[], Any], ours: Callable[[], Any]) -> dict[str, float | str]:
    times = [(cpu_seconds(peer), cpu_seconds(ours)) for _ in range(ROUNDS)]
    ratio = statistics.median(p / o for p, o in times)
    return {"work": work, "ratio": round(ratio, 1), "peer_s": times[0][0], "ours_s": times[0][1], "goal": GOALS[work]}


def measure() -> list[dict[str, float | str]]:
    """Return the rows of results for both measurements."""
    cv2.setNumThreads(1)
    rng = np.random.default_rng(0)
    heats, references = maps(rng), [outline(rng, 0.01) for _ in range(N_MAPS)]
    agree = [peer_mask(heat) == our_mask(heat) for heat in heats[:6]]
    print(f"equal masks and points: {sum(agree)} of {len(agree)}")
    results = np.array([our_sweep(h, r) for h, r in zip(heats[:4], references, strict=False)])
    np.testing.assert_allclose(
        results, [peer_sweep(h, r) for h, r in zip(heats[:4], references, strict=False)], atol=1e-3
    )
    return [
        compare("heat map to mask and point", lambda: [*map(peer_mask, heats)], lambda: [*map(our_mask, heats)]),
        compare(
            "sweep over seven thresholds",
            lambda: [peer_sweep(h, r) for h, r in zip(heats, references, strict=True)],
            lambda: [our_sweep(h, r) for h, r in zip(heats, references, strict=True)],
        ),
    ]


if __name__ == "__main__":
    began = time.perf_counter()
    for row in measure():
        print(row)
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB, {time.perf_counter() - began:.0f} s")
