/* hot_take.c - take, get and their like, and what readers do, as Python built-ins.
 *
 * A Head (base of Consumer) takes from one mapped chunk, an Eye (base of Reader) only looks. Whatever is not the plain case
 * (the end of a chunk, an empty queue, a closed handle, a large payload, an unusual argument) goes to the methods _take, _get
 * and so on of the class that builds on it. */
#include "python/end.h"

#include "atomic.h"
#include "python/counts.h"
#include "python/message.h"
#include "python/mutex.h"

#define COPY_OUT_WITH_THE_LOCK (4u << 20) /* larger ones go through cffi, which lets other threads run meanwhile */

typedef struct {
    End end;
    Mutex *lock;    /* the handle's */
    uint32_t spins; /* how often to look again before Python sleeps */
} Head;

static int head_traverse(Head *self, visitproc visit, void *arg)
{
    Py_VISIT((PyObject *)self->lock);
    return end_traverse(&self->end, visit, arg);
}
static int head_clear(Head *self)
{
    self->spins = 0;
    Py_CLEAR(self->lock);
    return end_clear(&self->end);
}
static void head_dealloc(Head *self)
{
    PyObject_GC_UnTrack((PyObject *)self);
    head_clear(self);
    end_dealloc(&self->end);
}

/* _wait_with(lock, spins) */
static PyObject *head_wait_with(Head *self, PyObject *args)
{
    PyObject *lock;
    unsigned int spins;
    if (!PyArg_ParseTuple(args, "OI", &lock, &spins)) {
        return NULL;
    }
    PyObject *before;
    ALONE_WITH(self)
    before = (PyObject *)self->lock;
    self->lock = (Mutex *)Py_NewRef(lock);
    self->spins = spins;
    ALONE_NO_MORE
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- a moment's wait
 * Nothing was there: look again for as long as it takes to fall asleep, while other threads run. The lock keeps out whoever
 * closes or moves this handle; their built-ins find the reader busy, and wait for the lock in Python. What was found lies in
 * the chunk that this kept, wherever the handle stands afterwards. */
struct soon {
    int64_t place;
    const char *memory;
    PyObject *keep;
    PyObject *codec; /* or NULL */
    shmq_which which;
};

static bool next_soon(Head *self, struct soon *soon)
{
    Mutex *lock = NULL;
    shmq_chunk *chunk;
    shmq_reader *reader;
    uint32_t spins;
    ALONE_WITH(self)
    spins = self->spins;
    chunk = self->end.chunk;
    reader = self->end.reader;
    if (spins > 0 && reader != NULL && mutex_try(self->lock)) {
        lock = (Mutex *)Py_NewRef((PyObject *)self->lock);
        soon->memory = self->end.memory;
        soon->keep = Py_NewRef(self->end.keep);
        soon->codec = Py_XNewRef(self->end.codec);
    }
    ALONE_NO_MORE
    if (lock == NULL) {
        return false;
    }
    PyThreadState *const state = PyEval_SaveThread();
    soon->place = shmq_next_which(chunk, reader, spins, &soon->which);
    PyEval_RestoreThread(state);
    mutex_leave(lock);
    Py_DECREF(lock);
    if (soon->place < 0) { /* Python meets it again */
        Py_DECREF(soon->keep);
        Py_XDECREF(soon->codec);
        return false;
    }
    counted_taken(&self->end, chunk, 1, soon->which.index, soon->which.record);
    return true;
}

/* ---------------------------------------------------------------- payloads */
static PyObject *bytes_at(const char *memory, uint64_t place)
{
    return PyBytes_FromStringAndSize(memory + (place >> LENGTH_BITS), (Py_ssize_t)(place & LENGTH_MASK));
}

/* What is to be decoded with, and where it was: a codec may run anything, also what moves this Head. */
struct coded {
    int64_t code;    /* why there is nothing */
    PyObject *codec; /* or NULL */
    PyObject *keep;
    uint64_t record;
};

static PyObject *decoded(End *self, PyObject *data, const struct coded *coded)
{
    PyObject *const value = meaning(self, coded->codec, data, coded->keep, coded->record);
    Py_DECREF(coded->codec);
    Py_DECREF(coded->keep);
    return value;
}

/* A large payload is checked while it is copied. The interpreter lock is kept, as in head_take, so there is a limit. */
static PyObject *take_large(End *self)
{
    const uint64_t bytes = shmq_next_bytes(self->chunk, self->reader);
    if (bytes > COPY_OUT_WITH_THE_LOCK) {
        return NULL;
    }
    PyObject *const data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (data == NULL) {
        return NULL;
    }
    const int64_t place = shmq_next_copied(self->chunk, self->reader, PyBytes_AsString(data), bytes);
    if (place >= 0) {
        counted_taken(self, self->chunk, 1, self->reader->index, self->reader->record);
    }
    if (place >= 0 && ((uint64_t)place & LENGTH_MASK) == bytes) {
        return data;
    }
    Py_DECREF(data);
    /* Or a writer changes lengths behind our back: as it was checked. */
    return place >= 0 ? bytes_at(self->memory, (uint64_t)place) : NULL;
}

/* The next payload as it lies there: a new reference, or NULL: with an exception, or where Python has to look. Alone. */
static PyObject *next_payload(End *self, struct coded *coded)
{
    if (self->reader == NULL) {
        return NULL;
    }
    /* Without a spin the call is over in no time, so nobody moves this Head meanwhile: the interpreter lock is kept. Only who
     * finds nothing goes the long way, where waiting lets other threads run. */
    if (self->codec == NULL) {
        const int64_t place = shmq_next_small(self->chunk, self->reader);
        if (place >= 0) {
            counted_taken(self, self->chunk, 1, self->reader->index, self->reader->record);
            return bytes_at(self->memory, (uint64_t)place);
        }
        coded->code = place;
        return place == SHMQ_TOO_LARGE ? take_large(self) : NULL;
    }
    shmq_which which;
    const int64_t place = shmq_next_small_which(self->chunk, self->reader, &which);
    PyObject *const data = place < 0 ? NULL : bytes_at(self->memory, (uint64_t)place);
    coded->code = place;
    if (place >= 0) {
        counted_taken(self, self->chunk, 1, which.index, which.record);
    }
    if (data != NULL) {
        *coded = (struct coded){0, Py_NewRef(self->codec), Py_NewRef(self->keep), which.record};
    }
    return data;
}

/* What comes in a moment, or NULL, without an exception where Python has to look. */
static PyObject *payload_soon(Head *self, struct coded *coded)
{
    struct soon soon;
    if (!next_soon(self, &soon)) {
        return NULL;
    }
    PyObject *const data = bytes_at(soon.memory, (uint64_t)soon.place);
    if (data != NULL && soon.codec != NULL) {
        *coded = (struct coded){0, soon.codec, soon.keep, soon.which.record};
        return data;
    }
    Py_XDECREF(soon.codec);
    Py_DECREF(soon.keep);
    return data;
}

/* take(timeout=None) -> payload */
static PyObject *head_take(End *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (plain_timeout(args, 0, count, names)) {
        struct coded coded = {0, NULL, NULL, 0};
        PyObject *data;
        ALONE_WITH(self)
        data = next_payload(self, &coded);
        ALONE_NO_MORE
        if (data == NULL && coded.code == SHMQ_EMPTY && may_wait(args, 0, count, names)) {
            data = payload_soon((Head *)self, &coded);
        }
        if (data != NULL || PyErr_Occurred()) {
            return data == NULL || coded.codec == NULL ? data : decoded(self, data, &coded);
        }
    }
    return otherwise(self, "_take", NULL, args, count, names);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
/* What was raised, if it is not for whoever stops the program, goes to the end of that list. */
static bool keep_problem(PyObject **problems)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return false;
    }
    PyObject *kind;
    PyObject *problem;
    PyObject *trace;
    PyErr_Fetch(&kind, &problem, &trace);
    PyErr_NormalizeException(&kind, &problem, &trace);
    *problems = *problems == NULL ? PyList_New(0) : *problems;
    const bool kept = *problems != NULL && PyList_Append(*problems, problem) == 0;
    Py_XDECREF(kind);
    Py_XDECREF(problem);
    Py_XDECREF(trace);
    return kept;
}
#pragma GCC diagnostic pop

