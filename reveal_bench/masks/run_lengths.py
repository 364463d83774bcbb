"""Run-length masks: strict parsing of COCO RLE strings, packed arrays of many masks, and boxes as pixel regions.

Conventions
-----------
A mask is a bool array (H, W). Its COCO compressed RLE is column-major, its first run counts zeros, and ``size`` is
``[height, width]``. :class:`PackedMasks` stores many masks as the ends of their runs in one flat array, so that scoring
needs no dense masks.

Strings come from untrusted senders, and pycocotools hangs, crashes or returns uninitialised memory on malformed
strings. Therefore this module rejects characters outside the alphabet, truncated or over-long codes, negative runs,
runs that overflow or do not fill the image, and masks with too many pixels or runs.

Polygons are filled as for CheXlocalize's released masks (by Pillow, outline and fill, union of contours). The result,
unlike that of ``pycocotools.frPyObjects``, equals the published RLE byte for byte.

References that consist only of boxes are also treated as pixel regions. A box is ``[x, y, width, height]`` in pixels,
not rounded. A pixel (i, j) belongs to a box if the box contains its centre (i + 0.5, j + 0.5): x <= i + 0.5 < x +
width, and likewise for y. The region of several boxes is their union; the part of a box beyond the image covers no
pixels. Regions are stored as :class:`~reveal_bench.masks.PackedMasks`.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.arrays import IntArray
from reveal_bench.masks.numpy_kernels import Status

if TYPE_CHECKING:
    from types import ModuleType

MAX_PIXELS = 1 << 28
"""Largest number of pixels (height x width) of a mask; a chest radiograph has about 7 million."""
MAX_RUNS = 1_000_000
"""Largest number of runs of a mask; a detailed lung outline has about 10,000."""

BoolMask = npt.NDArray[np.bool_]


def _kernels() -> ModuleType:
    from reveal_bench.masks import kernels

    return kernels


@dataclass(frozen=True, slots=True)
class Rle:
    """A COCO compressed run-length mask: `size` is (height, width), `counts` the ASCII string. Not yet checked."""

    size: tuple[int, int]
    counts: str


@dataclass(frozen=True)
class PackedMasks:
    """Many valid masks, stored as the ends of their runs.

    Attributes
    ----------
    sizes : int array (n, 2)
        (height, width) of each mask.
    ends : int32 array
        Ends of the runs of all masks, as column-major pixel positions; run 0 of each mask is background.
    offsets : int array (n + 1,)
        The ends of mask i are ``ends[offsets[i]:offsets[i + 1]]``.
    """

    sizes: IntArray
    ends: npt.NDArray[np.int32]
    offsets: IntArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def areas(self) -> IntArray:
        """Number of foreground pixels of each mask, shape (n,)."""
        areas: IntArray = _kernels().mask_areas(self.ends, self.offsets)
        return areas

    def take(self, indices: Sequence[int] | IntArray) -> PackedMasks:
        """Return the masks at `indices`, in the given order; indices may repeat."""
        positions = np.asarray(indices, dtype=np.int64)
        lengths = self.offsets[positions + 1] - self.offsets[positions]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - self.offsets[positions], lengths)
        return PackedMasks(self.sizes[positions], self.ends[place], offsets)

    def dense(self, index: int) -> BoolMask:
        """Return mask `index` as a bool array (height, width)."""
        height, width = (int(side) for side in self.sizes[index])
        ends = self.ends[self.offsets[index] : self.offsets[index + 1]]
        runs = np.diff(ends, prepend=0)
        values = np.arange(len(runs)) % 2 == 1
        return np.repeat(values, runs).reshape(width, height).T

    def rle(self, index: int) -> Rle:
        """Return mask `index` as a COCO compressed run-length mask."""
        height, width = (int(side) for side in self.sizes[index])
        ends = self.ends[self.offsets[index] : self.offsets[index + 1]].astype(np.int64)
        return Rle((height, width), _encode_runs(np.diff(ends, prepend=0)))

    def png(self, index: int) -> bytes:
        """Return mask `index` as a 1-bit PNG file, white inside the mask and black outside."""
        height, width = (int(side) for side in self.sizes[index])
        ends = self.ends[self.offsets[index] : self.offsets[index + 1]]
        head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)  # 1-bit grey
        data = zlib.compress(_kernels().filtered_rows(ends, height, width), 1)
        parts = ((b"IHDR", head), (b"IDAT", data), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
            for name, data in parts
        )

    def deepest_xy(self, indices: Sequence[int] | IntArray) -> IntArray:
        """Return (x, y) of the deepest pixel of each mask at `indices`, shape (n, 2); (-1, -1) for an empty mask.

        The deepest pixel has the largest Euclidean distance between its centre and the nearest pixel centre outside the
        mask; everything beyond the image counts as outside. In case of ties, the first pixel in row-major order is
        returned.
        """
        positions = np.asarray(indices, dtype=np.int64)
        deepest: IntArray = _kernels().deepest_pixels(self.ends, self.offsets, self.sizes, positions)
        return deepest

    def boxes_xywh(self) -> npt.NDArray[np.float64]:
        """Return the tight box [x, y, width, height] of each mask, shape (n, 4); NaN for an empty mask."""
        boxes = np.full((len(self), 4), np.nan)
        for i in range(len(self)):
            box = self._tight_box(i)
            if box is not None:
                boxes[i] = box
        return boxes

    def _tight_box(self, index: int) -> tuple[int, int, int, int] | None:
        height = int(self.sizes[index, 0])
        ends = self.ends[self.offsets[index] : self.offsets[index + 1]]
        starts, stops = _foreground(ends)
        if len(starts) == 0:
            return None
        first, last = starts // height, (stops - 1) // height
        spans = bool(
            (last > first).any()
        )  # a run that continues in the next column covers both the bottom and the top row
        top = 0 if spans else int((starts % height).min())
        bottom = height - 1 if spans else int(((stops - 1) % height).max())
        left, right = int(first[0]), int(last[-1])
        return left, top, right - left + 1, bottom - top + 1


@dataclass(frozen=True, slots=True)
class MaskProblem:
    """The problem of an invalid mask: a stable name of the `rule`, the `field` that breaks it, and a message."""

    rule: str
    field: str
    message: str

    def __str__(self) -> str:
        return self.message


def parse_masks(rles: Sequence[Rle]) -> tuple[PackedMasks, dict[int, MaskProblem]]:
    """Return (masks, problems) of many RLE masks; an invalid mask does not stop the others.

    Parameters
    ----------
    rles : sequence of Rle

    Returns
    -------
    masks : PackedMasks, one mask per input; an invalid mask has no runs and must not be used
    problems : dict from index to MaskProblem
    """
    texts, sizes, problems = _joined(rles)
    kernels = _kernels()
    n_runs = np.minimum(kernels.count_runs(*texts), MAX_RUNS + 1)
    ends, offsets, status, place = kernels.decode_strings(*texts, sizes.prod(axis=1), n_runs, MAX_RUNS)
    _note_problems(rles, status, place, problems)
    return PackedMasks(sizes, ends, offsets), problems


def measure_masks(rles: Sequence[Rle]) -> tuple[IntArray, dict[int, MaskProblem]]:
    """Return (areas, problems) of many RLE masks, with the checks of :func:`parse_masks`.

    It takes half the time of that function, because runs are not stored.
    """
    texts, sizes, problems = _joined(rles)
    areas, status, place = _kernels().measure_strings(*texts, sizes.prod(axis=1), MAX_RUNS)
    _note_problems(rles, status, place, problems)
    return areas, problems


def _joined(rles: Sequence[Rle]) -> tuple[tuple[npt.NDArray[np.uint8], IntArray], IntArray, dict[int, MaskProblem]]:
    """Return (array of all strings, their offsets, sizes (n, 2), problems of invalid sizes).

    The string of a mask with an invalid size is left out.
    """
    problems = {i: problem for i, rle in enumerate(rles) if (problem := _size_problem(rle))}
    # in UTF-8 every byte of a non-ASCII character is outside the RLE alphabet
    texts = [b"" if i in problems else rle.counts.encode("utf-8", "surrogatepass") for i, rle in enumerate(rles)]
    sizes = np.array([(0, 0) if i in problems else rle.size for i, rle in enumerate(rles)], np.int64).reshape(-1, 2)
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    return (np.frombuffer(b"".join(texts), np.uint8), offsets), sizes, problems


def _note_problems(
    rles: Sequence[Rle], status: npt.NDArray[np.uint8], place: IntArray, problems: dict[int, MaskProblem]
) -> None:
    for i in np.flatnonzero(status).tolist():
        problems[i] = _string_problem(rles[i], int(status[i]), int(place[i]))


def _size_problem(rle: Rle) -> MaskProblem | None:
    height, width = rle.size
    if height < 1 or width < 1:
        rule = "must be [height, width] with both at least 1"
    elif height * width > MAX_PIXELS:
        rule = f"must be at most {MAX_PIXELS} pixels"
    else:
        return None
    return MaskProblem("rle-size", "rle.size", f"`size` {rule}, got [{height}, {width}]")


def _string_problem(rle: Rle, status: int, place: int) -> MaskProblem:
    height, width = rle.size
    total = f"must sum to height x width = {height} x {width} = {height * width}"
    character = repr(rle.counts[place]) if status == Status.BAD_CHARACTER else ""
    rule, message = {
        Status.BAD_CHARACTER: ("rle-alphabet", f"may only contain '0' to 'o', got {character} at position {place}"),
        Status.TRUNCATED: ("rle-truncated", f"ends in the middle of a run, at position {place}"),
        Status.TOO_LONG: ("rle-code", f"has a run code of more than 7 characters, at position {place}"),
        Status.NEGATIVE_RUN: ("rle-negative-run", f"has a negative run, run {place}"),
        Status.OVERFLOW: ("rle-overflow", f"{total}, but run {place} exceeds it"),
        Status.TOO_MANY_RUNS: ("rle-runs", f"may have at most {MAX_RUNS} runs, got {place}"),
        Status.UNDERFLOW: ("rle-sum", f"{total}, got {place}"),
    }[Status(status)]
    return MaskProblem(rule, "rle.counts", f"`counts` {message}")


def pack_masks(rles: Sequence[Rle]) -> PackedMasks:
    """Return many RLE masks as :class:`PackedMasks`; raise an error for the first invalid mask.

    Raises
    ------
    ValueError
        If a mask is malformed; the message states its index, the rule and the value.

    Examples
    --------
    >>> masks = pack_masks([encode_mask(np.array([[0, 1], [0, 1]], dtype=bool))])
    >>> masks.areas.tolist(), masks.deepest_xy([0]).tolist(), masks.boxes_xywh().tolist()
    ([2], [[1, 0]], [[1.0, 0.0, 1.0, 2.0]])
    """
    masks, problems = parse_masks(rles)
    if problems:
        index = min(problems)
        raise ValueError(f"mask {index}: {problems[index]}")
    return masks


def decode_mask(rle: Rle) -> BoolMask:
    """Return one RLE mask as a bool array (height, width).

    Raises
    ------
    ValueError
        If the mask is malformed.
    """
    return pack_masks([rle]).dense(0)


def encode_mask(mask: npt.ArrayLike) -> Rle:
    """Return the COCO compressed RLE, as pycocotools does, of a mask (H, W) whose non-zero pixels are foreground.

    Raises
    ------
    ValueError
        If `mask` is not two-dimensional, or has no pixels or more than `MAX_PIXELS`.

    Examples
    --------
    >>> encode_mask(np.zeros((2320, 2828), dtype=bool))
    Rle(size=(2320, 2828), counts='PVWX6')
    """
    array = np.asarray(mask)
    if array.ndim != 2 or not 0 < array.size <= MAX_PIXELS:
        raise ArgumentError("mask", f"must have shape (height, width) with 1 to {MAX_PIXELS} pixels", array.shape)
    dense = np.asarray(array, bool)
    is_by_column = dense.flags.f_contiguous and not dense.flags.c_contiguous
    edges = _edges(dense.ravel(order="F")) if is_by_column else _edges_by_row(dense)
    return _rle_of_edges(edges, (dense.shape[0], dense.shape[1]))


def shrink_mask(mask: BoolMask, size: tuple[int, int]) -> BoolMask:
    """Return a mask resized to `size` (width, height), for pictures; a non-empty mask keeps at least one pixel."""
    from PIL import Image

    grey = np.asarray(Image.fromarray(mask.astype(np.uint8) * 255).resize(size, Image.Resampling.BOX))
    return grey >= min(128, int(grey.max()) or 128)


def _edges(flat: BoolMask) -> IntArray:
    """Return the positions in a flat mask at which foreground alternately begins and ends, with a final end."""
    padded = np.concatenate([[False], flat, [False]])
    return np.flatnonzero(padded[1:] != padded[:-1])


def _edges_by_row(dense: BoolMask) -> IntArray:
    """Return :func:`_edges` of a mask in column-major order, without making a column-major copy."""
    height, width = dense.shape
    changed = np.flatnonzero(dense[1:] != dense[:-1])  # pixels that differ from the pixel above
    row, column = np.divmod(changed, width)
    tops = np.flatnonzero(
        dense[0] != np.append(False, dense[-1, :-1])
    )  # top pixels that differ from the end of the previous column
    end = [height * width] if dense[-1, -1] else []
    return np.sort(np.concatenate([column * height + row + 1, tops * height, np.array(end, np.int64)]))


def _rle_of_edges(edges: IntArray, size: tuple[int, int]) -> Rle:
    n_pixels = size[0] * size[1]
    ends = edges if len(edges) and edges[-1] == n_pixels else np.append(edges, n_pixels)
    return Rle(size, _encode_runs(np.diff(ends, prepend=0)))


def empty_rle(size: tuple[int, int]) -> Rle:
    """Return the RLE of an empty mask of `size` (height, width)."""
    return Rle(size, _encode_runs(np.array([size[0] * size[1]], np.int64)))


def _encode_runs(runs: IntArray) -> str:
    deltas = runs.copy()
    deltas[3:] -= runs[1:-2]
    # A code has 5 bits per character, lowest bits first, and is sign-extended. Each round encodes one character of all
    # runs
    characters = []
    pending = np.ones(len(deltas), bool)
    while pending.any():
        bits = deltas & 0x1F
        deltas = deltas >> 5
        more = pending & np.where(bits & 0x10, deltas != -1, deltas != 0)
        characters.append(np.where(pending, bits | (more << 5), -1))
        pending = more
    codes = np.stack(characters, axis=1).ravel()
    return (codes[codes >= 0] + 48).astype(np.uint8).tobytes().decode("ascii")


def rasterize_polygons(polygons: Sequence[Sequence[Sequence[float]]], size: tuple[int, int]) -> Rle:
    """Return the mask of filled contours, made in the same way as CheXlocalize's released masks.

    Parameters
    ----------
    polygons : contours of (x, y) vertices in pixels, with at least two vertices each; their union (not exclusive or) is
        filled
    size : (height, width)

    Returns
    -------
    Rle of the union; parts outside the image are cut off

    Raises
    ------
    ValueError
        If a contour has fewer than two vertices.
    """
    from PIL import Image, ImageDraw

    height, width = size
    for i, contour in enumerate(polygons):
        if len(contour) < 2:
            raise ValueError(f"`polygons[{i}]` must have at least 2 vertices, got {len(contour)}")
    # Pillow truncates coordinates to whole pixels, and its edges depend on differences in y, but on the values of x. So
    # rows, and columns at the right, can be left out without changing the pixels
    contours = [[(int(x), int(y)) for x, y in contour] for contour in polygons]
    xs, ys = ([vertex[axis] for contour in contours for vertex in contour] for axis in (0, 1))
    left, right = max(0, min(xs, default=0)), min(width, max(xs, default=-1) + 1)
    top, bottom = max(0, min(ys, default=0)), min(height, max(ys, default=-1) + 1)
    if left >= right or top >= bottom:
        return empty_rle(size)
    canvas = Image.new("1", (right, bottom - top))
    draw = ImageDraw.Draw(canvas)
    for contour in contours:
        draw.polygon([(x, y - top) for x, y in contour], outline=1, fill=1)
    strip = np.zeros((right - left, height), bool)
    strip[:, top:bottom] = np.asarray(canvas)[:, left:].T
    return _rle_of_edges(_edges(strip.ravel()) + left * height, size)


def union_masks(masks: PackedMasks) -> Rle:
    """Return the union of all `masks`, which must have the same size; no dense mask is made.

    Raises
    ------
    ValueError
        If there are no masks, or their sizes differ.

    Examples
    --------
    >>> left, right = np.array([[1, 1, 0, 0]]), np.array([[0, 1, 1, 0]])
    >>> decode_mask(union_masks(pack_masks([encode_mask(left), encode_mask(right)]))).astype(int)
    array([[1, 1, 1, 0]])
    """
    sizes = {(int(height), int(width)) for height, width in masks.sizes}
    if len(sizes) != 1:
        raise ArgumentError("masks", "must all have the same size", sorted(sizes) or "no mask")
    spans = [masks.ends[a:b] for a, b in zip(masks.offsets[:-1], masks.offsets[1:], strict=True)]
    starts, stops = (np.concatenate(parts) for parts in zip(*(_foreground(ends) for ends in spans), strict=True))
    order = np.argsort(starts, kind="stable")
    starts, stops = starts[order], np.maximum.accumulate(stops[order])
    if len(starts) == 0:
        return empty_rle(sizes.pop())
    is_gap = starts[1:] > stops[:-1]
    begins, finishes = starts[np.append(True, is_gap)], stops[np.append(is_gap, True)]
    return _rle_of_edges(np.stack([begins, finishes], axis=1).ravel(), sizes.pop())


def _foreground(ends: npt.NDArray[np.int32]) -> tuple[IntArray, IntArray]:
    """Return (starts, ends) of the non-empty foreground runs of a mask."""
    starts, stops = ends[: len(ends) // 2 * 2 : 2].astype(np.int64), ends[1::2].astype(np.int64)
    return starts[stops > starts], stops[stops > starts]


Box = tuple[float, float, float, float]


def tight_box(boxes: Sequence[Box]) -> Box:
    """Return the smallest box around all `boxes`.

    Raises
    ------
    ValueError
        If `boxes` is empty.

    Examples
    --------
    >>> tight_box([(10, 10, 5, 5), (20.5, 0, 4, 12)])
    (10, 0, 14.5, 15)
    """
    if not boxes:
        raise ArgumentError("boxes", "must have at least one box", "none")
    if len(boxes) == 1:
        return boxes[0]  # returned unchanged, because x + width - x may differ from width in floating point
    left, top = min(x for x, _, _, _ in boxes), min(y for _, y, _, _ in boxes)
    right, bottom = max(x + width for x, _, width, _ in boxes), max(y + height for _, y, _, height in boxes)
    return left, top, right - left, bottom - top


def pack_boxes(boxes: Sequence[Sequence[Box]], sizes: Sequence[tuple[int, int]]) -> PackedMasks:
    """Return a mask for each case: the union of the boxes of the case.

    Parameters
    ----------
    boxes : boxes of each case; a case without boxes has an empty mask
    sizes : (height, width) of the image of each case

    Raises
    ------
    ValueError
        If the lengths differ, a box is not finite or has no area, or an image is empty or too large.

    Examples
    --------
    >>> pack_boxes([[(0.5, 0, 1, 1), (0.6, 0, 1, 1)]], [(2, 3)]).dense(0).astype(int)
    array([[1, 1, 0],
           [0, 0, 0]])
    """
    if len(boxes) != len(sizes):
        raise ArgumentError("boxes", f"must have the length of `sizes` ({len(sizes)})", len(boxes), ("sizes",))
    ends = [_run_ends(boxes[i], sizes[i], i) for i in range(len(boxes))]
    offsets = np.cumsum([0, *(len(part) for part in ends)]).astype(np.int64)
    flat = np.concatenate([np.zeros(0, np.int32), *ends]).astype(np.int32)
    return PackedMasks(np.array(sizes, np.int64).reshape(-1, 2), flat, offsets)


def pack_regions(regions: Sequence[Rle | Sequence[Box]], sizes: Sequence[tuple[int, int]]) -> PackedMasks:
    """Return regions as packed masks; each region is a run-length mask or a list of boxes, of which the union is used.

    Raises
    ------
    ValueError
        Under the same conditions as :func:`pack_boxes` and :func:`~reveal_bench.masks.pack_masks`.
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
    """Return the run ends, in column-major order, of the union of boxes."""
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
    """Return (first pixel with its centre in [low, high), first pixel after these), both limited to [0, side]."""
    return min(max(math.ceil(low - 0.5), 0), side), min(max(math.ceil(high - 0.5), 0), side)


def _merged(starts: IntArray, stops: IntArray) -> IntArray:
    """Return the alternating beginnings and ends of the union of runs."""
    if len(starts) == 0:
        return _NONE
    order = np.argsort(starts, kind="stable")
    starts, stops = starts[order], np.maximum.accumulate(stops[order])
    is_gap = starts[1:] > stops[:-1]
    begins, finishes = starts[np.append(True, is_gap)], stops[np.append(is_gap, True)]
    return np.stack([begins, finishes], axis=1).ravel()
