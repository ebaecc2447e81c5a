/* hot_hand.c - a group's member as a Python built-in: it claims messages, hands them out, and has them finished.
 *
 * A Hand (base of GroupConsumer) walks one mapped chunk and calls the ring. Everything that can fail is made before a message
 * is claimed, and between a claim and the return nothing is allocated and no Python runs: an exception means that nothing
 * was claimed. Whatever is not the plain case (what came back or is due, the end of a chunk, an empty queue, a lock that
 * another thread has, acknowledgements that wait for the disk) goes to methods of the class that builds on it. */
#include "python/hand.h"

#include "python/end.h"
#include "python/mutex.h"

#define COPY_OUT_WITH_THE_LOCK (4u << 20) /* of larger messages the sums are checked while other threads run */
enum { ROUND_MIN = 4, ROUND = 64, MOST = 1024 }; /* messages for one claim, and for one call */

typedef struct {
    End end;
    shmq_ring *ring;      /* NULL when everything goes to Python */
    PyObject *ring_keep;
    Held *held;
    Mutex *lock;
    int64_t due_ns;       /* since boot: from then on Python has something to do */
    uint32_t pid;
    uint32_t round;       /* messages to make ready for one claim: as many as came the last time, and then twice as many */
    uint32_t spins;       /* how often to look again before Python sleeps */
    bool keeps;           /* messages are finished by their verbs, and held until then */
    bool syncs;           /* and then that waits for the disk */
} Hand;
static PyTypeObject *hand_type;

static int hand_traverse(Hand *self, visitproc visit, void *arg)
{
    Py_VISIT(self->ring_keep);
    Py_VISIT((PyObject *)self->lock);
    return end_traverse(&self->end, visit, arg);
}
static int hand_clear(Hand *self)
{
    self->ring = NULL;
    Py_CLEAR(self->ring_keep);
    Py_CLEAR(self->held);
    Py_CLEAR(self->lock);
    return end_clear(&self->end);
}
static void hand_dealloc(Hand *self)
{
    PyObject_GC_UnTrack((PyObject *)self);
    hand_clear(self);
    end_dealloc(&self->end);
}

/* _seat(ring address, ring, held, lock, pid, spins, whether messages wait for their verbs, and those for the disk): all of it
 * anew. */
static PyObject *hand_seat(Hand *self, PyObject *args)
{
    unsigned long long ring;
    PyObject *keep;
    PyObject *held;
    PyObject *lock;
    unsigned int pid;
    unsigned int spins;
    int keeps;
    int syncs;
    if (!PyArg_ParseTuple(args, "KOOOIIpp", &ring, &keep, &held, &lock, &pid, &spins, &keeps, &syncs)) {
        return NULL;
    }
    PyObject *const before[] = {self->ring_keep, (PyObject *)self->held, (PyObject *)self->lock};
    self->ring = (shmq_ring *)(uintptr_t)ring;
    self->ring_keep = Py_NewRef(keep);
    self->held = (Held *)Py_NewRef(held);
    self->lock = (Mutex *)Py_NewRef(lock);
    self->pid = pid;
    self->spins = spins;
    self->keeps = keeps;
    self->syncs = syncs;
    self->round = ROUND_MIN;
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        Py_XDECREF(before[i]);
    }
    Py_RETURN_NONE;
}
/* _due(ns since boot) */
static PyObject *hand_due(Hand *self, PyObject *when)
{
    self->due_ns = PyLong_AsLongLong(when);
    return self->due_ns == -1 && PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}
/* _stop(): the ring is not to be used any more. */
static PyObject *hand_stop(Hand *self, PyObject *unused)
{
    (void)unused;
    self->ring = NULL;
    Py_RETURN_NONE;
}

/* Another thread that has the lock is inside the ring, or between two steps. */
static bool is_free(const Hand *self) { return self->ring != NULL && self->lock->depth == 0; }

/* ---------------------------------------------------------------- claimed
 * Where this stands: another thread may have moved it when a look is over that let others run. */
struct stand {
    shmq_ring *ring;
    shmq_chunk *chunk;
    shmq_reader *reader;
    const char *memory;
    PyObject *keep;
    PyObject *ring_keep;
};

