/* hot_hand.c - a group's member as a Python built-in: it claims messages, hands them out, and has them finished.
 *
 * A Hand (base of GroupConsumer) walks one mapped chunk and calls the ring. Everything that can fail is made before a message
 * is claimed, and between a claim and the return nothing is allocated and no Python runs: an exception means that nothing
 * was claimed. Whatever is not the plain case (what came back or is due, the end of a chunk, an empty queue, a lock that
 * another thread has, acknowledgements that wait for the disk) goes to methods of the class that builds on it. */
#include "python/hand.h"

#include <string.h>

#include "atomic.h"
#include "python/counts.h"
#include "python/end.h"
#include "python/mutex.h"

#define COPY_OUT_WITH_THE_LOCK (4u << 20) /* of larger messages the sums are checked while other threads run */
enum { ROUND_MIN = 4, ROUND = 64, MOST = 1024 }; /* messages for one claim, and for one call */

enum { TARGETS = 8 }; /* queues that it puts what it forwards into, that are remembered at a time */
struct target {
    uint64_t tail;        /* the number of the Tail that puts there */
    PyObject *path;
};

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
    struct source source;
    uint64_t targeted;    /* queues that knew it since its last turn; of more than TARGETS the latest are remembered */
    struct target targets[TARGETS];
} Hand;
static PyTypeObject *hand_type;

/* Nothing is known of forwarding any more. What was known is to be let go of when nobody is alone any more. */
static void forget_targets(Hand *self, PyObject **paths)
{
    for (size_t i = 0; i < TARGETS; i++) {
        paths[i] = self->targets[i].path;
        self->targets[i] = (struct target){0};
    }
    self->source.turn++;
    self->targeted = 0;
}
static void let_go_of(PyObject **paths)
{
    for (size_t i = 0; i < TARGETS; i++) {
        Py_XDECREF(paths[i]);
    }
}

static int hand_traverse(Hand *self, visitproc visit, void *arg)
{
    Py_VISIT(self->ring_keep);
    Py_VISIT((PyObject *)self->lock);
    return end_traverse(&self->end, visit, arg);
}
static int hand_clear(Hand *self)
{
    PyObject *paths[TARGETS];
    self->ring = NULL;
    forget_targets(self, paths);
    let_go_of(paths);
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
    PyObject *before[3];
    PyObject *paths[TARGETS];
    ALONE_WITH(self)
    forget_targets(self, paths);
    before[0] = self->ring_keep;
    before[1] = (PyObject *)self->held;
    before[2] = (PyObject *)self->lock; /* the same one: who has it needs no reference */
    store_relaxed(&self->ring, (shmq_ring *)(uintptr_t)ring);
    self->ring_keep = Py_NewRef(keep);
    self->held = (Held *)Py_NewRef(held);
    self->lock = (Mutex *)Py_NewRef(lock);
    self->pid = pid;
    self->spins = spins;
    self->keeps = keeps;
    self->syncs = syncs;
    store_relaxed(&self->round, ROUND_MIN);
    ALONE_NO_MORE
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        Py_XDECREF(before[i]);
    }
    let_go_of(paths);
    Py_RETURN_NONE;
}
/* _due(ns since boot) */
static PyObject *hand_due(Hand *self, PyObject *when)
{
    const int64_t due_ns = PyLong_AsLongLong(when);
    store_relaxed(&self->due_ns, due_ns);
    return due_ns == -1 && PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}
/* _stop(): the ring is not to be used any more. */
static PyObject *hand_stop(Hand *self, PyObject *unused)
{
    (void)unused;
    ALONE_WITH(self)
    store_relaxed(&self->ring, NULL);
    ALONE_NO_MORE
    Py_RETURN_NONE;
}

/* Another thread that has the lock is inside the ring, or between two steps: then NULL. Else the lock, for ring_left: nobody
 * else is in there until then. With the interpreter's lock nobody else runs meanwhile, so a look at this one is enough. Alone. */
