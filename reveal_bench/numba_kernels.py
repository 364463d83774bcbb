"""The loops of :mod:`reveal_bench.kernels`, compiled by numba where the package was installed without a C compiler.

Results are written into arrays that the caller made. Compiled code is cached on disk; a first call after installation
takes half a minute. ``_kernels.c`` has the same functions: what is changed here is changed there.
"""

from __future__ import annotations

import numpy as np
from numba import njit

OK, BAD_CHARACTER, TRUNCATED, TOO_LONG, NEGATIVE_RUN, OVERFLOW, UNDERFLOW, TOO_MANY_RUNS = range(8)
_NOWHERE = 1 << 60  # a row below any image
_MAX_CODE_BITS = 7 * 5  # 7 characters of 5 bits: enough for any run of an image below 2**34 pixels


def count_characters(text, characters, counts):  # type: ignore[no-untyped-def]
    """How often each of `characters` stands in `text`."""
    plain = text.tobytes()
    counts[:] = [plain.count(character) for character in characters.tolist()]


@njit(cache=True, nogil=True)
def count_runs(text, offsets, n_runs):  # type: ignore[no-untyped-def]
    """Number of complete codes in each string: characters without the continuation bit."""
    n_runs[:] = 0
    for i in range(offsets.size - 1):
        for k in range(offsets[i], offsets[i + 1]):
            if (text[k] - 48) & 0x20 == 0:
                n_runs[i] += 1


@njit(cache=True, nogil=True)
def decode_strings(  # type: ignore[no-untyped-def]
    text, offsets, areas, n_runs, max_runs, ends, run_offsets, status, place
):
    """Decode COCO strings to run ends; see :func:`reveal_bench.kernels.decode_strings`."""
    used = 0
    run_offsets[0] = 0
    for i in range(status.size):
        if n_runs[i] > max_runs:
            status[i], place[i] = TOO_MANY_RUNS, n_runs[i]
        else:
            kept, status[i], place[i] = _decode_one(text[offsets[i] : offsets[i + 1]], areas[i], ends[used:])
            used += kept
        run_offsets[i + 1] = used


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


def measure_strings(text, offsets, n_pixels, max_runs, areas, status, place):  # type: ignore[no-untyped-def]
    """Foreground pixels of each string that is a mask; see :func:`reveal_bench.kernels.measure_strings`."""
    n_runs = np.empty(status.size, np.int64)
    count_runs(text, offsets, n_runs)
    n_runs = np.minimum(n_runs, max_runs + 1)
    ends, run_offsets = np.empty(n_runs.sum(), np.int32), np.empty(offsets.size, np.int64)
    decode_strings(text, offsets, n_pixels, n_runs, max_runs, ends, run_offsets, status, place)
    mask_areas(ends, run_offsets, areas)


@njit(cache=True, nogil=True)
def mask_areas(ends, offsets, areas):  # type: ignore[no-untyped-def]
    """Foreground pixels of each mask."""
    areas[:] = 0
    for i in range(offsets.size - 1):
        for k in range(offsets[i] + 1, offsets[i + 1], 2):
            areas[i] += ends[k] - ends[k - 1]


@njit(cache=True, nogil=True)
def intersections(ends_a, offsets_a, ends_b, offsets_b, common):  # type: ignore[no-untyped-def]
    """Pixels in both mask i of a and mask i of b, for masks of equal sizes, by walking their foreground runs."""
    for i in range(common.size):
        a, b = offsets_a[i] + 1, offsets_b[i] + 1  # where the foreground runs end
        last_a, last_b = offsets_a[i + 1], offsets_b[i + 1]
        total = np.int64(0)
        while a < last_a and b < last_b:
            end_a, end_b = ends_a[a], ends_b[b]
            total += max(min(end_a, end_b) - max(ends_a[a - 1], ends_b[b - 1]), 0)
            a += 2 * (end_a <= end_b)
            b += 2 * (end_b <= end_a)
        common[i] = total


