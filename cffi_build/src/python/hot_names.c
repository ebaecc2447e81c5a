/* hot_names.c - which chunks are in a folder, by their names.
 *
 * Whoever opens a queue, or puts first, looks whether they are a chain. As a list of all names, each taken apart by an
 * expression, that took as long for a few of them as half of the file's opening, and milliseconds for thousands. */
#include "python/hot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/os.h"

enum { BASE_DIGITS = 16, SEQUENCE_DIGITS = 8, FIRST_ROOM = 64 };
static const char ending[] = ".chunk";

typedef struct {
    uint64_t base;
    uint64_t sequence;
} Named;
typedef struct {
    Named *named;
    size_t count;
    size_t room;
    bool is_full; /* of memory */
} Found;

/* So many digits as Python writes them with %x, at *at, which goes behind them: whether they are that. */
static bool digits(const char **at, int count, uint64_t *value)
{
    *value = 0;
    for (int i = 0; i < count; i++, (*at)++) {
        const char digit = **at;
        if (digit >= '0' && digit <= '9') {
            *value = *value << 4 | (uint64_t)(digit - '0');
        } else if (digit >= 'a' && digit <= 'f') {
            *value = *value << 4 | (uint64_t)(digit - 'a' + 10);
        } else {
            return false; /* also the end of the name */
        }
    }
    return true;
}

static void take_name(void *context, const char *name)
{
    Found *const found = context;
    Named named;
    if (!digits(&name, BASE_DIGITS, &named.base) || *name++ != '-' || !digits(&name, SEQUENCE_DIGITS, &named.sequence)
        || strcmp(name, ending) != 0 || found->is_full) {
        return;
    }
    if (found->count == found->room) {
        const size_t room = found->room == 0 ? FIRST_ROOM : 2 * found->room;
        Named *const more = realloc(found->named, room * sizeof *more);
        if (more == NULL) {
            found->is_full = true;
            return;
        }
        found->named = more;
        found->room = room;
    }
    found->named[found->count++] = named;
}

static PyObject *list_of(const Found *found)
{
    PyObject *const list = PyList_New((Py_ssize_t)found->count);
    for (size_t i = 0; list != NULL && i < found->count; i++) {
        PyObject *const pair = Py_BuildValue("KK", (unsigned long long)found->named[i].sequence,
                                             (unsigned long long)found->named[i].base);
        if (pair == NULL || PyList_SetItem(list, (Py_ssize_t)i, pair) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

/* chunks_in(fd): (sequence, base) of each chunk in the directory of that descriptor, in no order. */
static PyObject *chunks_in(PyObject *module, PyObject *args)
{
    int fd;
    (void)module;
    if (!PyArg_ParseTuple(args, "i", &fd)) {
        return NULL;
    }
    Found found = {NULL, 0, 0, false};
    PyThreadState *const state = PyEval_SaveThread();
    const int answer = os->list(fd, take_name, &found);
    PyEval_RestoreThread(state);
    PyObject *list = NULL;
    if (answer < 0) {
        errno = -answer;
        PyErr_SetFromErrno(PyExc_OSError);
    } else {
        list = found.is_full ? PyErr_NoMemory() : list_of(&found);
    }
    free(found.named);
    return list;
}

static PyMethodDef functions[] = {
    {"chunks_in", chunks_in, METH_VARARGS, "chunks_in(fd): (sequence, base) of each chunk in that directory, in no order."},
    {NULL, NULL, 0, NULL},
};

int hot_names_exec(PyObject *module) { return PyModule_AddFunctions(module, functions); }
