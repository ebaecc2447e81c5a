/* hot_names.c - which chunks are in a folder, by their names; and what has a name with a certain end.
 *
 * Whoever opens a queue, or puts first, looks whether the chunks are a chain; and behind a death, for rings. As a list of
 * all names, each taken apart by an expression, that took for a few of them as long as to open a file, and milliseconds
 * for thousands. */
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

static bool take_name(void *context, const char *name)
{
    Found *const found = context;
    Named named;
    if (!digits(&name, BASE_DIGITS, &named.base) || *name++ != '-' || !digits(&name, SEQUENCE_DIGITS, &named.sequence)
        || strcmp(name, ending) != 0) {
        return true;
    }
    if (found->count == found->room) {
        const size_t room = found->room == 0 ? FIRST_ROOM : 2 * found->room;
        Named *const more = realloc(found->named, room * sizeof *more);
        if (more == NULL) {
            found->is_full = true;
            return false;
        }
        found->named = more;
        found->room = room;
    }
    found->named[found->count++] = named;
    return true;
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

/* ---- names that end with something, one behind the other, each with its 0 */
typedef struct {
    const char *ending;
    char *text;
    size_t size;
    size_t room;
    bool is_full;
} Text;

static bool take_ended(void *context, const char *name)
{
    Text *const text = context;
    const size_t length = strlen(name);
    const size_t ends = strlen(text->ending);
    if (length < ends || strcmp(name + length - ends, text->ending) != 0) {
        return true;
    }
    if (text->room - text->size <= length) {
        const size_t room = 2 * (text->room + length + FIRST_ROOM);
        char *const more = realloc(text->text, room);
        if (more == NULL) {
            text->is_full = true;
            return false;
        }
        text->text = more;
        text->room = room;
    }
    memcpy(text->text + text->size, name, length + 1);
    text->size += length + 1;
    return true;
}

static PyObject *names_of(const Text *text)
{
    PyObject *const list = PyList_New(0);
    for (size_t at = 0; list != NULL && at < text->size; at += strlen(text->text + at) + 1) {
        PyObject *const name = PyUnicode_DecodeFSDefault(text->text + at);
        if (name == NULL || PyList_Append(list, name) < 0) {
            Py_XDECREF(name);
            Py_DECREF(list);
            return NULL;
        }
        Py_DECREF(name);
    }
    return list;
}

/* List that directory, without the interpreter: whether it went well, else there is an exception. */
static bool listed(int fd, bool (*each)(void *context, const char *name), void *context)
{
    PyThreadState *const state = PyEval_SaveThread();
    const int answer = os->list(fd, each, context);
    PyEval_RestoreThread(state);
    if (answer < 0) {
        errno = -answer;
        PyErr_SetFromErrno(PyExc_OSError);
    }
    return answer >= 0;
}

/* ended_in(fd, ending): the names in the directory of that descriptor that end so. */
static PyObject *ended_in(PyObject *module, PyObject *args)
{
    int fd;
    Text text = {NULL, NULL, 0, 0, false};
    (void)module;
    if (!PyArg_ParseTuple(args, "is", &fd, &text.ending)) {
        return NULL;
    }
    PyObject *list = NULL;
    if (listed(fd, take_ended, &text)) {
        list = text.is_full ? PyErr_NoMemory() : names_of(&text);
    }
    free(text.text);
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
    PyObject *list = NULL;
    if (listed(fd, take_name, &found)) {
        list = found.is_full ? PyErr_NoMemory() : list_of(&found);
    }
    free(found.named);
    return list;
}

static PyMethodDef functions[] = {
    {"chunks_in", chunks_in, METH_VARARGS, "chunks_in(fd): (sequence, base) of each chunk in that directory, in no order."},
    {"ended_in", ended_in, METH_VARARGS, "ended_in(fd, ending): the names in that directory that end so, in no order."},
    {NULL, NULL, 0, NULL},
};

int hot_names_exec(PyObject *module) { return PyModule_AddFunctions(module, functions); }
