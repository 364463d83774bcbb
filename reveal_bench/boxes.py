"""Boxes as regions of pixels, for references that are drawn as boxes alone.

Conventions
-----------
A box is ``[x, y, width, height]`` in pixels, not rounded. A pixel (i, j) belongs to a box if its centre
(i + 0.5, j + 0.5) does: x <= i + 0.5 < x + width, and so for y. A region of several boxes is their union. What of a box
lies beyond the image has no pixels. Regions are :class:`~reveal_bench.masks.PackedMasks`; none is ever made dense.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from reveal_bench.masks import MAX_PIXELS, PackedMasks, Rle, pack_masks

__all__ = ["Box", "pack_boxes", "pack_regions", "tight_box"]

Box = tuple[float, float, float, float]
IntArray = npt.NDArray[np.int64]


def tight_box(boxes: Sequence[Box]) -> Box:
    """The smallest box around all `boxes`.

    Raises
    ------
    ValueError
        If there is no box.

    Examples
    --------
    >>> tight_box([(10, 10, 5, 5), (20.5, 0, 4, 12)])
    (10, 0, 14.5, 15)
    """
    if not boxes:
        raise ValueError("`boxes` must have at least one box, got none")
    if len(boxes) == 1:
        return boxes[0]  # as it is written: x + width - x need not be width
    left, top = min(x for x, _, _, _ in boxes), min(y for _, y, _, _ in boxes)
    right, bottom = max(x + width for x, _, width, _ in boxes), max(y + height for _, y, _, height in boxes)
    return left, top, right - left, bottom - top


def pack_boxes(boxes: Sequence[Sequence[Box]], sizes: Sequence[tuple[int, int]]) -> PackedMasks:
    """The union of the boxes of each case as a mask.

    Parameters
    ----------
    boxes : per case, its boxes; none = an empty mask
    sizes : per case, (height, width) of its image

    Raises
    ------
    ValueError
        If the lengths differ, a box is not finite or not larger than nothing, or an image is empty or too large.

    Examples
    --------
    >>> pack_boxes([[(0.5, 0, 1, 1), (0.6, 0, 1, 1)]], [(2, 3)]).dense(0).astype(int)
    array([[1, 1, 0],
           [0, 0, 0]])
    """
    if len(boxes) != len(sizes):
        raise ValueError(f"`boxes` must have the length of `sizes` ({len(sizes)}), got {len(boxes)}")
    ends = [_run_ends(boxes[i], sizes[i], i) for i in range(len(boxes))]
    offsets = np.cumsum([0, *(len(part) for part in ends)]).astype(np.int64)
    flat = np.concatenate([np.zeros(0, np.int32), *ends]).astype(np.int32)
    return PackedMasks(np.array(sizes, np.int64).reshape(-1, 2), flat, offsets)


def pack_regions(regions: Sequence[Rle | Sequence[Box]], sizes: Sequence[tuple[int, int]]) -> PackedMasks:
    """Masks and unions of boxes side by side: a region is a run-length mask, or the boxes that make it up.

    Raises
    ------
    ValueError
        As :func:`pack_boxes` and :func:`~reveal_bench.masks.pack_masks` do.
    """
    is_mask = np.array([isinstance(region, Rle) for region in regions], bool)
    masks = pack_masks([region for region in regions if isinstance(region, Rle)])
    if is_mask.all():
        return masks
    boxed = [i for i in range(len(regions)) if not is_mask[i]]
    boxes = pack_boxes([tuple(regions[i]) for i in boxed], [sizes[i] for i in boxed])  # type: ignore[arg-type]
    both = PackedMasks(
        np.concatenate([masks.sizes, boxes.sizes]),
        np.concatenate([masks.ends, boxes.ends]),
        np.concatenate([masks.offsets, boxes.offsets[1:] + masks.offsets[-1]]),
    )
    return both.take(np.where(is_mask, np.cumsum(is_mask) - 1, len(masks) + np.cumsum(~is_mask) - 1))


def _run_ends(boxes: Sequence[Box], size: tuple[int, int], index: int) -> npt.NDArray[np.int32]:
    """Ends of the runs of a union of boxes, column by column, background first."""
    height, width = size
    if height < 1 or width < 1 or height * width > MAX_PIXELS:
        rule = f"must be [height, width] of 1 to {MAX_PIXELS} pixels"
        raise ValueError(f"`sizes[{index}]` {rule}, got [{height}, {width}]")
    starts: list[IntArray] = []
    stops: list[IntArray] = []
    for box in boxes:
        x, y, box_width, box_height = box
        if not (all(map(math.isfinite, box)) and box_width > 0 and box_height > 0):
            rule = "must be finite [x, y, width > 0, height > 0]"
            raise ValueError(f"`boxes[{index}]` {rule}, got {list(box)}")
        left, right = _covered(x, x + box_width, width)
        top, bottom = _covered(y, y + box_height, height)
        if top < bottom:
            columns = np.arange(left, right, dtype=np.int64) * height
            starts.append(columns + top)
            stops.append(columns + bottom)
    edges = _merged(np.concatenate([_NONE, *starts]), np.concatenate([_NONE, *stops]))
    n_pixels = height * width
    return (edges if len(edges) and edges[-1] == n_pixels else np.append(edges, n_pixels)).astype(np.int32)


_NONE = np.zeros(0, np.int64)


def _covered(low: float, high: float, side: int) -> tuple[int, int]:
    """First pixel whose centre lies in [low, high), and the first after it that does not; inside [0, side]."""
    return min(max(math.ceil(low - 0.5), 0), side), min(max(math.ceil(high - 0.5), 0), side)


def _merged(starts: IntArray, stops: IntArray) -> IntArray:
    """Where the union of runs begins and ends, in turn."""
    if len(starts) == 0:
        return _NONE
    order = np.argsort(starts, kind="stable")
    starts, stops = starts[order], np.maximum.accumulate(stops[order])
    is_gap = starts[1:] > stops[:-1]
    begins, finishes = starts[np.append(True, is_gap)], stops[np.append(is_gap, True)]
    return np.stack([begins, finishes], axis=1).ravel()
