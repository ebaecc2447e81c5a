/* bounds.h - what a bounded queue asks of its producers and consumers, as the other files of the core see it. */
#ifndef SHMQ_BOUNDS_H
#define SHMQ_BOUNDS_H

#include "chunk/chunk.h"

/* Has this queue bounds, or had it some? One load, of a line that nobody writes in a queue without. */
static inline bool bounded(const shmq_chunk *chunk)
{
    return load_relaxed(&chunk->member->control->bounds) != 0 && !chunk->aside;
}

/* Is this handle's limit still one to go by? */
bool limit_is_good(const shmq_chunk *chunk);
/* May this handle's chunk be claimed up to there? */
bool limit_allows(const shmq_chunk *chunk, uint64_t ordinal, uint64_t position);
/* The error of a claim beyond it: FULL. */
int bounds_full(void);
/* Was this message dropped before its name came to it? */
bool is_dropped(const shmq_chunk *chunk, const struct checkpoint *checkpoint, uint64_t index);
/* Is it passed by the reader's name, since it was dropped or purged before it came to it? */
static inline bool reader_drops(const shmq_chunk *chunk, const shmq_reader *reader, uint64_t index)
{
    return reader->checkpoint != NULL && bounded(chunk) && is_dropped(chunk, reader->checkpoint, index);
}
/* This name has passed a dropped message. */
void note_dropped(struct checkpoint *checkpoint);

#endif
