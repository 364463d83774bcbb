/* The loops of numba_kernels.py in C, compiled when the package is installed where a compiler is: no compiling and no
   import of numba at run time. The same functions with the same arguments and the same results, bit for bit
   (tests/test_kernels.py); what they do is said there. Arrays come as C-contiguous buffers of the types that
   kernels.py gives them, results are written into arrays that it made. Python's limited API: one build serves every
   version from 3.11 on. */

#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

enum { OK, BAD_CHARACTER, TRUNCATED, TOO_LONG, NEGATIVE_RUN, OVERFLOW_, UNDERFLOW_, TOO_MANY_RUNS };
#define MAX_CODE_BITS (7 * 5)
#define NOWHERE ((int64_t)1 << 60)

/* ---- arguments: a tuple of buffers and whole numbers, as `types` says: b, i, q = items of 1, 4, 8 bytes, read;
   B, Q = the same, written; n = a whole number ---- */

#define MOST 9
typedef struct {
    Py_buffer views[MOST];
    int64_t numbers[MOST];
    int n_held;
    int held[MOST];
} Arguments;

static void release(Arguments *arguments)
{
    while (arguments->n_held)
        PyBuffer_Release(&arguments->views[arguments->held[--arguments->n_held]]);
}

static int take(PyObject *tuple, const char *types, Arguments *arguments)
{
    arguments->n_held = 0;
    if (PyTuple_Size(tuple) != (Py_ssize_t)strlen(types)) {
        PyErr_Format(PyExc_TypeError, "%zd arguments are needed", (Py_ssize_t)strlen(types));
        return -1;
    }
    for (int i = 0; types[i]; i++) {
        PyObject *value = PyTuple_GetItem(tuple, i);
        if (types[i] == 'n') {
            arguments->numbers[i] = PyLong_AsLongLong(value);
            if (PyErr_Occurred())
                goto wrong;
            continue;
        }
        int is_written = types[i] == 'B' || types[i] == 'I' || types[i] == 'Q';
        int size = strchr("bB", types[i]) ? 1 : strchr("iI", types[i]) ? 4 : 8;
        if (PyObject_GetBuffer(value, &arguments->views[i], PyBUF_C_CONTIGUOUS | (is_written ? PyBUF_WRITABLE : 0)))
            goto wrong;
        arguments->held[arguments->n_held++] = i;
        if (arguments->views[i].itemsize != size) {
            PyErr_Format(PyExc_TypeError, "argument %d must have items of %d bytes", i, size);
            goto wrong;
        }
    }
    return 0;
wrong:
    release(arguments);
    return -1;
}

#define TAKE(types)                       \
    Arguments arguments;                  \
    if (take(tuple, types, &arguments))   \
        return NULL;
#define BYTES(i) ((uint8_t *)arguments.views[i].buf)
#define INTS(i) ((int32_t *)arguments.views[i].buf)
#define LONGS(i) ((int64_t *)arguments.views[i].buf)
#define LENGTH(i) (arguments.views[i].len / arguments.views[i].itemsize)
#define NUMBER(i) (arguments.numbers[i])
#define DONE                \
    release(&arguments);    \
    Py_RETURN_NONE;
#define NO_MEMORY                 \
    {                             \
        release(&arguments);      \
        return PyErr_NoMemory();  \
    }

/* ---- characters of a JSON text ---- */

static int64_t times_in(const uint8_t *text, int64_t size, uint8_t character)
{
    enum { LANES_OF_BYTES = 16 };
    int64_t total = 0, k = 0;
    while (k + LANES_OF_BYTES <= size) {
        uint8_t lanes[LANES_OF_BYTES] = {0}; /* side by side, and none of them above 255 */
        const int64_t stop = MIN(size - LANES_OF_BYTES, k + 254 * LANES_OF_BYTES);
        for (; k <= stop; k += LANES_OF_BYTES)
            for (int lane = 0; lane < LANES_OF_BYTES; lane++)
                lanes[lane] += text[k + lane] == character;
        for (int lane = 0; lane < LANES_OF_BYTES; lane++)
            total += lanes[lane];
    }
    for (; k < size; k++)
        total += text[k] == character;
    return total;
}

static PyObject *count_characters(PyObject *self, PyObject *tuple)
{
    TAKE("bbQ")
    enum { BLOCK_OF_TEXT = 1 << 14 }; /* stays in the nearest cache while each character is looked for */
    const uint8_t *text = BYTES(0), *characters = BYTES(1);
    int64_t *counts = LONGS(2);
    const int64_t size = LENGTH(0), n = LENGTH(1);
    Py_BEGIN_ALLOW_THREADS
    for (int64_t k = 0; k < size; k += BLOCK_OF_TEXT)
        for (int64_t i = 0; i < n; i++)
            counts[i] += times_in(text + k, MIN(size - k, BLOCK_OF_TEXT), characters[i]);
    Py_END_ALLOW_THREADS
    DONE
}

/* ---- run-length strings ---- */

#define EACH(byte) ((uint64_t)(byte) * 0x0101010101010101u) /* in each byte of a word */

