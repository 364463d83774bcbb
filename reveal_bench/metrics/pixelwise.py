"""Pixel-wise metrics of masks, and the point that a heat map stands for.

Conventions
-----------
Case i pairs predicted mask i with reference mask i, both :class:`~reveal_bench.masks.PackedMasks`; areas are counted
from runs, no dense mask is made. Results are float arrays (n_cases,) in [0, 1], NaN where undefined. An empty predicted
mask is a prediction ("nothing here": sensitivity 0, specificity 1); an absent one is a miss, which the caller scores 0.

Metrics
-------
* :func:`sensitivity`  share of the reference's pixels that the prediction finds
* :func:`specificity`  share of the pixels outside the reference that the prediction leaves alone
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray, IntArray
from reveal_bench.masks import PackedMasks

__all__ = ["heat_map_point", "sensitivity", "shared_areas", "specificity"]


def sensitivity(predictions: PackedMasks, references: PackedMasks) -> FloatArray:
    """Share of the reference's pixels that lie in the predicted mask.

    Parameters
    ----------
    predictions, references : PackedMasks (n_cases) of equal sizes

    Returns
    -------
    float array (n_cases,) in [0, 1]; NaN where the reference has no pixel set

    Raises
    ------
    ValueError
        If the lengths or the sizes of two paired masks differ.

    Examples
    --------
    >>> import numpy as np
    >>> from reveal_bench.masks import encode_mask, pack_masks
    >>> left = pack_masks([encode_mask(np.array([[1, 0], [1, 0]]))])
    >>> top = pack_masks([encode_mask(np.array([[1, 1], [0, 0]]))])
    >>> sensitivity(left, top)
    array([0.5])
    """
    with np.errstate(invalid="ignore"):
        share: FloatArray = shared_areas(predictions, references) / references.areas  # 0 / 0 is NaN
    return share


def specificity(predictions: PackedMasks, references: PackedMasks) -> FloatArray:
    """Share of the pixels outside the reference that lie outside the predicted mask too.

    Parameters
    ----------
    predictions, references : PackedMasks (n_cases) of equal sizes

    Returns
    -------
    float array (n_cases,) in [0, 1]; NaN where the reference covers the whole image

    Raises
    ------
    ValueError
        If the lengths or the sizes of two paired masks differ.

    Examples
    --------
    >>> import numpy as np
    >>> from reveal_bench.masks import encode_mask, pack_masks
    >>> corner = pack_masks([encode_mask(np.array([[1, 0], [0, 0]]))])
    >>> top = pack_masks([encode_mask(np.array([[1, 1], [0, 0]]))])
    >>> specificity(top, corner).round(3), specificity(corner, top)
    (array([0.667]), array([1.]))
    """
    false_positives = predictions.areas - shared_areas(predictions, references)
    negatives = references.sizes.prod(axis=1) - references.areas
    with np.errstate(invalid="ignore"):
        share: FloatArray = (negatives - false_positives) / negatives
    return share


def shared_areas(predictions: PackedMasks, references: PackedMasks) -> IntArray:
    """Pixels in both masks of each pair, shape (n_cases,).

    Raises
    ------
    ValueError
        If the lengths or the sizes of two paired masks differ.
    """
    if len(predictions) != len(references):
        wanted = f"the length of `references` ({len(references)})"
        raise ArgumentError("predictions", f"must have {wanted}", len(predictions))
    differ = np.flatnonzero((predictions.sizes != references.sizes).any(axis=1))
    if len(differ):
        i = int(differ[0])
        wanted, got = references.sizes[i].tolist(), predictions.sizes[i].tolist()
        raise ValueError(f"`predictions[{i}]` must have the size of its reference {wanted} [height, width], got {got}")
    from reveal_bench import kernels

    common: IntArray = kernels.intersections(predictions.ends, predictions.offsets, references.ends, references.offsets)
    return common


def heat_map_point(heat_map: npt.ArrayLike, *, size: tuple[int, int] | None = None) -> tuple[float, float]:
    """The point (x, y) that a heat map stands for: the centre of its largest pixel.

    The map is laid over the whole image: of a map (h, w) on an image (height, width), the pixel in row i and column j
    covers ``[j * width / w, (j + 1) * width / w)`` by ``[i * height / h, (i + 1) * height / h)``; its centre is the
    point. (CheXlocalize's code interpolates to full size first, which can move the maximum within about one pixel of
    the map: give the interpolated map to repeat it.)

    Parameters
    ----------
    heat_map : array (h, w), finite
    size : (height, width) of the image; by default that of the map

    Returns
    -------
    (x, y) in pixels of the full image; among equal largest pixels the first in row-major order

    Raises
    ------
    ValueError
        If `heat_map` is not two-dimensional, has no pixel, or holds NaN or infinities, or `size` is below 1.

    Examples
    --------
    >>> heat_map_point([[0.1, 0.9], [0.9, 0.2]])
    (1.5, 0.5)
    >>> heat_map_point([[0.1, 0.9], [0.9, 0.2]], size=(200, 400))
    (300.0, 50.0)
    """
    array = np.asarray(heat_map, np.float64)
    if array.ndim != 2 or array.size == 0:
        raise ArgumentError("heat_map", "must have shape (height, width) with at least one pixel", array.shape)
    if not np.isfinite(array).all():
        raise ArgumentError("heat_map", "must be finite", array[~np.isfinite(array)][0])
    height, width = array.shape if size is None else size
    if height < 1 or width < 1:
        raise ArgumentError("size", "must be (height, width) with both at least 1", f"({height}, {width})")
    row, column = divmod(int(array.argmax()), array.shape[1])
    return (column + 0.5) * width / array.shape[1], (row + 0.5) * height / array.shape[0]
