"""Scores of heat maps without a threshold, or with a tolerance: one value per map and reference.

Conventions
-----------
A map covers the whole image as in :mod:`reveal_bench.metrics.heat_maps`; a reference is a bool array (height, width).
Scores are NaN if the reference is empty.

Sources: energy-based pointing game: Wang et al. 2020 (Score-CAM); tolerance of 15 pixels: Fong, Patrick and Vedaldi
2019 (TorchRay); average precision: :func:`reveal_bench.metrics.labels.average_precision` with pixels as cases, and
pooled over images: Choe et al. 2020 (CVPR), PxAP; contrast-to-noise ratio and IoU at thresholds of phrase grounding:
Boecking et al. 2022 (BioViL, MS-CXR), whose maps are similarities from -1 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.metrics.agreement import divide
from reveal_bench.metrics.heat_maps import at_size, largest_point, scaled

TOLERANCE = 15.0
"""Tolerance in pixels, as in TorchRay's pointing game."""
GROUNDING_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Thresholds of :func:`grounding_iou`, as in BioViL."""
_LEVELS = np.append(np.arange(0, 1, 0.001), 1.0)  # the thresholds of the published code of PxAP


def tolerant_hit(
    heat_map: npt.ArrayLike,
    reference: BoolArray,
    *,
    tolerance: float = TOLERANCE,
    spacing: tuple[float, float] = (1.0, 1.0),
) -> float:
    """Return the hit of the map's largest pixel, within a tolerance; a constant map gets 0.

    Parameters
    ----------
    heat_map : array (h, w)
    reference : bool array (height, width)
    tolerance : largest distance between centres of pixels, in pixels, or in mm with a spacing
    spacing : mm between rows and between columns

    Raises
    ------
    ValueError
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

    Raises
    ------
    ValueError
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

    Raises
    ------
    ValueError
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


def contrast_to_noise(heat_map: npt.ArrayLike, reference: BoolArray) -> float:
    """Return the contrast-to-noise ratio.

    The difference has no sign, so a map that is low inside scores as high as its negative. A constant map scores 0.
    NaN if the reference is the whole image, or the map is constant on both sides with different values.

    Examples
    --------
    >>> contrast_to_noise([[1.0, 3.0, 0.0, 0.0]], np.array([[True, True, False, False]]))  # 2 / sqrt(1 + 0)
    2.0
    """
    fine = at_size(heat_map, (reference.shape[0], reference.shape[1])).astype(np.float64)
    inside, outside = fine[reference], fine[~reference]
    if not len(inside) or not len(outside):
        return float("nan")
    contrast, noise = abs(inside.mean() - outside.mean()), np.sqrt(inside.var() + outside.var())
    return float(contrast / noise) if noise > 0 else 0.0 if contrast == 0 else float("nan")


def grounding_iou(heat_map: npt.ArrayLike, reference: BoolArray) -> float:
    """Return the mean IoU of the masks above five thresholds; the map is not rescaled.

    Examples
    --------
    >>> grounding_iou([[0.9, 0.35, 0.0]], np.array([[True, False, False]]))  # (3 / 2 + 2) / 5
    0.7
    """
    if not reference.any():
        return float("nan")
    fine = at_size(heat_map, (reference.shape[0], reference.shape[1]))
    masks = [fine > np.float32(threshold) for threshold in GROUNDING_THRESHOLDS]
    return float(np.mean([(mask & reference).sum() / (mask | reference).sum() for mask in masks]))


def pooled_pixel_average_precision(heat_maps: Sequence[npt.ArrayLike], references: Sequence[BoolArray]) -> float:
    """Return PxAP; each map is scaled to [0, 1], so the pixels of different images are compared.

    Returns
    -------
    float, NaN if no reference has a pixel

    Examples
    --------
    >>> maps, references = [[[0, 1]], [[0, 0.5, 1]]], [np.array([[False, True]]), np.array([[False, True, False]])]
    >>> round(pooled_pixel_average_precision(maps, references), 3)  # (1 / 2 + 2 / 3) / 2
    0.583
    """
    if len(heat_maps) != len(references):
        raise ArgumentError("heat_maps", f"must have the length of `references` ({len(references)})", len(heat_maps))
    counts = [pixel_counts(*pair) for pair in zip(heat_maps, references, strict=True)]
    return float(average_precision_of(np.sum(counts, axis=0))) if counts else float("nan")


def pixel_counts(heat_map: npt.ArrayLike, reference: BoolArray) -> IntArray:
    """Return how many pixels outside and inside the reference are at each level of the scaled map, (2, 1001)."""
    fine = scaled(at_size(heat_map, (reference.shape[0], reference.shape[1])))
    levels = np.searchsorted(_LEVELS, fine, side="right") - 1
    return np.stack([np.bincount(levels[side], minlength=len(_LEVELS)) for side in (~reference, reference)])


def average_precision_of(counts: IntArray) -> FloatArray:
    """Return PxAP of :func:`pixel_counts`, or of sums of them, (..., 2, 1001) to (...)."""
    false, true = np.moveaxis(counts[..., ::-1].cumsum(axis=-1), -2, 0)
    gained = np.diff(true, axis=-1, prepend=0)
    precision = true / np.maximum(true + false, 1)
    return divide((gained * precision).sum(axis=-1), true[..., -1].astype(np.float64))