static Mutex *ring_entered(Hand *self)
{
#ifdef Py_GIL_DISABLED
    return self->ring != NULL && mutex_try(self->lock) ? self->lock : NULL;
#else
    return self->ring != NULL && !mutex_is_taken(self->lock) ? self->lock : NULL;
#endif
}
static void ring_left(Mutex *lock)
{
#ifdef Py_GIL_DISABLED
    mutex_leave(lock);
#else
    (void)lock;
#endif
}

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
    const shmq_taken *const last = &taken[count - 1];
    counted_taken(&self->end, at->chunk, (uint64_t)count, last->index, last->record);
}

/* Nobody has what could be claimed: look again for a moment, as long as it takes to fall asleep. The lock keeps other threads
 * of this process out of the ring meanwhile; a close waits for it, and gives back what was claimed. */
static Py_ssize_t claim_soon(Hand *self, const struct stand *at, uint32_t limit, shmq_taken *taken, Message *const *messages)
{
#ifndef Py_GIL_DISABLED /* else it is taken */
    if (!mutex_try(self->lock)) {
        return 0;
    }
#endif
    Mutex *const lock = (Mutex *)Py_NewRef((PyObject *)self->lock);
    PyObject *const keep = Py_NewRef(at->keep);
    PyObject *const ring_keep = Py_NewRef(at->ring_keep);
    PyThreadState *const state = PyEval_SaveThread();
    const int64_t count = shmq_ring_take(at->ring, at->chunk, at->reader, limit, self->spins, taken);
    PyEval_RestoreThread(state);
    if (count > 0) {
        hand_out(self, at, messages, taken, (Py_ssize_t)count);
    }
#ifndef Py_GIL_DISABLED
    mutex_leave(lock);
#endif
    Py_DECREF(keep);
    Py_DECREF(ring_keep);
    Py_DECREF(lock);
    return count > 0 ? (Py_ssize_t)count : 0;
}