static inline uint64_t word_at(const uint8_t *text)
{
    uint64_t word;
    memcpy(&word, text, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* Characters that end a code: bit 5 of (character - 48) is bit 5 of the character with its bit 4 beside it, exclusively. */
static int64_t codes_in(const uint8_t *text, int64_t size)
{
    int64_t n_more = 0, k = 0;
    for (; k + 8 <= size; k += 8) {
        const uint64_t word = word_at(text + k);
        n_more += (int64_t)((((word >> 5 ^ word >> 4) & EACH(1)) * EACH(1)) >> 56);
    }
    for (; k < size; k++)
        n_more += (text[k] >> 5 ^ text[k] >> 4) & 1;
    return size - n_more;
}

static PyObject *count_runs(PyObject *self, PyObject *tuple)
{
    TAKE("bqQ")
    const uint8_t *text = BYTES(0);
    const int64_t *offsets = LONGS(1);
    int64_t *n_runs = LONGS(2);
    Py_ssize_t n = LENGTH(2);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < n; i++)
        n_runs[i] = codes_in(text + offsets[i], offsets[i + 1] - offsets[i]);
    Py_END_ALLOW_THREADS
    DONE
}

/* What is read of one mask: the last two runs, how many there were, foreground; its ends, where they are kept. */
typedef struct {
    int64_t n_pixels, total, before, last, run, area, kept;
    int merge;
    int32_t *ends;
} Runs;

/* The values of the next three codes, if they end within eight characters that are all of the alphabet, as nearly all do,
   without a branch that cannot be foreseen: their length, or 0. */
static inline int three_codes(const uint8_t *text, int64_t left, int64_t *values)
{
#if defined(__GNUC__)
    if (left < 8)
        return 0;
    const uint64_t word = word_at(text), codes = word + EACH(0x50); /* 48 to 111 become 128 to 191 */
    uint64_t last = ~codes & EACH(0x20); /* a mark in each character that ends a code */
    if ((word & EACH(0x80)) || (codes & EACH(0xC0)) != EACH(0x80))
        return 0;
    uint64_t bits = codes & EACH(0x1F); /* five of each character, moved together by pairs of bytes, of twos, of fours */
    bits = (bits & 0x001F001F001F001Fu) | (bits & 0x1F001F001F001F00u) >> 3;
    bits = (bits & 0x000003FF000003FFu) | (bits & 0x03FF000003FF0000u) >> 6;
    bits = (bits & 0x00000000000FFFFFu) | (bits & 0x000FFFFF00000000u) >> 12;
    int start = 0;
    for (int i = 0; i < 3; i++) {
        if (last == 0)
            return 0;
        const int stop = __builtin_ctzll(last) / 8 + 1;
        values[i] = (int64_t)(bits << (64 - 5 * stop)) >> (64 - 5 * (stop - start));
        last &= last - 1;
        start = stop;
    }
    return start;
#else
    return 0;
#endif
}

/* Three runs at once, of which none is empty: the length of their codes, or 0. */
static inline int three_runs(const uint8_t *text, int64_t left, Runs *runs)
{
    int64_t run[3];
    const int length = runs->run > 2 && !runs->merge ? three_codes(text, left, run) : 0;
    if (length == 0)
        return 0;
    run[0] += runs->before;
    run[1] += runs->last;
    run[2] += run[0];
    const int64_t total = runs->total + run[0] + run[1] + run[2];
    if (((run[0] - 1) | (run[1] - 1) | (run[2] - 1) | (runs->n_pixels - total)) < 0)
        return 0;
    if (runs->ends) {
        int32_t *ends = runs->ends + runs->kept;
        ends[0] = (int32_t)(runs->total + run[0]);
        ends[1] = (int32_t)(runs->total + run[0] + run[1]);
        ends[2] = (int32_t)total;
    }
    runs->total = total;
    runs->before = run[1];
    runs->last = run[2];
    runs->area += runs->run & 1 ? run[0] + run[2] : run[1];
    runs->run += 3;
    runs->kept += 3;
    return length;
}

/* One run: OK, or what is wrong with it. */
static int one_run(Runs *runs, int64_t value)
{
    value += runs->run > 2 ? runs->before : 0;
    if (value < 0)
        return NEGATIVE_RUN;
    runs->total += value;
    if (runs->total > runs->n_pixels)
        return OVERFLOW_;
    if (value == 0 && runs->run > 0) {
        runs->merge = !runs->merge;
    } else {
        runs->kept += !runs->merge;
        runs->merge = 0;
        if (runs->ends)
            runs->ends[runs->kept - 1] = (int32_t)runs->total;
    }
    runs->area += runs->run & 1 ? value : 0;
    runs->before = runs->last;
    runs->last = value;
    runs->run++;
    return OK;
}

/* Reads all runs of a mask. Returns OK or what is wrong, and then where. */
static int read_runs(const uint8_t *text, int64_t size, Runs *runs, int64_t *place)
{
    int64_t k = 0;
    while (k < size) {
        const int length = three_runs(text + k, size - k, runs);
        k += length;
        if (length)
            continue;
        int64_t value = 0;
        int shift = 0, code, wrong;
        do {
            *place = k;
            if (k == size)
                return TRUNCATED;
            code = (int)text[k] - 48;
            if (code < 0 || code > 63)
                return BAD_CHARACTER;
            value |= (int64_t)(code & 0x1F) << shift;
            shift += 5;
            if (code & 0x20 && shift == MAX_CODE_BITS)
                return TOO_LONG;
            k++;
        } while (code & 0x20);
        if (code & 0x10)
            value -= (int64_t)1 << shift;
        *place = runs->run;
        if ((wrong = one_run(runs, value)))
            return wrong;
    }
    *place = runs->total;
    return runs->total == runs->n_pixels ? OK : UNDERFLOW_;
}

static PyObject *decode_strings(PyObject *self, PyObject *tuple)
{
    TAKE("bqqqnIQBQ")
    const uint8_t *text = BYTES(0);
    const int64_t *offsets = LONGS(1), *areas = LONGS(2), *n_runs = LONGS(3);
    int64_t max_runs = NUMBER(4), used = 0;
    int32_t *ends = INTS(5);
    int64_t *run_offsets = LONGS(6), *place = LONGS(8);
    uint8_t *status = BYTES(7);
    Py_ssize_t n = LENGTH(7);
    Py_BEGIN_ALLOW_THREADS
    run_offsets[0] = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (n_runs[i] > max_runs) {
            status[i] = TOO_MANY_RUNS;
            place[i] = n_runs[i];
        } else {
            Runs runs = {.n_pixels = areas[i], .ends = ends + used};
            status[i] = (uint8_t)read_runs(text + offsets[i], offsets[i + 1] - offsets[i], &runs, place + i);
            if (status[i] == OK) {
                used += runs.kept;
                place[i] = 0;
            }
        }
        run_offsets[i + 1] = used;
    }
    Py_END_ALLOW_THREADS
    DONE
}

static PyObject *measure_strings(PyObject *self, PyObject *tuple)
{
    TAKE("bqqnQBQ")
    const uint8_t *text = BYTES(0);
    const int64_t *offsets = LONGS(1), *n_pixels = LONGS(2), max_runs = NUMBER(3);
    int64_t *areas = LONGS(4), *place = LONGS(6);
    uint8_t *status = BYTES(5);
    Py_ssize_t n = LENGTH(5);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < n; i++) {
        const uint8_t *one = text + offsets[i];
        const int64_t size = offsets[i + 1] - offsets[i], n_runs = size > max_runs ? codes_in(one, size) : size;
        Runs runs = {.n_pixels = n_pixels[i], .ends = NULL};
        place[i] = max_runs + 1;
        status[i] = (uint8_t)(n_runs > max_runs ? TOO_MANY_RUNS : read_runs(one, size, &runs, place + i));
        areas[i] = status[i] == OK ? runs.area : 0;
        place[i] = status[i] == OK ? 0 : place[i];
    }
    Py_END_ALLOW_THREADS
    DONE
}

/* ---- areas and points ---- */

static PyObject *mask_areas(PyObject *self, PyObject *tuple)
{
    TAKE("iqQ")
    const int32_t *ends = INTS(0);
    const int64_t *offsets = LONGS(1);
    int64_t *areas = LONGS(2);
    Py_ssize_t n = LENGTH(2);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < n; i++) {
        int64_t area = 0;
        for (int64_t k = offsets[i] + 1; k < offsets[i + 1]; k += 2)
            area += ends[k] - ends[k - 1];
        areas[i] = area;
    }
    Py_END_ALLOW_THREADS
    DONE
}

