"""Compiled loops over run-length masks; imported only by :mod:`reveal_bench.masks` and :mod:`reveal_bench.metrics`.

Conventions
-----------
A mask is stored column-major as the strictly checked, non-decreasing *ends* of its runs: run 0 is background, run 1
foreground, and so on; ``ends[-1] == height * width``. Many masks lie in one flat ``ends`` array; mask i is
``ends[offsets[i]:offsets[i + 1]]``. The functions here check nothing: :mod:`reveal_bench.masks` did.

Compiled code is cached on disk by numba; a first call after installation takes a few seconds.
"""

from __future__ import annotations

import numpy as np
from numba import njit

OK, BAD_CHARACTER, TRUNCATED, TOO_LONG, NEGATIVE_RUN, OVERFLOW, UNDERFLOW, TOO_MANY_RUNS = range(8)
_MAX_CODE_LENGTH = 7  # 5 bits each: enough for any run of an image below 2**34 pixels


@njit(cache=True)
def count_runs(text, offsets):  # type: ignore[no-untyped-def]
    """Number of complete codes in each string: characters without the continuation bit."""
    n_runs = np.zeros(offsets.size - 1, np.int64)
    for i in range(offsets.size - 1):
        for k in range(offsets[i], offsets[i + 1]):
            if (text[k] - 48) & 0x20 == 0:
                n_runs[i] += 1
    return n_runs


@njit(cache=True)
def _read_code(text, k, stop):  # type: ignore[no-untyped-def]
    """Read one signed code at position k. Returns (value, position after it, status)."""
    value = np.int64(0)
    for length in range(_MAX_CODE_LENGTH):
        if k >= stop:
            return value, k, TRUNCATED
        code = np.int64(text[k]) - 48
        if code < 0 or code > 63:
            return value, k, BAD_CHARACTER
        value |= (code & 0x1F) << (5 * length)
        k += 1
        if code & 0x20 == 0:
            if code & 0x10 != 0:
                value |= np.int64(-1) << (5 * (length + 1))
            return value, k, OK
    return value, k, TOO_LONG


@njit(cache=True)
def decode_strings(text, offsets, areas, n_runs, max_runs):  # type: ignore[no-untyped-def]
    """Decode COCO strings to run ends. Returns (ends, run_offsets, status, place); a bad string has no runs.

    `place` is a character position for TRUNCATED, BAD_CHARACTER and TOO_LONG, the sum of the runs for UNDERFLOW, their
    number for TOO_MANY_RUNS, and the run's number otherwise.
    """
    n = offsets.size - 1
    ends = np.empty(n_runs.sum(), np.int64)
    run_offsets = np.zeros(n + 1, np.int64)
    status = np.zeros(n, np.uint8)
    place = np.zeros(n, np.int64)
    used = 0
    for i in range(n):
        start = used
        total = before = last = np.int64(0)  # codes from the third on are differences to the run two before
        k = offsets[i]
        if n_runs[i] > max_runs:
            status[i], place[i] = TOO_MANY_RUNS, n_runs[i]
        while k < offsets[i + 1] and status[i] == OK:
            value, k, problem = _read_code(text, k, offsets[i + 1])
            run = used - start
            if run > 2:
                value += before
            before, last = last, value
            total += value
            if problem != OK:
                status[i], place[i] = problem, k - offsets[i]
            elif value < 0:
                status[i], place[i] = NEGATIVE_RUN, run
            elif total > areas[i]:
                status[i], place[i] = OVERFLOW, run
            else:
                ends[used] = total
                used += 1
        if status[i] == OK and total != areas[i]:
            status[i], place[i] = UNDERFLOW, total
        if status[i] != OK:
            used = start
        run_offsets[i + 1] = used
    return ends[:used].copy(), run_offsets, status, place


@njit(cache=True)
def mask_areas(ends, offsets):  # type: ignore[no-untyped-def]
    """Foreground pixels of each mask."""
    areas = np.zeros(offsets.size - 1, np.int64)
    for i in range(offsets.size - 1):
        for k in range(offsets[i] + 1, offsets[i + 1], 2):
            areas[i] += ends[k] - ends[k - 1]
    return areas


@njit(cache=True)
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


