/* hot_put.c - put as a Python built-in.
 *
 * A Tail (base of Producer) puts into one mapped chunk; whatever is not the plain case (a roll, a closed handle, an unusual
 * argument) goes to the method _put of the class that builds on it. */
#include "python/end.h"

#define COPY_WITH_THE_LOCK 65536 /* while larger payloads are copied in, other threads run */

typedef struct {
    End end;
    PyObject *sync;        /* the module shmq.storage.sync, if each put waits for the disk; else NULL */
    int64_t mark_due_ns;   /* likewise: from then on puts go to Python, which moves the watermark */
} Tail;

static int tail_traverse(Tail *self, visitproc visit, void *arg)
{
    Py_VISIT(self->sync);
    return end_traverse(&self->end, visit, arg);
}
static int tail_clear(Tail *self)
{
    Py_CLEAR(self->sync);
    return end_clear(&self->end);
}
static void tail_dealloc(Tail *self)
{
    PyObject_GC_UnTrack((PyObject *)self);
    Py_CLEAR(self->sync);
    end_dealloc(&self->end);
}

/* _sync_with(mark_due_ns, shmq.storage.sync): each put waits for the disk from now on. After each _move. */
static PyObject *tail_sync_with(Tail *self, PyObject *args)
{
    long long due;
    PyObject *sync;
    if (!PyArg_ParseTuple(args, "LO", &due, &sync)) {
        return NULL;
    }
    self->mark_due_ns = due;
    PyObject *const before = self->sync;
    self->sync = Py_NewRef(sync);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

/* self._put(code, *arguments, **keywords) */
static PyObject *put_otherwise(Tail *self, int64_t code, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *const number = PyLong_FromLongLong(code);
    return number == NULL ? NULL : otherwise(&self->end, "_put", number, args, count, names);
}

/* key, type and time_ns of the usual kinds: 1 when all keywords were understood, 0 when not, -1 with an exception. */
static int fields_of(shmq_fields *fields, PyObject *const *values, PyObject *names)
{
    const Py_ssize_t count = PyTuple_Size(names);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *const name = PyTuple_GetItem(names, i);
        PyObject *const value = values[i];
        if (value == Py_None) { /* as if it were not given, but for the type, which is never none */
            if (PyUnicode_CompareWithASCIIString(name, "type") == 0) {
                return 0;
            }
            continue;
        }
        if (PyUnicode_CompareWithASCIIString(name, "key") == 0 && PyBytes_Check(value)) {
            Py_ssize_t length;
            char *key;
            if (PyBytes_AsStringAndSize(value, &key, &length) < 0) {
                return -1;
            }
            if (length > UINT16_MAX) {
                return 0;
            }
            fields->key = key;
            fields->key_length = (uint32_t)length;
        } else if (PyUnicode_CompareWithASCIIString(name, "time_ns") == 0 && is_number(value)) {
            fields->time_ns = PyLong_AsLongLong(value);
            if ((fields->time_ns == -1 && PyErr_Occurred()) || fields->time_ns == INT64_MIN) {
                PyErr_Clear();
                return 0; /* out of range: let it be said in Python */
            }
        } else if (PyUnicode_CompareWithASCIIString(name, "type") == 0 && is_number(value)) {
            const long type = PyLong_AsLong(value);
            if (type < 0 || type > UINT16_MAX) {
                PyErr_Clear();
                return 0;
            }
            fields->type = (uint32_t)type;
        } else {
            return 0;
        }
    }
    return 1;
}

static PyObject *in_core_name; /* interned: made once, and found in the module's dict without being compared */

/* Whether the core may sync, and nothing rarer is due: 1, 0 or -1 with an exception. */
static int syncs_here(Tail *self)
{
    if (shmq_sync_refuses(self->end.chunk) || shmq_clock_monotonic_ns() >= self->mark_due_ns) {
        return 0;
    }
    PyObject *const in_core = PyObject_GetAttr(self->sync, in_core_name);
    const int answer = in_core == NULL ? -1 : in_core == Py_True;
    Py_XDECREF(in_core);
    return answer;
}

/* self._interrupted(index, the exception that a signal's handler raised), which raises what it means for the put */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* what replaces PyErr_Fetch is younger than our ABI */
static PyObject *interrupted(Tail *self, long long index)
{
    PyObject *type;
    PyObject *value;
    PyObject *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL) {
        PyException_SetTraceback(value, trace);
    }
    PyObject *const answer = PyObject_CallMethod((PyObject *)self, "_interrupted", "LO", index, value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return answer;
}
#pragma GCC diagnostic pop

