"""Compiled loops over run-length masks, behind :mod:`reveal_bench.masks` and :mod:`reveal_bench.metrics`.

Conventions
-----------
A mask is stored column-major as the strictly checked, non-decreasing *ends* of its runs: run 0 is background, run 1
foreground, and so on; only run 0 may be empty, and ``ends[-1] == height * width``. Many masks lie in one flat ``ends``
array; mask i is ``ends[offsets[i]:offsets[i + 1]]``. The functions here check nothing: :mod:`reveal_bench.masks` did.

Compiled code is cached on disk by numba; a first call after installation takes a few seconds.
"""

from __future__ import annotations

import numpy as np
from numba import njit

OK, BAD_CHARACTER, TRUNCATED, TOO_LONG, NEGATIVE_RUN, OVERFLOW, UNDERFLOW, TOO_MANY_RUNS = range(8)
_MAX_CODE_BITS = 7 * 5  # 7 characters of 5 bits: enough for any run of an image below 2**34 pixels


@njit(cache=True, nogil=True)
def count_runs(text, offsets):  # type: ignore[no-untyped-def]
    """Number of complete codes in each string: characters without the continuation bit."""
    n_runs = np.zeros(offsets.size - 1, np.int64)
    for i in range(offsets.size - 1):
        for k in range(offsets[i], offsets[i + 1]):
            if (text[k] - 48) & 0x20 == 0:
                n_runs[i] += 1
    return n_runs


@njit(cache=True, nogil=True)
def decode_strings(text, offsets, areas, n_runs, max_runs):  # type: ignore[no-untyped-def]
    """Decode COCO strings to run ends. Returns (ends, run_offsets, status, place); a bad string has no runs.

    `place` is a character position for TRUNCATED, BAD_CHARACTER and TOO_LONG, the sum of the runs for UNDERFLOW, their
    number for TOO_MANY_RUNS, and the run's number otherwise.
    """
    n = offsets.size - 1
    ends = np.empty(n_runs.sum(), np.int32)
    run_offsets = np.zeros(n + 1, np.int64)
    status = np.zeros(n, np.uint8)
    place = np.zeros(n, np.int64)
    used = 0
    for i in range(n):
        if n_runs[i] > max_runs:
            status[i], place[i] = TOO_MANY_RUNS, n_runs[i]
        else:
            kept, status[i], place[i] = _decode_one(text[offsets[i] : offsets[i + 1]], areas[i], ends[used:])
            used += kept
        run_offsets[i + 1] = used
    return ends[:used].copy(), run_offsets, status, place


@njit(cache=True, nogil=True)
def _decode_one(text, area, ends):  # type: ignore[no-untyped-def] # noqa: C901 - one loop, one check per way to fail
    """Decode one string into `ends`, without runs of length zero but for the first. Returns (runs, status, place)."""
    total = before = last = value = np.int64(0)  # codes from the third run on are differences to the run two before
    shift = 0
    run = kept = 0
    merge = False  # after a run of length zero the next one prolongs the one before it
    for k in range(text.size):
        code = np.int64(text[k]) - 48
        if code < 0 or code > 63:
            return 0, BAD_CHARACTER, k
        value |= (code & 0x1F) << shift
        shift += 5
        if code & 0x20 != 0:
            if shift == _MAX_CODE_BITS:
                return 0, TOO_LONG, k
            continue
        if code & 0x10 != 0:
            value |= np.int64(-1) << shift
        if run > 2:
            value += before
        if value < 0:
            return 0, NEGATIVE_RUN, run
        total += value
        if total > area:
            return 0, OVERFLOW, run
        if value == 0 and run > 0:
            merge = not merge
        else:
            if not merge:
                kept += 1
            merge = False
            ends[kept - 1] = total
        before, last = last, value
        value = np.int64(0)
        shift = 0
        run += 1
    if shift != 0:
        return 0, TRUNCATED, text.size
    if total != area:
        return 0, UNDERFLOW, total
    return kept, OK, 0


@njit(cache=True, nogil=True)
def mask_areas(ends, offsets):  # type: ignore[no-untyped-def]
    """Foreground pixels of each mask."""
    areas = np.zeros(offsets.size - 1, np.int64)
    for i in range(offsets.size - 1):
        for k in range(offsets[i] + 1, offsets[i + 1], 2):
            areas[i] += ends[k] - ends[k - 1]
    return areas


