"""Numpy versions of the loops of :mod:`reveal_bench.masks.kernels`, for machines without the compiled library.

They are slower and need memory for dense masks and maps, but all results are identical to the last bit.

Conventions
-----------
Each function has the arguments of the compiled loop with the same name, and writes its results into the last arguments.
:mod:`reveal_bench.masks.kernels` creates and explains these arrays. Masks are run ends, as in that module.
"""

from __future__ import annotations

from enum import IntEnum
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from reveal_bench.arrays import BoolArray, FloatArray, IntArray

Ends = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


class Status(IntEnum):
    """Validity or first problem of a run-length string; the compiled loops use the same numbers."""

    OK = 0
    BAD_CHARACTER = 1
    TRUNCATED = 2
    TOO_LONG = 3
    NEGATIVE_RUN = 4
    OVERFLOW = 5
    UNDERFLOW = 6
    TOO_MANY_RUNS = 7


_MAX_CODE_LENGTH = 7
_BAND = 1 << 20
"""Number of characters or pixels processed at a time if each needs several 8-byte numbers."""


def count_characters(text: Bytes, characters: Bytes, counts: IntArray) -> None:
    """Count each of `characters` in `text`, in pieces because `bincount` makes a copy with 8 bytes per item."""
    counts[:] = 0
    for start in range(0, len(text), _BAND):
        counts += np.bincount(text[start : start + _BAND], minlength=256)[characters]


# ---- run-length strings ----


def count_runs(text: Bytes, offsets: IntArray, n_runs: IntArray) -> None:
    """Count the characters without continuation bit in each string."""
    for i in range(len(n_runs)):
        n_runs[i] = _count_codes(text[offsets[i] : offsets[i + 1]])


def decode_strings(
    text: Bytes,
    offsets: IntArray,
    areas: IntArray,
    n_runs: IntArray,
    max_runs: int,
    ends: Ends,
    run_offsets: IntArray,
    status: Bytes,
    place: IntArray,
) -> None:
    """Write the run ends of all valid strings, one string after another; an invalid string adds none."""
    run_offsets[0] = n_kept = 0
    for i in range(len(status)):
        if n_runs[i] > max_runs:
            status[i], place[i] = Status.TOO_MANY_RUNS, n_runs[i]
        else:
            runs, status[i], place[i] = _read_runs(text[offsets[i] : offsets[i + 1]], int(areas[i]))
            merged = _merged(runs, int(areas[i])) if status[i] == Status.OK else runs[:0]
            ends[n_kept : n_kept + len(merged)] = merged
            n_kept += len(merged)
        run_offsets[i + 1] = n_kept


def measure_strings(
    text: Bytes, offsets: IntArray, n_pixels: IntArray, max_runs: int, areas: IntArray, status: Bytes, place: IntArray
) -> None:
    """Sum the foreground runs of each valid string."""
    for i in range(len(status)):
        string = text[offsets[i] : offsets[i + 1]]
        if _count_codes(string) > max_runs:
            status[i], place[i] = Status.TOO_MANY_RUNS, max_runs + 1
            continue
        runs, status[i], place[i] = _read_runs(string, int(n_pixels[i]))
        areas[i] = runs[1::2].sum() if status[i] == Status.OK else 0


def _count_codes(text: Bytes) -> int:
    return int(np.count_nonzero((text - np.uint8(48)) & 0x20 == 0))


