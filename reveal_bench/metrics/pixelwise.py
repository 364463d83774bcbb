"""Pixel-wise metrics of masks.

Conventions
-----------
Case i pairs predicted mask i with reference mask i, both :class:`~reveal_bench.masks.PackedMasks`; areas are counted
from runs, no dense mask is made. Results are float arrays (n_cases,) in [0, 1], NaN if undefined. An empty predicted
mask is a prediction ("nothing here": sensitivity 0, specificity 1); a missing mask is a miss, which the caller scores
0.

Metrics
-------
* :func:`sensitivity`  proportion of the reference's pixels that the prediction finds
* :func:`specificity`  proportion of the pixels outside the reference that the prediction leaves out
"""

from __future__ import annotations

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray, IntArray
from reveal_bench.masks import PackedMasks


def sensitivity(predictions: PackedMasks, references: PackedMasks) -> FloatArray:
    """Return the proportion of the reference's pixels that are in the predicted mask.

    Parameters
    ----------
    predictions, references : PackedMasks (n_cases) of equal sizes

    Returns
    -------
    float array (n_cases,) in [0, 1]; NaN if the reference has no pixel set

    Raises
    ------
    ValueError
        If the lengths or the sizes of two paired masks differ.

    Examples
    --------
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
    """Return the proportion of the pixels outside the reference that are outside the predicted mask too.

    Parameters
    ----------
    predictions, references : PackedMasks (n_cases) of equal sizes

    Returns
    -------
    float array (n_cases,) in [0, 1]; NaN if the reference covers the whole image

    Raises
    ------
    ValueError
        If the lengths or the sizes of two paired masks differ.

    Examples
    --------
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
    """Return the number of pixels that are in both masks of each pair, shape (n_cases,).

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
    from reveal_bench.masks import kernels

    common: IntArray = kernels.intersections(predictions.ends, predictions.offsets, references.ends, references.offsets)
    return common
