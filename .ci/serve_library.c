/* Runs the loops of a shared library for another process, so that a library of another platform is tested in an emulator:
   tests/test_kernels.py asks through standard input and output. A request is the name's length and the name, the number of
   arguments, and for each argument its size in bytes (-1 for a whole number), two numbers as in _kernels.c, and its
   content; all numbers have eight bytes. The answer is the loop's return value and the content of every argument. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(_WIN32)
#include <fcntl.h>
#include <io.h>
#include <windows.h>
#define OPEN(path) ((void *)LoadLibraryA(path))
#define FIND(library, name) ((void *)GetProcAddress((HMODULE)(library), name))
#else
#include <dlfcn.h>
#define OPEN(path) dlopen(path, RTLD_NOW)
#define FIND(library, name) dlsym(library, name)
#endif

enum { MOST = 16 };
typedef struct {
    int64_t address, n, last_axis;
} Argument;

static void take(void *place, size_t size)
{
    if (size && fread(place, 1, size, stdin) != size)
        exit(0); /* the test has ended */
}

static int64_t number(void)
{
    int64_t value;
    take(&value, sizeof value);
    return value;
}

int main(int argc, char **argv)
{
#if defined(_WIN32)
    _setmode(_fileno(stdin), _O_BINARY);
    _setmode(_fileno(stdout), _O_BINARY);
#endif
    void *library = argc > 1 ? OPEN(argv[1]) : NULL;
    if (library == NULL) {
        fprintf(stderr, "cannot load the library\n");
        return 1;
    }
    for (;;) {
        char name[64] = {0};
        take(name, (size_t)number());
        int (*loop)(const Argument *) = (int (*)(const Argument *))FIND(library, name);
        if (loop == NULL) {
            fprintf(stderr, "no loop %s\n", name);
            return 1;
        }
        Argument arguments[MOST];
        int64_t sizes[MOST], n = number();
        for (int64_t i = 0; i < n; i++) {
            sizes[i] = number();
            arguments[i].n = number();
            arguments[i].last_axis = number();
            arguments[i].address = (int64_t)(intptr_t)malloc(sizes[i] > 0 ? sizes[i] : 1);
            take((void *)(intptr_t)arguments[i].address, sizes[i] > 0 ? sizes[i] : 0);
        }
        const int64_t value = loop(arguments);
        fwrite(&value, sizeof value, 1, stdout);
        for (int64_t i = 0; i < n; i++) {
            fwrite((void *)(intptr_t)arguments[i].address, 1, sizes[i] > 0 ? sizes[i] : 0, stdout);
            free((void *)(intptr_t)arguments[i].address);
        }
        fflush(stdout);
    }
}
