/* hot.c - put and take as Python built-ins: what programs call millions of times, with no Python frame in between.
 *
 * A second door into the core, beside cffi's: a cffi call and the Python around it cost three times what the core
 * itself does (docs/decisions/0003). It holds no protocol and no policy. A Tail (base of Producer) puts into one mapped
 * chunk, a Head (base of Consumer) takes from one; whatever is not the plain case (a roll, an empty queue, a closed
 * handle, a large payload, an unusual argument) goes to the methods _put, _take and _take_many of the class that builds on
 * it. Only shmq/_native/core.py loads this; it lives in the same shared object as shmq._core. */
#include "python/hot.h"

#include "shmq.h"

#define COPY_WITH_THE_LOCK 65536 /* while larger payloads are copied in, other threads run */
#define COPY_OUT_WITH_THE_LOCK (4u << 20) /* larger ones go through cffi, which lets other threads run meanwhile */
#define LENGTH_BITS 30
#define LENGTH_MASK ((INT64_C(1) << LENGTH_BITS) - 1)

/* Both kinds of object: a place in mapped memory, and what keeps it mapped. */
typedef struct {
    PyObject_HEAD
    shmq_chunk *chunk;     /* Tail: NULL when everything goes to Python */
    shmq_reader *reader;   /* Head: likewise */
    const char *memory;    /* Head: of the reader's chunk */
    PyObject *keep;        /* whatever must live as long as the pointers above are used */
    PyObject *codec;       /* Tail: encode, Head: decode; NULL for the bytes themselves */
    PyObject *sync;        /* Tail: the module shmq.storage.sync, if each put waits for the disk; else NULL */
    int64_t mark_due_ns;   /* likewise: from then on puts go to Python, which moves the watermark */
} End;

