/* end.h - what the ends of a queue have in common: a place in mapped memory, what keeps it mapped, and the way to Python for
 * whatever is not the plain case. */
#ifndef SHMQ_END_H
#define SHMQ_END_H

#include "python/hot.h"
#include "shmq.h"

typedef struct {
    PyObject_HEAD
    shmq_chunk *chunk;     /* Tail: NULL when everything goes to Python */
    shmq_reader *reader;   /* the others: likewise */
    const char *memory;    /* of the reader's chunk */
    PyObject *keep;        /* whatever must live as long as the pointers above are used; of readers, (chunk, reader) */
    PyObject *codec;       /* Tail: encode, the others: decode; NULL for the bytes themselves */
    uint64_t *counts;      /* where what is done here is counted, as long as `keep` is kept: counts.h; or NULL */
} End;

int end_traverse(End *self, visitproc visit, void *arg);
int end_clear(End *self);
void end_dealloc(End *self);
/* _move(chunk address, reader address, memory address, keep): 0 for a pointer that is not to be used. */
PyObject *end_move(End *self, PyObject *args);
/* _code_with(encode or decode, or None for the bytes themselves) */
PyObject *end_code_with(End *self, PyObject *codec);

/* self.<method>(first, *arguments, **keywords); without the first one if it is NULL, else its reference is ours now. */
PyObject *in_python(PyObject *self, const char *method, PyObject *first, PyObject *const *args, Py_ssize_t count,
                    PyObject *names);
static inline PyObject *otherwise(End *self, const char *method, PyObject *first, PyObject *const *args, Py_ssize_t count,
                                  PyObject *names)
{
    return in_python((PyObject *)self, method, first, args, count, names);
}
/* A whole number; True is none, which is said in Python. */
static inline bool is_number(PyObject *value) { return PyLong_Check(value) && !PyBool_Check(value); }
/* Whether the arguments from the first `before` on are a timeout that needs no second look: none at all, None, or a plain
 * number that is not negative. Whatever else is given goes to Python, which says what is wrong with it, message or not. */
bool plain_timeout(PyObject *const *args, Py_ssize_t before, Py_ssize_t count, PyObject *names);
/* Whether such arguments allow to wait: the timeout is not 0. */
bool may_wait(PyObject *const *args, Py_ssize_t before, Py_ssize_t count, PyObject *names);
/* The limit that args[0] is, or 0 when Python has to look at it. */
long plain_limit(PyObject *const *args, Py_ssize_t count, PyObject *names);
/* codec(data), whose reference goes; when that raises, self._undecodable(keep, record, exception) does instead. Not while one
 * is alone with the end: a codec takes its time, and may run anything. */
PyObject *meaning(End *self, PyObject *codec, PyObject *data, PyObject *keep, uint64_t record);

#define BOTH(name) (PyCFunction)(void (*)(void))(name)
#define FAST(name) BOTH(name), METH_FASTCALL | METH_KEYWORDS
#define END_SLOTS(methods)                                                                                           \
    {Py_tp_dealloc, (void *)end_dealloc}, {Py_tp_traverse, (void *)end_traverse}, {Py_tp_clear, (void *)end_clear},  \
        {Py_tp_methods, (methods)}
#define END_METHODS                                                                                                  \
    {"_move", (PyCFunction)end_move, METH_VARARGS, NULL}, {"_code_with", (PyCFunction)end_code_with, METH_O, NULL},         \
        OF_PAYLOADS
#define END_FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE)

/* Interned names. */
extern PyObject *timeout_name;

#endif