/* They were claimed, and are handed out. */
static void hand_out(Hand *self, const struct stand *at, Message *const *messages, const shmq_taken *taken, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        messages[i]->taken = taken[i];
        message_is(messages[i], PyTuple_GetItem(at->keep, 0), at->memory, self->end.codec, (PyObject *)self);
        messages[i]->pid = self->pid;
        if (self->keeps) {
            held_add(self->held, messages[i]);
        }
    }
}

/* Nobody has what could be claimed: look again for a moment, as long as it takes to fall asleep. The lock keeps other threads
 * of this process out of the ring meanwhile; a close waits for it, and gives back what was claimed. */
static Py_ssize_t claim_soon(Hand *self, const struct stand *at, uint32_t limit, shmq_taken *taken, Message *const *messages)
{
    if (!mutex_try(self->lock)) {
        return 0;
    }
    Mutex *const lock = (Mutex *)Py_NewRef((PyObject *)self->lock);
    PyObject *const keep = Py_NewRef(at->keep);
    PyObject *const ring_keep = Py_NewRef(at->ring_keep);
    PyThreadState *const state = PyEval_SaveThread();
    const int64_t count = shmq_ring_take(at->ring, at->chunk, at->reader, limit, self->spins, taken);
    PyEval_RestoreThread(state);
    if (count > 0) {
        hand_out(self, at, messages, taken, (Py_ssize_t)count);
    }
    mutex_leave(lock);
    Py_DECREF(keep);
    Py_DECREF(ring_keep);
    Py_DECREF(lock);
    return count > 0 ? (Py_ssize_t)count : 0;
}

/* Up to `limit` messages that nobody has had, handed out as those: how many, and none where Python has to look. again: for the
 * same call. */
static Py_ssize_t claim(Hand *self, uint32_t limit, bool wait, bool again, Message *const *messages)
{
    shmq_taken taken[ROUND];
    if (self->end.reader == NULL || !is_free(self)) {
        return 0;
    }
    const struct stand at = {self->ring, self->end.chunk, self->end.reader, self->end.memory, self->end.keep, self->ring_keep};
    const int64_t now_ns = again ? 0 : shmq_clock_boottime_ns();
    if ((!again && (now_ns >= self->due_ns || !shmq_ring_quiet(at.ring, now_ns)))
        || shmq_next_bytes(at.chunk, at.reader) > COPY_OUT_WITH_THE_LOCK) {
        return 0;
    }
    const int64_t count = shmq_ring_take(at.ring, at.chunk, at.reader, limit, 0, taken);
    if (count > 0) {
        hand_out(self, &at, messages, taken, (Py_ssize_t)count);
        return (Py_ssize_t)count;
    }
    return count == SHMQ_EMPTY && wait && self->spins > 0 ? claim_soon(self, &at, limit, taken, messages) : 0;
}

/* One, or NULL: with an exception, or where Python has to look. */
static Message *claim_one(Hand *self, bool wait)
{
    Message *const message = self->ring == NULL ? NULL : message_new();
    if (message == NULL || (self->keeps && held_room(self->held, 1) < 0) || claim(self, 1, wait, false, &message) == 0) {
        Py_XDECREF((PyObject *)message);
        return NULL;
    }
    return message;
}

/* As many as there are, of up to `limit`, appended to the list: how many, or -1 with an exception. */
static Py_ssize_t claim_round(Hand *self, PyObject *list, uint32_t limit, bool wait)
{
    Message *fresh[ROUND];
    const Py_ssize_t before = PyList_Size(list);
    Py_ssize_t count = -1;
    uint32_t made = 0;
    for (; made < limit; made++) {
        fresh[made] = message_new();
        if (fresh[made] == NULL || PyList_Append(list, (PyObject *)fresh[made]) < 0) {
            Py_XDECREF((PyObject *)fresh[made]);
            break;
        }
        Py_DECREF((PyObject *)fresh[made]); /* the list has it */
    }
    if (made == limit && (!self->keeps || held_room(self->held, limit) == 0)) {
        count = claim(self, limit, wait, before > 0, fresh);
    }
    if (count < (Py_ssize_t)limit) { /* nothing is allocated for that */
        PyList_SetSlice(list, before + (count > 0 ? count : 0), before + (Py_ssize_t)made, NULL);
    }
    return count;
}

