"""Measure the speed of localization scoring on size L, against decoding every mask for numpy.

Size L is that of CheXlocalize's test set: 668 images of 2320 x 2828 pixels, 10 findings, 1,534 positive pairs, and two
files of run-length strings. The masks are synthetic, with smooth random outlines and strings of realistic length. Peer
and package are measured alternately in this process on the same pairs; a ratio is the median of five rounds of CPU
seconds. The peer is measured on every twentieth pair, because decoding all takes minutes; the package is also measured
on all pairs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image, ImageDraw
from pycocotools import mask as coco

from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord
from reveal_bench.masks import Rle, encode_mask, pack_masks
from reveal_bench.metrics.localization import grid_hit, mask_iou, point_hit

HEIGHT, WIDTH = 2320, 2828
N_PAIRS, STRIDE, ROUNDS = 1534, 20, 5


def outline(rng: np.random.Generator, wiggle: float) -> Rle:
    """Return a mask with a smooth random outline of a few low frequencies, plus high ones of amplitude `wiggle`."""
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


def frontal_image(number: int, patient_id: str, annotations: Sequence[Annotation]) -> LocalizationRecord:
    """Return the record of an image with only the findings of `annotations`."""
    return LocalizationRecord(
        image_id=f"i{number}",
        patient_id=patient_id,
        study_id=f"s{number}",
        view="FRONTAL",
        width=WIDTH,
        height=HEIGHT,
        label_status=dict.fromkeys(CHEXLOCALIZE_FINDINGS, 0) | {one.finding: 1 for one in annotations},
        annotations=tuple(annotations),
    )


def cpu_seconds(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def compare(name: str, peer: Callable[[], object], ours: Callable[[], object]) -> dict[str, float | str]:
    """Time peer and package alternately, five times, and check that their results are equal."""
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


def make_pairs() -> tuple[list[Rle], list[Rle]]:
    """Return predictions and references of size L, made of 59 distinct pairs that are repeated."""
    rng = np.random.default_rng(0)
    distinct = [(outline(rng, 0.06), outline(rng, 0.01)) for _ in range(59)]
    pairs = [distinct[i % len(distinct)] for i in range(N_PAIRS)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def measure() -> list[dict[str, float | str]]:
    predictions, references = make_pairs()
    rng = np.random.default_rng(1)
    points = [[(float(x), float(y))] for x, y in rng.uniform(0, (WIDTH, HEIGHT), (N_PAIRS, 2))]
    grid = Grid(8)
    cells = [[grid.cells[k]] for k in rng.integers(0, 64, N_PAIRS)]
    few = slice(None, None, STRIDE)
    work: list[tuple[str, Callable[[slice], object], Callable[[slice], object]]] = [
        (
            "IoU from run-length strings",
            lambda part: peer_iou(predictions[part], references[part]),
            lambda part: mask_iou(pack_masks(predictions[part]), pack_masks(references[part]), slice="all"),
        ),
        (
            "point in mask",
            lambda part: peer_points(points[part], references[part]),
            lambda part: point_hit(points[part], pack_masks(references[part])),
        ),
        (
            "grid hit, exact coverage",
            lambda part: peer_cells(cells[part], references[part], grid),
            lambda part: grid_hit(cells[part], pack_masks(references[part]), grid=grid),
        ),
    ]
    results = []
    for name, peer, ours in work:
        row = compare(name, lambda peer=peer: peer(few), lambda ours=ours: ours(few))  # type: ignore[misc]
        row["all_of_L_s"] = cpu_seconds(lambda ours=ours: ours(slice(None)))  # type: ignore[misc]
        results.append(row)
    return results