static int end_traverse(End *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->keep);
    Py_VISIT(self->codec);
    Py_VISIT(self->sync);
    return 0;
}
static int end_clear(End *self)
{
    self->chunk = NULL;
    self->reader = NULL;
    Py_CLEAR(self->keep);
    Py_CLEAR(self->codec);
    Py_CLEAR(self->sync);
    return 0;
}
static void end_dealloc(End *self)
{
    PyTypeObject *const type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack((PyObject *)self);
    end_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* _code_with(encode or decode, or None for the bytes themselves) */
static PyObject *end_code_with(End *self, PyObject *codec)
{
    PyObject *const before = self->codec;
    self->codec = codec == Py_None ? NULL : Py_NewRef(codec);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

/* _move(chunk address, reader address, memory address, keep): 0 for a pointer that is not to be used. */
static PyObject *end_move(End *self, PyObject *args)
{
    unsigned long long chunk;
    unsigned long long reader;
    unsigned long long memory;
    PyObject *keep;
    if (!PyArg_ParseTuple(args, "KKKO", &chunk, &reader, &memory, &keep)) {
        return NULL;
    }
    self->chunk = (shmq_chunk *)(uintptr_t)chunk;
    self->reader = (shmq_reader *)(uintptr_t)reader;
    self->memory = (const char *)(uintptr_t)memory;
    PyObject *const before = self->keep;
    self->keep = Py_NewRef(keep);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

/* _sync_with(mark_due_ns, shmq.storage.sync): each put waits for the disk from now on. After each _move. */
static PyObject *tail_sync_with(End *self, PyObject *args)
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

/* ---------------------------------------------------------------- put */

/* self.<method>(first, *arguments, **keywords); without the first one if it is NULL, else its reference is ours now. */
static PyObject *otherwise(End *self, const char *method, PyObject *first, PyObject *const *args, Py_ssize_t count,
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
    PyObject *const called = PyObject_GetAttrString((PyObject *)self, method);
    if (called != NULL) {
        answer = PyObject_Call(called, positional, keywords);
        Py_DECREF(called);
    }
done:
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
    return answer;
}

/* self._put(code, *arguments, **keywords) */
static PyObject *put_otherwise(End *self, int64_t code, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *const number = PyLong_FromLongLong(code);
    return number == NULL ? NULL : otherwise(self, "_put", number, args, count, names);
}

/* A whole number; True is none, which is said in Python. */
static bool is_number(PyObject *value) { return PyLong_Check(value) && !PyBool_Check(value); }

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
static int syncs_here(End *self)
{
    if (shmq_sync_refuses(self->chunk) || shmq_clock_monotonic_ns() >= self->mark_due_ns) {
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
static PyObject *interrupted(End *self, long long index)
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
static PyObject *put_synced(End *self, int64_t index)
{
    PyObject *const keep = Py_NewRef(self->keep);
    shmq_chunk *const chunk = self->chunk;
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
static PyObject *put_large(End *self, const shmq_fields *fields, PyObject *data, PyObject *const *args,
                           Py_ssize_t count, PyObject *names)
{
    if (self->sync != NULL) {
        return put_otherwise(self, 0, args, count, names);
    }
    PyObject *const keep = Py_NewRef(self->keep);
    shmq_chunk *const chunk = self->chunk;
    const char *const payload = PyBytes_AsString(data);
    const uint64_t length = (uint64_t)PyBytes_Size(data);
    PyThreadState *const state = PyEval_SaveThread();
    const int64_t index = shmq_put_record(chunk, fields, payload, length);
    PyEval_RestoreThread(state);
    Py_DECREF(keep);
    return index < 0 ? put_otherwise(self, index, args, count, names) : PyLong_FromLongLong(index);
}

static PyObject *put_bytes(End *self, PyObject *data, PyObject *const *args, Py_ssize_t count, PyObject *names)
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
    const int64_t index = shmq_put_record(self->chunk, &fields, PyBytes_AsString(data), (uint64_t)length);
    if (index < 0) {
        return put_otherwise(self, index, args, count, names);
    }
    return self->sync == NULL ? PyLong_FromLongLong(index) : put_synced(self, index);
}

/* put(payload, *, key, type, time_ns, headers, dedup, timeout) -> index */
static PyObject *tail_put(End *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (count != 1 || self->chunk == NULL) {
        return put_otherwise(self, 0, args, count, names);
    }
    if (self->codec == NULL) {
        return PyBytes_CheckExact(args[0]) ? put_bytes(self, args[0], args, count, names)
                                           : put_otherwise(self, 0, args, count, names);
    }
    PyObject *const data = PyObject_CallFunctionObjArgs(self->codec, args[0], NULL);
    if (data == NULL) {
        return NULL;
    }
    PyObject *answer;
    if (PyBytes_CheckExact(data) && self->chunk != NULL) { /* the codec may have run anything */
        answer = put_bytes(self, data, args, count, names);
    } else {
        answer = put_otherwise(self, 0, args, count, names);
    }
    Py_DECREF(data);
    return answer;
}

/* ---------------------------------------------------------------- take */

/* codec(data), whose reference goes; when that raises, self._undecodable(keep, record, exception) does instead. */
static PyObject *meaning(End *self, PyObject *data, PyObject *keep, uint64_t record)
{
    PyObject *value = PyObject_CallFunctionObjArgs(self->codec, data, NULL);
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

static PyObject *decoded(End *self, int64_t place)
{
    PyObject *const data = PyBytes_FromStringAndSize(self->memory + (place >> LENGTH_BITS), place & LENGTH_MASK);
    if (data == NULL || self->codec == NULL) {
        return data;
    }
    PyObject *const keep = Py_NewRef(self->keep); /* a codec may run anything, also what moves this Head */
    PyObject *const value = meaning(self, data, keep, self->reader->record);
    Py_DECREF(keep);
    return value;
}

/* A large payload is checked while it is copied. The interpreter lock is kept, as in head_take, so there is a limit. */
static PyObject *take_large(End *self)
{
    const uint64_t bytes = shmq_next_bytes(self->chunk, self->reader);
    if (self->codec != NULL || bytes > COPY_OUT_WITH_THE_LOCK) {
        return NULL;
    }
    PyObject *const data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (data == NULL) {
        return NULL;
    }
    const int64_t place = shmq_next_copied(self->chunk, self->reader, PyBytes_AsString(data), bytes);
    if (place >= 0 && (uint64_t)(place & LENGTH_MASK) == bytes) {
        return data;
    }
    Py_DECREF(data);
    return place >= 0 ? decoded(self, place) : NULL; /* a writer who changes lengths behind our back: as it was checked */
}

static PyObject *timeout_name; /* interned, as the names in a program's text are */

/* Whether the arguments from the first `before` on are a timeout that needs no second look: none at all, None, or a plain
 * number that is not negative. Whatever else is given goes to Python, which says what is wrong with it, message or not. */
static bool plain_timeout(PyObject *const *args, Py_ssize_t before, Py_ssize_t count, PyObject *names)
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

/* take(timeout=None) -> payload */
static PyObject *head_take(End *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (self->reader != NULL && plain_timeout(args, 0, count, names)) {
        /* Without a spin the call is over in no time, so nobody moves this Head meanwhile: the interpreter lock is
         * kept. Only who finds nothing goes the long way, where waiting lets other threads run. */
        const int64_t place = shmq_next_small(self->chunk, self->reader);
        if (place >= 0) {
            return decoded(self, place);
        }
        if (place == SHMQ_TOO_LARGE) {
            PyObject *const data = take_large(self);
            if (data != NULL || PyErr_Occurred()) {
                return data;
            }
        }
    }
    return otherwise(self, "_take", NULL, args, count, names);
}

/* take_many(limit, timeout=None) -> payloads */
static PyObject *head_take_many(End *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    enum { ROOM = 512 };
    uint64_t places[ROOM];
    uint64_t records[ROOM];
    if (self->reader == NULL || given < 1 || !is_number(args[0]) || !plain_timeout(args, 1, given, names)) {
        return otherwise(self, "_take_many", NULL, args, given, names);
    }
    const long limit = PyLong_AsLong(args[0]);
    if (limit < 1) {
        PyErr_Clear();
        return otherwise(self, "_take_many", NULL, args, given, names);
    }
    const int64_t count = shmq_next_many(self->chunk, self->reader, (uint32_t)(limit < ROOM ? limit : ROOM), places,
                                         self->codec == NULL ? NULL : records);
    if (count <= 0) {
        return otherwise(self, "_take_many", NULL, args, given, names);
    }
    PyObject *const payloads = PyList_New((Py_ssize_t)count);
    PyObject *const keep = Py_XNewRef(self->keep); /* see decoded */
    const char *const memory = self->memory;
    for (int64_t i = 0; payloads != NULL && i < count; i++) {
        PyObject *payload = PyBytes_FromStringAndSize(memory + (places[i] >> LENGTH_BITS),
                                                      (Py_ssize_t)(places[i] & (uint64_t)LENGTH_MASK));
        if (payload != NULL && self->codec != NULL) {
            payload = meaning(self, payload, keep, records[i]);
        }
        if (payload == NULL || PyList_SetItem(payloads, (Py_ssize_t)i, payload) < 0) {
            Py_DECREF(payloads);
            Py_XDECREF(keep);
            return NULL;
        }
    }
    Py_XDECREF(keep);
    return payloads;
}

/* ---------------------------------------------------------------- what must not be finalized too early
 * The garbage collector runs the finalizers of a cycle in any order: a handle's, which frees it, before that of whoever
 * gives back through it what it holds. It does not look into a Kept, so it takes what is in there for something in use,
 * and the handle goes when the Kept does, by its count, behind all finalizers. A handle leads to nobody who has a Kept. */
typedef struct {
    PyObject_HEAD
    PyObject *object;
} Kept;

static PyObject *kept_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *object;
    (void)kwargs; /* nobody gives any */
    if (!PyArg_ParseTuple(args, "O", &object)) {
        return NULL;
    }
    Kept *const kept = (Kept *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (kept != NULL) {
        kept->object = Py_NewRef(object);
    }
    return (PyObject *)kept;
}
static void kept_dealloc(Kept *self)
{
    PyTypeObject *const type = Py_TYPE((PyObject *)self);
    Py_XDECREF(self->object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---------------------------------------------------------------- a `with` block that ends, whatever a handler raises
 * The interpreter runs the handlers of signals at the beginning of every function in Python, also of __enter__ and
 * __exit__: what they raise there leaves the block entered by nobody, or left by nobody. These two are no such functions. */
static PyObject *block_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

/* self._leave(kind, value, trace), and when that raises, self.give_up() */
static PyObject *block_exit(PyObject *self, PyObject *args)
{
    PyObject *const leave = PyObject_GetAttrString(self, "_leave");
    PyObject *const answer = leave == NULL ? NULL : PyObject_Call(leave, args, NULL);
    Py_XDECREF(leave);
    if (answer == NULL) {
        PyObject *kind;
        PyObject *value;
        PyObject *trace;
        PyErr_Fetch(&kind, &value, &trace);
        PyObject *const given_up = PyObject_CallMethod(self, "give_up", NULL);
        Py_XDECREF(given_up);
        PyErr_Restore(kind, value, trace); /* in place of whatever that raised */
    }
    return answer;
}

/* ---------------------------------------------------------------- the module */
PyDoc_STRVAR(put_doc, "put($self, payload, *, key=None, type=0, time_ns=None, ttl=None, delay=None, headers=None, dedup=None, "
                      "timeout=None)\n--\n\n"
                      "Append payload and return its index. See Queue.put.");
PyDoc_STRVAR(take_doc, "take($self, timeout=None)\n--\n\n"
    "The next payload, decoded, and acknowledged at once.\n\n"
    "Args:\n    timeout: seconds to wait; None for as long as it takes, 0 not to wait.\n\n"
    "Raises:\n    Empty: nothing came in time.\n    ShutDown: the queue was shut down and is drained.\n"
    "    Corrupt: the next message is damaged; it was not delivered.\n"
    "    Gone: what came next was retired; said once, then it goes on behind that.\n"
    "    Closed, Forked: this handle cannot be used.");
PyDoc_STRVAR(take_many_doc, "take_many($self, limit, timeout=None)\n--\n\n"
    "Between 1 and limit payloads: those that are there now, or the first that comes. Acknowledged at once.\n\n"
    "Raises:\n    as take.");

#define BOTH(name) (PyCFunction)(void (*)(void))(name)
static PyMethodDef tail_methods[] = {
    {"_move", (PyCFunction)end_move, METH_VARARGS, NULL},
    {"_code_with", (PyCFunction)end_code_with, METH_O, NULL},
    {"_sync_with", (PyCFunction)tail_sync_with, METH_VARARGS, NULL},
    {"put", BOTH(tail_put), METH_FASTCALL | METH_KEYWORDS, put_doc},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef head_methods[] = {
    {"_move", (PyCFunction)end_move, METH_VARARGS, NULL},
    {"_code_with", (PyCFunction)end_code_with, METH_O, NULL},
    {"take", BOTH(head_take), METH_FASTCALL | METH_KEYWORDS, take_doc},
    {"take_many", BOTH(head_take_many), METH_FASTCALL | METH_KEYWORDS, take_many_doc},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef block_methods[] = {
    {"__enter__", (PyCFunction)block_enter, METH_NOARGS, "Return this object, which the `with` block ends."},
    {"__exit__", (PyCFunction)block_exit, METH_VARARGS, "Commit, or abort when an exception passes."},
    {NULL, NULL, 0, NULL},
};
#define SLOTS(methods)                                                                                               \
    {                                                                                                                \
        {Py_tp_dealloc, (void *)end_dealloc}, {Py_tp_traverse, (void *)end_traverse},                                \
        {Py_tp_clear, (void *)end_clear}, {Py_tp_methods, (methods)}, {0, NULL},                                     \
    }
#define FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE)
static PyType_Slot tail_slots[] = SLOTS(tail_methods);
static PyType_Slot head_slots[] = SLOTS(head_methods);
static PyType_Spec tail_spec = {"shmq._hot.Tail", sizeof(End), 0, FLAGS, tail_slots};
static PyType_Spec head_spec = {"shmq._hot.Head", sizeof(End), 0, FLAGS, head_slots};

static PyType_Slot kept_slots[] = {{Py_tp_new, (void *)kept_new}, {Py_tp_dealloc, (void *)kept_dealloc}, {0, NULL}};
static PyType_Spec kept_spec = {"shmq._hot.Kept", sizeof(Kept), 0, Py_TPFLAGS_DEFAULT, kept_slots};
static PyType_Slot block_slots[] = {{Py_tp_methods, block_methods}, {0, NULL}};
static PyType_Spec block_spec = {"shmq._hot.Block", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                 block_slots};

static int hot_exec(PyObject *module)
{
    timeout_name = timeout_name != NULL ? timeout_name : PyUnicode_InternFromString("timeout");
    in_core_name = in_core_name != NULL ? in_core_name : PyUnicode_InternFromString("IN_CORE");
    if (in_core_name == NULL || timeout_name == NULL || hot_add_type(module, "Tail", &tail_spec) < 0
        || hot_add_type(module, "Head", &head_spec) < 0 || hot_add_type(module, "Kept", &kept_spec) < 0
        || hot_add_type(module, "Block", &block_spec) < 0) {
        return -1;
    }
    return hot_find_exec(module) < 0 ? -1 : hot_fd_exec(module);
}
static PyModuleDef_Slot hot_slots[] = {{Py_mod_exec, (void *)hot_exec}, {0, NULL}};
static struct PyModuleDef hot_module = {
    PyModuleDef_HEAD_INIT, "shmq._hot", NULL, 0, hot_strict_methods, hot_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__hot(void);
PyMODINIT_FUNC PyInit__hot(void) { return PyModuleDef_Init(&hot_module); }