/* take_many(limit, timeout=None) -> payloads */
static PyObject *head_take_many(End *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    enum { ROOM = 512 };
    uint64_t places[ROOM];
    uint64_t records[ROOM];
    const long limit = plain_limit(args, given, names);
    struct coded with = {0, NULL, NULL, 0};
    const char *memory = NULL;
    int64_t count = 0;
    ALONE_WITH(self)
    if (self->reader != NULL && limit > 0) {
        count = shmq_next_many(self->chunk, self->reader, (uint32_t)(limit < ROOM ? limit : ROOM), places,
                               self->codec == NULL ? NULL : records);
        with = (struct coded){0, Py_XNewRef(self->codec), Py_XNewRef(self->keep), 0};
        memory = self->memory;
        if (count > 0) {
            counted_taken(self, self->chunk, (uint64_t)count, self->reader->index, self->reader->record);
        }
    }
    ALONE_NO_MORE
    if (count <= 0) {
        Py_XDECREF(with.codec);
        Py_XDECREF(with.keep);
        return otherwise(self, "_take_many", NULL, args, given, names);
    }
    PyObject *payloads = PyList_New((Py_ssize_t)count);
    PyObject *problems = NULL;
    Py_ssize_t read = 0;
    for (int64_t i = 0; payloads != NULL && i < count; i++) {
        PyObject *payload = bytes_at(memory, places[i]);
        if (payload != NULL && with.codec != NULL) {
            payload = meaning(self, with.codec, payload, with.keep, records[i]);
            if (payload == NULL && keep_problem(&problems)) {
                continue;
            }
        }
        if (payload == NULL || PyList_SetItem(payloads, read++, payload) < 0) {
            Py_CLEAR(payloads);
        }
    }
    Py_XDECREF(with.codec);
    Py_XDECREF(with.keep);
    if (payloads != NULL && problems != NULL) {
        if (PyList_SetSlice(payloads, read, (Py_ssize_t)count, NULL) == 0) {
            PyObject *const whole = payloads;
            payloads = PyObject_CallMethod((PyObject *)self, "_passed_over", "OO", problems, whole);
            Py_DECREF(whole);
        } else {
            Py_CLEAR(payloads);
        }
    }
    Py_XDECREF(problems);
    return payloads;
}