/* Up to `limit` messages as a list: a new reference, or NULL, as claim_one. */
static PyObject *claim_many(Hand *self, long limit, bool wait)
{
    PyObject *const list = self->ring == NULL ? NULL : PyList_New(0);
    limit = limit < MOST ? limit : MOST;
    for (long left = limit; list != NULL && left > 0;) {
        const uint32_t round = left < (long)self->round ? (uint32_t)left : self->round;
        const Py_ssize_t count = claim_round(self, list, round, wait && left == limit);
        left -= count > 0 ? count : 0;
        if (count < (Py_ssize_t)round) {
            self->round = count < ROUND_MIN ? ROUND_MIN : (uint32_t)count;
            break;
        }
        self->round = self->round < ROUND / 2 ? self->round * 2 : ROUND;
    }
    if (list != NULL && PyList_Size(list) > 0) {
        PyErr_Clear(); /* no memory for more of them */
        return list;
    }
    Py_XDECREF(list);
    return NULL;
}

/* ---------------------------------------------------------------- finished */
static bool is_mine(const Hand *self, const Message *message)
{
    return message->owner == (PyObject *)self && message->held && message->pid == self->pid;
}
static bool finishes_here(const Hand *self) { return is_free(self) && !self->syncs && !shmq_ring_forked(self->ring); }

static void is_over(Hand *self, Message *message)
{
    message->over = true;
    held_drop(self->held, message);
}

bool is_hand(PyObject *object) { return PyObject_TypeCheck(object, hand_type); }

bool hand_acks(Message *message)
{
    Hand *const self = (Hand *)message->owner;
    if (!is_hand(message->owner) || !is_mine(self, message) || !finishes_here(self)
        || shmq_ring_ack(self->ring, &message->taken) != SHMQ_OK) {
        return false;
    }
    is_over(self, message);
    return true;
}

/* Those of one round: false when one of them is still to be finished, or was lost. */
static bool ack_round(Hand *self, Message *const *messages, uint32_t count)
{
    shmq_taken taken[ROUND];
    bool all = true;
    for (uint32_t i = 0; i < count; i++) {
        taken[i] = messages[i]->taken;
    }
    shmq_ring_ack_many(self->ring, count, taken);
    for (uint32_t i = count; i-- > 0;) { /* the last first: what stands behind what is dropped moves up */
        messages[i]->taken = taken[i];
        messages[i]->over = false;
        if (taken[i].word == 0) {
            is_over(self, messages[i]);
        }
        all = all && taken[i].word == 0;
    }
    return all;
}

/* All of them, which are messages of this member: false when one of them is still to be finished, or was lost. */
static bool ack_all(Hand *self, PyObject *const *messages, Py_ssize_t count)
{
    Message *round[ROUND];
    uint32_t filled = 0;
    bool all = true;
    for (Py_ssize_t i = 0; i < count; i++) {
        Message *const message = (Message *)messages[i];
        if (!message->over) { /* nor twice, if it was given twice */
            message->over = true;
            round[filled++] = message;
        }
        if (filled == ROUND || (i == count - 1 && filled > 0)) {
            all = ack_round(self, round, filled) && all;
            filled = 0;
        }
    }
    return all;
}

static bool ack_is_plain(const Hand *self, PyObject *const *messages, Py_ssize_t count)
{
    if (!finishes_here(self)) {
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        const Message *const message = (const Message *)messages[i];
        if (!is_message(messages[i]) || !is_mine(self, message)) {
            return false;
        }
    }
    return true;
}

/* The same of the messages of a list. */
static bool ack_list(Hand *self, PyObject *messages, Py_ssize_t count)
{
    PyObject *round[ROUND];
    bool all = true;
    for (Py_ssize_t from = 0; all && from < count; from += ROUND) {
        const Py_ssize_t some = count - from < ROUND ? count - from : ROUND;
        for (Py_ssize_t i = 0; i < some; i++) {
            round[i] = PyList_GetItem(messages, from + i);
        }
        all = ack_is_plain(self, round, some) && ack_all(self, round, some);
    }
    return all;
}

