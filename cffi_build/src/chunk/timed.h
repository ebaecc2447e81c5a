/* timed.h - the times of a message. */
#ifndef SHMQ_TIMED_H
#define SHMQ_TIMED_H

#include "chunk/chunk.h"

/* Which times a message has: RECORD_EXPIRY, RECORD_DELAY. */
static inline uint16_t record_times(const shmq_chunk *chunk, uint64_t position)
{
    uint16_t flags;
    shared_read(&flags, chunk->memory + position + offsetof(struct record, flags), sizeof flags);
    return flags & (RECORD_EXPIRY | RECORD_DELAY);
}
/* The moment in such a field, on the clock since boot: of another boot, by the wall clock. */
int64_t record_moment(const shmq_chunk *chunk, uint64_t position);
/* A checked message that has a time, for a consumer: OK to hand it out, EMPTY when it is too old, WAITING when it is not
 * its time yet: a consumer alone keeps the order, and waits. */
int record_timely(const shmq_chunk *chunk, shmq_reader *reader, uint64_t position, uint16_t times);

#endif