@njit(cache=True)
def contains(ends, offsets, which, positions):  # type: ignore[no-untyped-def]
    """Whether pixel `positions[k]` (column-major index) is set in mask `which[k]`."""
    inside = np.zeros(which.size, np.bool_)
    for k in range(which.size):
        start, stop = offsets[which[k]], offsets[which[k] + 1]
        run = np.searchsorted(ends[start:stop], positions[k], side="right")
        inside[k] = run % 2 == 1
    return inside


@njit(cache=True)
def coverage(ends, start, stop, height, edges_x, edges_y):  # type: ignore[no-untyped-def]
    """Area of one mask inside each cell, exact, in units of (1/2n)**2 pixel; array (n rows, n columns).

    Edges are integers in units of 1/2n pixel, see :class:`reveal_bench.geometry.Grid`.
    """
    n = edges_x.size - 1
    unit = 2 * n
    areas = np.zeros((n, n), np.int64)
    for k in range(start + 1, stop, 2):
        position = ends[k - 1]
        while position < ends[k]:  # one vertical piece of the run per pixel column
            column = position // height
            y_low = (position - column * height) * unit
            column_end = min(ends[k], (column + 1) * height)
            y_high = (column_end - column * height) * unit
            position = column_end
            x_low = max(column * unit, edges_x[0])
            x_high = min((column + 1) * unit, edges_x[n])
            y_low = max(y_low, edges_y[0])
            y_high = min(y_high, edges_y[n])
            if x_low >= x_high or y_low >= y_high:
                continue
            first_row = (y_low - edges_y[0]) // (edges_y[1] - edges_y[0])
            first_column = (x_low - edges_x[0]) // (edges_x[1] - edges_x[0])
            for i in range(first_column, n):
                width = min(x_high, edges_x[i + 1]) - max(x_low, edges_x[i])
                if width <= 0:
                    break
                for j in range(first_row, n):
                    tall = min(y_high, edges_y[j + 1]) - max(y_low, edges_y[j])
                    if tall <= 0:
                        break
                    areas[j, i] += width * tall
    return areas


@njit(cache=True)
def _clearance(rise, x, y, n_columns, enough):  # type: ignore[no-untyped-def]
    """Squared distance from a pixel to the outside, or any value of at most `enough` once it cannot exceed that."""
    d = np.int64(rise[x, y]) ** 2
    step = 1
    while d > enough and step * step < d:
        for neighbour in (x - step, x + step):
            g = np.int64(rise[neighbour, y]) if 0 <= neighbour <= n_columns + 1 else np.int64(0)
            d = min(d, step * step + g * g)
        step += 1
    return d


@njit(cache=True)
def deepest_pixel(ends, start, stop, height, width):  # type: ignore[no-untyped-def]
    """(x, y) of the pixel of one non-empty mask farthest from any pixel outside it; (-1, -1) for an empty mask.

    Euclidean distance between pixel centres; what lies beyond the image counts as outside. The first such pixel in
    row-major order. Exact: a pixel is examined only while it can still reach the best distance found so far.
    """
    if stop - start < 2 or ends[stop - 1] == ends[start]:
        return -1, -1
    last = stop - 1 if (stop - start) % 2 == 0 else stop - 2  # end of the last foreground run
    first_column = ends[start] // height
    n_columns = (ends[last] - 1) // height - first_column + 1
    # rise[x + 1, y]: distance to the nearest pixel outside the mask in the same column (0 outside); x from first_column
    rise = np.zeros((n_columns + 2, height), np.int32)
    for k in range(start + 1, stop, 2):
        position = ends[k - 1]
        while position < ends[k]:
            column = position // height
            low = position - column * height
            high = min(ends[k] - column * height, height)
            for y in range(low, high):
                rise[column - first_column + 1, y] = min(y - low + 1, high - y)
            position = column * height + high
    best = np.int64(1)
    best_x, best_y = -1, -1
    for stride in (16, 1):  # a coarse pass first: its best spares the fine pass nearly every pixel
        for x in range(1, n_columns + 1, stride):
            for y in range(0, height, stride):
                if np.int64(rise[x, y]) ** 2 < best:
                    continue
                d = _clearance(rise, x, y, n_columns, best - 1)
                earlier = best_x < 0 or y < best_y or (y == best_y and x < best_x)
                if d > best or (d == best and earlier):
                    best, best_x, best_y = d, x, y
    if best_x < 0:
        return -1, -1
    return best_x - 1 + first_column, best_y