/* ---------------------------------------------------------------- messages
 * Everything that can fail is made before the message is taken: what raises has taken nothing. What making it ran (a
 * finalizer, by way of the garbage collector) may have moved this end. */
static void hand_out(Message *message, const struct soon *found, PyObject *codec)
{
    message->taken.index = found->which.index;
    message->taken.place = (uint64_t)found->place;
    message->taken.record = found->which.record;
    message->taken.attempts = 1;
    message_is(message, PyTuple_GetItem(found->keep, 0), found->memory, codec, NULL);
}

static Message *next_of(End *self, bool wait)
{
    Message *const message = message_new();
    if (message == NULL) {
        return NULL;
    }
    struct soon found = {.place = SHMQ_ROLL};
    ALONE_WITH(self)
    if (self->reader != NULL) {
        found.place = shmq_next_small_which(self->chunk, self->reader, &found.which);
        if (found.place >= 0) {
            found.memory = self->memory;
            found.keep = self->keep;
            hand_out(message, &found, self->codec);
            if (self->reader->checkpoint != NULL) { /* no Eye's, which takes nothing */
                counted_taken(self, self->chunk, 1, found.which.index, found.which.record);
            }
        }
    }
    ALONE_NO_MORE
    if (found.place == SHMQ_EMPTY && wait && next_soon((Head *)self, &found)) {
        hand_out(message, &found, found.codec);
        Py_XDECREF(found.codec);
        Py_DECREF(found.keep);
    }
    if (found.place >= 0) {
        return message;
    }
    Py_DECREF(message);
    return NULL;
}

/* get(timeout=None) -> message */
static PyObject *head_get(End *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (load_relaxed(&self->reader) != NULL && plain_timeout(args, 0, count, names)) {
        Message *const message = next_of(self, may_wait(args, 0, count, names));
        if (message != NULL || PyErr_Occurred()) {
            return (PyObject *)message;
        }
    }
    return otherwise(self, "_get", NULL, args, count, names);
}

/* get_many(limit, timeout=None) -> messages */
static PyObject *head_get_many(End *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    const long limit = load_relaxed(&self->reader) == NULL ? 0 : plain_limit(args, given, names);
    PyObject *const messages = limit == 0 ? NULL : PyList_New(0);
    for (long count = 0; messages != NULL && count < limit; count++) {
        Message *const message = next_of(self, false);
        if (message == NULL || PyList_Append(messages, (PyObject *)message) < 0) {
            Py_XDECREF((PyObject *)message);
            break;
        }
        Py_DECREF(message);
    }
    if (messages != NULL && PyList_Size(messages) > 0) {
        PyErr_Clear(); /* the next call meets it again */
        return messages;
    }
    Py_XDECREF(messages);
    return PyErr_Occurred() ? NULL : otherwise(self, "_get_many", NULL, args, given, names);
}

/* The next message of a loop, or what self._next_message() says, which ends the loop by StopIteration. */
static PyObject *head_next(End *self)
{
    if (load_relaxed(&self->reader) != NULL) {
        Message *const message = next_of(self, false);
        if (message != NULL || PyErr_Occurred()) {
            return (PyObject *)message;
        }
    }
    return PyObject_CallMethod((PyObject *)self, "_next_message", NULL);
}

/* ---------------------------------------------------------------- who only looks */
typedef struct {
    End end;
    PyObject *session; /* whoever closes the queue closes its readers */
    int64_t stop;      /* the index before which to stop; INT64_MAX for none */
    bool follows;      /* until the queue is shut down, at once even */
} Eye;
static PyObject *closed_name;

