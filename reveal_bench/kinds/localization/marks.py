"""Marks of localization predictions, see :mod:`reveal_bench.kinds.marks`, and signs that a file is not a model's.

A confidence is not scored, so it has no part. Positions of items are in 16ths of the image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from reveal_bench.kinds.localization.records import LocalizationPrediction, Manifest
from reveal_bench.kinds.marks import Item, Marks, exact
from reveal_bench.masks import pack_masks

__all__ = ["case_answer", "case_items", "marks_of", "signs_of"]

PARTS = 16  # an image's side, for positions
MANY_POINTS = 4  # points for one finding of one image, on average
NEARLY_ALL = 0.95
_MASKS_AT_ONCE = 256


def marks_of(predictions: Sequence[LocalizationPrediction], manifest: Manifest) -> Marks:
    """Point, cell, box and mask of each finding; items are their places."""
    cases = sorted(predictions, key=lambda p: (p.image_id, p.finding))
    return Marks([case_answer(p) for p in cases], set(case_items(cases, manifest)))


def signs_of(cases: Sequence[LocalizationPrediction], manifest: Manifest) -> list[str]:
    """Points at one place, lattices of points, masks that are empty, whole images or rectangles."""
    if not cases:
        return ["Nothing is predicted."]
    signs = []
    points = [(p, point) for p in cases for point in p.points]
    n_pointed = len({(p.image_id, p.finding) for p, _ in points})
    places = Counter(_place(point, manifest.rows[p.image_id].size) for p, point in points)
    if n_pointed >= 20 and max(places.values()) >= NEARLY_ALL * n_pointed:
        signs.append("Nearly all points lie at the same place of their images.")
    if n_pointed and len(points) >= MANY_POINTS * n_pointed:
        signs.append(f"{MANY_POINTS} points or more for a finding, on average.")
    masks = [(size[0] * size[1], area, box[2] * box[3]) for _, size, area, box in _masks(cases)]
    if masks and not any(area for _, area, _ in masks):
        signs.append("Every mask is empty.")
    if sum(area >= 0.95 * pixels for pixels, area, _ in masks) >= max(1, 0.05 * len(masks)):
        signs.append("At least one mask in twenty covers the whole image.")
    if sum(area == full > 0 for _, area, full in masks) >= max(1, 0.5 * len(masks)):
        signs.append("At least half of the masks are plain rectangles.")
    boxes = [(p.box[2] * p.box[3], manifest.rows[p.image_id].size) for p in cases if p.box is not None]
    if sum(area >= 0.95 * height * width for area, (height, width) in boxes) >= max(1, 0.05 * len(boxes)):
        signs.append("At least one box in twenty covers the whole image.")
    return signs


def case_answer(p: LocalizationPrediction) -> Item:
    """All of a prediction but its score."""
    return (
        p.image_id,
        p.finding,
        sorted((exact(x), exact(y)) for x, y in p.points),
        p.cell,
        None if p.box is None else [exact(side) for side in p.box],
        None if p.mask is None else (p.mask.size, p.mask.counts),
    )


def case_items(cases: Sequence[LocalizationPrediction], manifest: Manifest) -> Iterator[Item]:
    """Places of predictions, coarsely."""
    for p in cases:
        case, size = (p.image_id, p.finding), manifest.rows[p.image_id].size
        if p.points:
            yield (*case, "point", *sorted({_place(point, size) for point in p.points}))
        if p.cell is not None:
            yield (*case, "cell", p.cell)
        if p.box is not None:
            yield (*case, "box", *_corners(p.box, size))
    for p, size, area, box in _masks(cases):
        full = max(box[2] * box[3], 1.0)
        yield (p.image_id, p.finding, "mask", *_corners(box, size), round(8 * area / full))


def _masks(
    cases: Sequence[LocalizationPrediction],
) -> Iterator[tuple[LocalizationPrediction, tuple[int, int], int, tuple[float, ...]]]:
    """Every mask: its prediction, size, area in pixels and tight box (zeros if empty); some at a time are unpacked."""
    remaining = iter([(p, p.mask) for p in cases if p.mask is not None])
    while batch := list(islice(remaining, _MASKS_AT_ONCE)):
        packed = pack_masks([mask for _, mask in batch])
        boxes = np.nan_to_num(packed.boxes_xywh())
        for (p, mask), area, box in zip(batch, packed.areas.tolist(), boxes.tolist(), strict=True):
            yield p, mask.size, area, tuple(box)


def _place(point: tuple[float, float], size: tuple[int, int]) -> tuple[int, int]:
    height, width = size
    return int(PARTS * point[0] / width), int(PARTS * point[1] / height)


def _corners(box: Sequence[float], size: tuple[int, int]) -> Item:
    x, y, width, height = box
    return *_place((x, y), size), *_place((x + width, y + height), size)