/* As claim, inside the ring. */
static Py_ssize_t claim_inside(Hand *self, uint32_t limit, bool wait, bool again, Message *const *messages)
{
    shmq_taken taken[ROUND];
    if (self->end.reader == NULL || (self->keeps && held_room(self->held, limit) < 0)) {
        return 0;
    }
    const struct stand at = {self->ring, self->end.chunk, self->end.reader, self->end.memory, self->end.keep, self->ring_keep};
    const int64_t now_ns = again ? 0 : shmq_clock_boottime_ns();
    if ((!again && (now_ns >= load_relaxed(&self->due_ns) || !shmq_ring_quiet(at.ring, now_ns)))
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

/* Up to `limit` messages that nobody has had, handed out as those: how many, and none where Python has to look, or with an
 * exception. again: for the same call. */
static Py_ssize_t claim(Hand *self, uint32_t limit, bool wait, bool again, Message *const *messages)
{
    Py_ssize_t count = 0;
    ALONE_WITH(self)
    Mutex *const lock = ring_entered(self);
    if (lock != NULL) {
        count = claim_inside(self, limit, wait, again, messages);
        ring_left(lock);
    }
    ALONE_NO_MORE
    return count;
}

/* One, or NULL: with an exception, or where Python has to look. */
static Message *claim_one(Hand *self, bool wait)
{
    Message *const message = load_relaxed(&self->ring) == NULL ? NULL : message_new();
    if (message == NULL || claim(self, 1, wait, false, &message) == 0) {
        Py_XDECREF((PyObject *)message);
        return NULL;
    }
    return message;
}

/* As many as there are, of up to `limit`, appended to the list: how many; fewer may be with an exception. */
static Py_ssize_t claim_round(Hand *self, PyObject *list, uint32_t limit, bool wait)
{
    Message *fresh[ROUND];
    const Py_ssize_t before = PyList_Size(list);
    Py_ssize_t count = 0;
    uint32_t made = 0;
    for (; made < limit; made++) {
        fresh[made] = message_new();
        if (fresh[made] == NULL || PyList_Append(list, (PyObject *)fresh[made]) < 0) {
            Py_XDECREF((PyObject *)fresh[made]);
            break;
        }
        Py_DECREF((PyObject *)fresh[made]); /* the list has it */
    }
    if (made == limit) {
        count = claim(self, limit, wait, before > 0, fresh);
    }
    if (count < (Py_ssize_t)limit) { /* nothing is allocated for that */
        PyList_SetSlice(list, before + count, before + (Py_ssize_t)made, NULL);
    }
    return count;
}

/* Up to `limit` messages as a list: a new reference, or NULL, as claim_one. */
static PyObject *claim_many(Hand *self, long limit, bool wait)
{
    PyObject *const list = load_relaxed(&self->ring) == NULL ? NULL : PyList_New(0);
    uint32_t most = load_relaxed(&self->round); /* a guess, which threads need not agree on */
    limit = limit < MOST ? limit : MOST;
    for (long left = limit; list != NULL && left > 0;) {
        const uint32_t round = left < (long)most ? (uint32_t)left : most;
        const Py_ssize_t count = claim_round(self, list, round, wait && left == limit);
        left -= count;
        if (count < (Py_ssize_t)round) {
            most = count < ROUND_MIN ? ROUND_MIN : (uint32_t)count;
            break;
        }
        most = most < ROUND / 2 ? most * 2 : ROUND;
    }
    store_relaxed(&self->round, most);
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
    return message->owner == (PyObject *)self && message_is_held(message) && message->pid == self->pid
           && !shmq_taken_forwards(&message->taken);
}
/* Inside the ring. */
static bool finishes_here(const Hand *self) { return !self->syncs && !shmq_ring_forked(self->ring); }

static void is_over(Hand *self, Message *message)
{
    store_relaxed(&message->over, true);
    held_drop(self->held, message);
}

bool is_hand(PyObject *object) { return PyObject_TypeCheck(object, hand_type); }

bool hand_acks(Message *message)
{
    Hand *const self = (Hand *)message->owner;
    bool done = false;
    if (!is_hand(message->owner)) {
        return false;
    }
    ALONE_WITH(self)
    Mutex *const lock = ring_entered(self);
    if (lock != NULL) {
        done = is_mine(self, message) && finishes_here(self) && shmq_ring_ack(self->ring, &message->taken) == SHMQ_OK;
        if (done) {
            is_over(self, message);
            counted_acked(&self->end, self->ring, 1);
        }
        ring_left(lock);
    }
    ALONE_NO_MORE
    return done;
}

/* Those of one round: false when one of them is still to be finished, or was lost. */
static bool ack_round(Hand *self, Message *const *messages, uint32_t count)
{
    shmq_taken taken[ROUND];
    uint64_t acked = 0;
    bool all = true;
    for (uint32_t i = 0; i < count; i++) {
        taken[i] = messages[i]->taken;
    }
    shmq_ring_ack_many(self->ring, count, taken);
    for (uint32_t i = count; i-- > 0;) { /* the last first: what stands behind what is dropped moves up */
        messages[i]->taken.word = taken[i].word; /* and nothing else of it changes but this, or other threads would read it */
        messages[i]->taken.entry = taken[i].entry;
        store_relaxed(&messages[i]->over, false);
        if (taken[i].word == 0) {
            is_over(self, messages[i]);
            acked++;
        }
        all = all && taken[i].word == 0;
    }
    counted_acked(&self->end, self->ring, acked);
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
            store_relaxed(&message->over, true);
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

/* All of them, if they can be finished here: whether they are now. */
static bool ack_here(Hand *self, PyObject *const *messages, Py_ssize_t count)
{
    bool all = false;
    ALONE_WITH(self)
    Mutex *const lock = ring_entered(self);
    if (lock != NULL) {
        all = ack_is_plain(self, messages, count) && ack_all(self, messages, count);
        ring_left(lock);
    }
    ALONE_NO_MORE
    return all;
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
        all = ack_here(self, round, some);
    }
    return all;
}

/* ack(*messages) */
static PyObject *hand_ack(Hand *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (names == NULL && ack_here(self, args, count)) {
        Py_RETURN_NONE;
    }
    return otherwise(&self->end, "_ack_all", NULL, args, count, names);
}

/* ---------------------------------------------------------------- forwarded
 * In the plain case: it is this member's and was never forwarded before, and every queue knows the member, and has room. All
 * of it happens inside the ring, so that no other thread closes the member, or ends the message, in between. */
static const struct target *target_of(const Hand *self, uint64_t tail)
{
    for (size_t i = 0; i < TARGETS; i++) {
        if (self->targets[i].tail == tail) {
            return &self->targets[i];
        }
    }
    return NULL;
}

bool hand_leads(const Message *message, const char *source, Tail *tail, PyObject *path)
{
    Hand *const self = (Hand *)message->owner;
    if (self == NULL || !is_hand(message->owner)) {
        return false;
    }
    PyObject *before = NULL;
    ALONE_WITH(self)
    if (target_of(self, tail->number) == NULL) {
        struct target *const target = &self->targets[self->targeted++ % TARGETS];
        before = target->path;
        memcpy(self->source.bytes, source, SOURCE_BYTES);
        *target = (struct target){tail->number, Py_NewRef(path)};
    }
    ALONE_NO_MORE
    Py_XDECREF(before);
    return true;
}

bool hand_forwards(const Message *message, struct source *source)
{
    Hand *const self = (Hand *)message->owner;
    bool may = false;
    if (self == NULL || !is_hand(message->owner)) {
        return false;
    }
    ALONE_WITH(self)
    if (self->ring != NULL && self->targeted > 0) {
        may = is_mine(self, message) && finishes_here(self);
        *source = self->source;
    }
    ALONE_NO_MORE
    return may;
}

PyObject *hand_target(const Message *message, Tail *tail)
{
    Hand *const self = (Hand *)message->owner;
    PyObject *path = NULL;
    ALONE_WITH(self)
    const struct target *const target = target_of(self, tail->number);
    path = target == NULL ? NULL : Py_NewRef(target->path);
    ALONE_NO_MORE
    return path;
}

static bool all_fit(uint32_t count, const struct claimed *claims)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!shmq_put_fits(claims[i].chunk, claims[i].count, claims[i].bytes)) {
            return false;
        }
    }
    return true;
}