@njit(cache=True, nogil=True)
def contains(ends, offsets, which, positions, inside):  # type: ignore[no-untyped-def]
    """Whether pixel `positions[k]` (column-major index) is set in mask `which[k]`."""
    for k in range(which.size):
        start, stop = offsets[which[k]], offsets[which[k] + 1]
        run = np.searchsorted(ends[start:stop], positions[k], side="right")
        inside[k] = run % 2 == 1


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
def hit_cells(ends, offsets, sizes, n, hits):  # type: ignore[no-untyped-def]
    """Which cells of an n x n grid are hits on each mask: bool (n_masks, n rows, n columns).

    A cell is a hit if at least half of it is covered; if none is, every cell with any coverage.
    """
    steps = np.arange(n + 1)
    for i in range(offsets.size - 1):
        height, width = sizes[i, 0], sizes[i, 1]
        side = min(height, width)
        areas = np.zeros((n, n), np.int64)
        edges_x, edges_y = n * (width - side) + 2 * side * steps, n * (height - side) + 2 * side * steps
        coverage(ends, offsets[i], offsets[i + 1], height, edges_x, edges_y, areas)
        half = 2 * areas >= (2 * side) ** 2
        hits[i] = half if half.any() else areas > 0


@njit(cache=True, nogil=True)
def deepest_pixels(ends, offsets, sizes, which, found):  # type: ignore[no-untyped-def]
    """(x, y) of the pixel of each mask farthest from any pixel outside it, shape (n, 2), the first in row-major order.

    Exact, and no pixel is painted: a column is left as soon as one beside it shows that no pixel of it is as deep as
    the deepest so far. A few columns come first, so that this is soon a deep one.
    """
    for k in range(which.size):
        height = np.int64(sizes[which[k], 0])
        first, lows, highs, left = _column_pieces(ends, offsets[which[k]], offsets[which[k] + 1], height)
        most, best_y = np.int64(0), height  # squared distance of the deepest so far, and its row
        for stride in (32, 8):
            for x in range(0, first.size - 1, stride):
                most = _raised(first, lows, highs, x, np.int64(0), height, most, stride / 2)
        for x in range(first.size - 1):
            y, _ = _deep_rows(first, lows, highs, x, np.int64(0), height, max(most, 1))
            if y == height:
                continue
            more = _raised(first, lows, highs, x, y, height, most, 0.0)
            if more > most:
                y, _ = _deep_rows(first, lows, highs, x, y, height, more)
            if more > most or y < best_y:
                best_y = y
                found[k, 0], found[k, 1] = left + x, y
            most = more


@njit(cache=True, nogil=True)
def _column_pieces(ends, start, stop, height):  # type: ignore[no-untyped-def]
    """The foreground as vertical pieces of rows [lows[i], highs[i]); column left + x has first[x] <= i < first[x + 1].

    Returns (first, lows, highs, left), from the first column with foreground to the last.
    """
    left, right, n = np.int64(0), np.int64(0), 0
    for k in range(start + 1, stop, 2):
        if ends[k] > ends[k - 1]:
            if n == 0:
                left = ends[k - 1] // height
            right = (ends[k] - 1) // height + 1
            n += right - ends[k - 1] // height
    first = np.zeros(right - left + 1, np.int64)
    lows, highs = np.empty(n, np.int32), np.empty(n, np.int32)
    n = 0
    for k in range(start + 1, stop, 2):
        position = np.int64(ends[k - 1])
        while position < ends[k]:
            column = position // height
            lows[n] = position - column * height
            position = min(np.int64(ends[k]), (column + 1) * height)
            highs[n] = position - column * height
            n += 1
            first[column - left + 1] = n
    for x in range(1, first.size):
        first[x] = max(first[x], first[x - 1])  # columns without any
    return first, lows, highs, left


