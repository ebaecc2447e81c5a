/* end.c - what the ends of a queue have in common (end.h). */
#include "python/end.h"

#include "atomic.h"

int end_traverse(End *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->keep);
    Py_VISIT(self->codec);
    return 0;
}
int end_clear(End *self)
{
    self->chunk = NULL;
    self->reader = NULL;
    self->counts = NULL;
    Py_CLEAR(self->keep);
    Py_CLEAR(self->codec);
    return 0;
}
void end_dealloc(End *self)
{
    PyTypeObject *const type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack((PyObject *)self);
    end_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyObject *end_code_with(End *self, PyObject *codec)
{
    PyObject *before;
    ALONE_WITH(self)
    before = self->codec;
    self->codec = codec == Py_None ? NULL : Py_NewRef(codec);
    ALONE_NO_MORE
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

PyObject *end_move(End *self, PyObject *args)
{
    unsigned long long chunk;
    unsigned long long reader;
    unsigned long long memory;
    PyObject *keep;
    if (!PyArg_ParseTuple(args, "KKKO", &chunk, &reader, &memory, &keep)) {
        return NULL;
    }
    PyObject *before;
    ALONE_WITH(self)
    store_relaxed(&self->chunk, (shmq_chunk *)(uintptr_t)chunk);
    store_relaxed(&self->reader, (shmq_reader *)(uintptr_t)reader);
    self->memory = (const char *)(uintptr_t)memory;
    store_relaxed(&self->counts, chunk == 0 ? NULL : shmq_counts_of((const shmq_chunk *)(uintptr_t)chunk));
    before = self->keep;
    self->keep = Py_NewRef(keep);
    ALONE_NO_MORE
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- the way to Python */
PyObject *in_python(PyObject *self, const char *method, PyObject *first, PyObject *const *args, Py_ssize_t count,
                    PyObject *names)
{
    const Py_ssize_t before = first != NULL;
    PyObject *const positional = PyTuple_New(count + before);
    PyObject *const keywords = positional == NULL || names == NULL ? NULL : PyDict_New();
    PyObject *answer = NULL;
    if (positional == NULL || (names != NULL && keywords == NULL)) {
        Py_XDECREF(first);
        goto done;
    }
    if (first != NULL && PyTuple_SetItem(positional, 0, first) < 0) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyTuple_SetItem(positional, i + before, Py_NewRef(args[i])) < 0) {
            goto done;
        }
    }
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_Size(names); i++) {
        if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[count + i]) < 0) {
            goto done;
        }
    }
    PyObject *const called = PyObject_GetAttrString(self, method);
    if (called != NULL) {
        answer = PyObject_Call(called, positional, keywords);
        Py_DECREF(called);
    }
done:
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
    return answer;
}

/* ---------------------------------------------------------------- what is given */
PyObject *timeout_name; /* interned, as the names in a program's text are */

bool plain_timeout(PyObject *const *args, Py_ssize_t before, Py_ssize_t count, PyObject *names)
{
    const Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    if (count + named == before) {
        return true;
    }
    if (count < before || count + named > before + 1 || (named == 1 && PyTuple_GetItem(names, 0) != timeout_name)) {
        return false;
    }
    PyObject *const timeout = args[before];
    if (timeout == Py_None) {
        return true;
    }
    if (PyFloat_CheckExact(timeout)) {
        return PyFloat_AsDouble(timeout) >= 0; /* not NaN */
    }
    if (!PyLong_CheckExact(timeout)) {
        return false;
    }
    const bool plain = PyLong_AsLong(timeout) >= 0;
    if (!plain) {
        PyErr_Clear();
    }
    return plain;
}

bool may_wait(PyObject *const *args, Py_ssize_t before, Py_ssize_t count, PyObject *names)
{
    const Py_ssize_t all = count + (names == NULL ? 0 : PyTuple_Size(names));
    return all == before || args[before] == Py_None || PyObject_IsTrue(args[before]) == 1; /* a plain number */
}

long plain_limit(PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count < 1 || !is_number(args[0]) || !plain_timeout(args, 1, count, names)) {
        return 0;
    }
    const long limit = PyLong_AsLong(args[0]);
    if (limit < 1) {
        PyErr_Clear();
        return 0;
    }
    return limit;
}

/* ---------------------------------------------------------------- what comes back */
PyObject *meaning(End *self, PyObject *codec, PyObject *data, PyObject *keep, uint64_t record)
{
    PyObject *value = PyObject_CallFunctionObjArgs(codec, data, NULL);
    Py_DECREF(data);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyObject *kind;
        PyObject *problem;
        PyObject *trace;
        PyErr_Fetch(&kind, &problem, &trace);
        PyErr_NormalizeException(&kind, &problem, &trace);
        value = PyObject_CallMethod((PyObject *)self, "_undecodable", "OKO", keep, (unsigned long long)record, problem);
        Py_XDECREF(kind);
        Py_XDECREF(problem);
        Py_XDECREF(trace);
    }
    return value;
}
