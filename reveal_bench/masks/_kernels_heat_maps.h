/* Extremes, levels and runs above a threshold of heat maps laid over their images: included by _kernels.c. */

/* ---- heat maps ---- */

#define LANES 16 /* kept apart, so that they are computed in parallel */

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

/* A map that is laid over its image when it is read: each row lies between two rows of `wide`. The same blocks of these
   two rows bound the values of a block from below and above, because rounding never changes an order. So only blocks
   whose bounds do not suffice are laid. */
enum { BLOCK = 64 };
typedef struct {
    const float *wide, *shares;
    const int64_t *upper, *lower;
    int64_t height, width, n_blocks;
    float *bounds; /* of each block of `wide` */
} Laid;

#define LAID                                                                                                \
    Laid laid = {FLOATS(0), FLOATS(3), LONGS(1), LONGS(2), LENGTH(1), arguments[0].last_axis, 0, NULL};      \
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

LOOP(upsample)
{
    LAID
    const int64_t width = laid.width;
    for (int64_t y = 0; y < laid.height; y++)
        lay(&laid, y, 0, width, FLOATS(4) + y * width);
    return 0;
}

/* A few rows are read first, so that most blocks of the others can be skipped: their bounds lie within. */
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

LOOP(map_ends)
{
    LAID
    if (bound_blocks(&laid, LENGTH(0) / laid.width))
        return 1;
    find_ends(&laid, FLOATS(4), LONGS(5));
    free(laid.bounds);
    return 0;
}

static inline uint8_t level_of(float value, float low, float range)
{
    return (uint8_t)(int32_t)(255.0f * ((value - low) / range));
}

LOOP(level_counts)
{
    LAID
    const float low = FLOATS(4)[0], range = FLOATS(4)[1] - FLOATS(4)[0];
    int64_t *counts = LONGS(5);
    uint32_t *pairs = calloc(1 << 16, sizeof(uint32_t)); /* counts of pairs: half as many steps wait for each other */
    if (pairs == NULL || bound_blocks(&laid, LENGTH(0) / laid.width)) {
        free(pairs);
        return 1;
    }
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
    free(laid.bounds);
    free(pairs);
    return 0;
}

/* Add an end of a run, in order; a run that begins where the last one ends is joined to it. */
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

/* Pixels that differ from the one above them, by row; those beyond `room` are counted but not kept. */
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

LOOP(runs_above)
{
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
        return 1;
    }
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
    free(first);
    free(rows);
    free(flags);
    free(laid.bounds);
    return 0;
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

/* Find which gaps (between, above and below pieces) are connected to the outside. The outside is 0; gap i of column x,
   above piece i, is 1 + x + i. */
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

LOOP(fill_runs)
{
    const int32_t *ends = INTS(0);
    const int64_t n = LENGTH(0), height = NUMBER(1);
    int32_t *filled = INTS(2);
    int64_t n_ends = 0, *parents = NULL;
    Pieces pieces = {.height = height};
    int failed = 0;
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
    free(pieces.first);
    free(pieces.lows);
    free(parents);
    if (failed)
        return 1;
    return 0;
}

/* Add to `counts` the pixels of a block above each of `cuts`, and how many of these lie inside. */
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

/* The columns in which a piece begins or ends, by row: those of row y start at first[y]. */
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

LOOP(counts_above)
{
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
    memset(counts, 0, 2 * n_cuts * sizeof(int64_t));
    for (int64_t y = 0; y < height && !failed; y++) {
        for (int64_t k = first[y]; k < first[y + 1]; k++)
            n_inside[columns[k] / BLOCK] += (inside[columns[k]] ^= 1) ? 1 : -1;
        for (int64_t block = 0; block < laid.n_blocks; block++)
            count_block(&laid, y, block, inside, n_inside[block], FLOATS(4), n_cuts, counts);
    }
    free(pieces.first);
    free(pieces.lows);
    free(laid.bounds);
    free(columns);
    free(n_inside);
    free(inside);
    free(first);
    if (failed)
        return 1;
    return 0;
}
