/* counts.h - what the built-ins do, counted: plain steps in a line that nobody else writes (os/counted.c).
 *
 * Nobody else, because of the interpreter's lock, which whoever calls these has; where there is no such lock, and where a
 * seat has no line, the steps are atomic. A put takes some 130 ns, so each instruction here counts, too. */
#ifndef SHMQ_COUNTS_H
#define SHMQ_COUNTS_H

#include "atomic.h"
#include "layout.h"
#include "python/end.h"

static inline void count_here(uint64_t *count, uint64_t by)
{
#ifdef Py_GIL_DISABLED
    add_relaxed(count, by);
#else
    uint64_t now;
    shared_read(&now, count, sizeof now); /* both in one instruction, which the words of an atomic load and store are not */
    now += by;
    shared_write(count, &now, sizeof now);
#endif
}

static inline void counted_put(const End *self, const shmq_chunk *chunk, uint64_t messages, uint64_t bytes)
{
    uint64_t *const mine = load_relaxed(&self->counts);
    if (mine == NULL) {
        shmq_count_put(chunk, messages, bytes);
        return;
    }
    count_here(&mine[offsetof(struct counted, put_messages) / sizeof *mine], messages);
    count_here(&mine[offsetof(struct counted, put_bytes) / sizeof *mine], bytes);
}

/* So many messages, up to one of that index, were handed out, for the first time: that one is timed, if it is its turn. */
static inline void counted_taken(const End *self, const shmq_chunk *chunk, uint64_t messages, uint64_t index, uint64_t record)
{
    uint64_t *const mine = load_relaxed(&self->counts);
    if (mine == NULL) {
        shmq_count_for(chunk, SHMQ_COUNT_TAKEN, messages);
    } else {
        count_here(&mine[SHMQ_COUNT_TAKEN], messages);
    }
    if (index % LATENCY_EVERY < messages) {
        shmq_count_latency(chunk, record);
    }
}

static inline void counted_acked(const End *self, const shmq_ring *ring, uint64_t messages)
{
    uint64_t *const mine = load_relaxed(&self->counts);
    if (mine == NULL) {
        shmq_ring_counted(ring, SHMQ_COUNT_ACKED, messages);
    } else {
        count_here(&mine[SHMQ_COUNT_ACKED], messages);
    }
}

#endif
