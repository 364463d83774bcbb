"""Heat maps over an image: resized, scaled, thresholded, and reduced to a point.

Conventions
-----------
A heat map is an array (h, w) of finite numbers over the whole image of `size` (height, width); larger numbers mean that
the finding is more likely. A map is first resized to the image, in single precision, by bilinear interpolation between
the centres of its pixels, with edges continued (`align_corners=False` of torch); a smaller image is sampled the same
way. The resized map is scaled from its minimum to its maximum onto [0, 1]. A constant map has an empty mask and no
point.

Otsu's level is computed over 256 levels, which are the values 255 m of the scaled map m without their decimals; pixels
above it are in the mask. *Filled*: the authors of CheXlocalize drop contours of one pixel and fill every other contour
as a polygon. The same result is computed here without contours: holes are filled and single pixels removed. Masks from
fixed thresholds contain the pixels strictly above the threshold; nothing is filled.

Source: paper 002, Methods, and its published code.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import BoolArray, IntArray
from reveal_bench.masks import PackedMasks, encode_mask, pack_masks

if TYPE_CHECKING:
    from reveal_bench.masks.kernels import ResizedMap

Map = npt.NDArray[np.float32]
_LEVELS = 256
_TOP = np.float32(_LEVELS - 1)
# Smallest proportion of pixels on either side of a level
_LEAST_SHARE = float(np.finfo(np.float32).eps)
_LARGEST = 1e30  # maps with larger values are scaled down first; only ratios matter


def checked_map(heat_map: npt.ArrayLike) -> Map:
    """Return the map in single precision.

    Raises
    ------
    ArgumentError
        If the map is not an array (h, w) of finite numbers with at least one pixel.
    """
    try:
        array = np.asarray(heat_map)
    # Such as ragged lists, and tensors on a device or with gradients
    except (ValueError, TypeError, RuntimeError) as error:
        raise ArgumentError("heat_map", "must be readable by numpy", f"{type(heat_map).__name__}: {error}") from None
    if array.dtype.kind not in "iuf" or array.ndim != 2 or array.size == 0:
        rule = "must be a two-dimensional array of numbers with at least one pixel"
        raise ArgumentError("heat_map", rule, f"{array.dtype} of shape {array.shape}")
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0].tolist()
        raise ArgumentError("heat_map", "must be finite", f"{array[row, column]} at row {row}, column {column}")
    largest = np.abs(array).max()
    return (array / largest if largest > _LARGEST else array).astype(np.float32)


def at_size(heat_map: npt.ArrayLike, size: tuple[int, int]) -> Map:
    """Return the map at the size (height, width) of the image.

    Raises
    ------
    ArgumentError
        For the reasons of :func:`checked_map`, or if a side of `size` is below 1.

    Examples
    --------
    >>> at_size([[0.0, 1.0]], (1, 4)).tolist()
    [[0.0, 0.25, 0.75, 1.0]]
    """
    return laid_over(heat_map, size).fine()


@dataclass(frozen=True, slots=True)
class LaidMap:
    """Heat map over its image, whose rows at the size of the image are computed when needed and never all in memory.

    Attributes
    ----------
    laid : the map as needed by :mod:`reveal_bench.masks.kernels`
    ends : lowest and highest value of the map at the size of the image
    place : the first pixel, row by row, with the highest value; None for a constant map
    """

    laid: ResizedMap
    ends: Map
    place: int | None

    @property
    def is_flat(self) -> bool:
        """True if all values of the map are equal at the size of the image."""
        return bool(self.ends[0] == self.ends[1])

    def fine(self) -> Map:
        """Return the map at the size of the image."""
        from reveal_bench.masks import kernels

        return kernels.upsample(self.laid)

    def point(self) -> tuple[float, float] | None:
        """Return the centre (x, y) of the first pixel with the largest value; None for a constant map."""
        if self.place is None:
            return None
        row, column = divmod(self.place, self.laid.size[1])
        return column + 0.5, row + 0.5

    def above(self, threshold: float) -> PackedMasks:
        """Return the mask of the scaled map strictly above a threshold in [0, 1), as PackedMasks with one mask."""
        if isinstance(threshold, bool) or not 0 <= threshold < 1:
            raise ArgumentError("threshold", "must be in [0, 1)", repr(threshold))
        return self._mask(partial(np.less, np.float32(threshold)))

    def above_otsu(self, *, fill: bool, published_smoothing: int = 0) -> PackedMasks:
        """Return the mask of :func:`otsu_mask`, as PackedMasks with one mask."""
        from reveal_bench.masks import kernels

        if self.is_flat:
            above = self._mask(bool)
        elif published_smoothing:
            levels = smoothed_as_published((_TOP * scaled(self.fine())).astype(np.uint8), published_smoothing)
            level = otsu_level(np.bincount(levels.ravel(), minlength=_LEVELS))
            above = pack_masks([encode_mask(levels > level)])
        else:
            level = otsu_level(kernels.level_counts(self.laid, self.ends))
            above = self._mask(lambda value: _TOP * value >= level + 1)
        return _packed(kernels.fill_runs(above.ends, self.laid.size[0]), self.laid.size) if fill else above

    def counts_above(self, grid: Sequence[float], reference: PackedMasks) -> IntArray:
        """Return the numbers of pixels above each of the rising thresholds, (2, n): in the whole image, and inside
        `reference`.

        Raises
        ------
        ArgumentError
            If the mask is not of the size of the image.
        """
        from reveal_bench.masks import kernels

        if reference.sizes.tolist() != [list(self.laid.size)]:
            raise ArgumentError("reference", f"must be one mask of {self.laid.size}", reference.sizes.tolist())
        if self.is_flat:
            return np.zeros((2, len(grid)), np.int64)
        cuts = [self._cut(partial(np.less, np.float32(threshold))) for threshold in grid]
        return kernels.counts_above(self.laid, np.array(cuts, np.float32), reference.ends)

    def _mask(self, is_kept: Callable[[np.float32], Any]) -> PackedMasks:
        from reveal_bench.masks import kernels

        size = self.laid.size
        if self.is_flat:
            return _packed(np.array([size[0] * size[1]], np.int32), size)
        return _packed(kernels.runs_above(self.laid, self._cut(is_kept)), size)

    def _cut(self, is_kept: Callable[[np.float32], Any]) -> float:
        """Return the largest value of the map that is dropped; scaling does not change the order of values."""
        low, high = self.ends
        span = high - low
        first, last = _rank(low), _rank(high)
        place = bisect_left(range(first, last + 1), True, key=lambda rank: bool(is_kept((_of_rank(rank) - low) / span)))
        return float(_of_rank(first + place - 1))


def _rank(value: np.float32) -> int:
    """Return single-precision numbers as integers in the same order, such that neighbouring numbers differ by 1."""
    bits = int(value.view(np.int32))
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF)


def _of_rank(rank: int) -> np.float32:
    bits = np.uint32(rank) if rank >= 0 else np.uint32(-rank | 0x80000000)
    value: np.float32 = bits.view(np.float32)
    return value


def _packed(ends: npt.NDArray[np.int32], size: tuple[int, int]) -> PackedMasks:
    return PackedMasks(np.array([size], np.int64), ends, np.array([0, len(ends)], np.int64))


def laid_over(heat_map: npt.ArrayLike, size: tuple[int, int]) -> LaidMap:
    """Return the map laid over an image of size (height, width).

    Raises
    ------
    ArgumentError
        As :func:`at_size`.
    """
    from reveal_bench.masks import kernels

    coarse = checked_map(heat_map)
    if len(size) != 2 or min(size) < 1:
        raise ArgumentError("size", "must be (height, width) with both at least 1", tuple(size))
    height, width = size
    # Interpolation could round a constant unequally, and scaling would amplify the differences
    if coarse.min() == coarse.max():
        coarse = np.full((1, width), coarse[0, 0])
        first = np.zeros(height, np.int64)
        laid = kernels.ResizedMap(coarse, first, first, np.zeros(height, np.float32))
        return LaidMap(laid, coarse[0, [0, 0]], None)
    left, right, weight = _neighbours(coarse.shape[1], width)
    wide = coarse if coarse.shape[1] == width else coarse[:, left] * (1 - weight) + coarse[:, right] * weight
    laid = kernels.ResizedMap(wide, *_neighbours(coarse.shape[0], height))
    return LaidMap(laid, *kernels.map_ends(laid))


def _neighbours(n: int, wanted: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Map]:
    """Return (before, after, weight) for each position on a resized side: both neighbouring pixels, and the weight of
    `after`.
    """
    places = (np.arange(wanted, dtype=np.float32) + np.float32(0.5)) * np.float32(n / wanted) - np.float32(0.5)
    places = np.maximum(places, np.float32(0))
    before = np.minimum(places.astype(np.intp), n - 1)
    return before, np.minimum(before + 1, n - 1), (places - before).astype(np.float32)


def scaled(fine: Map) -> Map:
    """Return the map scaled to [0, 1] from its minimum to its maximum; all 0 if it is constant."""
    low, high = fine.min(), fine.max()
    if low == high:
        return np.zeros_like(fine)
    on_scale: Map = (fine - low) / (high - low)
    return on_scale


def mask_above(heat_map: npt.ArrayLike, size: tuple[int, int], threshold: float) -> BoolArray:
    """Return the mask of the scaled map strictly above a threshold in [0, 1), compared in single precision.

    Examples
    --------
    >>> mask_above([[0.0, 1.0]], (1, 4), 0.5).tolist()
    [[False, False, True, True]]
    """
    return laid_over(heat_map, size).above(threshold).dense(0)


def otsu_mask(heat_map: npt.ArrayLike, size: tuple[int, int], *, fill: bool, published_smoothing: int = 0) -> BoolArray:
    """Return the mask of the scaled map above Otsu's level, with filled contours as published, or unfilled.

    Parameters
    ----------
    published_smoothing : side of the smoothing box in pixels, see :func:`smoothed_as_published`; 0 for no smoothing

    Raises
    ------
    ArgumentError
        As :func:`at_size`.
    ImportError
        If OpenCV is needed, for smoothing, and is not installed.
    """
    return laid_over(heat_map, size).above_otsu(fill=fill, published_smoothing=published_smoothing).dense(0)


def otsu_level(counts: Sequence[int] | npt.NDArray[np.integer]) -> int:
    """Return the level that best divides a histogram: the first with the largest variance between both parts.

    The steps follow OpenCV's own code, so that rounding chooses the same one of two levels that divide a symmetric
    histogram equally well. If OpenCV calls Intel's library instead, it may choose the other level.

    Examples
    --------
    >>> otsu_level([4, 0, 0, 3])
    0
    """
    n = [float(count) for count in counts]
    scale = 1 / sum(n)
    mean = sum(level * count for level, count in enumerate(n)) * scale
    best, best_level = 0.0, 0
    below = mean_below = 0.0
    for level, count in enumerate(n):
        share = count * scale
        mean_below *= below
        below += share
        above = 1 - below
        if min(below, above) < _LEAST_SHARE or max(below, above) > 1 - _LEAST_SHARE:
            continue
        mean_below = (mean_below + level * share) / below
        distance = mean_below - (mean - below * mean_below) / above
        between = below * above * distance * distance
        if between > best:
            best, best_level = between, level
    return best_level


def largest_point(heat_map: npt.ArrayLike, size: tuple[int, int]) -> tuple[float, float] | None:
    """Return the centre (x, y) of the largest pixel of the map at the size of the image; of several, the first row by
    row.

    Returns
    -------
    (x, y) in pixels of the full image, or None if the map is constant

    Raises
    ------
    ArgumentError
        As :func:`at_size`.

    Examples
    --------
    >>> largest_point([[0.1, 0.9], [0.9, 0.2]], (20, 40))
    (30.5, 0.5)
    >>> largest_point([[3]], (20, 40)) is None
    True
    """
    return laid_over(heat_map, size).point()


def smoothed(heat_map: npt.ArrayLike, size: tuple[int, int], width: int, *, gaussian: bool = False) -> Map:
    """Return the map at the size of the image, averaged over a box or a Gaussian, reflected at the edges.

    Parameters
    ----------
    width : side of the box in pixels, or the standard deviation of the Gaussian

    Raises
    ------
    ArgumentError
        As :func:`at_size`.
    ImportError
        If OpenCV is not installed.
    """
    try:
        import cv2
    except ImportError:
        raise ImportError("smoothing needs OpenCV: pip install 'reveal-bench[saliency]'") from None
    fine = at_size(heat_map, size)
    if gaussian:
        return np.asarray(cv2.GaussianBlur(fine, (0, 0), width, borderType=cv2.BORDER_REFLECT_101), np.float32)
    return np.asarray(cv2.blur(fine, (width, width), borderType=cv2.BORDER_REFLECT_101), np.float32)


def smoothed_as_published(levels: npt.NDArray[np.uint8], side: int) -> npt.NDArray[np.uint8]:
    """Return 256 levels, smoothed as CheXlocalize's code does before it finds Otsu's level.

    The levels become OpenCV's "jet" colours. The colours are converted to grey with red and blue exchanged, averaged
    over a box of `side` pixels, and inverted. The output does not increase with the input: 0, 96, 128 and 255 become
    217, 29, 53 and 240. For maps with negative values this is roughly an absolute value; for other maps low and high
    levels both end up above the middle.

    Raises
    ------
    ImportError
        If OpenCV is not installed.
    """
    try:
        import cv2
    except ImportError:
        raise ImportError("smoothing needs OpenCV: pip install 'reveal-bench[saliency]'") from None
    grey = cv2.cvtColor(cv2.applyColorMap(levels, cv2.COLORMAP_JET), cv2.COLOR_RGB2GRAY)
    return np.asarray(255 - cv2.blur(grey, (side, side), borderType=cv2.BORDER_REFLECT_101), np.uint8)
