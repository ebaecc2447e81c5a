/* hot_take.c - take, get and their like, and what readers do, as Python built-ins.
 *
 * A Head (base of Consumer) takes from one mapped chunk, an Eye (base of Reader) only looks. Whatever is not the plain case
 * (the end of a chunk, an empty queue, a closed handle, a large payload, an unusual argument) goes to the methods _take, _get
 * and so on of the class that builds on it. */
#include "python/end.h"
#include "python/message.h"

#define COPY_OUT_WITH_THE_LOCK (4u << 20) /* larger ones go through cffi, which lets other threads run meanwhile */

/* ---------------------------------------------------------------- payloads */
static PyObject *decoded(End *self, int64_t place)
{
    PyObject *const data = PyBytes_FromStringAndSize(self->memory + (place >> LENGTH_BITS), (Py_ssize_t)((uint64_t)place & LENGTH_MASK));
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
    if (place >= 0 && ((uint64_t)place & LENGTH_MASK) == bytes) {
        return data;
    }
    Py_DECREF(data);
    return place >= 0 ? decoded(self, place) : NULL; /* a writer who changes lengths behind our back: as it was checked */
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
    const long limit = self->reader == NULL ? 0 : plain_limit(args, given, names);
    if (limit == 0) {
        return otherwise(self, "_take_many", NULL, args, given, names);
    }
    const int64_t count = shmq_next_many(self->chunk, self->reader, (uint32_t)(limit < ROOM ? limit : ROOM), places,
                                         self->codec == NULL ? NULL : records);
    if (count <= 0) {
        return otherwise(self, "_take_many", NULL, args, given, names);
    }
    PyObject *payloads = PyList_New((Py_ssize_t)count);
    PyObject *problems = NULL;
    PyObject *const keep = Py_XNewRef(self->keep); /* see decoded */
    const char *const memory = self->memory;
    Py_ssize_t read = 0;
    for (int64_t i = 0; payloads != NULL && i < count; i++) {
        PyObject *payload = PyBytes_FromStringAndSize(memory + (places[i] >> LENGTH_BITS),
                                                      (Py_ssize_t)(places[i] & LENGTH_MASK));
        if (payload != NULL && self->codec != NULL) {
            payload = meaning(self, payload, keep, records[i]);
            if (payload == NULL && keep_problem(&problems)) {
                continue;
            }
        }
        if (payload == NULL || PyList_SetItem(payloads, read++, payload) < 0) {
            Py_CLEAR(payloads);
        }
    }
    Py_XDECREF(keep);
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
static Message *next_of(End *self)
{
    Message *const message = message_new();
    if (message == NULL) {
        return NULL;
    }
    if (self->reader != NULL) {
        shmq_which which;
        const int64_t place = shmq_next_small_which(self->chunk, self->reader, &which);
        if (place >= 0) {
            message->taken.index = which.index;
            message->taken.place = (uint64_t)place;
            message->taken.record = which.record;
            message->taken.attempts = 1;
            message_is(message, PyTuple_GetItem(self->keep, 0), self->memory, self->codec, NULL);
            return message;
        }
    }
    Py_DECREF(message);
    return NULL;
}

/* get(timeout=None) -> message */
static PyObject *head_get(End *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (self->reader != NULL && plain_timeout(args, 0, count, names)) {
        Message *const message = next_of(self);
        if (message != NULL || PyErr_Occurred()) {
            return (PyObject *)message;
        }
    }
    return otherwise(self, "_get", NULL, args, count, names);
}

/* get_many(limit, timeout=None) -> messages */
static PyObject *head_get_many(End *self, PyObject *const *args, Py_ssize_t given, PyObject *names)
{
    const long limit = self->reader == NULL ? 0 : plain_limit(args, given, names);
    PyObject *const messages = limit == 0 ? NULL : PyList_New(0);
    for (long count = 0; messages != NULL && count < limit; count++) {
        Message *const message = next_of(self);
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
    if (self->reader != NULL) {
        Message *const message = next_of(self);
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
    self->stop = stop == Py_None ? INT64_MAX : PyLong_AsLongLong(stop);
    if (self->stop == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        self->stop = INT64_MAX; /* no message has such an index */
    }
    self->follows = follows;
    PyObject *const before = self->session;
    self->session = session == Py_None ? NULL : Py_NewRef(session);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static bool eye_sees(Eye *self)
{
    if (self->end.reader == NULL || self->session == NULL || (self->follows && shmq_shut_down_at_once(self->end.chunk))) {
        return false;
    }
    PyObject *const closed = PyObject_GetAttr(self->session, closed_name);
    PyErr_Clear();
    Py_XDECREF(closed);
    return closed == Py_False;
}

static PyObject *eye_next(Eye *self)
{
    if (eye_sees(self)) {
        Message *const message = next_of(&self->end);
        if (message != NULL && (int64_t)message->taken.index >= self->stop) {
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
    END_SLOTS(head_methods), {Py_tp_iter, (void *)PyObject_SelfIter}, {Py_tp_iternext, (void *)head_next}, {0, NULL},
};
static PyType_Slot eye_slots[] = {
    {Py_tp_dealloc, (void *)eye_dealloc}, {Py_tp_traverse, (void *)eye_traverse}, {Py_tp_clear, (void *)eye_clear},
    {Py_tp_methods, eye_methods}, {Py_tp_iter, (void *)PyObject_SelfIter}, {Py_tp_iternext, (void *)eye_next}, {0, NULL},
};
static PyType_Spec head_spec = {"shmq._hot.Head", sizeof(End), 0, END_FLAGS, head_slots};
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
