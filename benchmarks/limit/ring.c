/* ring.c - what can be carried between two processes at all: slots of 64 bytes in shared memory, one producer, one consumer.
 *
 * Two counters and a copy each way. No checksum, no length, no time, no name, nothing that stays, nothing that survives a kill:
 * what is left out here is what a queue costs. Once in C alone, and once as built-ins that take and make bytes objects.
 *
 * Not here: the processes, and what is compared (__main__.py). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum { SLOT = 64, SLOTS = 4096, SPINS = 2000, DIFFERENT = 1100 };

typedef struct {
    _Alignas(64) _Atomic uint64_t put;   /* by the producer alone */
    _Alignas(64) _Atomic uint64_t taken; /* by the consumer alone */
    _Alignas(64) char slots[SLOTS][SLOT];
} Ring;

/* Until `counter` is not `seen` any more. Who shares a processor with the other end gives it away now and then. */
static uint64_t changed(const _Atomic uint64_t *counter, uint64_t seen)
{
    uint64_t now;
    for (unsigned spins = 1; (now = atomic_load_explicit(counter, memory_order_acquire)) == seen; spins++) {
        if (spins % SPINS == 0) {
            sched_yield();
        }
    }
    return now;
}

/* How many of `wanted` fit: one at least. */
static uint64_t room(const Ring *ring, uint64_t put, uint64_t wanted)
{
    uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_acquire);
    if (put - taken == SLOTS) {
        taken = changed(&ring->taken, taken);
    }
    const uint64_t free = SLOTS - (put - taken);
    return free < wanted ? free : wanted;
}

/* How many of `wanted` are there: one at least. */
static uint64_t there(const Ring *ring, uint64_t taken, uint64_t wanted)
{
    const uint64_t full = changed(&ring->put, taken) - taken;
    return full < wanted ? full : wanted;
}

/* ---------------------------------------------------------------- in C alone */
typedef struct {
    Py_buffer memory;
    Ring *ring;
    unsigned long long count;
    unsigned long long batch;
} Asked;
static int asked_of(PyObject *args, Asked *asked)
{
    if (!PyArg_ParseTuple(args, "w*KK", &asked->memory, &asked->count, &asked->batch)) {
        return -1;
    }
    asked->ring = asked->memory.buf;
    return 0;
}

static void number(char *slot, uint64_t at)
{
    const uint64_t value = at % DIFFERENT;
    for (size_t i = 0; i < SLOT; i += sizeof value) {
        memcpy(slot + i, &value, sizeof value);
    }
}

/* send(memory, count, batch) */
static PyObject *ring_send(PyObject *module, PyObject *args)
{
    static char messages[DIFFERENT][SLOT];
    Asked asked;
    (void)module;
    if (asked_of(args, &asked) < 0) {
        return NULL;
    }
    for (uint64_t i = 0; i < DIFFERENT; i++) {
        number(messages[i], i);
    }
    Ring *const ring = asked.ring;
    for (uint64_t at = 0; at < asked.count;) {
        const uint64_t left = asked.count - at;
        const uint64_t end = at + room(ring, at, left < asked.batch ? left : asked.batch);
        for (; at < end; at++) {
            memcpy(ring->slots[at % SLOTS], messages[at % DIFFERENT], SLOT);
        }
        atomic_store_explicit(&ring->put, at, memory_order_release);
    }
    PyBuffer_Release(&asked.memory);
    Py_RETURN_NONE;
}

/* receive(memory, count, batch) -> how many were not what was sent */
static PyObject *ring_receive(PyObject *module, PyObject *args)
{
    static char messages[DIFFERENT][SLOT];
    uint64_t wrong = 0;
    Asked asked;
    (void)module;
    if (asked_of(args, &asked) < 0) {
        return NULL;
    }
    Ring *const ring = asked.ring;
    for (uint64_t at = 0; at < asked.count;) {
        const uint64_t end = at + there(ring, at, asked.batch);
        for (; at < end; at++) {
            char *const message = messages[at % DIFFERENT];
            memcpy(message, ring->slots[at % SLOTS], SLOT);
            uint64_t value;
            memcpy(&value, message, sizeof value);
            wrong += value != at % DIFFERENT;
        }
        atomic_store_explicit(&ring->taken, at, memory_order_release);
    }
    PyBuffer_Release(&asked.memory);
    return PyLong_FromUnsignedLongLong(wrong);
}

/* ---------------------------------------------------------------- bytes objects */
/* put_many(memory, messages), which all have 64 bytes */
static PyObject *ring_put_many(PyObject *module, PyObject *args)
{
    Py_buffer memory;
    PyObject *messages;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*O!", &memory, &PyList_Type, &messages)) {
        return NULL;
    }
    Ring *const ring = memory.buf;
    const uint64_t count = (uint64_t)PyList_GET_SIZE(messages);
    uint64_t at = atomic_load_explicit(&ring->put, memory_order_relaxed);
    for (uint64_t done = 0; done < count;) {
        for (uint64_t left = room(ring, at, count - done); left > 0; left--, done++, at++) {
            memcpy(ring->slots[at % SLOTS], PyBytes_AS_STRING(PyList_GET_ITEM(messages, (Py_ssize_t)done)), SLOT);
        }
        atomic_store_explicit(&ring->put, at, memory_order_release);
    }
    PyBuffer_Release(&memory);
    Py_RETURN_NONE;
}

/* take_many(memory, limit) -> between one and so many */
static PyObject *ring_take_many(PyObject *module, PyObject *args)
{
    Py_buffer memory;
    unsigned long long limit;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*K", &memory, &limit)) {
        return NULL;
    }
    Ring *const ring = memory.buf;
    const uint64_t at = atomic_load_explicit(&ring->taken, memory_order_relaxed);
    const uint64_t count = there(ring, at, limit);
    PyObject *messages = PyList_New((Py_ssize_t)count);
    for (uint64_t i = 0; messages != NULL && i < count; i++) {
        PyObject *const message = PyBytes_FromStringAndSize(ring->slots[(at + i) % SLOTS], SLOT);
        if (message == NULL) {
            Py_CLEAR(messages);
            break;
        }
        PyList_SET_ITEM(messages, (Py_ssize_t)i, message);
    }
    if (messages != NULL) {
        atomic_store_explicit(&ring->taken, at + count, memory_order_release);
    }
    PyBuffer_Release(&memory);
    return messages;
}

static PyMethodDef methods[] = {
    {"send", ring_send, METH_VARARGS, NULL},
    {"receive", ring_receive, METH_VARARGS, NULL},
    {"put_many", ring_put_many, METH_VARARGS, NULL},
    {"take_many", ring_take_many, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "ring", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_ring(void)
{
    PyObject *const module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddIntConstant(module, "BYTES", sizeof(Ring)) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
