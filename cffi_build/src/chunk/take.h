/* take.h - a reader, as it is moved: by take.c message by message, by gather.c column by column. */
#ifndef SHMQ_TAKE_H
#define SHMQ_TAKE_H

#include "chunk/walk.h"

/* Nothing is there for a consumer any more: why, its wait says. Readers look on. */
bool reader_is_shut(const shmq_chunk *chunk, const shmq_reader *reader);
/* One thread at a time moves a reader: false when another one does. */
bool reader_begin(shmq_reader *reader, struct walk *walk);
void reader_end(shmq_reader *reader, const struct walk *walk);
/* Before what was read up to reader->index is returned: move the words of the reader's checkpoint, if it has one. */
void reader_publish(const shmq_chunk *chunk, const shmq_reader *reader, const struct walk *walk);
/* The same of what was passed since it does not match, up to where the walk stands. */
void reader_publish_passed(const shmq_chunk *chunk, const shmq_reader *reader, const struct walk *walk);
/* Is the message of that DONE word passed, since the reader's filter does not want it? 1, 0, CORRUPT when it is none, or
 * PASSED when enough were, in this look, unless it goes `on`. */
int reader_asks(const shmq_chunk *chunk, shmq_reader *reader, const struct walk *walk, word_t word, bool on);
static inline int reader_passes(const shmq_chunk *chunk, shmq_reader *reader, const struct walk *walk, word_t word, bool on)
{
    return reader->filter == NULL ? 0 : reader_asks(chunk, reader, walk, word, on);
}

#endif