def _read_runs(text: Bytes, n_pixels: int) -> tuple[IntArray, int, int]:
    """Return (runs, status, place of the first problem) of a string."""
    codes = text.astype(np.int64) - 48
    is_last = codes & 0x20 == 0
    starts = np.append(0, np.flatnonzero(is_last) + 1)  # ends of all codes, including an unfinished last code
    position = np.arange(len(codes)) - starts[np.cumsum(is_last) - is_last]
    is_bad = (codes < 0) | (codes > 63)
    problems = np.flatnonzero(is_bad | (~is_last & (position == _MAX_CODE_LENGTH - 1)))
    stop = int(problems[0]) if len(problems) else len(codes)
    n_runs = int(np.count_nonzero(is_last[:stop]))
    runs = _run_lengths(codes[: starts[n_runs]], starts[:n_runs], position)
    totals = np.cumsum(runs)
    wrong = np.flatnonzero((runs < 0) | (totals > n_pixels))
    if len(wrong):
        return runs, Status.NEGATIVE_RUN if runs[wrong[0]] < 0 else Status.OVERFLOW, int(wrong[0])
    if stop < len(codes):
        return runs, Status.BAD_CHARACTER if is_bad[stop] else Status.TOO_LONG, stop
    if starts[n_runs] < len(codes):
        return runs, Status.TRUNCATED, len(codes)
    total = int(totals[-1]) if n_runs else 0
    return (runs, Status.OK, 0) if total == n_pixels else (runs, Status.UNDERFLOW, total)


def _run_lengths(codes: IntArray, starts: IntArray, position: IntArray) -> IntArray:
    """Return the runs of complete codes, which have five bits per character.

    From run 3 on, a code is the difference between the run and the run two places before it.
    """
    if len(starts) == 0:
        return np.zeros(0, np.int64)
    runs: IntArray = np.add.reduceat((codes & 0x1F) << 5 * position[: len(codes)], starts)
    last = np.append(starts[1:], len(codes)) - 1
    runs -= (codes[last] & 0x10) << 5 * position[last] + 1
    runs[1::2] = np.cumsum(runs[1::2])
    runs[2::2] = np.cumsum(runs[2::2])
    return runs


def _merged(runs: IntArray, n_pixels: int) -> IntArray:
    """Return the ends of runs; the two neighbours of an empty run are merged."""
    ends = np.cumsum(runs)
    if (runs[1:] > 0).all():
        return ends
    edges, counts = np.unique(ends[ends < n_pixels], return_counts=True)
    return np.append(edges[counts % 2 == 1], n_pixels)


# ---- areas and points ----


def mask_areas(ends: Ends, offsets: IntArray, areas: IntArray) -> None:
    """Sum the foreground runs (every second run) of each mask."""
    for i in range(len(areas)):
        areas[i] = np.diff(ends[offsets[i] : offsets[i + 1]])[::2].sum()


def intersections(ends_a: Ends, offsets_a: IntArray, ends_b: Ends, offsets_b: IntArray, common: IntArray) -> None:
    """Split both masks at the run ends of both, and sum the lengths of the pieces that are inside both masks."""
    for i in range(len(common)):
        a, b = ends_a[offsets_a[i] : offsets_a[i + 1]], ends_b[offsets_b[i] : offsets_b[i + 1]]
        edges = np.sort(np.concatenate([a, b]))
        n_before_a, n_before_b = (np.searchsorted(ends, edges[:-1], side="right") for ends in (a, b))
        common[i] = (np.diff(edges) * (n_before_a & n_before_b & 1)).sum()


def contains(ends: Ends, offsets: IntArray, which: IntArray, positions: IntArray, inside: BoolArray) -> None:
    """Test positions; a position is inside a mask if an odd number of the mask's run ends precede it."""
    for i in np.unique(which):
        is_here = which == i
        n_before = np.searchsorted(ends[offsets[i] : offsets[i + 1]], positions[is_here], side="right")
        inside[is_here] = n_before % 2 == 1


# ---- grid cells ----


def coverage(
    ends: Ends, start: int, stop: int, height: int, edges_x: IntArray, edges_y: IntArray, areas: IntArray
) -> None:
    """Sum over vertical pieces of a mask: height in each row of cells times width of the piece in each cell."""
    unit = 2 * (len(edges_x) - 1)
    columns, lows, highs = _pieces(ends[start:stop], height)
    heights = _overlaps(lows * unit, highs * unit, edges_y)
    widths = _overlaps(columns * unit, (columns + 1) * unit, edges_x)
    areas[:] = heights @ widths.T


