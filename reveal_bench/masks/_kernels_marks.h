/* Weighted counts of ranked marks: included by _kernels.c. */

/* ---- weighted counts of ranked marks ---- */

#define ROWS 4 /* summed in parallel, each in its own order; the additions of a single row would wait for one another */

static inline void add_up(double *totals, const float *weights, int64_t n_units, int n_rows, const int64_t *units,
                          int64_t start, int64_t stop)
{
    for (int64_t i = start; i < stop; i++)
        for (int row = 0; row < n_rows; row++)
            totals[row] += weights[row * n_units + units[i]];
}

LOOP(running_weights)
{
    const int64_t *units = LONGS(1), *stops = LONGS(2);
    const int64_t n_stops = LENGTH(2), n_replicates = n_stops ? LENGTH(3) / n_stops : 0;
    const int64_t n_units = n_replicates ? LENGTH(0) / n_replicates : 0;
    for (int64_t r = 0; r < n_replicates; r += ROWS) {
        const int n_rows = (int)MIN(ROWS, n_replicates - r);
        const float *weights = FLOATS(0) + r * n_units;
        double *sums = DOUBLES(3) + r * n_stops, totals[ROWS] = {0};
        for (int64_t k = 0, start = 0; k < n_stops; start = stops[k++]) {
            if (n_rows == ROWS) /* a constant that the compiler can optimise for */
                add_up(totals, weights, n_units, ROWS, units, start, stops[k]);
            else
                add_up(totals, weights, n_units, n_rows, units, start, stops[k]);
            for (int row = 0; row < n_rows; row++)
                sums[row * n_stops + k] = totals[row];
        }
    }
    return 0;
}

/* The fewest true positives that reach each recall; one more than the number of lesions if none reaches it. */
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

/* Every mark between two recalls counts as the best of them; `best` and `reached` have an item for each interval. */
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
        /* NaN until a mark is drawn; a mark that is not drawn is no better than the one before it */
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

LOOP(average_precisions)
{
    const int64_t n = LENGTH(1), n_replicates = LENGTH(4), n_rows = n_replicates ? LENGTH(6) / n_replicates : 0;
    const int64_t n_units = n_replicates ? LENGTH(0) / n_replicates : 0;
    double needed[102], best[102];
    int64_t reached[102] = {0};
    int64_t *hits = malloc((n * n_rows + 1) * sizeof(int64_t)); /* the marks that hit, by row */
    int64_t *first = calloc(n_rows + 1, sizeof(int64_t));
    const int failed = hits == NULL || first == NULL;
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
    free(hits);
    free(first);
    if (failed)
        return 1;
    return 0;
}