@njit(cache=True, nogil=True)
def intersections(ends_a, offsets_a, ends_b, offsets_b):  # type: ignore[no-untyped-def]
    """Pixels in both mask i of a and mask i of b, for masks of equal sizes, by merging their runs."""
    n = offsets_a.size - 1
    common = np.zeros(n, np.int64)
    for i in range(n):
        a, b = offsets_a[i], offsets_b[i]
        position = np.int64(0)
        in_a = in_b = False
        total = np.int64(0)
        while a < offsets_a[i + 1] and b < offsets_b[i + 1]:
            step = min(ends_a[a], ends_b[b])
            if in_a and in_b:
                total += step - position
            position = step
            if ends_a[a] == step:
                a += 1
                in_a = not in_a
            if ends_b[b] == step:
                b += 1
                in_b = not in_b
        common[i] = total
    return common


@njit(cache=True, nogil=True)
def contains(ends, offsets, which, positions):  # type: ignore[no-untyped-def]
    """Whether pixel `positions[k]` (column-major index) is set in mask `which[k]`."""
    inside = np.zeros(which.size, np.bool_)
    for k in range(which.size):
        start, stop = offsets[which[k]], offsets[which[k] + 1]
        run = np.searchsorted(ends[start:stop], positions[k], side="right")
        inside[k] = run % 2 == 1
    return inside


