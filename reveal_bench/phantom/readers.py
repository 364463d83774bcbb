"""Simulate a second reader, whose contours and points differ from the reference by a known amount.

:data:`MASK_IOU` and :data:`POINT_HIT` are the human benchmark of paper 002 (Extended Data Figs. 5 and 6). A reader's
contours are perturbed so that their mean IoU is near MASK_IOU, and a reader's point is in the reference with the
probability POINT_HIT.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reveal_bench.phantom.curves import Points, area, is_inside

MASK_IOU = {
    "Enlarged Cardiomediastinum": 0.569,
    "Cardiomegaly": 0.720,
    "Lung Lesion": 0.426,
    "Airspace Opacity": 0.260,
    "Edema": 0.335,
    "Consolidation": 0.179,
    "Atelectasis": 0.124,
    "Pneumothorax": 0.435,
    "Pleural Effusion": 0.219,
    "Support Devices": 0.444,
}
POINT_HIT = {
    "Enlarged Cardiomediastinum": 0.957,
    "Cardiomegaly": 0.972,
    "Lung Lesion": 0.850,
    "Airspace Opacity": 0.559,
    "Edema": 0.769,
    "Consolidation": 0.510,
    "Atelectasis": 0.870,
    "Pneumothorax": 1.000,
    "Pleural Effusion": 0.718,
    "Support Devices": 0.933,
}

_MAGNITUDE = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
_IOU = (1.0, 0.88, 0.78, 0.65, 0.54, 0.40, 0.30, 0.17, 0.11, 0.05)
"""Argument `magnitude` of :func:`perturb` -> mean IoU with the original contour, measured on 80 irregular ellipses."""


def perturb(rng: np.random.Generator, contour: Points, magnitude: float) -> Points:
    """Shift, scale and dent a contour.

    The changes are relative to the contour's half width (twice the area divided by the perimeter), so that a thin strip
    changes as much, relative to its width, as a round contour.
    """
    edges = np.linalg.norm(np.roll(contour, -1, axis=0) - contour, axis=1)
    half = 2 * area(contour) / max(float(edges.sum()), 1e-9)
    along = np.roll(contour, -1, axis=0) - np.roll(contour, 1, axis=0)
    along /= np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-9)
    x, y = contour[:, 0], contour[:, 1]
    turn = np.sign(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) or 1.0
    outwards = turn * np.stack([along[:, 1], -along[:, 0]], axis=1)
    t = np.cumsum(edges) / max(float(edges.sum()), 1e-9) * 2 * np.pi
    dents = np.zeros(len(contour))
    for k in (1, 2, 3, 5):
        dents += rng.normal() / k * np.cos(k * t + rng.uniform(0, 2 * np.pi))
    growth = np.clip(rng.normal(0, 0.45 * magnitude) + 0.25 * magnitude * dents, -0.8, 2.5)
    moved: Points = contour + half * growth[:, None] * outwards + rng.normal(0, 0.75 * magnitude, 2) * half
    return moved


def reader_contours(rng: np.random.Generator, contours: Sequence[Points], finding: str) -> list[Points]:
    """Return the contours that the reader draws for a finding; the reader may overlook one of several contours."""
    magnitude = float(np.interp(MASK_IOU[finding], _IOU[::-1], _MAGNITUDE[::-1]))
    kept = [contour for contour in contours if len(contours) == 1 or rng.random() > 0.08]
    return [perturb(rng, contour, magnitude) for contour in kept or contours[:1]]


def reader_point(
    rng: np.random.Generator, contours: Sequence[Points], finding: str, *, size: tuple[float, float]
) -> tuple[float, float]:
    """Return the reader's most representative point, inside the contours with probability ``POINT_HIT[finding]``."""
    if rng.random() < POINT_HIT[finding]:
        return interior_point(rng, max(contours, key=area))
    return _outside_point(rng, contours, size)


def interior_point(rng: np.random.Generator, contour: Points) -> tuple[float, float]:
    """Return a point well inside a contour."""
    low, high = contour.min(axis=0), contour.max(axis=0)
    half = len(contour) // 2
    across = (contour[:half] + contour[::-1][:half]) / 2  # points on the midline of a strip
    tried = np.concatenate([rng.uniform(low, high, (24, 2)), across])
    inside = tried[is_inside(tried, contour)]
    if len(inside) == 0:
        middle = contour.mean(axis=0)
        return float(middle[0]), float(middle[1])
    clearance = np.linalg.norm(inside[:, None, :] - contour[None, :, :], axis=2).min(axis=1)
    best = inside[np.argmax(clearance)]
    return float(best[0]), float(best[1])


def _outside_point(
    rng: np.random.Generator, contours: Sequence[Points], size: tuple[float, float]
) -> tuple[float, float]:
    """Return a point near the contours but in none of them, within an image of (height, width)."""
    every = np.concatenate(list(contours))
    middle, spread = every.mean(axis=0), np.maximum(np.ptp(every, axis=0), 0.05)
    for reach in (0.6, 0.8, 1.0, 1.5, 2.0):
        for _ in range(8):
            point = middle + rng.normal(0, reach, 2) * spread
            point = np.clip(point, 0.02, (size[1] - 0.02, size[0] - 0.02))
            if not any(_holds(contour, point) for contour in contours):
                return float(point[0]), float(point[1])
    return 0.02, 0.02


def _holds(contour: Points, point: Points) -> bool:
    """Return True if a point is in a contour or very near a corner of one."""
    return bool(is_inside(point[None], contour)[0] or np.linalg.norm(contour - point, axis=1).min() < 0.006)
