/* counts.h - what the built-ins do, counted: two plain steps in a line that nobody else writes (os/counted.c).
 *
 * Nobody else, because of the interpreter's lock, which whoever calls these has; where there is no such lock, and where a
 * seat has no line, the steps are atomic. */
#ifndef SHMQ_COUNTS_H
#define SHMQ_COUNTS_H

#include "atomic.h"
#include "chunk/chunk.h"
#include "python/hot.h"

static inline void count_plainly(uint64_t *count, uint64_t by)
{
#ifdef Py_GIL_DISABLED
    add_relaxed(count, by);
#else
    store_relaxed(count, load_relaxed(count) + by);
#endif
}

static inline void counted_put(const shmq_chunk *chunk, uint64_t messages, uint64_t bytes)
{
    struct counted *const mine = chunk->member->counted;
    if (mine == NULL || chunk->aside) {
        shmq_count_put(chunk, messages, bytes);
        return;
    }
    count_plainly(&mine->put_messages, messages);
    count_plainly(&mine->put_bytes, bytes);
}

/* Handed out. */
static inline void counted_taken(const shmq_chunk *chunk, uint64_t messages, uint64_t bytes)
{
    struct counted *const mine = chunk->member->counted;
    if (mine == NULL) {
        shmq_count_taken(chunk, messages, bytes);
        return;
    }
    count_plainly(&mine->taken_messages, messages);
    count_plainly(&mine->taken_bytes, bytes);
}

static inline void counted_acked(const shmq_member *member, uint64_t messages)
{
    if (member->counted == NULL) {
        shmq_count(member->control, SHMQ_COUNT_ACKED, messages);
        return;
    }
    count_plainly(&member->counted->acked, messages);
}

/* So many messages, up to one of that index, were handed out for the first time: time that one, if it is its turn. */
static inline void timed_taken(const shmq_chunk *chunk, uint64_t messages, uint64_t index, uint64_t record)
{
    if (index % LATENCY_EVERY < messages) {
        shmq_count_latency(chunk, record);
    }
}

#endif