def hit_cells(ends: Ends, offsets: IntArray, sizes: IntArray, n: int, hits: BoolArray) -> None:
    """Compare the coverage of each cell of the central square with half a cell."""
    areas = np.zeros((n, n), np.int64)
    for i, (height, width) in enumerate(sizes.tolist()):
        side = min(height, width)
        edges_x, edges_y = (n * (length - side) + 2 * side * np.arange(n + 1) for length in (width, height))
        coverage(ends, int(offsets[i]), int(offsets[i + 1]), height, edges_x, edges_y, areas)
        is_half = 2 * areas >= 4 * side * side
        hits[i] = is_half if is_half.any() else areas > 0


def _pieces(ends: Ends, height: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return (column, first row, row after the last row) of each vertical piece of a mask."""
    n = len(ends) // 2 * 2
    starts, stops = ends[0:n:2].astype(np.int64), ends[1:n:2].astype(np.int64)
    first = starts // height
    n_columns = (stops - 1) // height - first + 1
    run = np.repeat(np.arange(len(starts)), n_columns)
    columns = first[run] + np.arange(len(run)) - (np.cumsum(n_columns) - n_columns)[run]
    lows = np.maximum(starts[run] - columns * height, 0)
    return columns, lows, np.minimum(stops[run] - columns * height, height)


def _overlaps(lows: IntArray, highs: IntArray, edges: IntArray) -> IntArray:
    """Return the length of each interval in each cell, shape (cells, intervals)."""
    lengths: IntArray = np.minimum(highs, edges[1:, None]) - np.maximum(lows, edges[:-1, None])
    return lengths.clip(0)


# ---- pixels of one mask ----


def deepest_pixels(ends: Ends, offsets: IntArray, sizes: IntArray, which: IntArray, deepest: IntArray) -> None:
    """Find the pixel with the largest distance to the outside; in case of ties, the first in row-major order."""
    for k, i in enumerate(which.tolist()):
        mask = _dense(ends[offsets[i] : offsets[i + 1]], int(sizes[i, 0]))
        if mask.any():
            deepest[k] = _deepest(mask)


def _deepest(mask: BoolArray) -> tuple[int, int]:
    """Return (x, y) of the deepest pixel.

    A squared distance is the minimum, over all columns, of the squared horizontal distance to the column plus the
    squared distance within the column. This needs about 8 bytes per pixel: 1.2 GB for a mask of 12,000 x 12,000.
    """
    (top, bottom), (left, right) = (np.flatnonzero(mask.any(axis=axis))[[0, -1]] for axis in (1, 0))
    mask = np.pad(mask[top : bottom + 1, left : right + 1], 1)
    along, most = _steps_along(mask), _steps_along(mask.T).T
    np.minimum(along, most, out=most)  # upper bound of each pixel's distance
    width = mask.shape[1]
    n_rows = max(_BAND // width, 1)
    row, column = np.unravel_index(most.argmax(), mask.shape)
    best = int((along[row].astype(np.int64) ** 2 + (np.arange(width) - column) ** 2).min()) - 1
    place = 0, 0
    for start in range(0, len(mask), n_rows):
        band = along[start : start + n_rows]
        y, x = np.nonzero(most[start : start + n_rows] > isqrt(best))
        squares, step = band[y, x].astype(np.int64) ** 2, 0
        while (is_open := squares >= (step + 1) ** 2).any():  # other pixels already have their final, smaller distance
            y, x, squares, step = y[is_open], x[is_open], squares[is_open], step + 1
            beside = np.minimum(band[y, np.maximum(x - step, 0)], band[y, np.minimum(x + step, width - 1)])
            squares = np.minimum(squares, step**2 + beside.astype(np.int64) ** 2)
        if len(squares) and (largest := int(squares.max())) > best:
            first = int(squares.argmax())
            best, place = largest, (int(x[first] - 1 + left), int(start + y[first] - 1 + top))
    return place


def _steps_along(mask: BoolArray) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return the distance of each pixel to the nearest outside pixel in its column, in the smallest sufficient type."""
    height, width = mask.shape
    rows = np.arange(height, dtype=np.min_scalar_type(height))[:, None]
    steps: npt.NDArray[np.unsignedinteger[Any]] = np.empty_like(mask, rows.dtype)
    n_columns = max(_BAND // height, 1)
    for start in range(0, width, n_columns):
        part = mask[:, start : start + n_columns]
        above = rows - np.maximum.accumulate(np.where(part, rows[:1], rows), axis=0)
        below = np.minimum.accumulate(np.where(part, rows[-1:], rows)[::-1], axis=0)[::-1] - rows
        np.minimum(above, below, out=steps[:, start : start + n_columns])
    return steps


def filtered_rows(ends: Ends, height: int, width: int, rows: Bytes) -> None:
    """Pack the bits of a mask, and subtract from each row the row above."""
    packed = np.packbits(_dense(ends, height), axis=1)
    lines = rows.reshape(height, -1)
    lines[:, 0] = 2
    lines[:, 1:] = np.diff(packed, axis=0, prepend=np.uint8(0))


def fill_runs(ends: Ends, height: int, filled: Ends, n_filled: IntArray) -> None:
    """Fill the holes of a mask, then remove isolated pixels."""
    mask = np.pad(~_outside(_dense(ends, height)), 1)
    rows, columns = mask.shape
    around = sum(mask[y : y + rows - 2, x : x + columns - 2].astype(np.uint8) for y in range(3) for x in range(3))
    run_ends = _run_ends(mask[1:-1, 1:-1] & (around > 1))
    filled[: len(run_ends)] = run_ends
    n_filled[0] = len(run_ends)


def _outside(mask: BoolArray) -> BoolArray:
    """Return the background that is 4-connected to the border.

    Background runs of each row are connected to the adjacent background runs of the next row.
    """
    padded = np.pad(mask, 1)  # a border of background, which also connects the end of a row to the next row
    width = padded.shape[1]
    edges = np.flatnonzero(np.diff(padded.ravel(), prepend=True))
    starts, ends = edges[::2], np.append(edges[1::2], padded.size)
    first = np.searchsorted(ends, starts + width, side="right")  # first adjacent run of the next row
    n_below = np.searchsorted(starts, ends + width) - first
    upper = np.repeat(np.arange(len(starts)), n_below)
    lower = np.repeat(first - np.cumsum(n_below) + n_below, n_below) + np.arange(len(upper))
    is_outside = np.zeros(len(edges), np.bool_)
    is_outside[::2] = _components(upper, lower, len(starts)) == 0
    pixels = np.repeat(is_outside, np.diff(edges, append=padded.size))
    return pixels.reshape(padded.shape)[1:-1, 1:-1]


def _components(a: IntArray, b: IntArray, n: int) -> IntArray:
    """Return for each item 0 to n - 1 the lowest item in its connected component, given the edges (a, b)."""
    least = np.arange(n)
    while len(a):
        np.minimum.at(least, np.maximum(a, b), np.minimum(a, b))
        while (nearer := least[least] < least).any():
            least[nearer] = least[least[nearer]]
        a, b = least[a], least[b]
        is_apart = a != b
        a, b = a[is_apart], b[is_apart]
    return least


def _dense(ends: Ends, height: int) -> BoolArray:
    runs = np.diff(ends, prepend=0)
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(-1, height).T


def _run_ends(mask: BoolArray) -> IntArray:
    flat = mask.ravel(order="F")
    return np.append(np.flatnonzero(np.diff(flat, prepend=False)), flat.size)


# ---- weighted counts of ranked marks ----


def running_weights(counts: Floats, units: IntArray, stops: IntArray, sums: FloatArray) -> None:
    """Sum weights one by one in order, as numpy's `cumsum` does but its `sum` does not."""
    for weights, row in zip(counts, sums, strict=True):
        row[:] = np.append(0.0, np.cumsum(weights[units], dtype=np.float64))[stops]


def average_precisions(
    counts: Floats,
    units: IntArray,
    hits: BoolArray,
    marks: FloatArray,
    n_lesions: FloatArray,
    recalls: FloatArray,
    values: FloatArray,
) -> None:
    """Average the best precision over recalls, for each replicate and row of hits."""
    for r, weights in enumerate(counts):
        needed = _positives_needed(recalls, n_lesions[r])
        for i, is_hit in enumerate(hits):
            values[r, i] = _interpolated(weights[units[is_hit]], marks[r, is_hit], needed)


def _positives_needed(recalls: FloatArray, n_lesions: np.float64) -> FloatArray:
    """Return the smallest number of true positives that reaches each recall."""
    needed = np.floor(recalls * n_lesions)
    while (is_over := (needed > 0) & ((needed - 1) / n_lesions >= recalls)).any():
        needed[is_over] -= 1
    while (is_under := needed / n_lesions < recalls).any():
        needed[is_under] += 1
    return needed


def _interpolated(weights: Floats, marks: FloatArray, needed: FloatArray) -> np.float64:
    """Return the mean, over recalls, of the best precision at the recall or above, summed from the highest recall."""
    true_positives = np.cumsum(weights, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        precisions = true_positives / marks
    precisions[np.isnan(precisions)] = 0  # before the first resampled mark
    n_reached = np.searchsorted(needed, true_positives, side="right")
    reached, first = np.unique(n_reached, return_index=True)
    if len(reached) == 0:
        return np.float64(0)
    best = np.maximum.accumulate(np.maximum.reduceat(precisions, first)[::-1])
    n_recalls = np.diff(reached, prepend=0)[::-1]
    total: np.float64 = np.cumsum(best * n_recalls)[-1]
    return total / len(needed)


# ---- heat maps ----


def upsample(wide: Floats, upper: IntArray, lower: IntArray, shares: Floats, fine: Floats) -> None:
    """Interpolate each row of the image between two rows of the map."""
    fine[:] = _laid(wide, upper, lower, shares)


def map_ends(wide: Floats, upper: IntArray, lower: IntArray, shares: Floats, ends: Floats, place: IntArray) -> None:
    """Find the smallest and the largest value."""
    fine = _laid(wide, upper, lower, shares)
    ends[:], place[0] = (fine.min(), fine.max()), fine.argmax()


def level_counts(
    wide: Floats, upper: IntArray, lower: IntArray, shares: Floats, ends: Floats, counts: IntArray
) -> None:
    """Count the pixels at each level of the rescaled map."""
    low, high = ends
    levels = (np.float32(255) * ((_laid(wide, upper, lower, shares) - low) / (high - low))).astype(np.uint8)
    counts[:] = np.bincount(levels.ravel(), minlength=256)


def runs_above(
    wide: Floats, upper: IntArray, lower: IntArray, shares: Floats, cut: Floats, ends: Ends, n_ends: IntArray
) -> None:
    """Write the run ends if the array has space for all of them, and their number."""
    run_ends = _run_ends(_laid(wide, upper, lower, shares) > cut[0])
    n_ends[0] = len(run_ends)
    if len(run_ends) <= len(ends):
        ends[: len(run_ends)] = run_ends


def counts_above(
    wide: Floats, upper: IntArray, lower: IntArray, shares: Floats, cuts: Floats, ends: Ends, counts: IntArray
) -> None:
    """Count the pixels above each cut, in the image and inside the mask."""
    fine = _laid(wide, upper, lower, shares)
    inside = fine[_dense(ends, len(fine))]
    for k, cut in enumerate(cuts):
        counts[:, k] = np.count_nonzero(fine > cut), np.count_nonzero(inside > cut)


def _laid(wide: Floats, upper: IntArray, lower: IntArray, shares: Floats) -> Floats:
    fine: Floats = wide[upper] * (np.float32(1) - shares)[:, None] + wide[lower] * shares[:, None]
    return fine