/* All of it, by one claim each: how many were put. Before each one is asked whether it is still ours to put. */
static uint32_t put_claims(Hand *self, uint32_t count, struct claimed *claims)
{
    uint32_t put = 0;
    while (put < count && shmq_ring_seated(self->ring)) {
        struct claimed *const claim = &claims[put];
        claim->first = shmq_put_each(claim->chunk, claim->count, claim->fields, claim->payloads, claim->lengths);
        if (claim->first < 0) {
            break;
        }
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < claim->count; i++) {
            bytes += claim->lengths[i];
        }
        shmq_count_put(claim->chunk, claim->count, bytes);
        put++;
    }
    return put;
}

/* Inside the ring. When a put did not go through after all, or somebody may have put before, it is held again as before, and
 * whoever forwards it next looks for what was put: the bit says so that shmq_ring_forward has set. */
static bool forward_here(Hand *self, Message *message, uint32_t count, struct claimed *claims)
{
    bool again = false;
    if (!all_fit(count, claims) || shmq_ring_forward(self->ring, &message->taken, &again) != SHMQ_OK) {
        return false;
    }
    if (!again && put_claims(self, count, claims) == count && shmq_ring_ack(self->ring, &message->taken) == SHMQ_OK) {
        is_over(self, message);
        counted_acked(&self->end, self->ring, 1);
        return true;
    }
    if (shmq_ring_unforward(self->ring, &message->taken) != SHMQ_OK) { /* it is not ours any more */
        message->taken.word = 0;
        held_drop(self->held, message);
    }
    return false;
}

bool hand_puts(Message *message, const struct source *source, uint32_t count, struct claimed *claims)
{
    Hand *const self = (Hand *)message->owner;
    bool done = false;
    ALONE_WITH(self)
    Mutex *const lock = ring_entered(self);
    if (lock != NULL) {
        done = self->source.turn == source->turn && is_mine(self, message) && finishes_here(self)
               && forward_here(self, message, count, claims);
        ring_left(lock);
    }
    ALONE_NO_MORE
    return done;
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
