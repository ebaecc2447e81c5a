/* hot_find.c - q[i] as a Python built-in: from an index to a message, with no Python frame in between.
 *
 * A Shelf has the chunks that a process keeps mapped for random access, by their indexes; a Finder (base of Queue) looks
 * one message up in it. Like hot.c, which says why there is a second door into the core, it holds no protocol and no policy:
 * whatever is not the plain case (a chunk that is not mapped yet, no such message, a slice) goes to the method _getitem of the
 * class that builds on it. */
#include "python/message.h"

#include <string.h>

#include "atomic.h"

/* ---------------------------------------------------------------- the chunks that are mapped */
struct volume {
    uint64_t base;
    uint64_t end;            /* the base of the next chunk, as it was known; a chunk knows itself what it does not have */
    uint64_t sequence;
    shmq_chunk *chunk;
    PyObject *keep;          /* whatever must live as long as the pointer is used */
};
typedef struct {
    PyObject_HEAD
    struct volume *volumes;  /* by sequence, and so by base */
    size_t count;
    size_t room;
} Shelf;

static int shelf_traverse(Shelf *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    for (size_t i = 0; i < self->count; i++) {
        Py_VISIT(self->volumes[i].keep);
    }
    return 0;
}
/* Nobody finds them any more when their finalizers run, which may do anything. */
static int shelf_clear(Shelf *self)
{
    struct volume *const volumes = self->volumes;
    const size_t count = self->count;
    self->volumes = NULL;
    self->count = self->room = 0;
    for (size_t i = 0; i < count; i++) {
        Py_DECREF(volumes[i].keep);
    }
    PyMem_Free(volumes);
    return 0;
}
static void shelf_dealloc(Shelf *self)
{
    PyTypeObject *const type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack((PyObject *)self);
    shelf_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* How many volumes have a sequence below that one. */
static size_t shelf_below(const Shelf *self, uint64_t sequence)
{
    size_t low = 0;
    for (size_t high = self->count; low < high;) {
        const size_t middle = low + (high - low) / 2;
        if (self->volumes[middle].sequence < sequence) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The volume that should have that index, or NULL. Without branches, which nobody could predict. */
static const struct volume *shelf_at(const Shelf *self, uint64_t index)
{
    const struct volume *at = self->volumes;
    if (self->count == 0) {
        return NULL;
    }
    for (size_t left = self->count; left > 1;) {
        const size_t half = left / 2;
        at += at[half].base <= index ? half : 0;
        left -= half;
    }
    return at->base <= index && index < at->end ? at : NULL;
}

/* Put it where its sequence has it, in place of *before, if there is one: 0, or -1 without memory. Alone. */
static int shelf_place(Shelf *self, struct volume volume, PyObject **before)
{
    const size_t at = shelf_below(self, volume.sequence);
    const bool there = at < self->count && self->volumes[at].sequence == volume.sequence;
    if (!there && self->count == self->room) {
        const size_t room = self->room == 0 ? 16 : self->room * 2;
        struct volume *const larger = PyMem_Realloc(self->volumes, room * sizeof *larger);
        if (larger == NULL) {
            return -1;
        }
        self->volumes = larger;
        self->room = room;
    }
    if (there) {
        *before = self->volumes[at].keep;
    } else {
        memmove(&self->volumes[at + 1], &self->volumes[at], (self->count - at) * sizeof *self->volumes);
        self->count++;
    }
    self->volumes[at] = volume;
    Py_INCREF(volume.keep);
    return 0;
}

/* put(base, end, sequence, address, chunk) */
static PyObject *shelf_put(Shelf *self, PyObject *args)
{
    unsigned long long base;
    unsigned long long end;
    unsigned long long sequence;
    unsigned long long address;
    PyObject *chunk;
    if (!PyArg_ParseTuple(args, "KKKKO", &base, &end, &sequence, &address, &chunk)) {
        return NULL;
    }
    const struct volume volume = {base, end, sequence, (shmq_chunk *)(uintptr_t)address, chunk};
    PyObject *before = NULL;
    int code;
    ALONE_WITH(self)
    code = shelf_place(self, volume, &before);
    ALONE_NO_MORE
    Py_XDECREF(before);
    return code < 0 ? PyErr_NoMemory() : Py_NewRef(Py_None);
}

/* drop(first, last): those sequences, both included. One by one, for a finalizer may do anything. */
static PyObject *shelf_drop(Shelf *self, PyObject *args)
{
    unsigned long long first;
    unsigned long long last;
    if (!PyArg_ParseTuple(args, "KK", &first, &last)) {
        return NULL;
    }
    PyObject *gone;
    do {
        ALONE_WITH(self)
        const size_t at = shelf_below(self, first);
        gone = at == self->count || self->volumes[at].sequence > last ? NULL : self->volumes[at].keep;
        if (gone != NULL) {
            self->count--;
            memmove(&self->volumes[at], &self->volumes[at + 1], (self->count - at) * sizeof *self->volumes);
        }
        ALONE_NO_MORE
        Py_XDECREF(gone);
    } while (gone != NULL);
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- looking up */
typedef struct {
    PyObject_HEAD
    Shelf *shelf;            /* NULL when everything goes to Python */
    PyObject *decode;        /* or NULL */
} Finder;

static int finder_traverse(Finder *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT((PyObject *)self->shelf);
    Py_VISIT(self->decode);
    return 0;
}
static int finder_clear(Finder *self)
{
    Py_CLEAR(self->shelf);
    Py_CLEAR(self->decode);
    return 0;
}
static void finder_dealloc(Finder *self)
{
    PyTypeObject *const type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack((PyObject *)self);
    finder_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* _find_in(shelf or None, decode or None) */
static PyObject *finder_find_in(Finder *self, PyObject *args)
{
    PyObject *shelf;
    PyObject *decode;
    if (!PyArg_ParseTuple(args, "OO", &shelf, &decode)) {
        return NULL;
    }
    PyObject *before[2];
    ALONE_WITH(self)
    before[0] = (PyObject *)self->shelf;
    before[1] = self->decode;
    store_relaxed(&self->shelf, shelf == Py_None ? NULL : (Shelf *)Py_NewRef(shelf));
    self->decode = decode == Py_None ? NULL : Py_NewRef(decode);
    ALONE_NO_MORE
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        Py_XDECREF(before[i]);
    }
    Py_RETURN_NONE;
}

static PyObject *found(PyObject *decode, uint64_t index, PyObject *keep, const shmq_chunk *chunk, uint64_t position,
                       int64_t place)
{
    Message *const message = message_new();
    if (message != NULL) {
        message->taken.index = index;
        message->taken.record = position;
        message->taken.place = (uint64_t)place;
        message->taken.attempts = 1;
        message_is(message, keep, shmq_chunk_memory(chunk), decode, NULL);
    }
    return (PyObject *)message;
}

/* The volume that should have that index, with a reference to what keeps it; whether there is one. */
static bool finder_volume(Finder *self, uint64_t index, struct volume *volume)
{
    const struct volume *at = NULL;
    Shelf *shelf;
    ALONE_WITH(self)
    shelf = (Shelf *)OWN(self->shelf);
    ALONE_NO_MORE
    if (shelf == NULL) {
        return false;
    }
    ALONE_WITH(shelf)
    at = shelf_at(shelf, index);
    if (at != NULL) {
        *volume = *at;
        Py_INCREF(volume->keep);
    }
    ALONE_NO_MORE
    DISOWN(shelf);
    return at != NULL;
}

/* self[index] -> message. Other threads run meanwhile: what is looked at may have to come from the disk. */
static PyObject *finder_getitem(Finder *self, PyObject *key)
{
    if (load_relaxed(&self->shelf) != NULL && PyLong_CheckExact(key)) {
        const long long index = PyLong_AsLongLong(key);
        if (index == -1) {
            PyErr_Clear(); /* or it is so large that there is no such message */
        }
        struct volume volume;
        if (index >= 0 && finder_volume(self, (uint64_t)index, &volume)) {
            PyObject *answer = NULL;
            uint64_t position;
            PyThreadState *const state = PyEval_SaveThread();
            const int64_t place = shmq_find(volume.chunk, (uint64_t)index - volume.base, &position);
            PyEval_RestoreThread(state);
            if (place >= 0 && load_relaxed(&self->shelf) != NULL) { /* it was not closed meanwhile */
                PyObject *decode;
                ALONE_WITH(self)
                decode = OWN(self->decode);
                ALONE_NO_MORE
                answer = found(decode, (uint64_t)index, volume.keep, volume.chunk, position, place);
                DISOWN(decode);
            }
            Py_DECREF(volume.keep);
            if (answer != NULL || PyErr_Occurred()) {
                return answer;
            }
        }
    }
    PyObject *const otherwise = PyObject_GetAttrString((PyObject *)self, "_getitem");
    PyObject *const answer = otherwise == NULL ? NULL : PyObject_CallFunctionObjArgs(otherwise, key, NULL);
    Py_XDECREF(otherwise);
    return answer;
}

/* ---------------------------------------------------------------- the types */
static PyMethodDef shelf_methods[] = {
    {"put", (PyCFunction)shelf_put, METH_VARARGS, NULL},
    {"drop", (PyCFunction)shelf_drop, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef finder_methods[] = {
    {"_find_in", (PyCFunction)finder_find_in, METH_VARARGS, NULL},
    OF_PAYLOADS,
    {NULL, NULL, 0, NULL},
};
static PyType_Slot shelf_slots[] = {
    {Py_tp_dealloc, (void *)shelf_dealloc}, {Py_tp_traverse, (void *)shelf_traverse},
    {Py_tp_clear, (void *)shelf_clear}, {Py_tp_methods, shelf_methods}, {0, NULL},
};
static PyType_Slot finder_slots[] = {
    {Py_tp_dealloc, (void *)finder_dealloc}, {Py_tp_traverse, (void *)finder_traverse},
    {Py_tp_clear, (void *)finder_clear}, {Py_tp_methods, finder_methods},
    {Py_mp_subscript, (void *)finder_getitem}, {0, NULL},
};
#define FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC)
static PyType_Spec shelf_spec = {"shmq._hot.Shelf", sizeof(Shelf), 0, FLAGS, shelf_slots};
static PyType_Spec finder_spec = {"shmq._hot.Finder", sizeof(Finder), 0, FLAGS | Py_TPFLAGS_BASETYPE, finder_slots};

static PyTypeObject *finder_type;
bool is_finder(PyObject *object) { return PyObject_TypeCheck(object, finder_type); }

int hot_find_exec(PyObject *module)
{
    PyObject *const type = PyType_FromSpec(&finder_spec);
    if (type == NULL || PyModule_AddObjectRef(module, "Finder", type) < 0) {
        Py_XDECREF(type);
        return -1;
    }
    finder_type = (PyTypeObject *)type; /* one reference is ours */
    return hot_add_type(module, "Shelf", &shelf_spec);
}