/* ack(*messages) */
static PyObject *hand_ack(Hand *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (names == NULL && ack_is_plain(self, args, count) && ack_all(self, args, count)) {
        Py_RETURN_NONE;
    }
    return otherwise(&self->end, "_ack_all", NULL, args, count, names);
}

/* ---------------------------------------------------------------- the verbs */
/* get(timeout=None) -> message */
static PyObject *hand_get(Hand *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (plain_timeout(args, 0, count, names)) {
        Message *const message = claim_one(self, may_wait(args, 0, count, names));
        if (message != NULL || PyErr_Occurred()) {
            return (PyObject *)message;
        }
    }
    return otherwise(&self->end, "_get", NULL, args, count, names);
}

/* get_many(limit, timeout=None) -> messages */
static PyObject *hand_get_many(Hand *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    const long limit = plain_limit(args, count, names);
    PyObject *const messages = limit == 0 ? NULL : claim_many(self, limit, may_wait(args, 1, count, names));
    if (messages != NULL || PyErr_Occurred()) {
        return messages;
    }
    return otherwise(&self->end, "_get_many", NULL, args, count, names);
}

/* self.<method>(first, second, the exception that is raised, or None) */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* what replaces PyErr_Fetch is younger than our ABI */
static PyObject *settled(Hand *self, const char *method, PyObject *first, PyObject *second)
{
    PyObject *kind;
    PyObject *problem;
    PyObject *trace;
    PyErr_Fetch(&kind, &problem, &trace);
    if (kind != NULL) {
        PyErr_NormalizeException(&kind, &problem, &trace);
        if (trace != NULL) {
            PyException_SetTraceback(problem, trace);
        }
    }
    PyObject *const answer = PyObject_CallMethod((PyObject *)self, method, "OOO", first, second,
                                                 problem == NULL ? Py_None : problem);
    Py_XDECREF(kind);
    Py_XDECREF(problem);
    Py_XDECREF(trace);
    return answer;
}
#pragma GCC diagnostic pop

/* The payloads of these, which are finished with that; the references go to the answer. */
static PyObject *taken_of(Hand *self, PyObject *messages)
{
    const Py_ssize_t count = PyList_Size(messages);
    PyObject *const payloads = PyList_New(0);
    PyObject *answer = NULL;
    for (Py_ssize_t i = 0; payloads != NULL && i < count; i++) {
        PyObject *const payload = message_payload((Message *)PyList_GetItem(messages, i));
        const int code = payload == NULL ? -1 : PyList_Append(payloads, payload);
        Py_XDECREF(payload);
        if (code < 0) {
            break;
        }
    }
    if (payloads == NULL) {
        answer = settled(self, "_taken", messages, Py_None);
    } else if (PyErr_Occurred() || self->keeps) {
        const bool all = !PyErr_Occurred() && ack_list(self, messages, count);
        answer = all ? Py_NewRef(payloads) : settled(self, "_taken", messages, payloads);
    } else {
        answer = Py_NewRef(payloads);
    }
    Py_XDECREF(payloads);
    return answer;
}

/* take_many(limit, timeout=None) -> payloads */
static PyObject *hand_take_many(Hand *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    const long limit = plain_limit(args, count, names);
    PyObject *const messages = limit == 0 || self->syncs ? NULL : claim_many(self, limit, may_wait(args, 1, count, names));
    if (messages != NULL) {
        PyObject *const payloads = taken_of(self, messages);
        Py_DECREF(messages);
        return payloads;
    }
    return PyErr_Occurred() ? NULL : otherwise(&self->end, "_take_many", NULL, args, count, names);
}