static PyObject *intersections(PyObject *self, PyObject *tuple)
{
    TAKE("iqiqQ")
    const int32_t *ends_a = INTS(0), *ends_b = INTS(2);
    const int64_t *offsets_a = LONGS(1), *offsets_b = LONGS(3);
    int64_t *common = LONGS(4);
    Py_ssize_t n = LENGTH(4);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < n; i++) {
        int64_t a = offsets_a[i] + 1, b = offsets_b[i] + 1, total = 0;
        const int64_t last_a = offsets_a[i + 1], last_b = offsets_b[i + 1];
        while (a < last_a && b < last_b) {
            const int32_t end_a = ends_a[a], end_b = ends_b[b];
            const int32_t overlap = MIN(end_a, end_b) - MAX(ends_a[a - 1], ends_b[b - 1]);
            total += MAX(overlap, 0);
            a += 2 * (end_a <= end_b);
            b += 2 * (end_b <= end_a);
        }
        common[i] = total;
    }
    Py_END_ALLOW_THREADS
    DONE
}

static PyObject *contains(PyObject *self, PyObject *tuple)
{
    TAKE("iqqqB")
    const int32_t *ends = INTS(0);
    const int64_t *offsets = LONGS(1), *which = LONGS(2), *positions = LONGS(3);
    uint8_t *inside = BYTES(4);
    Py_ssize_t n = LENGTH(4);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t k = 0; k < n; k++) {
        const int64_t start = offsets[which[k]];
        int64_t low = start, high = offsets[which[k] + 1];
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (ends[middle] <= positions[k])
                low = middle + 1;
            else
                high = middle;
        }
        inside[k] = (low - start) % 2 == 1;
    }
    Py_END_ALLOW_THREADS
    DONE
}

/* ---- grid cells ---- */

static void cover(const int32_t *ends, int64_t start, int64_t stop, int64_t height, int64_t n, const int64_t *edges_x,
                  const int64_t *edges_y, int64_t *areas)
{
    const int64_t unit = 2 * n, cell = edges_x[1] - edges_x[0];
    int64_t column = 0, column_end = height, first_i = 0;
    for (int64_t k = start + 1; k < stop; k += 2) {
        int64_t position = ends[k - 1];
        const int64_t end = ends[k];
        while (position < end) {
            while (column_end <= position) {
                column++;
                column_end += height;
            }
            const int64_t top = column_end - height;
            const int64_t y_low = MAX((position - top) * unit, edges_y[0]);
            position = MIN(end, column_end);
            const int64_t y_high = MIN((position - top) * unit, edges_y[n]);
            const int64_t x_low = MAX(column * unit, edges_x[0]), x_high = MIN((column + 1) * unit, edges_x[n]);
            if (x_low >= x_high || y_low >= y_high)
                continue;
            while (edges_x[first_i + 1] <= x_low)
                first_i++;
            for (int64_t i = first_i; i < n; i++) {
                const int64_t width = MIN(x_high, edges_x[i + 1]) - MAX(x_low, edges_x[i]);
                if (width <= 0)
                    break;
                for (int64_t j = (y_low - edges_y[0]) / cell; j < n; j++) {
                    const int64_t tall = MIN(y_high, edges_y[j + 1]) - MAX(y_low, edges_y[j]);
                    if (tall <= 0)
                        break;
                    areas[j * n + i] += width * tall;
                }
            }
        }
    }
}

static PyObject *coverage(PyObject *self, PyObject *tuple)
{
    TAKE("innnqqQ")
    cover(INTS(0), NUMBER(1), NUMBER(2), NUMBER(3), LENGTH(4) - 1, LONGS(4), LONGS(5), LONGS(6));
    DONE
}

static PyObject *hit_cells(PyObject *self, PyObject *tuple)
{
    TAKE("iqqnB")
    const int32_t *ends = INTS(0);
    const int64_t *offsets = LONGS(1), *sizes = LONGS(2);
    const int64_t n = NUMBER(3);
    uint8_t *hits = BYTES(4);
    const Py_ssize_t n_masks = LENGTH(1) - 1;
    int64_t *areas = malloc((n * n + 2 * (n + 1)) * sizeof(int64_t));
    if (areas == NULL)
        NO_MEMORY
    int64_t *edges_x = areas + n * n, *edges_y = edges_x + n + 1;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < n_masks; i++) {
        const int64_t height = sizes[2 * i], width = sizes[2 * i + 1], side = MIN(height, width);
        memset(areas, 0, n * n * sizeof(int64_t));
        for (int64_t k = 0; k <= n; k++) {
            edges_x[k] = n * (width - side) + 2 * side * k;
            edges_y[k] = n * (height - side) + 2 * side * k;
        }
        cover(ends, offsets[i], offsets[i + 1], height, n, edges_x, edges_y, areas);
        int any_half = 0;
        for (int64_t k = 0; k < n * n; k++)
            any_half |= 2 * areas[k] >= 4 * side * side;
        for (int64_t k = 0; k < n * n; k++)
            hits[i * n * n + k] = any_half ? 2 * areas[k] >= 4 * side * side : areas[k] > 0;
    }
    Py_END_ALLOW_THREADS
    free(areas);
    DONE
}

/* ---- the deepest pixel ---- */

typedef struct {
    int64_t left, n_columns, height;
    int64_t *first;        /* of column x, the pieces [first[x], first[x + 1]) */
    int32_t *lows, *highs; /* rows [low, high) of each piece */
    int64_t upper, lower;  /* columns that bounded rows last */
} Pieces;

static int column_pieces(const int32_t *ends, int64_t start, int64_t stop, Pieces *pieces)
{
    const int64_t height = pieces->height;
    int64_t left = 0, right = 0, n = 0;
    for (int64_t k = start + 1; k < stop; k += 2)
        if (ends[k] > ends[k - 1]) {
            const int64_t column = ends[k - 1] / height;
            if (n == 0)
                left = column;
            right = (ends[k] - 1) / height + 1;
            n += right - column;
        }
    pieces->left = left;
    pieces->n_columns = right - left;
    pieces->first = calloc(right - left + 1, sizeof(int64_t));
    pieces->lows = malloc((2 * n + 1) * sizeof(int32_t));
    if (pieces->first == NULL || pieces->lows == NULL)
        return -1;
    pieces->highs = pieces->lows + n;
    n = 0;
    for (int64_t k = start + 1; k < stop; k += 2) {
        int64_t position = ends[k - 1];
        while (position < ends[k]) {
            const int64_t column = position / height;
            pieces->lows[n] = (int32_t)(position - column * height);
            position = MIN((int64_t)ends[k], (column + 1) * height);
            pieces->highs[n++] = (int32_t)(position - column * height);
            pieces->first[column - left + 1] = n;
        }
    }
    for (int64_t x = 1; x <= pieces->n_columns; x++)
        pieces->first[x] = MAX(pieces->first[x], pieces->first[x - 1]);
    return 0;
}

static inline int64_t piece_from(const int32_t *highs, int64_t i, int64_t j, int64_t y)
{
    while (i < j) {
        const int64_t middle = (i + j) / 2;
        if (highs[middle] <= y)
            i = middle + 1;
        else
            j = middle;
    }
    return i;
}

/* Rows [y, stop) narrowed to the first for which a column `step` away leaves room enough above and below; 0 if there are
   none. Which columns did so last is kept: they are looked at first, next time. */
