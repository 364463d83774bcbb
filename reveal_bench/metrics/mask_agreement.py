"""Agreement of two masks in their area and along their boundary, one value per pair.

Conventions
-----------
Pair i is mask i of two :class:`~reveal_bench.masks.PackedMasks` of equal sizes; results are float arrays (n_pairs,),
NaN if both masks are empty (:func:`dice` takes another value). The *boundary* of a mask is its pixels that have a
neighbour (left, right, above, below) outside the mask; everything beyond the image is outside. Distances are between
centres of pixels, in pixels, or in mm with the spacing (row, column) of the image.

Sources: Dice 1945; boundary IoU: Cheng et al. 2021, with a band of 2% of the image's diagonal; normalised surface
distance: Nikolov et al. 2018, counted in pixels of the boundary; Hausdorff 95: the larger of the two directed 95th
percentiles. MONAI's functions use the same definitions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import FloatArray
from reveal_bench.masks import PackedMasks

BAND = 0.02
"""Width of the band of :func:`boundary_iou`, as a proportion of the image's diagonal."""
Spacing = tuple[float, float]
Mask = npt.NDArray[np.bool_]


def dice(predictions: PackedMasks, references: PackedMasks, *, empty: float = np.nan) -> FloatArray:
    """Return the Dice coefficient: twice the shared area over the sum of both areas.

    Parameters
    ----------
    empty : value of a pair of empty masks; 1 in the SIIM-ACR Pneumothorax Segmentation challenge of 2019, whose score
        is the mean over all images

    Raises
    ------
    ValueError
        If the lengths or sizes differ.

    Examples
    --------
    >>> from reveal_bench.masks import encode_mask, pack_masks
    >>> a, b = (pack_masks([encode_mask(np.array([row]))]) for row in ([1, 1, 0, 0], [0, 1, 1, 1]))
    >>> dice(a, b)
    array([0.4])
    >>> nothing = pack_masks([encode_mask(np.zeros((1, 4), bool))])
    >>> dice(nothing, nothing), dice(nothing, nothing, empty=1.0)
    (array([nan]), array([1.]))
    """
    from reveal_bench.masks import kernels

    _check(predictions, references)
    common = kernels.intersections(predictions.ends, predictions.offsets, references.ends, references.offsets)
    areas = predictions.areas + references.areas
    shares: FloatArray = np.divide(2.0 * common, areas, out=np.full(len(areas), empty), where=areas > 0)
    return shares


def boundary_iou(predictions: PackedMasks, references: PackedMasks, *, band: float = BAND) -> FloatArray:
    """Return the IoU of the parts of both masks within a band along their own boundaries.

    Parameters
    ----------
    band : width as a proportion of the image's diagonal, at least one pixel; diagonal neighbours are one step apart

    Raises
    ------
    ValueError
        If the lengths or sizes differ, or `band` is not above 0.
    """
    from scipy.ndimage import minimum_filter

    if band <= 0:
        raise ArgumentError("band", "must be above 0", band)

    def along(mask: Mask) -> Mask:
        width = max(1, round(band * float(np.hypot(*mask.shape))))
        inner: Mask = minimum_filter(mask, 2 * width + 1, mode="constant")  # pixels that `width` steps of erosion leave
        return mask & ~inner

    def iou(a: Mask, b: Mask) -> float:
        a, b = along(a), along(b)
        return float((a & b).sum() / (a | b).sum())

    return _by_pair(predictions, references, iou)


def surface_distance(
    predictions: PackedMasks, references: PackedMasks, *, tolerance: float = 2.0, spacing: Spacing = (1.0, 1.0)
) -> FloatArray:
    """Return the normalised surface distance.

    Parameters
    ----------
    tolerance : distance in pixels, or in mm with a spacing
    spacing : mm between rows and between columns

    Returns
    -------
    float array (n_pairs,); 0 if only one mask is empty

    Raises
    ------
    ValueError
        If the lengths or sizes differ, or `tolerance` is below 0.
    """
    if not tolerance >= 0:
        raise ArgumentError("tolerance", "must be at least 0", tolerance)

    def share(a: Mask, b: Mask) -> float:
        if not a.any() or not b.any():
            return 0.0
        there, back = _distances(a, b, spacing)
        return float(((there <= tolerance).sum() + (back <= tolerance).sum()) / (len(there) + len(back)))

    return _by_pair(predictions, references, share)


def hausdorff_95(predictions: PackedMasks, references: PackedMasks, *, spacing: Spacing = (1.0, 1.0)) -> FloatArray:
    """Return the 95th percentile Hausdorff distance.

    Parameters
    ----------
    spacing : mm between rows and between columns

    Returns
    -------
    float array (n_pairs,); infinite if one mask is empty

    Raises
    ------
    ValueError
        If the lengths or sizes differ.
    """

    def distance(a: Mask, b: Mask) -> float:
        if not a.any() or not b.any():
            return float("inf")
        return float(max(np.percentile(distances, 95) for distances in _distances(a, b, spacing)))

    return _by_pair(predictions, references, distance)


def _distances(a: Mask, b: Mask, spacing: Spacing) -> tuple[FloatArray, FloatArray]:
    """Return the distances from each pixel of a's boundary to b's, and the reverse, in the area of both masks."""
    from scipy.ndimage import binary_erosion, distance_transform_edt

    either = a | b
    rows, columns = (np.flatnonzero(either.any(axis=axis)) for axis in (1, 0))
    part = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    edges = [mask[part] & ~binary_erosion(mask[part]) for mask in (a, b)]
    far = [distance_transform_edt(~edge, sampling=spacing) for edge in edges]
    return far[1][edges[0]], far[0][edges[1]]


def _by_pair(predictions: PackedMasks, references: PackedMasks, value: Callable[[Mask, Mask], float]) -> FloatArray:
    _check(predictions, references)
    pairs = ((predictions.dense(i), references.dense(i)) for i in range(len(predictions)))
    return np.array([value(a, b) if a.any() or b.any() else np.nan for a, b in pairs])


def _check(predictions: PackedMasks, references: PackedMasks) -> None:
    if len(predictions) != len(references):
        raise ValueError(
            f"`predictions` must have the length of `references` ({len(references)}), got {len(predictions)}"
        )
    if not np.array_equal(predictions.sizes, references.sizes):
        raise ValueError("`predictions` must have the sizes of `references`")