@njit(cache=True, nogil=True)
def coverage(ends, start, stop, height, edges_x, edges_y, areas):  # type: ignore[no-untyped-def]
    """Add to `areas` (n rows, n columns) the area of one mask inside each cell, exact, in units of (1/2n)**2 pixel.

    Edges are integers in units of 1/2n pixel, see :class:`reveal_bench.geometry.Grid`.
    """
    n = edges_x.size - 1
    unit = 2 * n
    cell = edges_x[1] - edges_x[0]
    column, column_end = np.int64(0), np.int64(height)
    for k in range(start + 1, stop, 2):
        position = np.int64(ends[k - 1])
        end = np.int64(ends[k])
        while position < end:  # one vertical piece of the run per pixel column
            while column_end <= position:
                column += 1
                column_end += height
            top = column_end - height
            y_low = max((position - top) * unit, edges_y[0])
            position = min(end, column_end)
            y_high = min((position - top) * unit, edges_y[n])
            x_low = max(column * unit, edges_x[0])
            x_high = min((column + 1) * unit, edges_x[n])
            if x_low >= x_high or y_low >= y_high:
                continue
            first_row = (y_low - edges_y[0]) // cell
            for i in range((x_low - edges_x[0]) // cell, n):
                width = min(x_high, edges_x[i + 1]) - max(x_low, edges_x[i])
                if width <= 0:
                    break
                for j in range(first_row, n):
                    tall = min(y_high, edges_y[j + 1]) - max(y_low, edges_y[j])
                    if tall <= 0:
                        break
                    areas[j, i] += width * tall


@njit(cache=True, nogil=True)
def hit_cells(ends, offsets, sizes, n):  # type: ignore[no-untyped-def]
    """Which cells of an n x n grid are hits on each mask: bool (n_masks, n rows, n columns).

    A cell is a hit if at least half of it is covered; if none is, every cell with any coverage.
    """
    hits = np.zeros((offsets.size - 1, n, n), np.bool_)
    steps = np.arange(n + 1)
    for i in range(offsets.size - 1):
        height, width = sizes[i, 0], sizes[i, 1]
        side = min(height, width)
        areas = np.zeros((n, n), np.int64)
        edges_x, edges_y = n * (width - side) + 2 * side * steps, n * (height - side) + 2 * side * steps
        coverage(ends, offsets[i], offsets[i + 1], height, edges_x, edges_y, areas)
        half = 2 * areas >= (2 * side) ** 2
        hits[i] = half if half.any() else areas > 0
    return hits


@njit(cache=True, nogil=True)
def deepest_pixels(ends, offsets, sizes, which):  # type: ignore[no-untyped-def]
    """(x, y) of the pixel of each mask farthest from any pixel outside it, shape (n, 2); (-1, -1) for an empty mask.

    Euclidean distance between pixel centres; what lies beyond the image counts as outside. The first such pixel in
    row-major order. Exact: a pixel is examined only while it can still reach the best distance found so far.
    """
    found = np.full((which.size, 2), -1, np.int64)
    scratch = np.zeros(1, np.int16)  # all zero between masks
    for k in range(which.size):
        pieces, box = _column_pieces(ends, offsets[which[k]], offsets[which[k] + 1], sizes[which[k], 0])
        if pieces.shape[0] == 0:
            continue
        left, top, n_columns, n_rows = box
        if scratch.size < (n_columns + 2) * n_rows:
            scratch = np.zeros((n_columns + 2) * n_rows, np.int16)
        # rise[x + 1, y]: distance to the nearest pixel outside the mask in the same column, 0 outside; within the box
        rise = scratch[: (n_columns + 2) * n_rows].reshape(n_columns + 2, n_rows)
        for i in range(pieces.shape[0]):
            x, low, high = pieces[i, 0] - left + 1, pieces[i, 1] - top, pieces[i, 2] - top
            middle = (low + high) // 2
            for y in range(low, middle):
                rise[x, y] = min(y - low + 1, 32767)
            for y in range(middle, high):
                rise[x, y] = min(high - y, 32767)
        x, y = _deepest(rise, pieces, left, top)
        found[k, 0], found[k, 1] = x + left - 1, y + top
        for i in range(pieces.shape[0]):
            rise[pieces[i, 0] - left + 1, pieces[i, 1] - top : pieces[i, 2] - top] = 0
    return found


@njit(cache=True, nogil=True)
def _column_pieces(ends, start, stop, height):  # type: ignore[no-untyped-def]
    """The foreground as vertical pieces (column, first row, row after the last), and (left, top, columns, rows)."""
    n = 0
    for k in range(start + 1, stop, 2):
        if ends[k] > ends[k - 1]:
            n += (ends[k] - 1) // height - ends[k - 1] // height + 1
    pieces = np.empty((n, 3), np.int64)
    n = 0
    top, bottom = np.int64(height), np.int64(0)
    for k in range(start + 1, stop, 2):
        position = np.int64(ends[k - 1])
        while position < ends[k]:
            column = position // height
            low = position - column * height
            high = min(ends[k] - column * height, height)
            pieces[n, 0], pieces[n, 1], pieces[n, 2] = column, low, high
            top, bottom = min(top, low), max(bottom, high)
            position = column * height + high
            n += 1
    if n == 0:
        return pieces, (0, 0, 0, 0)
    return pieces, (pieces[0, 0], top, pieces[n - 1, 0] - pieces[0, 0] + 1, bottom - top)


@njit(cache=True, nogil=True)
def _deepest(rise, pieces, left, top):  # type: ignore[no-untyped-def]
    """Index into `rise` of the pixel with the largest clearance; the first in row-major order among equals."""
    best = np.int64(1)
    best_x, best_y = np.int64(-1), np.int64(-1)
    for stride in (16, 4, 1):  # coarse passes first: their best spares the fine pass nearly every pixel
        for i in range(pieces.shape[0]):
            x = pieces[i, 0] - left + 1
            need = np.int64(np.ceil(np.sqrt(best)))  # nearer than this to an end of the piece or box no pixel can win
            if x % stride != 0 or x < need or x > rise.shape[0] - 1 - need:
                continue
            for y in range(pieces[i, 1] - top + need - 1, pieces[i, 2] - top - need + 1, stride):
                d = _clearance(rise, x, y, best - 1)
                earlier = best_x < 0 or y < best_y or (y == best_y and x < best_x)
                if d > best or (d == best and earlier):
                    best, best_x, best_y = d, x, np.int64(y)
    return best_x, best_y


@njit(cache=True, nogil=True)
def _clearance(rise, x, y, enough):  # type: ignore[no-untyped-def]
    """Squared distance from a pixel to the outside, or any value of at most `enough` if it does not exceed that."""
    d = np.int64(rise[x, y]) ** 2
    if d <= enough:
        return d
    last = rise.shape[0] - 1
    reach = np.int64(np.sqrt(enough))
    for part in range(16, 0, -1):  # far columns first: they rule out nearly every pixel that is not deep
        step = reach * part // 16
        for neighbour in (x - step, x + step):
            g = np.int64(rise[neighbour, y]) if 0 <= neighbour <= last else np.int64(0)
            if step * step + g * g <= enough:
                return np.int64(0)
    step = np.int64(1)
    while d > enough and step * step < d:
        for neighbour in (x - step, x + step):
            g = np.int64(rise[neighbour, y]) if 0 <= neighbour <= last else np.int64(0)
            d = min(d, step * step + g * g)
        step += 1
    return d
