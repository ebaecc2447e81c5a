/* note.h - walking with the clock, and noting what was passed. */
#ifndef SHMQ_NOTE_H
#define SHMQ_NOTE_H

#include "chunk/entry.h"

static inline int64_t time_at(const shmq_chunk *chunk, uint64_t position)
{
    int64_t time;
    if (position + RECORD_HEADER_BYTES > chunk->capacity) {
        return INT64_MIN; /* an entry named it: no message is there */
    }
    shared_read(&time, chunk->memory + position + offsetof(struct record, time_ns), sizeof time);
    return time;
}

/* The running maximum at a place of a walk. */
struct running_max {
    bool known;
    int64_t time;
};
/* Step over a word, with the clock: a record is read only once its word was checked. */
int running_max_step(const shmq_chunk *chunk, struct walk *walk, word_t word, struct running_max *running_max);
/* The running maximum just before `to`, walking there from `from`: false when the walk does not come to it. */
bool running_max_between(const shmq_chunk *chunk, struct walk from, const struct walk *to, struct running_max *running_max);
/* Write every entry that belongs between a proven place and `until`, an ordinal. */
void index_fill(shmq_chunk *chunk, struct walk walk, struct running_max running_max, uint64_t until, bool make);

/* A region was committed; it reached a multiple of the spacing. Never called before the commit. */
void index_note(shmq_chunk *chunk, uint64_t position, uint64_t ordinal, uint32_t count);

/* After every commit: one comparison, but for about each spacing-th message. */
static inline void index_pass(shmq_chunk *chunk, uint64_t position, uint64_t ordinal, uint32_t count)
{
    if (ordinal + count > load_relaxed(&chunk->index_next)) {
        index_note(chunk, position, ordinal, count);
    }
}

#endif