static inline int narrowed(Pieces *pieces, int64_t column, int64_t step, int64_t least, int64_t *y, int64_t *stop)
{
    const int32_t *lows = pieces->lows, *highs = pieces->highs;
    const int64_t wanted = least - step * step, root = (int64_t)sqrt((double)wanted), room = root + (root * root < wanted);
    const int64_t last = pieces->first[column + 1];
    int64_t i = piece_from(highs, pieces->first[column], last, *y + room - 1);
    while (i < last && highs[i] - lows[i] < 2 * room - 1)
        i++;
    if (i == last) {
        pieces->upper = column;
        return 0;
    }
    if (lows[i] + room - 1 > *y) {
        *y = lows[i] + room - 1;
        pieces->upper = column;
    }
    if (highs[i] - room + 1 < *stop) {
        *stop = highs[i] - room + 1;
        pieces->lower = column;
    }
    return 1;
}

static int64_t deep_rows(Pieces *pieces, int64_t x, int64_t y, int64_t before, int64_t least, int64_t finest,
                         int64_t *stop)
{
    const int64_t reach = (int64_t)sqrt((double)(least - 1));
    if (x < reach || x + reach > pieces->n_columns - 1)
        return before;
    int64_t beyond = 1;
    while (beyond <= reach)
        beyond *= 2;
    while (y < before) {
        *stop = before;
        int64_t offset = 0, jump = beyond;
        const int64_t known[2] = {pieces->upper - x, pieces->lower - x};
        for (int k = 0; k < 2; k++)
            if (-reach <= known[k] && known[k] <= reach && !narrowed(pieces, x + known[k], known[k], least, &y, stop))
                return before;
        if (y >= *stop)
            continue;
        do {
            for (int64_t step = reach - offset; step >= 0; step -= jump) {
                if (!narrowed(pieces, x - step, step, least, &y, stop) || !narrowed(pieces, x + step, step, least, &y, stop))
                    return before;
                if (y >= *stop)
                    goto passed;
            }
            jump = offset ? jump / 2 : jump;
            offset = jump / 2;
        } while (offset >= finest);
        return y;
    passed:;
    }
    return before;
}

static int64_t clearance(const Pieces *pieces, int64_t x, int64_t y)
{
    int64_t d = NOWHERE;
    for (int64_t step = 0; step * step < d; step++)
        for (int side = -1; side <= 1; side += 2) {
            const int64_t neighbour = x + side * step;
            int64_t rise = 0;
            if (neighbour >= 0 && neighbour < pieces->n_columns) {
                const int64_t last = pieces->first[neighbour + 1];
                const int64_t i = piece_from(pieces->highs, pieces->first[neighbour], last, y);
                if (i < last && pieces->lows[i] <= y)
                    rise = MIN(y - pieces->lows[i] + 1, pieces->highs[i] - y);
            }
            d = MIN(d, step * step + rise * rise);
        }
    return d;
}

/* The largest squared distance from a pixel of column x, from row y on, to the outside; `most` if none gains so much. */
static int64_t raised(Pieces *pieces, int64_t x, int64_t y, int64_t most, double gain)
{
    for (;;) {
        const double aimed = sqrt((double)most) + gain;
        const int64_t least = MAX(most + 1, (int64_t)(aimed * aimed));
        int64_t stop;
        y = deep_rows(pieces, x, y, pieces->height, least, 1, &stop);
        if (y == pieces->height)
            return most;
        most = clearance(pieces, x, (y + stop - 1) / 2);
    }
}

enum { STRIDE = 32 };
typedef struct {
    int64_t most, x, y; /* squared distance of the deepest pixel so far, its column (0 = the leftmost), and its row if it
                           has been looked for, else -1 */
} Deepest;

/* From a deep column to the deepest near it, by shorter and shorter strides. */
static void climb(Pieces *pieces, Deepest *best)
{
    for (int64_t stride = STRIDE / 2; stride; stride /= 2)
        for (int side = -1; side <= 1; side += 2) {
            const int64_t x = MIN(MAX(best->x + side * stride, 0), pieces->n_columns - 1);
            const int64_t most = raised(pieces, x, 0, best->most, 0);
            if (most > best->most)
                *best = (Deepest){most, x, -1};
        }
}

static int64_t row_of(Pieces *pieces, Deepest *best)
{
    int64_t stop;
    if (best->y < 0)
        best->y = deep_rows(pieces, best->x, 0, pieces->height, best->most, 1, &stop);
    return best->y;
}

/* Take column x as the deepest so far if it is: its first rows at least as deep are [y, stop). */
static void offer(Pieces *pieces, int64_t x, int64_t y, int64_t stop, Deepest *best)
{
    const int64_t most = raised(pieces, x, y, MAX(best->most, clearance(pieces, x, (y + stop - 1) / 2)), 0);
    if (most > best->most) {
        *best = (Deepest){most, x, -1};
        climb(pieces, best);
    } else if (y < row_of(pieces, best) || (y == best->y && x < best->x)) {
        *best = (Deepest){most, x, y};
    }
}

/* The deepest pixel of the columns [x, x + n), n a power of two. Distances of neighbours differ by 1 at most: one column
   that is far from as deep as the deepest so far rules out those beside it. */
static void search(Pieces *pieces, int64_t x, int64_t n, Deepest *best)
{
    const int64_t height = pieces->height;
    int64_t stop;
    if (n > 1) {
        const double needed = sqrt((double)best->most) - (double)(n / 2);
        const int64_t middle = MIN(x + n / 2, pieces->n_columns - 1);
        const int64_t few = pieces->first[pieces->n_columns] > 8 * pieces->n_columns ? 1 : 4; /* of noise many columns tie */
        if (n > few && needed > 1 &&
            deep_rows(pieces, middle, 0, height, (int64_t)(needed * needed), n / 4 + 1, &stop) == height)
            return;
        search(pieces, x, n / 2, best);
        if (x + n / 2 < pieces->n_columns)
            search(pieces, x + n / 2, n / 2, best);
        return;
    }
    if (x == best->x)
        return;
    const int64_t y = deep_rows(pieces, x, 0, height, MAX(best->most, 1), 1, &stop);
    if (y < height)
        offer(pieces, x, y, stop, best);
}

static int64_t column_of_longest(const Pieces *pieces)
{
    int64_t longest = 0, column = 0;
    for (int64_t x = 0; x < pieces->n_columns; x += STRIDE)
        for (int64_t i = pieces->first[x]; i < pieces->first[x + 1]; i++)
            if (pieces->highs[i] - pieces->lows[i] > longest) {
                longest = pieces->highs[i] - pieces->lows[i];
                column = x;
            }
    return column;
}

static void deepest(Pieces *pieces, int64_t *found)
{
    if (pieces->n_columns == 0)
        return;
    Deepest best = {0, column_of_longest(pieces), -1};
    best.most = raised(pieces, best.x, 0, 0, 0);
    for (int64_t x = 0; x < pieces->n_columns; x += STRIDE) {
        const int64_t most = raised(pieces, x, 0, best.most, STRIDE / 2);
        if (most > best.most)
            best = (Deepest){most, x, -1};
    }
    best.most = raised(pieces, best.x, 0, best.most, 0);
    climb(pieces, &best);
    for (int64_t x = 0; x < pieces->n_columns; x += STRIDE)
        search(pieces, x, STRIDE, &best);
    found[0] = pieces->left + best.x;
    found[1] = row_of(pieces, &best);
}