/* What was put there is committed: wait until it is on the disk. `put` may be in the next chunk when that is over. */
static PyObject *put_synced(Tail *self, int64_t index)
{
    PyObject *const keep = Py_NewRef(self->end.keep);
    shmq_chunk *const chunk = self->end.chunk;
    PyObject *answer = NULL;
    int code;
    do {
        PyThreadState *const state = PyEval_SaveThread();
        code = shmq_sync_put(chunk, (uint64_t)index + 1);
        PyEval_RestoreThread(state);
    } while (code == SHMQ_SIGNAL && PyErr_CheckSignals() == 0);
    if (code == SHMQ_OK) {
        answer = PyLong_FromLongLong(index);
    } else if (code == SHMQ_SIGNAL) {
        answer = interrupted(self, index);
    } else { /* a roll, a claim in the way, a failure: told or done there */
        answer = PyObject_CallMethod((PyObject *)self, "_wait", "OL", keep, (long long)index);
    }
    Py_DECREF(keep);
    return answer;
}

/* A large payload: other threads run while it is copied, also one that moves this Tail. */
static PyObject *put_large(Tail *self, const shmq_fields *fields, PyObject *data, PyObject *const *args,
                           Py_ssize_t count, PyObject *names)
{
    if (self->sync != NULL) {
        return put_otherwise(self, 0, args, count, names);
    }
    PyObject *const keep = Py_NewRef(self->end.keep);
    shmq_chunk *const chunk = self->end.chunk;
    const char *const payload = PyBytes_AsString(data);
    const uint64_t length = (uint64_t)PyBytes_Size(data);
    PyThreadState *const state = PyEval_SaveThread();
    const int64_t index = shmq_put_record(chunk, fields, payload, length);
    PyEval_RestoreThread(state);
    Py_DECREF(keep);
    return index < 0 ? put_otherwise(self, index, args, count, names) : PyLong_FromLongLong(index);
}

static PyObject *put_bytes(Tail *self, PyObject *data, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    shmq_fields fields = {.time_ns = INT64_MIN};
    if (names != NULL) {
        const int understood = fields_of(&fields, args + count, names);
        if (understood <= 0) {
            return understood < 0 ? NULL : put_otherwise(self, 0, args, count, names);
        }
    }
    const Py_ssize_t length = PyBytes_Size(data);
    if (length > COPY_WITH_THE_LOCK) {
        return put_large(self, &fields, data, args, count, names);
    }
    if (self->sync != NULL) {
        const int here = syncs_here(self);
        if (here <= 0) {
            return here < 0 ? NULL : put_otherwise(self, 0, args, count, names);
        }
    }
    const int64_t index = shmq_put_record(self->end.chunk, &fields, PyBytes_AsString(data), (uint64_t)length);
    if (index < 0) {
        return put_otherwise(self, index, args, count, names);
    }
    return self->sync == NULL ? PyLong_FromLongLong(index) : put_synced(self, index);
}

/* put(payload, *, key, type, time_ns, headers, dedup, timeout) -> index */
static PyObject *tail_put(Tail *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count != 1 || self->end.chunk == NULL) {
        return put_otherwise(self, 0, args, count, names);
    }
    if (self->end.codec == NULL) {
        return PyBytes_CheckExact(args[0]) ? put_bytes(self, args[0], args, count, names)
                                           : put_otherwise(self, 0, args, count, names);
    }
    PyObject *const data = PyObject_CallFunctionObjArgs(self->end.codec, args[0], NULL);
    if (data == NULL) {
        return NULL;
    }
    PyObject *answer;
    if (PyBytes_CheckExact(data) && self->end.chunk != NULL) { /* the codec may have run anything */
        answer = put_bytes(self, data, args, count, names);
    } else {
        answer = put_otherwise(self, 0, args, count, names);
    }
    Py_DECREF(data);
    return answer;
}

/* ---------------------------------------------------------------- the type */
PyDoc_STRVAR(put_doc, "put($self, payload, *, key=None, type=0, time_ns=None, ttl=None, delay=None, headers=None, dedup=None, "
                      "timeout=None)\n--\n\n"
                      "Append payload and return its index. See Queue.put.");
static PyMethodDef tail_methods[] = {
    END_METHODS,
    {"_sync_with", (PyCFunction)tail_sync_with, METH_VARARGS, NULL},
    {"put", FAST(tail_put), put_doc},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot tail_slots[] = {
    {Py_tp_dealloc, (void *)tail_dealloc}, {Py_tp_traverse, (void *)tail_traverse}, {Py_tp_clear, (void *)tail_clear},
    {Py_tp_methods, tail_methods}, {0, NULL},
};
static PyType_Spec tail_spec = {"shmq._hot.Tail", sizeof(Tail), 0, END_FLAGS, tail_slots};

int hot_put_exec(PyObject *module)
{
    in_core_name = in_core_name != NULL ? in_core_name : PyUnicode_InternFromString("IN_CORE");
    return in_core_name == NULL ? -1 : hot_add_type(module, "Tail", &tail_spec);
}