static int eye_traverse(Eye *self, visitproc visit, void *arg)
{
    Py_VISIT(self->session);
    return end_traverse(&self->end, visit, arg);
}
static int eye_clear(Eye *self)
{
    Py_CLEAR(self->session);
    return end_clear(&self->end);
}
static void eye_dealloc(Eye *self)
{
    PyObject_GC_UnTrack((PyObject *)self);
    Py_CLEAR(self->session);
    end_dealloc(&self->end);
}

/* _look_for(session, or None to have everything go to Python; stop or None; follows) */
static PyObject *eye_look_for(Eye *self, PyObject *args)
{
    PyObject *session;
    PyObject *stop;
    int follows;
    if (!PyArg_ParseTuple(args, "OOp", &session, &stop, &follows)) {
        return NULL;
    }
    int64_t last = stop == Py_None ? INT64_MAX : PyLong_AsLongLong(stop);
    if (last == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        last = INT64_MAX; /* no message has such an index */
    }
    PyObject *before;
    ALONE_WITH(self)
    store_relaxed(&self->stop, last);
    self->follows = follows;
    before = self->session;
    self->session = session == Py_None ? NULL : Py_NewRef(session);
    ALONE_NO_MORE
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static bool eye_sees(Eye *self)
{
    PyObject *session;
    ALONE_WITH(self)
    session = self->end.reader == NULL || (self->follows && shmq_shut_down_at_once(self->end.chunk)) ? NULL
                                                                                                     : OWN(self->session);
    ALONE_NO_MORE
    if (session == NULL) {
        return false;
    }
    PyObject *const closed = PyObject_GetAttr(session, closed_name);
    PyErr_Clear();
    Py_XDECREF(closed);
    DISOWN(session);
    return closed == Py_False;
}

static PyObject *eye_next(Eye *self)
{
    if (eye_sees(self)) {
        Message *const message = next_of(&self->end, false);
        if (message != NULL && (int64_t)message->taken.index >= load_relaxed(&self->stop)) {
            Py_DECREF(message); /* the next call finds that this stands behind its end */
            return NULL;
        }
        if (message != NULL || PyErr_Occurred()) {
            return (PyObject *)message;
        }
    }
    return PyObject_CallMethod((PyObject *)self, "_next_message", NULL);
}

/* ---------------------------------------------------------------- the types */
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
PyDoc_STRVAR(get_doc, "get($self, timeout=None)\n--\n\n"
    "The next message, with everything it carries. With ack=\"explicit\", call its `ack()` when it is finished.\n\n"
    "Args and Raises: as `take`.");
PyDoc_STRVAR(get_many_doc, "get_many($self, limit, timeout=None)\n--\n\n"
    "Between 1 and *limit* messages: those that are there now, or the first that comes.\n\n"
    "Args and Raises: as `take`.");

static PyMethodDef head_methods[] = {
    END_METHODS,
    {"_wait_with", (PyCFunction)head_wait_with, METH_VARARGS, NULL},
    {"take", FAST(head_take), take_doc},
    {"take_many", FAST(head_take_many), take_many_doc},
    {"get", FAST(head_get), get_doc},
    {"get_many", FAST(head_get_many), get_many_doc},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef eye_methods[] = {
    END_METHODS,
    {"_look_for", (PyCFunction)eye_look_for, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot head_slots[] = {
    {Py_tp_dealloc, (void *)head_dealloc}, {Py_tp_traverse, (void *)head_traverse}, {Py_tp_clear, (void *)head_clear},
    {Py_tp_methods, head_methods}, {Py_tp_iter, (void *)PyObject_SelfIter}, {Py_tp_iternext, (void *)head_next}, {0, NULL},
};
static PyType_Slot eye_slots[] = {
    {Py_tp_dealloc, (void *)eye_dealloc}, {Py_tp_traverse, (void *)eye_traverse}, {Py_tp_clear, (void *)eye_clear},
    {Py_tp_methods, eye_methods}, {Py_tp_iter, (void *)PyObject_SelfIter}, {Py_tp_iternext, (void *)eye_next}, {0, NULL},
};
static PyType_Spec head_spec = {"shmq._hot.Head", sizeof(Head), 0, END_FLAGS, head_slots};
static PyType_Spec eye_spec = {"shmq._hot.Eye", sizeof(Eye), 0, END_FLAGS, eye_slots};

int hot_take_exec(PyObject *module)
{
    closed_name = closed_name != NULL ? closed_name : PyUnicode_InternFromString("closed");
    timeout_name = timeout_name != NULL ? timeout_name : PyUnicode_InternFromString("timeout");
    return closed_name == NULL || timeout_name == NULL || hot_add_type(module, "Head", &head_spec) < 0
                   || hot_add_type(module, "Eye", &eye_spec) < 0
               ? -1
               : 0;
}
