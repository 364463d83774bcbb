"""Localization metrics: one value per case.

Conventions
-----------
Case i pairs prediction i with reference mask i; references are :class:`~reveal_bench.masks.PackedMasks`. Results are
float arrays (n_cases,): 1.0 or 0.0 for hits, fractions for IoU, NaN if the metric is undefined. An absent prediction is
a miss; it is given as no points, no cell, or a NaN box. Coordinates follow :mod:`reveal_bench.geometry`.

Metrics
-------
* :func:`point_hit`    a point is in the reference mask (pointing game; paper 002, Methods)
* :func:`point_chance` expected `point_hit` of a uniform random point
* :func:`grid_hit`     a grid cell covers enough of the reference mask (paper 000, section 3.3)
* :func:`grid_chance`  expected `grid_hit` of a uniform guess (paper 000, section 4.1)
* :func:`mask_iou`     intersection over union of two masks (paper 002, Methods)
* :func:`box_iou`      the same for boxes

Means over cases are computed in :mod:`reveal_bench.metrics.bootstrap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, FloatArray, IntArray
from reveal_bench.geometry import Grid, is_inside
from reveal_bench.masks import PackedMasks

Slice = Literal["true_positive", "all"]


def point_hit(predictions: Sequence[Sequence[tuple[float, float]]], references: PackedMasks) -> FloatArray:
    """Return the result of the pointing game: 1 if any predicted point is in the reference mask.

    Parameters
    ----------
    predictions : per case, points (x, y) in pixels; none = a miss
    references : PackedMasks (n_cases)

    Returns
    -------
    float array (n_cases,); NaN if the reference mask is empty

    Raises
    ------
    ValueError
        If the lengths differ or a point is outside its image.

    Examples
    --------
    >>> from reveal_bench.masks import encode_mask, pack_masks
    >>> left = pack_masks([encode_mask(np.array([[1, 0], [1, 0]]))])
    >>> point_hit([[(0.9, 1.5)]], left), point_hit([[(1.0, 1.5)]], left), point_hit([[]], left)
    (array([1.]), array([0.]), array([0.]))
    """
    _check_length("predictions", len(predictions), len(references))
    which, positions = [], []
    for i, points in enumerate(predictions):
        height, width = (int(side) for side in references.sizes[i])
        for x, y in points:
            if not is_inside(x, y, size=(height, width)):
                raise ValueError(f"`predictions[{i}]` must be in the image {width} x {height}, got ({x}, {y})")
            which.append(i)
            positions.append(int(x) * height + int(y))
    from reveal_bench.masks import kernels

    case = np.array(which, np.int64)
    inside = kernels.contains(references.ends, references.offsets, case, np.array(positions, np.int64))
    hits = np.zeros(len(references))
    hits[case[inside]] = 1.0
    hits[references.areas == 0] = np.nan
    return hits


def cell_coverage(references: PackedMasks, index: int, grid: Grid) -> IntArray:
    """Return the exact area of mask `index` inside each cell, in units of (1/2n)**2 pixel; shape (n rows, n columns).

    In these units, the area of a cell is ``(2 * short side of the image) ** 2``.
    """
    from reveal_bench.masks import kernels

    height, width = (int(side) for side in references.sizes[index])
    edges_x = np.array(grid.edges_x((height, width)), np.int64)
    edges_y = np.array(grid.edges_y((height, width)), np.int64)
    start, stop = references.offsets[index], references.offsets[index + 1]
    return kernels.coverage(references.ends, start, stop, height, edges_x, edges_y)


def hit_cells(references: PackedMasks, grid: Grid) -> BoolArray:
    """Return a bool array (n_cases, n rows, n columns), True for cells that would be hits on the mask.

    A cell is a hit if the mask covers at least half of it; if no cell is half covered, every cell that the mask touches
    is a hit. The array is all False if the mask is empty or wholly outside the central square.
    """
    from reveal_bench.masks import kernels

    return kernels.hit_cells(references.ends, references.offsets, references.sizes, grid.n)


def grid_hit(predictions: Sequence[Sequence[str]], references: PackedMasks, *, grid: Grid = Grid(8)) -> FloatArray:
    """Return 1 if any predicted cell is a hit on the reference mask.

    The central square of the image is divided into n x n cells. A cell is a hit if the mask covers at least half of it;
    if there is no such cell, every cell that the mask touches is one.

    Parameters
    ----------
    predictions : per case, cell names such as "D5"; none = a miss
    references : PackedMasks (n_cases)
    grid : Grid

    Returns
    -------
    float array (n_cases,); NaN if no cell has any coverage (mask empty, or wholly outside the central square)

    Raises
    ------
    ValueError
        If the lengths differ or a cell is not in the grid.

    Examples
    --------
    >>> from reveal_bench.masks import encode_mask, pack_masks
    >>> mask = np.zeros((16, 16))
    >>> mask[0:2, 0] = 1  # half of cell A1, which is 2 x 2 pixels
    >>> masks = pack_masks([encode_mask(mask)] * 2)
    >>> grid_hit([["A1"], ["B1"]], masks).tolist(), grid_chance(masks).tolist()
    ([1.0, 0.0], [0.015625, 0.015625])
    """
    _check_length("predictions", len(predictions), len(references))
    return hits_among(predictions, hit_cells(references, grid), grid)


def hits_among(predictions: Sequence[Sequence[str]], good: BoolArray, grid: Grid) -> FloatArray:
    """Return :func:`grid_hit`, computed from the result of :func:`hit_cells`."""
    hits = np.zeros(len(good))
    for i, cells in enumerate(predictions):
        for cell in cells:
            column, row = grid.parse(cell)
            hits[i] = max(hits[i], good[i, row, column])
    hits[~good.any(axis=(1, 2))] = np.nan
    return hits


def grid_chance(references: PackedMasks, *, grid: Grid = Grid(8)) -> FloatArray:
    """Return the expected :func:`grid_hit` of a uniform guess.

    Returns
    -------
    float array (n_cases,) in (0, 1]; NaN if no cell has any coverage

    Examples
    --------
    >>> from reveal_bench.masks import encode_mask, pack_masks
    >>> grid_chance(pack_masks([encode_mask(np.ones((16, 16)))])).tolist()
    [1.0]
    """
    return chance_among(hit_cells(references, grid))


def chance_among(good: BoolArray) -> FloatArray:
    """Return :func:`grid_chance`, computed from the result of :func:`hit_cells`."""
    shares: FloatArray = good.mean(axis=(1, 2))
    shares[shares == 0] = np.nan
    return shares


def point_chance(references: PackedMasks) -> FloatArray:
    """Return the expected :func:`point_hit` of a uniform random point.

    Returns
    -------
    float array (n_cases,) in (0, 1]; NaN if the reference mask is empty

    Examples
    --------
    >>> from reveal_bench.masks import encode_mask, pack_masks
    >>> point_chance(pack_masks([encode_mask(np.eye(4))])).tolist()
    [0.25]
    """
    shares: FloatArray = references.areas / np.prod(references.sizes, axis=1)
    shares[shares == 0] = np.nan
    return shares


def mask_iou(predictions: PackedMasks, references: PackedMasks, *, slice: Slice = "true_positive") -> FloatArray:
    """Return the intersection over union of predicted and reference masks.

    Parameters
    ----------
    predictions, references : PackedMasks (n_cases) of equal sizes
    slice : {"true_positive", "all"}
        "true_positive" (paper 002, main tables): undefined if either mask is empty. "all" (its full-dataset figure):
        undefined only if both are empty, so a false mask and a missed mask score 0.

    Returns
    -------
    float array (n_cases,) in [0, 1], NaN if undefined

    Raises
    ------
    ValueError
        If the lengths or the sizes of two paired masks differ, or `slice` is unknown.

    Examples
    --------
    >>> from reveal_bench.masks import encode_mask, pack_masks
    >>> left, both = (pack_masks([encode_mask(np.array([row]))]) for row in ([1, 0], [1, 1]))
    >>> mask_iou(left, both).tolist()
    [0.5]
    """
    if slice not in ("true_positive", "all"):
        raise ArgumentError("slice", "must be 'true_positive' or 'all'", repr(slice))
    _check_length("predictions", len(predictions), len(references))
    differ = np.flatnonzero((predictions.sizes != references.sizes).any(axis=1))
    if len(differ):
        i = int(differ[0])
        wanted, got = references.sizes[i].tolist(), predictions.sizes[i].tolist()
        raise ValueError(f"`predictions[{i}]` must have the size of its reference {wanted} [height, width], got {got}")
    from reveal_bench.masks import kernels

    common = kernels.intersections(predictions.ends, predictions.offsets, references.ends, references.offsets)
    area_a, area_b = predictions.areas, references.areas
    union = area_a + area_b - common
    with np.errstate(invalid="ignore"):
        iou: FloatArray = common / union  # NaN if both are empty (0 / 0)
    if slice == "true_positive":
        iou[(area_a == 0) | (area_b == 0)] = np.nan
    return iou


def box_iou(predictions: npt.ArrayLike, references: npt.ArrayLike) -> FloatArray:
    """Return the intersection over union of boxes [x, y, width, height].

    Parameters
    ----------
    predictions, references : float arrays (n_cases, 4); a row of NaN is an absent prediction or an empty reference

    Returns
    -------
    float array (n_cases,) in [0, 1]; 0 for an absent prediction; NaN if the reference is absent, or if neither box has
    an area

    Raises
    ------
    ValueError
        If the shapes differ, a row is partly NaN, or a width or height is negative.

    Examples
    --------
    >>> box_iou([[0, 0, 2, 2]], [[1, 0, 2, 2]]).round(3).tolist()
    [0.333]
    """
    a, b = _check_boxes("predictions", predictions), _check_boxes("references", references)
    _check_length("predictions", len(a), len(b))
    low = np.maximum(a[:, :2], b[:, :2])
    high = np.minimum(a[:, :2] + a[:, 2:], b[:, :2] + b[:, 2:])
    common = np.clip(high - low, 0, None).prod(axis=1)
    union = a[:, 2:].prod(axis=1) + b[:, 2:].prod(axis=1) - common
    with np.errstate(invalid="ignore"):
        iou: FloatArray = common / union  # NaN if neither has an area (0 / 0)
    iou[np.isnan(a[:, 0])] = 0.0
    iou[np.isnan(b[:, 0])] = np.nan
    return iou


def _check_boxes(name: str, boxes: npt.ArrayLike) -> FloatArray:
    array = np.asarray(boxes, dtype=np.float64).reshape(-1, 4) if np.size(boxes) == 0 else np.asarray(boxes, np.float64)
    if array.ndim != 2 or array.shape[1] != 4:
        raise ValueError(f"`{name}` must have shape (n_cases, 4), got {array.shape}")
    absent = np.isnan(array)
    partly = absent.any(axis=1) != absent.all(axis=1)
    bad = partly | np.isinf(array).any(axis=1) | (array[:, 2:] < 0).any(axis=1)
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise ValueError(f"`{name}[{i}]` must be [x, y, width >= 0, height >= 0] or all NaN, got {array[i].tolist()}")
    return array


def _check_length(name: str, got: int, expected: int) -> None:
    if got != expected:
        raise ValueError(f"`{name}` must have the length of `references` ({expected}), got {got}")
