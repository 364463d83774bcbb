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

#include "_kernels_masks.h"
#include "_kernels_depth.h"
#include "_kernels_marks.h"
#include "_kernels_heat_maps.h"

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
