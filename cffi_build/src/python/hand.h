/* hand.h - what a message asks of the group's member that handed it out. */
#ifndef SHMQ_HAND_H
#define SHMQ_HAND_H

#include "python/message.h"
#include "python/tail.h"

/* Acknowledge it in the plain case; false when Python has to try (again). */
bool hand_acks(Message *message);
bool is_hand(PyObject *object);

/* ---------------------------------------------------------------- forwarded
 * What its member has learnt of forwarding: what it is known by elsewhere, and which queues know that. It is learnt anew when
 * `turn` is another one. */
enum { SOURCE_BYTES = 16 };
struct source {
    uint64_t turn;
    char bytes[SOURCE_BYTES];
};
/* What the member of that message is known by in the queue of that path, where that Tail puts. Under its lock. False: it has no
 * member. */
bool hand_leads(const Message *message, const char *source, Tail *tail, PyObject *path);
/* Whether that message may be forwarded in the plain case, as things stand; if so, what its member is known by. */
bool hand_forwards(const Message *message, struct source *source);
/* Where that Tail puts to, its queue's path, if that queue knows the member: a new reference, or NULL, without an exception. */
PyObject *hand_target(const Message *message, Tail *tail);
/* Some messages for one queue, by one claim. */
struct claimed {
    shmq_chunk *chunk;
    uint32_t count;
    uint64_t bytes;
    const shmq_fields *fields;
    const char *const *payloads;
    const uint64_t *lengths;
    int64_t first; /* out: the index of the first one */
};
/* Forward it: all of that is put, and it is finished. False where Python has to try, which looks for what was put. */
bool hand_puts(Message *message, const struct source *source, uint32_t count, struct claimed *claims);
/* A new Forward of that message, or NULL: with an exception, or where Python makes it. In hot_forward.c. */
PyObject *forward_of(Message *message);

#endif