/* take(timeout=None) -> payload */
static PyObject *hand_take(Hand *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Message *const message = self->syncs || !plain_timeout(args, 0, count, names) ? NULL : claim_one(self, may_wait(args, 0, count, names));
    if (message == NULL) {
        return PyErr_Occurred() ? NULL : otherwise(&self->end, "_take", NULL, args, count, names);
    }
    PyObject *payload = message_payload(message);
    if (self->keeps && (payload == NULL || !hand_acks(message))) {
        PyObject *const before = payload;
        payload = settled(self, "_taken_one", (PyObject *)message, before == NULL ? Py_None : before);
        Py_XDECREF(before);
    }
    Py_DECREF(message);
    return payload;
}

/* The next message of a loop, or what self._next_message() says, which ends the loop by StopIteration. */
static PyObject *hand_next(Hand *self)
{
    Message *const message = claim_one(self, true);
    if (message != NULL || PyErr_Occurred()) {
        return (PyObject *)message;
    }
    return PyObject_CallMethod((PyObject *)self, "_next_message", NULL);
}

/* ---------------------------------------------------------------- the type */
PyDoc_STRVAR(get_doc, "get($self, timeout=None)\n--\n\n"
    "The next message that nobody else has. With ack=\"explicit\", call its `ack()` when it is finished.\n\n"
    "Args:\n    timeout: seconds to wait; None for as long as it takes, 0 for not at all.\n\n"
    "Raises:\n    Empty: nothing came in time.\n    ShutDown: the queue was shut down, and nothing is left for this group.\n"
    "    Closed: this consumer was closed.\n    Corrupt: the next message is damaged.\n"
    "    Gone: messages were retired before the group came to them; the next call goes on behind them.");
PyDoc_STRVAR(get_many_doc, "get_many($self, limit, timeout=None)\n--\n\n"
    "Between 1 and *limit* messages: those that are there now, or the first that comes.\n\n"
    "Args and Raises: as `get`.");
PyDoc_STRVAR(take_doc, "take($self, timeout=None)\n--\n\n"
    "The next payload, decoded, acknowledged at once.\n\n"
    "Args: as `get`.\n\n"
    "Raises:\n"
    "    LeaseLost: its lease ended before that; it comes again. Of several, those that were not lost are returned.\n"
    "    Otherwise as `get`.");
PyDoc_STRVAR(take_many_doc, "take_many($self, limit, timeout=None)\n--\n\n"
    "Between 1 and *limit* payloads, acknowledged at once.\n\n"
    "Args and Raises: as `take`.");
PyDoc_STRVAR(ack_doc, "ack($self, *messages)\n--\n\n"
    "Say that these messages are finished; cheaper than each by itself. Those that their holder has ended already stay as\n"
    "they are.\n\n"
    "Raises:\n"
    "    LeaseLost: one was given to somebody else meanwhile; the others are finished.\n"
    "    Closed, Forked: as `Message.ack`.");

static PyMethodDef hand_methods[] = {
    END_METHODS,
    {"_seat", (PyCFunction)hand_seat, METH_VARARGS, NULL},
    {"_due", (PyCFunction)hand_due, METH_O, NULL},
    {"_stop", (PyCFunction)hand_stop, METH_NOARGS, NULL},
    {"get", FAST(hand_get), get_doc},
    {"get_many", FAST(hand_get_many), get_many_doc},
    {"take", FAST(hand_take), take_doc},
    {"take_many", FAST(hand_take_many), take_many_doc},
    {"ack", FAST(hand_ack), ack_doc},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot hand_slots[] = {
    {Py_tp_dealloc, (void *)hand_dealloc}, {Py_tp_traverse, (void *)hand_traverse}, {Py_tp_clear, (void *)hand_clear},
    {Py_tp_methods, hand_methods}, {Py_tp_iter, (void *)PyObject_SelfIter}, {Py_tp_iternext, (void *)hand_next}, {0, NULL},
};
static PyType_Spec hand_spec = {"shmq._hot.Hand", sizeof(Hand), 0, END_FLAGS, hand_slots};

int hot_hand_exec(PyObject *module)
{
    PyObject *const type = PyType_FromSpec(&hand_spec);
    if (type == NULL || PyModule_AddObjectRef(module, "Hand", type) < 0) {
        Py_XDECREF(type);
        return -1;
    }
    hand_type = (PyTypeObject *)type; /* one reference is ours */
    return 0;
}