static PyObject *deepest_pixels(PyObject *self, PyObject *tuple)
{
    TAKE("iqqqQ")
    const int32_t *ends = INTS(0);
    const int64_t *offsets = LONGS(1), *sizes = LONGS(2), *which = LONGS(3);
    int64_t *found = LONGS(4);
    const Py_ssize_t n = LENGTH(3);
    int failed = 0;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t k = 0; k < n && !failed; k++) {
        Pieces pieces = {.height = sizes[2 * which[k]]};
        failed = column_pieces(ends, offsets[which[k]], offsets[which[k] + 1], &pieces);
        if (!failed)
            deepest(&pieces, found + 2 * k);
        free(pieces.first);
        free(pieces.lows);
    }
    Py_END_ALLOW_THREADS
    if (failed)
        NO_MEMORY
    DONE
}

/* ---- pictures ---- */

static PyObject *filtered_rows(PyObject *self, PyObject *tuple)
{
    TAKE("innB")
    const int32_t *ends = INTS(0);
    const int64_t n = LENGTH(0), height = NUMBER(1), length = (NUMBER(2) + 7) / 8 + 1;
    uint8_t *rows = BYTES(3);
    uint8_t *above = calloc(length, 1);
    if (above == NULL) {
        release(&arguments);
        return PyErr_NoMemory();
    }
    Py_BEGIN_ALLOW_THREADS
    memset(rows, 0, height * length);
    for (int64_t k = 1; k < n; k += 2) /* marks where a piece of a column begins and where the next row is outside again */
        for (int64_t position = ends[k - 1]; position < ends[k];) {
            const int64_t x = position / height, top = position - x * height;
            const int64_t bottom = MIN(ends[k] - x * height, height);
            const uint8_t bit = 0x80 >> x % 8;
            rows[top * length + 1 + x / 8] ^= bit;
            if (bottom < height)
                rows[bottom * length + 1 + x / 8] ^= bit;
            position = x * height + bottom;
        }
    for (int64_t y = 0; y < height; y++) {
        uint8_t *row = rows + y * length;
        for (int64_t i = 1; i < length; i++) {
            const uint8_t bits = above[i] ^ row[i];
            row[i] = bits - above[i];
            above[i] = bits;
        }
        row[0] = 2;
    }
    Py_END_ALLOW_THREADS
    free(above);
    DONE
}

/* ---- weighted counts of ranked marks ---- */

#define FLOATS(i) ((float *)arguments.views[i].buf)
#define DOUBLES(i) ((double *)arguments.views[i].buf)

#define ROWS 4 /* summed together, each in its own order: additions of one row would wait for one another */

static inline void add_up(double *totals, const float *weights, int64_t n_units, int n_rows, const int64_t *units,
                          int64_t start, int64_t stop)
{
    for (int64_t i = start; i < stop; i++)
        for (int row = 0; row < n_rows; row++)
            totals[row] += weights[row * n_units + units[i]];
}

static PyObject *running_weights(PyObject *self, PyObject *tuple)
{
    TAKE("iqqQ")
    const int64_t *units = LONGS(1), *stops = LONGS(2);
    const int64_t n_stops = LENGTH(2), n_replicates = n_stops ? LENGTH(3) / n_stops : 0;
    const int64_t n_units = n_replicates ? LENGTH(0) / n_replicates : 0;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t r = 0; r < n_replicates; r += ROWS) {
        const int n_rows = (int)MIN(ROWS, n_replicates - r);
        const float *weights = FLOATS(0) + r * n_units;
        double *sums = DOUBLES(3) + r * n_stops, totals[ROWS] = {0};
        for (int64_t k = 0, start = 0; k < n_stops; start = stops[k++]) {
            if (n_rows == ROWS) /* a number that the compiler knows */
                add_up(totals, weights, n_units, ROWS, units, start, stops[k]);
            else
                add_up(totals, weights, n_units, n_rows, units, start, stops[k]);
            for (int row = 0; row < n_rows; row++)
                sums[row * n_stops + k] = totals[row];
        }
    }
    Py_END_ALLOW_THREADS
    DONE
}

/* For each recall the fewest true positives that reach it; one more than there are lesions beyond the last. */
static void positives_needed(const double *recalls, double n_lesions, double *needed)
{
    for (int k = 0; k < 101; k++) {
        double n = floor(recalls[k] * n_lesions);
        while (n > 0 && (n - 1) / n_lesions >= recalls[k])
            n--;
        while (n / n_lesions < recalls[k])
            n++;
        needed[k] = n;
    }
    needed[101] = n_lesions + 1;
}

/* Marks between two recalls are as good as the best of them: `best` and `reached` have a place for each such part. */
static double interpolated(const float *weights, const int64_t *units, const int64_t *hits, const double *marks,
                           int64_t n, const double *needed, double *best, int64_t *reached)
{
    int64_t part = 0, place = 0;
    double true_positives = 0, highest = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        true_positives += weights[units[hits[i]]];
        if (needed[place] <= true_positives) {
            best[part] = highest;
            highest = 0;
            while (needed[place] <= true_positives)
                place++;
            reached[++part] = place;
        }
        /* NaN before anything was drawn; a mark that was not drawn is no better than the one before it */
        const double precision = true_positives / marks[hits[i]];
        if (precision > highest)
            highest = precision;
    }
    for (best[part] = highest, highest = 0; part > 0; part--) {
        highest = MAX(highest, best[part]);
        sum += highest * (double)(reached[part] - reached[part - 1]);
    }
    return sum / 101;
}

static PyObject *average_precisions(PyObject *self, PyObject *tuple)
{
    TAKE("iqbqqqQ")
    const int64_t n = LENGTH(1), n_replicates = LENGTH(4), n_rows = n_replicates ? LENGTH(6) / n_replicates : 0;
    const int64_t n_units = n_replicates ? LENGTH(0) / n_replicates : 0;
    double needed[102], best[102];
    int64_t reached[102] = {0};
    int64_t *hits = malloc((n * n_rows + 1) * sizeof(int64_t)); /* of each row, the marks that hit */
    int64_t *first = calloc(n_rows + 1, sizeof(int64_t));
    const int failed = hits == NULL || first == NULL;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t row = 0; row < n_rows && !failed; row++) {
        first[row + 1] = first[row];
        for (int64_t k = 0; k < n; k++)
            if (BYTES(2)[row * n + k])
                hits[first[row + 1]++] = k;
    }
    for (int64_t r = 0; r < n_replicates && !failed; r++) {
        positives_needed(DOUBLES(5), DOUBLES(4)[r], needed);
        for (int64_t row = 0; row < n_rows; row++)
            DOUBLES(6)[r * n_rows + row] =
                interpolated(FLOATS(0) + r * n_units, LONGS(1), hits + first[row], DOUBLES(3) + r * n,
                             first[row + 1] - first[row], needed, best, reached);
    }
    Py_END_ALLOW_THREADS
    free(hits);
    free(first);
    if (failed)
        NO_MEMORY
    DONE
}

