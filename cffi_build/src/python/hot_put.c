/* hot_put.c - put as a Python built-in.
 *
 * A Tail (base of Producer) puts into one mapped chunk; whatever is not the plain case (a roll, a closed handle, an unusual
 * argument) goes to the method _put of the class that builds on it. */
#include "python/tail.h"

#include <string.h>

#include "atomic.h"
#include "python/counts.h"

#define PRODUCERS_KNOWN 1024 /* as many as a server has clients that put */

static PyTypeObject *tail_type;
static uint64_t tails; /* that there ever were */

static int tail_traverse(Tail *self, visitproc visit, void *arg)
{
    Py_VISIT(self->sync);
    Py_VISIT(self->pack);
    Py_VISIT(self->known[OF_STR]);
    Py_VISIT(self->known[OF_BYTES]);
    return end_traverse(&self->end, visit, arg);
}
static int tail_clear(Tail *self)
{
    Py_CLEAR(self->sync);
    Py_CLEAR(self->pack);
    Py_CLEAR(self->known[OF_STR]);
    Py_CLEAR(self->known[OF_BYTES]);
    return end_clear(&self->end);
}
static void tail_dealloc(Tail *self)
{
    PyObject_GC_UnTrack((PyObject *)self);
    Py_CLEAR(self->sync);
    Py_CLEAR(self->pack);
    Py_CLEAR(self->known[OF_STR]);
    Py_CLEAR(self->known[OF_BYTES]);
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
    PyObject *before;
    ALONE_WITH(self)
    store_relaxed(&self->mark_due_ns, due);
    before = self->sync == sync ? NULL : self->sync; /* always the same module: who uses it needs no reference */
    store_relaxed(&self->sync, before == NULL && self->sync != NULL ? self->sync : Py_NewRef(sync));
    ALONE_NO_MORE
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static inline struct place place_of(Tail *self)
{
    struct place place;
    ALONE_WITH(self)
    place = (struct place){self->end.chunk, OWN(self->end.keep)};
    ALONE_NO_MORE
    return place;
}

/* self._put(code, *arguments, **keywords) */
static PyObject *put_otherwise(Tail *self, int64_t code, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *const number = PyLong_FromLongLong(code);
    return number == NULL ? NULL : otherwise(&self->end, "_put", number, args, count, names);
}

/* _pack_with(encode): headers are encoded by that. */
static PyObject *tail_pack_with(Tail *self, PyObject *pack)
{
    ALONE_WITH(self)
    if (self->pack == NULL) { /* one for all time: who calls it needs no reference */
        store_release(&self->pack, Py_NewRef(pack)); /* pairs with the load in carry_headers */
    }
    ALONE_NO_MORE
    Py_RETURN_NONE;
}
/* The table that a name is looked up in, or NULL when it is nothing that may be looked up: its hash could run anything. */
static PyObject **known_by(Tail *self, PyObject *name)
{
    return PyUnicode_CheckExact(name) ? &self->known[OF_STR] : PyBytes_CheckExact(name) ? &self->known[OF_BYTES] : NULL;
}

/* _once_as(name, address of a shmq_once, what keeps that alive): puts with dedup as that producer go by that. */
static PyObject *tail_once_as(Tail *self, PyObject *args)
{
    PyObject *name;
    PyObject *entry;
    if (!PyArg_ParseTuple(args, "OO!", &name, &PyTuple_Type, &entry)) {
        return NULL;
    }
    PyObject **const table = known_by(self, name);
    if (table == NULL) {
        Py_RETURN_NONE;
    }
    PyObject *before = NULL;
    PyObject *fresh = PyDict_New();
    int failed = fresh == NULL;
    ALONE_WITH(self)
    if (!failed && (*table == NULL || PyDict_Size(*table) >= PRODUCERS_KNOWN)) { /* they come again as they put again */
        before = *table;
        *table = fresh;
        fresh = NULL;
    }
    failed = failed || PyDict_SetItem(*table, name, entry) < 0;
    ALONE_NO_MORE
    Py_XDECREF(fresh);
    Py_XDECREF(before);
    if (failed) {
        return NULL;
    }
    Py_RETURN_NONE;
}
/* _expire_after(ns, or -1): messages that are given no time to live. */
static PyObject *tail_expire_after(Tail *self, PyObject *ns)
{
    const int64_t ttl_ns = PyLong_AsLongLong(ns);
    store_relaxed(&self->ttl_ns, ttl_ns);
    return ttl_ns == -1 && PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* ---------------------------------------------------------------- what a message carries
 * Each is 1 when it was understood, 0 when Python has to look at it, -1 with an exception. */
enum { KEY, TYPE, TIME_NS, TTL, DELAY, HEADERS, DEDUP, TIMEOUT, KEYWORDS };
static const char *const keyword_names[KEYWORDS] = {"key", "type", "time_ns", "ttl", "delay", "headers", "dedup",
                                                    "timeout"};
static PyObject *keywords[KEYWORDS]; /* interned, as the names in a program's text are */

static int carry_key(struct carried *carried, PyObject *value)
{
    Py_ssize_t length;
    char *key;
    if (!PyBytes_Check(value)) {
        return 0;
    }
    if (PyBytes_AsStringAndSize(value, &key, &length) < 0) {
        return -1;
    }
    carried->key = value;
    carried->fields.key = key;
    carried->fields.key_length = (uint32_t)length;
    return length <= UINT16_MAX;
}
static int carry_time(struct carried *carried, PyObject *value)
{
    if (!is_number(value)) {
        return 0;
    }
    carried->fields.time_ns = PyLong_AsLongLong(value);
    const bool fits = !(carried->fields.time_ns == -1 && PyErr_Occurred()) && carried->fields.time_ns != INT64_MIN;
    PyErr_Clear(); /* out of range: let it be said in Python */
    return fits;
}
static int carry_type(struct carried *carried, PyObject *value)
{
    const long type = is_number(value) ? PyLong_AsLong(value) : -1;
    PyErr_Clear();
    carried->fields.type = (uint32_t)type;
    return type >= 0 && type <= UINT16_MAX;
}
/* A time from now, in seconds: not for ever, and no longer than a billion of them. */
#define SECONDS_MAX 1e9
static int carry_seconds(int64_t *ns, PyObject *value)
{
    if (!PyFloat_CheckExact(value) && !PyLong_CheckExact(value)) {
        return 0;
    }
    const double seconds = PyFloat_AsDouble(value);
    PyErr_Clear(); /* a number beyond all floats: nor does the next line like it */
    if (!(seconds >= 0 && seconds <= SECONDS_MAX)) {
        return 0;
    }
    *ns = (int64_t)(seconds * 1e9);
    return 1;
}
static int carry_headers(Tail *self, struct carried *carried, PyObject *value)
{
    PyObject *const pack = load_acquire(&self->pack);
    if (pack == NULL || !PyDict_CheckExact(value)) {
        return 0;
    }
    PyObject *name;
    PyObject *unused;
    Py_ssize_t at = 0;
    bool texts = true;
    ALONE_WITH(value)
    while (texts && PyDict_Next(value, &at, &name, &unused)) {
        texts = PyUnicode_CheckExact(name);
    }
    ALONE_NO_MORE
    if (at == 0 || !texts) {
        return texts; /* there are none; or Python says what is wrong with them */
    }
    carried->headers = PyObject_CallFunctionObjArgs(pack, value, NULL);
    if (carried->headers == NULL) {
        return -1;
    }
    char *bytes;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(carried->headers, &bytes, &length) < 0) {
        return -1;
    }
    carried->fields.headers = bytes;
    carried->fields.headers_length = (uint32_t)length;
    return length <= UINT32_MAX;
}

/* Whether that is the name of a producer whose puts are known here: then what is known is carried. */
static int is_known(Tail *self, struct carried *carried, PyObject *name)
{
    PyObject **const table = known_by(self, name);
    PyObject *entry = NULL;
    if (table == NULL) {
        return 0;
    }
    ALONE_WITH(self)
    if (*table != NULL && (entry = PyDict_GetItemWithError(*table, name)) != NULL) {
        carried->once = (shmq_once *)PyLong_AsVoidPtr(PyTuple_GetItem(entry, 0));
        carried->knows = Py_NewRef(entry);
    }
    ALONE_NO_MORE
    return entry != NULL ? 1 : PyErr_Occurred() == NULL ? 0 : -1;
}

/* (producer, sequence) */
static int carry_dedup(Tail *self, struct carried *carried, PyObject *value)
{
    if (load_relaxed(&self->sync) != NULL || !PyTuple_CheckExact(value) || PyTuple_Size(value) != 2
        || !PyLong_CheckExact(PyTuple_GetItem(value, 1))) {
        return 0;
    }
    const long long number = PyLong_AsLongLong(PyTuple_GetItem(value, 1));
    PyErr_Clear(); /* out of range: let it be said in Python */
    carried->sequence = (uint64_t)number;
    return number < 0 || carried->once != NULL ? 0 : is_known(self, carried, PyTuple_GetItem(value, 0));
}

static int carry(Tail *self, struct carried *carried, int keyword, PyObject *value)
{
    if (value == Py_None) {
        return keyword != TYPE; /* as if it were not given; but a type is never none */
    }
    switch (keyword) {
    case KEY:
        return carry_key(carried, value);
    case TYPE:
        return carry_type(carried, value);
    case TIME_NS:
        return carry_time(carried, value);
    case TTL:
        return carry_seconds(&carried->ttl_ns, value);
    case DELAY:
        return carry_seconds(&carried->delay_ns, value);
    case HEADERS:
        return carry_headers(self, carried, value);
    case TIMEOUT:
        return load_relaxed(&self->sync) == NULL && plain_timeout(&value, 0, 1, NULL); /* without a disk, nothing is waited for here */
    case DEDUP:
        return carry_dedup(self, carried, value);
    default:
        return 0;
    }
}

static int keyword_of(PyObject *name)
{
    int keyword = 0;
    while (keyword < KEYWORDS && keywords[keyword] != name) {
        keyword++;
    }
    return keyword;
}

static int carry_all(Tail *self, struct carried *carried, PyObject *const *values, PyObject *names)
{
    const Py_ssize_t count = names == NULL ? 0 : PyTuple_Size(names);
    int answer = 1;
    for (Py_ssize_t i = 0; answer == 1 && i < count; i++) {
        const int keyword = keyword_of(PyTuple_GetItem(names, i));
        answer = keyword == KEYWORDS ? 0 : carry(self, carried, keyword, values[i]);
    }
    return answer;
}

/* The moments that it carries, as of now, and which of whose puts it is. */
static void carry_fixed(const shmq_chunk *chunk, struct carried *carried)
{
    char *at = carried->moments;
    if (carried->ttl_ns >= 0) {
        shmq_when(chunk, carried->ttl_ns, at);
        carried->fields.fixed_flags |= 1;
        at += SHMQ_WHEN_BYTES;
    }
    if (carried->delay_ns > 0) {
        shmq_when(chunk, carried->delay_ns, at);
        carried->fields.fixed_flags |= 2;
        at += SHMQ_WHEN_BYTES;
    }
    if (carried->once != NULL) {
        memcpy(at, carried->once->producer, sizeof carried->once->producer);
        memcpy(at + sizeof carried->once->producer, &carried->sequence, sizeof carried->sequence);
        carried->fields.fixed_flags |= 4;
    }
    carried->fields.fixed = carried->moments;
}

/* ---------------------------------------------------------------- what is forwarded */
struct place tail_place(Tail *self) { return place_of(self); }
bool is_tail(PyObject *object) { return PyObject_TypeCheck(object, tail_type); }

int tail_carry(Tail *self, struct carried *carried, PyObject *const *values, PyObject *names)
{
    const Py_ssize_t count = names == NULL ? 0 : PyTuple_Size(names);
    *carried = (struct carried){.fields = {.time_ns = INT64_MIN}, .ttl_ns = load_relaxed(&self->ttl_ns)};
    for (Py_ssize_t i = 0; i < count; i++) {
        if (keyword_of(PyTuple_GetItem(names, i)) > HEADERS) {
            return 0;
        }
    }
    const int understood = carry_all(self, carried, values, names);
    if (understood != 1 || (carried->ttl_ns < 0 && carried->delay_ns <= 0)) {
        return understood;
    }
    const struct place place = place_of(self);
    if (place.chunk != NULL) {
        carry_fixed(place.chunk, carried);
    }
    DISOWN(place.keep);
    return place.chunk != NULL;
}

/* ---------------------------------------------------------------- put */
static PyObject *in_core_name; /* interned: made once, and found in the module's dict without being compared */

/* Whether the core may sync, and nothing rarer is due: 1, 0 or -1 with an exception. */
static int syncs_here(Tail *self, shmq_chunk *chunk)
{
    if (shmq_sync_refuses(chunk) || shmq_clock_monotonic_ns() >= load_relaxed(&self->mark_due_ns)) {
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
static PyObject *put_synced(Tail *self, const struct place *place, int64_t index)
{
    PyObject *const keep = Py_NewRef(place->keep);
    shmq_chunk *const chunk = place->chunk;
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
static PyObject *put_large(Tail *self, const struct place *place, const shmq_fields *fields, PyObject *data,
                           PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (load_relaxed(&self->sync) != NULL) {
        return put_otherwise(self, 0, args, count, names);
    }
    PyObject *const keep = Py_NewRef(place->keep);
    shmq_chunk *const chunk = place->chunk;
    const char *const payload = PyBytes_AsString(data);
    const uint64_t length = (uint64_t)PyBytes_Size(data);
    PyThreadState *const state = PyEval_SaveThread();
    const int64_t index = shmq_put_record(chunk, fields, payload, length);
    PyEval_RestoreThread(state);
    if (index >= 0) {
        counted_put(&self->end, chunk, 1, length);
    }
    Py_DECREF(keep);
    return index < 0 ? put_otherwise(self, index, args, count, names) : PyLong_FromLongLong(index);
}

static PyObject *put_carried(Tail *self, const struct place *place, const shmq_fields *fields, PyObject *data,
                             PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    const Py_ssize_t length = PyBytes_Size(data);
    if (length > COPY_WITH_THE_LOCK) {
        return put_large(self, place, fields, data, args, count, names);
    }
    const bool syncs = load_relaxed(&self->sync) != NULL;
    if (syncs) {
        const int here = syncs_here(self, place->chunk);
        if (here <= 0) {
            return here < 0 ? NULL : put_otherwise(self, 0, args, count, names);
        }
    }
    const int64_t index = shmq_put_record(place->chunk, fields, PyBytes_AsString(data), (uint64_t)length);
    if (index < 0) {
        return put_otherwise(self, index, args, count, names);
    }
    counted_put(&self->end, place->chunk, 1, (uint64_t)length);
    return syncs ? put_synced(self, place, index) : PyLong_FromLongLong(index);
}

/* Where it is known which is the last of its producer. One thread of this handle at a time: what is known changes. */
static PyObject *put_once(Tail *self, const struct place *place, const struct carried *carried, PyObject *data,
                          PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    const Py_ssize_t length = PyBytes_Size(data);
    int64_t index = SHMQ_EMPTY;
    if (length <= COPY_WITH_THE_LOCK) {
        ALONE_WITH(self)
        index = shmq_put_once(place->chunk, carried->once, carried->sequence, &carried->fields, PyBytes_AsString(data),
                              (uint64_t)length);
        ALONE_NO_MORE
    }
    return index < 0 ? put_otherwise(self, index, args, count, names) : PyLong_FromLongLong(index);
}

static PyObject *put_bytes(Tail *self, PyObject *data, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    const int64_t ttl_ns = load_relaxed(&self->ttl_ns);
    PyObject *answer = NULL;
    struct place place;
    if (names == NULL && ttl_ns < 0) {
        const shmq_fields none = {.time_ns = INT64_MIN};
        place = place_of(self);
        answer = place.chunk == NULL ? put_otherwise(self, 0, args, count, names)
                                     : put_carried(self, &place, &none, data, args, count, names);
        DISOWN(place.keep);
        return answer;
    }
    struct carried carried = {.fields = {.time_ns = INT64_MIN}, .ttl_ns = ttl_ns};
    int understood = carry_all(self, &carried, args + count, names);
    place = place_of(self); /* behind all that may have run anything */
    understood = understood == 1 && place.chunk == NULL ? 0 : understood;
    if (understood == 1) {
        if (carried.ttl_ns >= 0 || carried.delay_ns > 0 || carried.once != NULL) {
            carry_fixed(place.chunk, &carried);
        }
        answer = carried.once != NULL ? put_once(self, &place, &carried, data, args, count, names)
                                      : put_carried(self, &place, &carried.fields, data, args, count, names);
    } else if (understood == 0) {
        answer = put_otherwise(self, 0, args, count, names);
    }
    DISOWN(place.keep);
    Py_XDECREF(carried.headers);
    Py_XDECREF(carried.knows);
    return answer;
}

PyObject *tail_put(Tail *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count != 1 || load_relaxed(&self->end.chunk) == NULL) {
        return put_otherwise(self, 0, args, count, names);
    }
    if (self->end.codec == NULL) { /* it is the same from the first put on */
        return PyBytes_CheckExact(args[0]) ? put_bytes(self, args[0], args, count, names)
                                           : put_otherwise(self, 0, args, count, names);
    }
    PyObject *const data = PyObject_CallFunctionObjArgs(self->end.codec, args[0], NULL);
    if (data == NULL) {
        return NULL;
    }
    PyObject *answer;
    if (PyBytes_CheckExact(data)) {
        answer = put_bytes(self, data, args, count, names);
    } else {
        answer = put_otherwise(self, 0, args, count, names);
    }
    Py_DECREF(data);
    return answer;
}

/* ---------------------------------------------------------------- put_many
 * Of payloads alone, and few enough bytes that a copy of them on the stack costs less than Python's arrays. */
enum { BATCH = 512, BATCH_BYTES = 32768 };

static bool all_none(PyObject *const *values, PyObject *names)
{
    const Py_ssize_t count = names == NULL ? 0 : PyTuple_Size(names);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (values[i] != Py_None) {
            return false;
        }
    }
    return true;
}

static PyObject *item_of(PyObject *items, Py_ssize_t at)
{
    return PyList_CheckExact(items) ? PyList_GetItem(items, at) : PyTuple_GetItem(items, at);
}

/* The payloads end to end, and their lengths: how many, or 0 when Python has to look at them. */
static uint32_t gather_bytes(PyObject *items, char *bytes, uint32_t *lengths)
{
    if (!PyList_CheckExact(items) && !PyTuple_CheckExact(items)) {
        return 0;
    }
    const Py_ssize_t count = PyObject_Size(items);
    size_t filled = 0;
    for (Py_ssize_t i = 0; i < count && count <= BATCH; i++) {
        PyObject *const item = item_of(items, i);
        char *from;
        Py_ssize_t length;
        if (!PyBytes_CheckExact(item) || PyBytes_AsStringAndSize(item, &from, &length) < 0
            || (size_t)length > BATCH_BYTES - filled) {
            PyErr_Clear();
            return 0;
        }
        memcpy(bytes + filled, from, (size_t)length);
        lengths[i] = (uint32_t)length;
        filled += (size_t)length;
    }
    return count <= BATCH ? (uint32_t)count : 0;
}

/* put_many(payloads, *, keys, types, times_ns, headers, ttl, dedup, timeout) -> range of indexes */
static PyObject *tail_put_many(Tail *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    char bytes[BATCH_BYTES];
    uint32_t lengths[BATCH];
    uint64_t filled = 0;
    if (given == 1 && load_relaxed(&self->end.chunk) != NULL && self->end.codec == NULL && load_relaxed(&self->sync) == NULL
        && load_relaxed(&self->ttl_ns) < 0 && all_none(args + given, names)) {
        uint32_t count;
        ALONE_WITH(args[0])
        count = gather_bytes(args[0], bytes, lengths);
        ALONE_NO_MORE
        const struct place place = place_of(self);
        const int64_t first = count == 0 || place.chunk == NULL
                                  ? -1
                                  : shmq_put_many(place.chunk, count, bytes, lengths, NULL, NULL, NULL, NULL, NULL, NULL, 0,
                                                  NULL);
        if (first >= 0) {
            for (uint32_t i = 0; i < count; i++) {
                filled += lengths[i];
            }
            counted_put(&self->end, place.chunk, count, filled);
        }
        DISOWN(place.keep);
        if (first >= 0) {
            return PyObject_CallFunction((PyObject *)&PyRange_Type, "LL", (long long)first, (long long)first + count);
        }
    }
    return otherwise(&self->end, "_put_many", NULL, args, given, names);
}

static PyObject *tail_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs; /* they are for the class that builds on this */
    Tail *const self = (Tail *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self != NULL) {
        self->ttl_ns = -1;
        self->number = add_relaxed(&tails, 1) + 1;
    }
    return (PyObject *)self;
}

/* ---------------------------------------------------------------- the type */
PyDoc_STRVAR(put_doc, "put($self, payload, *, key=None, type=0, time_ns=None, ttl=None, delay=None, headers=None, dedup=None, "
                      "timeout=None)\n--\n\n"
                      "Append payload and return its index. See Queue.put.");
PyDoc_STRVAR(put_many_doc, "put_many($self, payloads, *, keys=None, types=None, times_ns=None, headers=None, ttl=None, "
                           "dedup=None, timeout=None)\n--\n\n"
                           "Append all payloads as one batch, and return their indexes. See Queue.put_many.");
static PyMethodDef tail_methods[] = {
    END_METHODS,
    {"_sync_with", (PyCFunction)tail_sync_with, METH_VARARGS, NULL},
    {"_once_as", (PyCFunction)tail_once_as, METH_VARARGS, NULL},
    {"_pack_with", (PyCFunction)tail_pack_with, METH_O, NULL},
    {"_expire_after", (PyCFunction)tail_expire_after, METH_O, NULL},
    {"put", FAST(tail_put), put_doc},
    {"put_many", FAST(tail_put_many), put_many_doc},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot tail_slots[] = {
    {Py_tp_new, (void *)tail_new}, {Py_tp_dealloc, (void *)tail_dealloc}, {Py_tp_traverse, (void *)tail_traverse},
    {Py_tp_clear, (void *)tail_clear}, {Py_tp_methods, tail_methods}, {0, NULL},
};
static PyType_Spec tail_spec = {"shmq._hot.Tail", sizeof(Tail), 0, END_FLAGS, tail_slots};

int hot_put_exec(PyObject *module)
{
    in_core_name = in_core_name != NULL ? in_core_name : PyUnicode_InternFromString("IN_CORE");
    for (int i = 0; i < KEYWORDS; i++) {
        keywords[i] = keywords[i] != NULL ? keywords[i] : PyUnicode_InternFromString(keyword_names[i]);
        if (keywords[i] == NULL) {
            return -1;
        }
    }
    PyObject *const type = in_core_name == NULL ? NULL : PyType_FromSpec(&tail_spec);
    if (type == NULL || PyModule_AddObjectRef(module, "Tail", type) < 0) {
        Py_XDECREF(type);
        return -1;
    }
    tail_type = (PyTypeObject *)type; /* one reference is ours */
    return 0;
}
