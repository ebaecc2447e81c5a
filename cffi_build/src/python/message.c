/* message.c - messages and what holds them, for the built-ins that make them: made, kept, gone, and their payloads. */
#include "python/message.h"

#include <string.h>

#include "atomic.h"

PyTypeObject *message_type;
PyObject *message_told;

/* ---------------------------------------------------------------- made and gone
 * Most messages live for a moment. What they are made of is kept, up to so many. */
#ifndef Py_GIL_DISABLED
enum { SPARES = 64 };
static Message *spares[SPARES];
static int spare_count;
#endif

/* What one points to that is no message yet: nothing. */
static const char nowhere[64];

Message *message_new(void)
{
    Message *self = NULL;
#ifndef Py_GIL_DISABLED
    if (spare_count > 0) {
        self = spares[--spare_count];
        PyObject_Init((PyObject *)self, message_type);
    }
#endif
    self = self != NULL ? self : PyObject_GC_New(Message, message_type);
    if (self != NULL) {
        memset((char *)self + sizeof(PyObject), 0, sizeof *self - sizeof(PyObject));
        self->memory = nowhere;
    }
    return self;
}

void message_is(Message *self, PyObject *chunk, const char *memory, PyObject *decode, PyObject *owner)
{
    self->chunk = Py_NewRef(chunk);
    self->memory = memory;
    self->decode = Py_XNewRef(decode);
    self->owner = Py_XNewRef(owner);
    PyObject_GC_Track((PyObject *)self);
}

bool is_message(PyObject *object) { return Py_TYPE(object) == message_type; }

/* Its memory, which nothing points to any more. */
void message_free(Message *self)
{
#ifndef Py_GIL_DISABLED
    if (spare_count < SPARES) {
        spares[spare_count++] = self;
        return;
    }
#endif
    PyObject_GC_Del(self);
}
/* ---------------------------------------------------------------- what a member holds */
static Message **held_slot(const Held *self, uint64_t index)
{
    size_t at = index & self->mask;
    while (self->slots[at] != NULL && self->slots[at]->taken.index != index) {
        at = (at + 1) & self->mask;
    }
    return &self->slots[at];
}

int held_room(Held *self, size_t more)
{
    size_t slots = self->mask + 1;
    if (self->slots != NULL && (self->count + more) * 2 <= slots) {
        return 0;
    }
    while ((self->count + more) * 2 > slots) {
        slots = slots < 64 ? 64 : slots * 2;
    }
    Message **const before = self->slots;
    const size_t end = before == NULL ? 0 : self->mask + 1;
    Message **const larger = PyMem_Calloc(slots, sizeof *larger);
    if (larger == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->slots = larger;
    self->mask = slots - 1;
    for (size_t i = 0; i < end; i++) {
        if (before[i] != NULL) {
            *held_slot(self, before[i]->taken.index) = before[i];
        }
    }
    PyMem_Free(before);
    return 0;
}

/* Two threads may let go of a message at once, one of its last reference and one in the table: the second one frees it. */
static uint8_t held_now(Message *message, enum message_held state)
{
#ifdef Py_GIL_DISABLED
    return exchange_both(&message->held, state); /* release what was done with it; acquire what the other has done */
#else
    const uint8_t before = message->held;
    message->held = state;
    return before;
#endif
}

bool message_is_held(const Message *self) { return load_acquire(&self->held) != NOT_HELD; }
bool message_goes(Message *self) { return !message_is_held(self) || held_now(self, LOST) == NOT_HELD; }

/* Not held any more. */
static void let_go(Message *message)
{
    if (held_now(message, NOT_HELD) == LOST) {
        message_free(message);
    }
}

void held_add(Held *self, Message *message)
{
    Message **const slot = held_slot(self, message->taken.index);
    if (*slot == NULL) {
        store_relaxed(&self->count, self->count + 1);
    } else if (*slot != message) {
        let_go(*slot);
    }
    *slot = message;
    held_now(message, HELD);
}

void held_drop(Held *self, Message *message)
{
    if (self->slots == NULL) {
        return;
    }
    Message **const slot = held_slot(self, message->taken.index);
    if (*slot != message) {
        return;
    }
    size_t hole = (size_t)(slot - self->slots);
    self->slots[hole] = NULL;
    store_relaxed(&self->count, self->count - 1);
    /* What stands behind it and would have stood here moves up, so that no search ends before it. */
    for (size_t at = (hole + 1) & self->mask; self->slots[at] != NULL; at = (at + 1) & self->mask) {
        const size_t home = self->slots[at]->taken.index & self->mask;
        if (((at - home) & self->mask) >= ((at - hole) & self->mask)) {
            self->slots[hole] = self->slots[at];
            self->slots[at] = NULL;
            hole = at;
        }
    }
    let_go(message);
}

void held_empty(Held *self)
{
    Message **const slots = self->slots;
    const size_t end = slots == NULL ? 0 : self->mask + 1;
    self->slots = NULL;
    self->mask = 0;
    store_relaxed(&self->count, 0);
    for (size_t i = 0; i < end; i++) {
        if (slots[i] != NULL) {
            let_go(slots[i]);
        }
    }
    PyMem_Free(slots);
}
/* ---------------------------------------------------------------- payloads */
PyObject *message_tell(const char *name, PyObject *self, PyObject *first)
{
    PyObject *const call = message_told == NULL ? NULL : PyDict_GetItemString(message_told, name);
    if (call == NULL) {
        PyErr_Format(PyExc_AttributeError, "nobody has told what %s is", name);
        return NULL;
    }
    return PyObject_CallFunctionObjArgs(call, self, first, NULL);
}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* what replaces PyErr_Fetch is younger than our ABI */
static PyObject *explained(Message *self)
{
    PyObject *kind;
    PyObject *problem;
    PyObject *trace;
    PyErr_Fetch(&kind, &problem, &trace);
    PyErr_NormalizeException(&kind, &problem, &trace);
    if (trace != NULL) {
        PyException_SetTraceback(problem, trace);
    }
    PyObject *const answer = message_tell("explain", (PyObject *)self, problem);
    Py_XDECREF(kind);
    Py_XDECREF(problem);
    Py_XDECREF(trace);
    return answer;
}
#pragma GCC diagnostic pop

PyObject *message_payload(Message *self)
{
    PyObject *const data = PyBytes_FromStringAndSize(message_bytes(self), message_length(self));
    if (data == NULL || self->decode == NULL) {
        return data;
    }
    PyObject *const value = PyObject_CallFunctionObjArgs(self->decode, data, NULL);
    Py_DECREF(data);
    return value == NULL && PyErr_ExceptionMatches(PyExc_Exception) ? explained(self) : value;
}
