/* tail.h - what the built-ins know of the end of a queue that is put into, and of what a message carries there. */
#ifndef SHMQ_TAIL_H
#define SHMQ_TAIL_H

#include "python/end.h"

#define COPY_WITH_THE_LOCK 65536 /* while larger payloads are copied in, other threads run */

typedef struct {
    End end;
    PyObject *sync;        /* the module shmq.storage.sync, if each put waits for the disk; else NULL */
    int64_t mark_due_ns;   /* likewise: from then on puts go to Python, which moves the watermark */
    PyObject *pack;        /* what encodes headers, once somebody has had some; else NULL */
    int64_t ttl_ns;        /* of messages that are given none; -1 for ever */
    PyObject *known[2];    /* of puts with dedup, {name: (address of a shmq_once, what keeps that alive)}: of names that ... */
    uint64_t number;       /* which Tail of this process: no other one ever has the same */
} Tail;

enum { OF_STR, OF_BYTES }; /* ... are a str, and bytes, which are never compared with each other; NULL when there are none */

/* The chunk that is put into now, or NULL where everything goes to Python; it stays mapped until its keep is disowned, whoever
 * moves this Tail meanwhile. Other threads may put at the same time: the core sorts that out. */
struct place {
    shmq_chunk *chunk;
    PyObject *keep;
};
struct place tail_place(Tail *self);
bool is_tail(PyObject *object);
/* put(payload, *, key, type, time_ns, headers, dedup, timeout) -> index */
PyObject *tail_put(Tail *self, PyObject *const *args, Py_ssize_t count, PyObject *names);

/* What a message carries. */
struct carried {
    shmq_fields fields;
    PyObject *key;        /* whose bytes the fields have; whoever gave it has it */
    int64_t ttl_ns;       /* -1 for ever */
    int64_t delay_ns;     /* 0 for none */
    PyObject *headers;    /* encoded; ours */
    shmq_once *once;      /* with that sequence, of that producer; `knows`, which is ours, keeps it alive */
    PyObject *knows;
    uint64_t sequence;
    char moments[2 * SHMQ_WHEN_BYTES + SHMQ_DEDUP_BYTES];
};
/* What a message carries that is forwarded, by the keywords of a put but dedup= and timeout=: 1 when it was understood, 0 when
 * Python has to look at it, -1 with an exception. Its moments are as of now, those that its `fixed_flags` name. */
int tail_carry(Tail *self, struct carried *carried, PyObject *const *values, PyObject *names);

#endif
