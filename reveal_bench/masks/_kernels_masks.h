/* Run-length strings, areas, points and grid cells: included by _kernels.c. */

/* ---- run-length strings ---- */

#define EACH(byte) ((uint64_t)(byte) * 0x0101010101010101u) /* the value repeated in each byte of a word */

static inline uint64_t word_at(const uint8_t *text)
{
    uint64_t word;
    memcpy(&word, text, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* Count the characters that end a code. Bit 5 of (character - 48) is bit 4 of the character XOR its bit 5. */
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

LOOP(count_runs)
{
    const uint8_t *text = BYTES(0);
    const int64_t *offsets = LONGS(1);
    int64_t *n_runs = LONGS(2);
    int64_t n = LENGTH(2);
    for (int64_t i = 0; i < n; i++)
        n_runs[i] = codes_in(text + offsets[i], offsets[i + 1] - offsets[i]);
    return 0;
}

/* The state of reading one mask: its last two runs, number of runs and foreground; and its ends, if they are kept. */
typedef struct {
    int64_t n_pixels, total, before, last, run, area, kept;
    int merge;
    int32_t *ends;
} Runs;

/* Read the values of the next three codes without unpredictable branches, if they end within eight characters of the
   alphabet, as nearly all do. Returns the length of the codes, or 0 if they do not. */
static inline int three_codes(const uint8_t *text, int64_t left, int64_t *values)
{
#if defined(__GNUC__)
    if (left < 8)
        return 0;
    const uint64_t word = word_at(text), codes = word + EACH(0x50); /* 48 to 111 become 128 to 191 */
    uint64_t last = ~codes & EACH(0x20); /* a bit set in each character that ends a code */
    if ((word & EACH(0x80)) || (codes & EACH(0xC0)) != EACH(0x80))
        return 0;
    uint64_t bits = codes & EACH(0x1F); /* five per character, joined within 2, then 4, then 8 bytes */
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

/* Read three runs at once, none of them empty. Returns the length of their codes, or 0. */
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

/* Read one run. Returns OK or what is wrong with it. */
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

/* Read all runs of a mask. Returns OK, or what is wrong and, in `place`, where. */
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

LOOP(decode_strings)
{
    const uint8_t *text = BYTES(0);
    const int64_t *offsets = LONGS(1), *areas = LONGS(2), *n_runs = LONGS(3);
    int64_t max_runs = NUMBER(4), used = 0;
    int32_t *ends = INTS(5);
    int64_t *run_offsets = LONGS(6), *place = LONGS(8);
    uint8_t *status = BYTES(7);
    int64_t n = LENGTH(7);
    run_offsets[0] = 0;
    for (int64_t i = 0; i < n; i++) {
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
    return 0;
}

LOOP(measure_strings)
{
    const uint8_t *text = BYTES(0);
    const int64_t *offsets = LONGS(1), *n_pixels = LONGS(2), max_runs = NUMBER(3);
    int64_t *areas = LONGS(4), *place = LONGS(6);
    uint8_t *status = BYTES(5);
    int64_t n = LENGTH(5);
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *one = text + offsets[i];
        const int64_t size = offsets[i + 1] - offsets[i], n_runs = size > max_runs ? codes_in(one, size) : size;
        Runs runs = {.n_pixels = n_pixels[i], .ends = NULL};
        place[i] = max_runs + 1;
        status[i] = (uint8_t)(n_runs > max_runs ? TOO_MANY_RUNS : read_runs(one, size, &runs, place + i));
        areas[i] = status[i] == OK ? runs.area : 0;
        place[i] = status[i] == OK ? 0 : place[i];
    }
    return 0;
}

/* ---- areas and points ---- */

LOOP(mask_areas)
{
    const int32_t *ends = INTS(0);
    const int64_t *offsets = LONGS(1);
    int64_t *areas = LONGS(2);
    int64_t n = LENGTH(2);
    for (int64_t i = 0; i < n; i++) {
        int64_t area = 0;
        for (int64_t k = offsets[i] + 1; k < offsets[i + 1]; k += 2)
            area += ends[k] - ends[k - 1];
        areas[i] = area;
    }
    return 0;
}

LOOP(intersections)
{
    const int32_t *ends_a = INTS(0), *ends_b = INTS(2);
    const int64_t *offsets_a = LONGS(1), *offsets_b = LONGS(3);
    int64_t *common = LONGS(4);
    int64_t n = LENGTH(4);
    for (int64_t i = 0; i < n; i++) {
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
    return 0;
}

LOOP(contains)
{
    const int32_t *ends = INTS(0);
    const int64_t *offsets = LONGS(1), *which = LONGS(2), *positions = LONGS(3);
    uint8_t *inside = BYTES(4);
    int64_t n = LENGTH(4);
    for (int64_t k = 0; k < n; k++) {
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
    return 0;
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

LOOP(coverage)
{
    cover(INTS(0), NUMBER(1), NUMBER(2), NUMBER(3), LENGTH(4) - 1, LONGS(4), LONGS(5), LONGS(6));
    return 0;
}

LOOP(hit_cells)
{
    const int32_t *ends = INTS(0);
    const int64_t *offsets = LONGS(1), *sizes = LONGS(2);
    const int64_t n = NUMBER(3);
    uint8_t *hits = BYTES(4);
    const int64_t n_masks = LENGTH(1) - 1;
    int64_t *areas = malloc((n * n + 2 * (n + 1)) * sizeof(int64_t));
    if (areas == NULL)
        return 1;
    int64_t *edges_x = areas + n * n, *edges_y = edges_x + n + 1;
    for (int64_t i = 0; i < n_masks; i++) {
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
    free(areas);
    return 0;
}
