"""Scores of heat maps without a threshold, or with a tolerance: one value per map and reference.

Conventions
-----------
A map covers the whole image as in :mod:`reveal_bench.metrics.heat_maps`; a reference is a bool array (height, width).
Scores are NaN if the reference is empty.

Sources: energy-based pointing game: Wang et al. 2020 (Score-CAM); tolerance of 15 pixels: Fong, Patrick and Vedaldi
2019 (TorchRay); average precision: :func:`reveal_bench.metrics.labels.average_precision` with pixels as cases.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray
from reveal_bench.metrics.heat_maps import at_size, largest_point

TOLERANCE = 15.0
"""Tolerance in pixels, as in TorchRay's pointing game."""


def tolerant_hit(
    heat_map: npt.ArrayLike,
    reference: BoolArray,
    *,
    tolerance: float = TOLERANCE,
    spacing: tuple[float, float] = (1.0, 1.0),
) -> float:
    """Return 1 if the map's largest pixel is in the reference or within a tolerance of it, else 0; a constant map gets
    0.

    Parameters
    ----------
    heat_map : array (h, w)
    reference : bool array (height, width)
    tolerance : largest distance between centres of pixels, in pixels, or in mm with a spacing
    spacing : mm between rows and between columns

        If the heat map is not an array (h, w) of finite numbers, or the tolerance is below 0.

    Examples
    --------
    >>> reference = np.zeros((1, 9), bool)
    >>> reference[0, 7:] = True
    >>> [tolerant_hit([[0, 0, 0, 0, 1, 0, 0, 0, 0]], reference, tolerance=t) for t in (2, 3)]
    [0.0, 1.0]
    """
    if not tolerance >= 0:
        raise ArgumentError("tolerance", "must be at least 0", tolerance)
    if not reference.any():
        return float("nan")
    point = largest_point(heat_map, (reference.shape[0], reference.shape[1]))
    if point is None:
        return 0.0
    rows, columns = np.nonzero(reference)
    x, y = int(point[0]), int(point[1])
    nearest = np.hypot((rows - y) * spacing[0], (columns - x) * spacing[1]).min()
    return float(nearest <= tolerance)


def energy_inside(heat_map: npt.ArrayLike, reference: BoolArray) -> float:
    """Return the proportion of the map's positive mass inside the reference; NaN if it has none.

    If the heat map is not an array (h, w) of finite numbers.

    Examples
    --------
    >>> energy_inside([[1.0, 3.0, -5.0]], np.array([[False, True, True]]))
    0.75
    """
    fine = np.maximum(at_size(heat_map, (reference.shape[0], reference.shape[1])), 0).astype(np.float64)
    whole = float(fine.sum())
    return float(fine[reference].sum()) / whole if whole > 0 and reference.any() else float("nan")


def pixel_average_precision(heat_map: npt.ArrayLike, reference: BoolArray) -> float:
    """Return the average precision of the map's pixels; pixels of the reference are the positives.

    This is the mean, over the positives, of the precision among all pixels at least as high, so pixels of equal value
    rank together.

    If the heat map is not an array (h, w) of finite numbers.

    Examples
    --------
    >>> pixel_average_precision([[0.9, 0.5, 0.5, 0.1]], np.array([[True, True, False, False]]))
    0.8333333333333333
    """
    if not reference.any():
        return float("nan")
    fine = at_size(heat_map, (reference.shape[0], reference.shape[1])).ravel()
    order = np.argsort(-fine, kind="stable")
    ordered, is_inside = fine[order], reference.ravel()[order]
    lasts = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    true = np.cumsum(is_inside)[lasts]
    precision = true / (lasts + 1)
    return float((np.diff(true, prepend=0) * precision).sum() / true[-1])
