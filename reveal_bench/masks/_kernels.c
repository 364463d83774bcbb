/* The loops of kernels.py, compiled when the package is installed. The result is a plain shared library that ctypes
   opens, so one build serves every version of Python and needs none of its headers. kernels.py describes each loop and
   checks its arguments. Arrays are C-contiguous; results are written into arrays that kernels.py made. A loop returns
   0, or 1 if memory ran out. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

enum { OK, BAD_CHARACTER, TRUNCATED, TOO_LONG, NEGATIVE_RUN, OVERFLOW_, UNDERFLOW_, TOO_MANY_RUNS };
#define MAX_CODE_BITS (7 * 5)
#define NOWHERE ((int64_t)1 << 60)

/* An array: its address, number of items and length of the last axis. A whole number is passed as `n` alone. */
typedef struct {
    int64_t address;
    int64_t n;
    int64_t last_axis;
} Argument;

#if defined(_WIN32)
#define PUBLIC __declspec(dllexport)
#else
#define PUBLIC __attribute__((visibility("default")))
#endif
#define LOOP(name) PUBLIC int name(const Argument *arguments)
#define BYTES(i) ((uint8_t *)(intptr_t)arguments[i].address)
#define INTS(i) ((int32_t *)(intptr_t)arguments[i].address)
#define FLOATS(i) ((float *)(intptr_t)arguments[i].address)
#define LONGS(i) ((int64_t *)(intptr_t)arguments[i].address)
#define DOUBLES(i) ((double *)(intptr_t)arguments[i].address)
#define LENGTH(i) (arguments[i].n)
#define NUMBER(i) (arguments[i].n)

PUBLIC int version(void)
{
    return 7; /* kernels.VERSION */
}

/* ---- characters of a JSON text ---- */

static int64_t times_in(const uint8_t *text, int64_t size, uint8_t character)
{
    enum { LANES_OF_BYTES = 16 };
    int64_t total = 0, k = 0;
    while (k + LANES_OF_BYTES <= size) {
        uint8_t lanes[LANES_OF_BYTES] = {0}; /* counted in parallel; none exceeds 255 */
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

LOOP(count_characters)
{
    enum { BLOCK_OF_TEXT = 1 << 14 }; /* stays in the fastest cache while each character is counted */
    const uint8_t *text = BYTES(0), *characters = BYTES(1);
    int64_t *counts = LONGS(2);
    const int64_t size = LENGTH(0), n = LENGTH(1);
    for (int64_t k = 0; k < size; k += BLOCK_OF_TEXT)
        for (int64_t i = 0; i < n; i++)
            counts[i] += times_in(text + k, MIN(size - k, BLOCK_OF_TEXT), characters[i]);
    return 0;
}

#include "_kernels_masks.h"
#include "_kernels_depth.h"
#include "_kernels_marks.h"
#include "_kernels_heat_maps.h"
