/* The deepest pixel of a mask, and masks as rows of a picture: included by _kernels.c. */

/* ---- the deepest pixel ---- */

typedef struct {
    int64_t left, n_columns, height;
    int64_t *first;        /* the pieces of column x are [first[x], first[x + 1]) */
    int32_t *lows, *highs; /* rows [low, high) of each piece */
    int64_t upper, lower;  /* the columns that last narrowed the rows */
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

/* Narrow the rows [y, stop) to the first ones for which a column `step` away leaves enough room above and below; return
   0 if there are none. The columns that narrowed them last are kept and looked at first next time. */
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

/* The largest squared distance to the outside from a pixel of column x, from row y on; `most` if none gains `gain`. */
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

/* Move from a deep column to the deepest one near it, by ever shorter strides. */
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

/* Keep column x as the deepest so far if it is; its first rows that are at least as deep are [y, stop). */
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

/* The deepest pixel of the columns [x, x + n), where n is a power of two. Distances of neighbours differ by at most 1,
   so a column that is much less deep than the deepest so far rules out the columns beside it. */
static void search(Pieces *pieces, int64_t x, int64_t n, Deepest *best)
{
    const int64_t height = pieces->height;
    int64_t stop;
    if (n > 1) {
        const double needed = sqrt((double)best->most) - (double)(n / 2);
        const int64_t middle = MIN(x + n / 2, pieces->n_columns - 1);
        const int64_t few = pieces->first[pieces->n_columns] > 8 * pieces->n_columns ? 1 : 4; /* in noise many columns tie */
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

LOOP(deepest_pixels)
{
    const int32_t *ends = INTS(0);
    const int64_t *offsets = LONGS(1), *sizes = LONGS(2), *which = LONGS(3);
    int64_t *found = LONGS(4);
    const int64_t n = LENGTH(3);
    int failed = 0;
    for (int64_t k = 0; k < n && !failed; k++) {
        Pieces pieces = {.height = sizes[2 * which[k]]};
        failed = column_pieces(ends, offsets[which[k]], offsets[which[k] + 1], &pieces);
        if (!failed)
            deepest(&pieces, found + 2 * k);
        free(pieces.first);
        free(pieces.lows);
    }
    if (failed)
        return 1;
    return 0;
}

/* ---- pictures ---- */

LOOP(filtered_rows)
{
    const int32_t *ends = INTS(0);
    const int64_t n = LENGTH(0), height = NUMBER(1), length = (NUMBER(2) + 7) / 8 + 1;
    uint8_t *rows = BYTES(3);
    uint8_t *above = calloc(length, 1);
    if (above == NULL) {
        return 1;
    }
    memset(rows, 0, height * length);
    for (int64_t k = 1; k < n; k += 2) /* mark where pieces of a column begin and where the rows below them start */
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
    free(above);
    return 0;
}