/* ---- heat maps ---- */

#define LANES 16 /* kept apart, so that they are worked on together */

static void ends_of(const float *values, int64_t n, float *low, float *high)
{
    float lows[LANES], highs[LANES];
    for (int lane = 0; lane < LANES; lane++)
        lows[lane] = highs[lane] = values[0];
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            const float value = values[i + lane];
            lows[lane] = value < lows[lane] ? value : lows[lane];
            highs[lane] = value > highs[lane] ? value : highs[lane];
        }
    for (; i < n; i++) {
        lows[0] = MIN(values[i], lows[0]);
        highs[0] = MAX(values[i], highs[0]);
    }
    for (int lane = 1; lane < LANES; lane++) {
        lows[0] = MIN(lows[lane], lows[0]);
        highs[0] = MAX(highs[lane], highs[0]);
    }
    *low = lows[0];
    *high = highs[0];
}

/* A map that is laid over its image when it is read: each row lies between two rows of `wide`. Of a block of a row can be
   said what it has at least and at most, from the same blocks of these two: rounding never changes an order. So only
   blocks of which more must be known are laid. */
enum { BLOCK = 64 };
typedef struct {
    const float *wide, *shares;
    const int64_t *upper, *lower;
    int64_t height, width, n_blocks;
    float *bounds; /* of each block of `wide` */
} Laid;

#define LAID                                                                                                    \
    Laid laid = {FLOATS(0), FLOATS(3), LONGS(1), LONGS(2), LENGTH(1), arguments.views[0].shape[1], 0, NULL};    \
    laid.n_blocks = (laid.width + BLOCK - 1) / BLOCK;

static int bound_blocks(Laid *laid, int64_t n_rows)
{
    laid->bounds = malloc(2 * n_rows * laid->n_blocks * sizeof(float));
    if (laid->bounds == NULL)
        return -1;
    float *bound = laid->bounds;
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t start = 0; start < laid->width; start += BLOCK, bound += 2)
            ends_of(laid->wide + i * laid->width + start, MIN(BLOCK, laid->width - start), bound, bound + 1);
    return 0;
}

static inline float between(const Laid *laid, int64_t y, float upper, float lower)
{
    const float share = laid->shares[y], a = upper * (1.0f - share), b = lower * share;
    return a + b;
}

static inline void block_bounds(const Laid *laid, int64_t y, int64_t block, float *least, float *most)
{
    const float *a = laid->bounds + 2 * (laid->upper[y] * laid->n_blocks + block);
    const float *b = laid->bounds + 2 * (laid->lower[y] * laid->n_blocks + block);
    *least = between(laid, y, a[0], b[0]);
    *most = between(laid, y, a[1], b[1]);
}

static inline void lay(const Laid *laid, int64_t y, int64_t start, int64_t n, float *out)
{
    const float *a = laid->wide + laid->upper[y] * laid->width + start;
    const float *b = laid->wide + laid->lower[y] * laid->width + start;
    const float share = laid->shares[y], rest = 1.0f - share;
    for (int64_t x = 0; x < n; x++) {
        const float left = a[x] * rest, right = b[x] * share;
        out[x] = left + right;
    }
}

static PyObject *upsample(PyObject *self, PyObject *tuple)
{
    TAKE("iqqiI")
    LAID
    const int64_t width = laid.width;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t y = 0; y < laid.height; y++)
        lay(&laid, y, 0, width, FLOATS(4) + y * width);
    Py_END_ALLOW_THREADS
    DONE
}

/* Some rows come first, so that most of the others have nothing beyond. */
static void find_ends(const Laid *laid, float *ends, int64_t *place)
{
    float values[BLOCK], least, most;
    ends[0] = INFINITY;
    ends[1] = -INFINITY;
    *place = -1;
    for (int64_t stride = 16; stride; stride = stride == 16 ? 1 : 0)
        for (int64_t y = 0; y < laid->height; y += stride)
            for (int64_t block = 0; block < laid->n_blocks; block++) {
                block_bounds(laid, y, block, &least, &most);
                const int is_sought = stride == 1 && *place < 0 && most >= ends[1];
                if (least >= ends[0] && most <= ends[1] && !is_sought)
                    continue;
                const int64_t start = block * BLOCK, n = MIN(BLOCK, laid->width - start);
                lay(laid, y, start, n, values);
                ends_of(values, n, &least, &most);
                ends[0] = MIN(ends[0], least);
                if (most < ends[1] || (most == ends[1] && !is_sought))
                    continue;
                ends[1] = most;
                *place = -1;
                for (int64_t x = 0; stride == 1 && *place < 0; x++)
                    if (values[x] == most)
                        *place = y * laid->width + start + x;
            }
}

static PyObject *map_ends(PyObject *self, PyObject *tuple)
{
    TAKE("iqqiIQ")
    LAID
    if (bound_blocks(&laid, LENGTH(0) / laid.width))
        NO_MEMORY
    Py_BEGIN_ALLOW_THREADS
    find_ends(&laid, FLOATS(4), LONGS(5));
    Py_END_ALLOW_THREADS
    free(laid.bounds);
    DONE
}

static inline uint8_t level_of(float value, float low, float range)
{
    return (uint8_t)(int32_t)(255.0f * ((value - low) / range));
}

static PyObject *level_counts(PyObject *self, PyObject *tuple)
{
    TAKE("iqqiiQ")
    LAID
    const float low = FLOATS(4)[0], range = FLOATS(4)[1] - FLOATS(4)[0];
    int64_t *counts = LONGS(5);
    uint32_t *pairs = calloc(1 << 16, sizeof(uint32_t)); /* of neighbours: half as many steps that wait for each other */
    if (pairs == NULL || bound_blocks(&laid, LENGTH(0) / laid.width)) {
        free(pairs);
        NO_MEMORY
    }
    Py_BEGIN_ALLOW_THREADS
    memset(counts, 0, 256 * sizeof(int64_t));
    for (int64_t y = 0; y < laid.height; y++)
        for (int64_t block = 0; block < laid.n_blocks; block++) {
            const int64_t start = block * BLOCK, n = MIN(BLOCK, laid.width - start);
            float values[BLOCK], least, most;
            uint8_t levels[BLOCK];
            block_bounds(&laid, y, block, &least, &most);
            least = MAX(least, low);
            most = MIN(most, FLOATS(4)[1]);
            if (level_of(least, low, range) == level_of(most, low, range)) {
                counts[level_of(least, low, range)] += n;
                continue;
            }
            lay(&laid, y, start, n, values);
            for (int64_t x = 0; x < n; x++)
                levels[x] = level_of(values[x], low, range);
            for (int64_t x = 0; x < n - 1; x += 2)
                pairs[levels[x] << 8 | levels[x + 1]]++;
            if (n % 2)
                counts[levels[n - 1]]++;
        }
    for (int64_t pair = 0; pair < 1 << 16; pair++) {
        counts[pair >> 8] += pairs[pair];
        counts[pair & 255] += pairs[pair];
    }
    Py_END_ALLOW_THREADS
    free(laid.bounds);
    free(pairs);
    DONE
}