@njit(cache=True, nogil=True)
def _raised(first, lows, highs, x, y, height, most, gain):  # type: ignore[no-untyped-def]
    """The largest squared distance from a pixel of column `x`, from row `y` on, to the outside, or `most`.

    With a `gain`, so many pixels of distance more are wanted, and small gains passed by.
    """
    while True:
        least = max(most + 1, np.int64((np.sqrt(most) + gain) ** 2))
        y, stop = _deep_rows(first, lows, highs, x, y, height, least)
        if y == height:
            return most
        most = _clearance(first, lows, highs, x, (y + stop - 1) // 2)  # what is deeper lies on one side of the middle


@njit(cache=True, nogil=True)
def _deep_rows(first, lows, highs, x, y, before, least):  # type: ignore[no-untyped-def]
    """The first rows [y, stop) from `y` on, of column `x`, with a squared distance to the outside of at least `least`.

    (`before`, `before`) if they do not begin before it. In every column within reach, rows must leave room enough above
    and below; `y` is moved down to the first that do. Columns far apart are looked at first, those between them later:
    a few rule out nearly every row.
    """
    reach = np.int64(np.sqrt(least - 1))
    if x < reach or x + reach > first.size - 2:
        return before, before
    beyond = np.int64(1)
    while beyond <= reach:
        beyond *= 2
    while y < before:
        stop = before
        offset, jump = np.int64(0), beyond
        while True:
            step = reach - offset
            while step >= 0 and y < stop:
                room = np.int64(np.ceil(np.sqrt(least - step * step)))
                for neighbour in (x - step, x + step):
                    y, end = _roomy_rows(lows, highs, first[neighbour], first[neighbour + 1], y, room)
                    stop = min(stop, end)
                step -= jump
            if offset > 0:
                jump //= 2
            offset = jump // 2
            if offset == 0 or y >= stop:  # all agree, or `y` was moved below what one of them allows
                break
        if y < stop:
            return y, stop
    return before, before


@njit(cache=True, nogil=True)
def _roomy_rows(lows, highs, i, j, y, room):  # type: ignore[no-untyped-def]
    """The first rows [y, stop) from `y` on that are at least `room` rows from the outside, in the pieces [i, j)."""
    i = _piece_from(highs, i, j, y + room - 1)
    while i < j and highs[i] - lows[i] < 2 * room - 1:
        i += 1
    if i == j:
        return _NOWHERE, _NOWHERE
    return max(y, lows[i] + room - 1), highs[i] - room + 1


@njit(cache=True, nogil=True)
def _piece_from(highs, i, j, y):  # type: ignore[no-untyped-def]
    """The first of the pieces [i, j) of a column that does not end before row `y` or in it; j if there is none."""
    while i < j:
        middle = (i + j) // 2
        if highs[middle] <= y:
            i = middle + 1
        else:
            j = middle
    return i


@njit(cache=True, nogil=True)
def _clearance(first, lows, highs, x, y):  # type: ignore[no-untyped-def]
    """Squared distance from a pixel to the outside."""
    d = np.int64(_NOWHERE)
    step = np.int64(0)
    while step * step < d:
        for neighbour in (x - step, x + step):
            rise = np.int64(0)
            if 0 <= neighbour < first.size - 1:
                i = _piece_from(highs, first[neighbour], first[neighbour + 1], y)
                if i < first[neighbour + 1] and lows[i] <= y:
                    rise = min(y - lows[i] + 1, highs[i] - y)
            d = min(d, step * step + rise * rise)
        step += 1
    return d


@njit(cache=True, nogil=True)
def filtered_rows(ends, height, width, rows):  # type: ignore[no-untyped-def]
    """One mask, a bit a pixel, as rows of a PNG picture: the number 2, then each byte less the one above it."""
    length = rows.size // height
    rows[:] = 0
    for k in range(1, ends.size, 2):
        for position in range(ends[k - 1], ends[k]):
            x = position // height
            rows[(position - x * height) * length + 1 + x // 8] |= 0x80 >> x % 8
    for y in range(height - 1, -1, -1):
        rows[y * length] = 2
        if y:
            for i in range(y * length + 1, (y + 1) * length):
                rows[i] -= rows[i - length]


@njit(cache=True, nogil=True)
def running_weights(counts, units, stops, sums):  # type: ignore[no-untyped-def]
    """Sums of the weights of the first `stops` of `units`, per row of `counts`."""
    for r in range(sums.shape[0]):
        total = 0.0
        i = 0
        for k in range(stops.size):
            while i < stops[k]:
                total += counts[r, units[i]]
                i += 1
            sums[r, k] = total


@njit(cache=True, nogil=True)
def _positives_needed(recalls, n_lesions, needed):  # type: ignore[no-untyped-def]
    """For each recall the fewest true positives that reach it; one more than there are lesions beyond the last."""
    for k in range(101):
        n = np.floor(recalls[k] * n_lesions)
        while n > 0 and (n - 1) / n_lesions >= recalls[k]:
            n -= 1
        while n / n_lesions < recalls[k]:
            n += 1
        needed[k] = n
    needed[101] = n_lesions + 1


@njit(cache=True, nogil=True)
def average_precisions(counts, units, hits, marks, n_lesions, recalls, values):  # type: ignore[no-untyped-def]
    """COCO's interpolated precision per row of `counts` and of `hits`; see :func:`kernels.average_precisions`."""
    needed, precision, reached = np.empty(102), np.empty(units.size), np.empty(units.size, np.int64)
    for r in range(values.shape[0]):
        _positives_needed(recalls, n_lesions[r], needed)
        for row in range(values.shape[1]):
            n_kept, place, true = 0, 0, 0.0
            for k in range(units.size):
                weight = counts[r, units[k]]
                if not hits[row, k] or weight == 0:
                    continue
                true += weight
                while needed[place] <= true:
                    place += 1
                precision[n_kept], reached[n_kept] = true / marks[r, k], place
                n_kept += 1
            best, total = 0.0, 0.0
            for k in range(n_kept - 1, -1, -1):
                best = max(best, precision[k])
                total += best * (reached[k] - (reached[k - 1] if k > 0 else 0))
            values[r, row] = total / 101


@njit(cache=True, nogil=True)
def _lay_row(wide, upper, lower, shares, y, row):  # type: ignore[no-untyped-def]
    """Row `y` of a map that is laid over its image, between two rows of `wide`."""
    share = shares[y]
    rest = np.float32(1) - share
    for x in range(row.size):
        left, right = np.float32(wide[upper[y], x] * rest), np.float32(wide[lower[y], x] * share)
        row[x] = left + right


@njit(cache=True, nogil=True)
def upsample(wide, upper, lower, shares, fine):  # type: ignore[no-untyped-def]
    """All rows of a map that is laid over its image."""
    for y in range(fine.shape[0]):
        _lay_row(wide, upper, lower, shares, y, fine[y])


@njit(cache=True, nogil=True)
def map_ends(wide, upper, lower, shares, ends, place):  # type: ignore[no-untyped-def]
    """The least and largest value of a map that is laid over its image, and where the first largest is."""
    ends[0], ends[1] = np.float32(np.inf), np.float32(-np.inf)
    row = np.empty(wide.shape[1], np.float32)
    for y in range(upper.size):
        _lay_row(wide, upper, lower, shares, y, row)
        ends[0] = min(ends[0], row.min())
        if row.max() > ends[1]:
            ends[1] = row.max()
            place[0] = y * row.size + row.argmax()


@njit(cache=True, nogil=True)
def level_counts(wide, upper, lower, shares, ends, counts):  # type: ignore[no-untyped-def]
    """How many pixels of a map, scaled from its least to its largest value, have each level from 0 to 255."""
    counts[:] = 0
    span = np.float32(ends[1] - ends[0])
    row = np.empty(wide.shape[1], np.float32)
    for y in range(upper.size):
        _lay_row(wide, upper, lower, shares, y, row)
        for x in range(row.size):
            counts[np.uint8(np.float32(255) * np.float32(np.float32(row[x] - ends[0]) / span))] += 1


@njit(cache=True, nogil=True)
def _add_end(ends, n, end):  # type: ignore[no-untyped-def]
    """The ends of runs as they come, in order; where one run ends as the next begins, they are one."""
    if n > 0 and ends[n - 1] == end:
        return n - 1
    ends[n] = end
    return n + 1


@njit(cache=True, nogil=True)
def runs_above(wide, upper, lower, shares, cut, ends, found):  # type: ignore[no-untyped-def]
    """Ends of the runs of what is above `cut`, and how many there are; if there is no room, how much is needed."""
    height, width = upper.size, wide.shape[1]
    before, now = np.zeros(width, np.bool_), np.zeros(width, np.bool_)
    row = np.empty(width, np.float32)
    toggles = [np.int64(0) for _ in range(0)]
    for y in range(height):
        _lay_row(wide, upper, lower, shares, y, row)
        now[:] = row > cut[0]
        toggles.extend([x * height + y for x in np.flatnonzero(now != before)])
        before[:] = now
    toggles.extend([(x + 1) * height for x in np.flatnonzero(before)])  # the ends of columns
    found[0] = len(toggles) + 1
    if found[0] > ends.size:
        return
    n = 0
    # Where a run goes on in the next column, it ends and begins at one position
    for end in np.sort(np.array(toggles, np.int64)):
        n = _add_end(ends, n, end)
    if n == 0 or ends[n - 1] != height * width:
        n = _add_end(ends, n, height * width)
    found[0] = n


@njit(cache=True, nogil=True)
def _root(parents, i):  # type: ignore[no-untyped-def]
    while parents[i] != i:
        parents[i] = parents[parents[i]]
        i = parents[i]
    return i


@njit(cache=True, nogil=True)
def _join(parents, a, b):  # type: ignore[no-untyped-def]
    a, b = _root(parents, a), _root(parents, b)
    parents[max(a, b)] = min(a, b)


@njit(cache=True, nogil=True)
def _gap(first, lows, highs, height, x, i):  # type: ignore[no-untyped-def]
    """Rows of the gap above piece i of column x; below its last piece there is one more."""
    low = np.int64(0) if i == first[x] else np.int64(highs[i - 1])
    high = height if i == first[x + 1] else np.int64(lows[i])
    return low, high


@njit(cache=True, nogil=True)
def _join_gaps(first, lows, highs, height):  # type: ignore[no-untyped-def]
    """Which gaps between pieces, above and below them hang together; 0 is the outside, 1 + x + i gap i of column x."""
    n = first.size - 1
    parents = np.arange(1 + n + first[n])
    for x in range(n):
        _join(parents, 0, 1 + x + first[x])
        _join(parents, 0, 1 + x + first[x + 1])
        if x in (0, n - 1):
            for i in range(first[x], first[x + 1] + 1):
                _join(parents, 0, 1 + x + i)
        if x == 0:
            continue
        i, j = first[x - 1], first[x]
        while i <= first[x] and j <= first[x + 1]:
            low_i, high_i = _gap(first, lows, highs, height, x - 1, i)
            low_j, high_j = _gap(first, lows, highs, height, x, j)
            if max(low_i, low_j) < min(high_i, high_j):
                _join(parents, x + i, 1 + x + j)
            i += high_i <= high_j
            j += high_j <= high_i
    return parents


@njit(cache=True, nogil=True)
def _is_lone(first, lows, highs, x, i):  # type: ignore[no-untyped-def]
    """Whether a piece is one pixel with none around it."""
    y = lows[i]
    if highs[i] > y + 1:
        return False
    for column in range(max(x - 1, 0), min(x + 2, first.size - 1)):
        k = _piece_from(highs, first[column], first[column + 1], y - 1)
        while k < first[column + 1] and lows[k] <= y + 1:
            if k != i:
                return False
            k += 1
    return True


@njit(cache=True, nogil=True)
def fill_runs(ends, height, filled, found):  # type: ignore[no-untyped-def]
    """Ends of the runs of a mask with its holes filled and lone pixels left out, and how many there are."""
    first, lows, highs, left = _column_pieces(ends, 0, ends.size, height)
    parents = _join_gaps(first, lows, highs, height)
    begin = kept = 0
    for x in range(first.size - 1):
        end = first[x + 1]
        first[x] = kept
        for i in range(begin, end):
            if i > begin and _root(parents, 1 + x + i) != 0:
                highs[kept - 1] = highs[i]
            else:
                lows[kept], highs[kept] = lows[i], highs[i]
                kept += 1
        begin = end
    first[first.size - 1] = kept
    n = 0
    for x in range(first.size - 1):
        for i in range(first[x], first[x + 1]):
            if not _is_lone(first, lows, highs, x, i):
                n = _add_end(filled, n, (left + x) * height + lows[i])
                n = _add_end(filled, n, (left + x) * height + highs[i])
    if n == 0 or filled[n - 1] != ends[-1]:
        n = _add_end(filled, n, ends[-1])
    found[0] = n


@njit(cache=True, nogil=True)
def counts_above(wide, upper, lower, shares, cuts, ends, counts):  # type: ignore[no-untyped-def]
    """Pixels of a map that is laid over its image above each of `cuts`: in all, and inside a mask of its size."""
    counts[:] = 0
    height, width = upper.size, wide.shape[1]
    inside = np.zeros((width, height), np.bool_)
    for k in range(1, ends.size, 2):
        inside.ravel()[ends[k - 1] : ends[k]] = True
    row = np.empty(width, np.float32)
    for y in range(height):
        _lay_row(wide, upper, lower, shares, y, row)
        for x in range(width):
            for k in range(cuts.size):
                if row[x] > cuts[k]:
                    counts[0, k] += 1
                    counts[1, k] += inside[x, y]