/* The ends of runs as they come, in order; where one run ends as the next begins, they are one. */
static inline int64_t add_end(int32_t *ends, int64_t n, int64_t end)
{
    if (n > 0 && ends[n - 1] == end)
        return n - 1;
    ends[n] = (int32_t)end;
    return n + 1;
}

static inline int64_t add_last(int32_t *ends, int64_t n, int64_t n_pixels)
{
    return n > 0 && ends[n - 1] == n_pixels ? n : add_end(ends, n, n_pixels);
}

/* Pixels that differ from the one above them, by row: those beyond `room` are counted and not kept. */
static int64_t toggles_above(const Laid *laid, float cut, uint8_t *flags, uint8_t *states, int32_t *rows,
                             int32_t *columns, int64_t room)
{
    enum { NONE, ALL, SOME };
    int64_t n = 0;
    for (int64_t y = 0; y < laid->height; y++)
        for (int64_t block = 0; block < laid->n_blocks; block++) {
            const int64_t start = block * BLOCK, m = MIN(BLOCK, laid->width - start);
            uint8_t now[BLOCK] = {0}, *before = flags + start;
            float values[BLOCK], least, most;
            block_bounds(laid, y, block, &least, &most);
            const int state = most <= cut ? NONE : least > cut ? ALL : SOME;
            if (state != SOME && states[block] == state)
                continue;
            states[block] = (uint8_t)state;
            lay(laid, y, start, m, values);
            for (int64_t x = 0; x < m; x++)
                now[x] = values[x] > cut;
            if (memcmp(before, now, m) == 0)
                continue;
            for (int64_t x = 0; x < m; x++)
                if (before[x] != now[x]) {
                    if (n < room) {
                        rows[n] = (int32_t)y;
                        columns[n] = (int32_t)(start + x);
                    }
                    n++;
                }
            memcpy(before, now, m);
        }
    return n;
}

static PyObject *runs_above(PyObject *self, PyObject *tuple)
{
    TAKE("iqqiiIQ")
    LAID
    const int64_t height = laid.height, width = laid.width;
    int32_t *ends = INTS(5);
    const int64_t room = MAX(LENGTH(5) - width - 1, 0);
    int64_t *found = LONGS(6), *first = calloc(width + 1, sizeof(int64_t));
    int32_t *rows = malloc((3 * room + 1) * sizeof(int32_t)), *columns = rows + room, *sorted = columns + room;
    uint8_t *flags = calloc(width + laid.n_blocks, 1), *states = flags + width;
    if (rows == NULL || first == NULL || flags == NULL || bound_blocks(&laid, LENGTH(0) / width)) {
        free(first);
        free(rows);
        free(flags);
        NO_MEMORY
    }
    Py_BEGIN_ALLOW_THREADS
    const int64_t n = toggles_above(&laid, FLOATS(4)[0], flags, states, rows, columns, room);
    *found = n + width + 1;
    if (n <= room) {
        int64_t n_ends = 0;
        for (int64_t k = 0; k < n; k++)
            first[columns[k] + 1]++;
        for (int64_t x = 1; x <= width; x++)
            first[x] += first[x - 1];
        for (int64_t k = 0; k < n; k++)
            sorted[first[columns[k]]++] = rows[k];
        for (int64_t x = 0; x < width; x++) {
            const int64_t begin = x ? first[x - 1] : 0;
            for (int64_t k = begin; k < first[x]; k++)
                n_ends = add_end(ends, n_ends, x * height + sorted[k]);
            if ((first[x] - begin) % 2)
                n_ends = add_end(ends, n_ends, (x + 1) * height);
        }
        *found = add_last(ends, n_ends, height * width);
    }
    Py_END_ALLOW_THREADS
    free(first);
    free(rows);
    free(flags);
    free(laid.bounds);
    DONE
}

static int64_t root_of(int64_t *parents, int64_t i)
{
    while (parents[i] != i)
        i = parents[i] = parents[parents[i]];
    return i;
}

static void join(int64_t *parents, int64_t a, int64_t b)
{
    a = root_of(parents, a);
    b = root_of(parents, b);
    parents[MAX(a, b)] = MIN(a, b);
}

static inline int64_t gap_low(const Pieces *pieces, int64_t x, int64_t i)
{
    return i == pieces->first[x] ? 0 : pieces->highs[i - 1];
}

static inline int64_t gap_high(const Pieces *pieces, int64_t x, int64_t i)
{
    return i == pieces->first[x + 1] ? pieces->height : pieces->lows[i];
}

/* Which gaps between pieces, above and below them reach the outside, which is 0: gap i of column x, above piece i, is
   1 + x + i. */
static void join_gaps(const Pieces *pieces, int64_t *parents)
{
    const int64_t n = pieces->n_columns, *first = pieces->first;
    for (int64_t k = 0; k <= n + first[n]; k++)
        parents[k] = k;
    for (int64_t x = 0; x < n; x++) {
        join(parents, 0, 1 + x + first[x]);
        join(parents, 0, 1 + x + first[x + 1]);
        if (x == 0 || x == n - 1)
            for (int64_t i = first[x]; i <= first[x + 1]; i++)
                join(parents, 0, 1 + x + i);
        if (x == 0)
            continue;
        int64_t i = first[x - 1], j = first[x];
        while (i <= first[x] && j <= first[x + 1]) {
            const int64_t end_i = gap_high(pieces, x - 1, i), end_j = gap_high(pieces, x, j);
            if (MAX(gap_low(pieces, x - 1, i), gap_low(pieces, x, j)) < MIN(end_i, end_j))
                join(parents, x + i, 1 + x + j);
            i += end_i <= end_j;
            j += end_j <= end_i;
        }
    }
}

static int is_lone(const Pieces *pieces, int64_t x, int64_t i)
{
    const int64_t y = pieces->lows[i];
    if (pieces->highs[i] > y + 1)
        return 0;
    for (int64_t column = MAX(x - 1, 0); column <= MIN(x + 1, pieces->n_columns - 1); column++)
        for (int64_t k = piece_from(pieces->highs, pieces->first[column], pieces->first[column + 1], y - 1);
             k < pieces->first[column + 1] && pieces->lows[k] <= y + 1; k++)
            if (k != i)
                return 0;
    return 1;
}

static PyObject *fill_runs(PyObject *self, PyObject *tuple)
{
    TAKE("inIQ")
    const int32_t *ends = INTS(0);
    const int64_t n = LENGTH(0), height = NUMBER(1);
    int32_t *filled = INTS(2);
    int64_t n_ends = 0, *parents = NULL;
    Pieces pieces = {.height = height};
    int failed = 0;
    Py_BEGIN_ALLOW_THREADS
    failed = column_pieces(ends, 0, n, &pieces);
    if (!failed)
        parents = malloc((pieces.n_columns + pieces.first[pieces.n_columns] + 1) * sizeof(int64_t));
    failed |= parents == NULL;
    if (!failed) {
        join_gaps(&pieces, parents);
        int64_t begin = 0, kept = 0;
        for (int64_t x = 0; x < pieces.n_columns; x++) {
            const int64_t end = pieces.first[x + 1], first = kept;
            for (int64_t i = begin; i < end; i++)
                if (i > begin && root_of(parents, 1 + x + i) != 0) {
                    pieces.highs[kept - 1] = pieces.highs[i];
                } else {
                    pieces.lows[kept] = pieces.lows[i];
                    pieces.highs[kept++] = pieces.highs[i];
                }
            begin = end;
            pieces.first[x] = first;
        }
        pieces.first[pieces.n_columns] = kept;
        for (int64_t x = 0; x < pieces.n_columns; x++)
            for (int64_t i = pieces.first[x]; i < pieces.first[x + 1]; i++)
                if (!is_lone(&pieces, x, i)) {
                    n_ends = add_end(filled, n_ends, (pieces.left + x) * height + pieces.lows[i]);
                    n_ends = add_end(filled, n_ends, (pieces.left + x) * height + pieces.highs[i]);
                }
        LONGS(3)[0] = add_last(filled, n_ends, ends[n - 1]);
    }
    Py_END_ALLOW_THREADS
    free(pieces.first);
    free(pieces.lows);
    free(parents);
    if (failed)
        NO_MEMORY
    DONE
}

/* Pixels of a block above each of `cuts`, and those of them inside, added to `counts`. */
static void count_block(const Laid *laid, int64_t y, int64_t block, const uint8_t *inside, int32_t n_inside,
                        const float *cuts, int64_t n_cuts, int64_t *counts)
{
    const int64_t start = block * BLOCK, m = MIN(BLOCK, laid->width - start);
    float values[BLOCK], least, most;
    int is_laid = 0;
    block_bounds(laid, y, block, &least, &most);
    for (int64_t k = 0; k < n_cuts && cuts[k] < most; k++) {
        int32_t all = (int32_t)m, shared = n_inside;
        if (cuts[k] >= least) {
            if (!is_laid)
                lay(laid, y, start, m, values);
            is_laid = 1;
            all = shared = 0;
            for (int64_t x = 0; x < m; x++) {
                const int32_t above = values[x] > cuts[k];
                all += above;
                shared += above & inside[start + x];
            }
        }
        counts[k] += all;
        counts[n_cuts + k] += shared;
    }
}

/* Columns of which pieces begin or end, by row: those of row y from first[y] on. */
static int32_t *toggles_of(const Pieces *pieces, int64_t *first)
{
    const int64_t n = pieces->first[pieces->n_columns];
    int32_t *columns = malloc((2 * n + 1) * sizeof(int32_t));
    if (columns == NULL)
        return NULL;
    for (int64_t i = 0; i < n; i++) {
        first[pieces->lows[i] + 2]++;
        first[pieces->highs[i] + 2]++;
    }
    for (int64_t y = 2; y <= pieces->height + 2; y++)
        first[y] += first[y - 1];
    for (int64_t x = 0; x < pieces->n_columns; x++)
        for (int64_t i = pieces->first[x]; i < pieces->first[x + 1]; i++) {
            columns[first[pieces->lows[i] + 1]++] = (int32_t)(pieces->left + x);
            columns[first[pieces->highs[i] + 1]++] = (int32_t)(pieces->left + x);
        }
    return columns;
}

static PyObject *counts_above(PyObject *self, PyObject *tuple)
{
    TAKE("iqqiiiQ")
    LAID
    const int64_t height = laid.height;
    const int64_t n_cuts = LENGTH(4);
    int64_t *counts = LONGS(6), *first = calloc(height + 3, sizeof(int64_t));
    uint8_t *inside = calloc(laid.width, 1);
    int32_t *n_inside = calloc(laid.n_blocks, sizeof(int32_t)), *columns = NULL;
    Pieces pieces = {.height = height};
    int failed = first == NULL || inside == NULL || n_inside == NULL || bound_blocks(&laid, LENGTH(0) / laid.width);
    failed = failed || column_pieces(INTS(5), 0, LENGTH(5), &pieces);
    failed = failed || (columns = toggles_of(&pieces, first)) == NULL;
    Py_BEGIN_ALLOW_THREADS
    memset(counts, 0, 2 * n_cuts * sizeof(int64_t));
    for (int64_t y = 0; y < height && !failed; y++) {
        for (int64_t k = first[y]; k < first[y + 1]; k++)
            n_inside[columns[k] / BLOCK] += (inside[columns[k]] ^= 1) ? 1 : -1;
        for (int64_t block = 0; block < laid.n_blocks; block++)
            count_block(&laid, y, block, inside, n_inside[block], FLOATS(4), n_cuts, counts);
    }
    Py_END_ALLOW_THREADS
    free(pieces.first);
    free(pieces.lows);
    free(laid.bounds);
    free(columns);
    free(n_inside);
    free(inside);
    free(first);
    if (failed)
        NO_MEMORY
    DONE
}

static PyMethodDef METHODS[] = {
    {"count_characters", count_characters, METH_VARARGS, NULL},
    {"count_runs", count_runs, METH_VARARGS, NULL},
    {"decode_strings", decode_strings, METH_VARARGS, NULL},
    {"measure_strings", measure_strings, METH_VARARGS, NULL},
    {"mask_areas", mask_areas, METH_VARARGS, NULL},
    {"intersections", intersections, METH_VARARGS, NULL},
    {"contains", contains, METH_VARARGS, NULL},
    {"coverage", coverage, METH_VARARGS, NULL},
    {"hit_cells", hit_cells, METH_VARARGS, NULL},
    {"deepest_pixels", deepest_pixels, METH_VARARGS, NULL},
    {"filtered_rows", filtered_rows, METH_VARARGS, NULL},
    {"upsample", upsample, METH_VARARGS, NULL},
    {"map_ends", map_ends, METH_VARARGS, NULL},
    {"level_counts", level_counts, METH_VARARGS, NULL},
    {"runs_above", runs_above, METH_VARARGS, NULL},
    {"fill_runs", fill_runs, METH_VARARGS, NULL},
    {"counts_above", counts_above, METH_VARARGS, NULL},
    {"running_weights", running_weights, METH_VARARGS, NULL},
    {"average_precisions", average_precisions, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int add_version(PyObject *module)
{
    return PyModule_AddIntConstant(module, "VERSION", 6); /* kernels.VERSION */
}

static PyModuleDef_Slot SLOTS[] = {{Py_mod_exec, add_version}, {0, NULL}};
static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, .m_name = "reveal_bench._kernels", .m_methods = METHODS, .m_slots = SLOTS};

PyMODINIT_FUNC PyInit__kernels(void)
{
    return PyModuleDef_Init(&MODULE);
}
