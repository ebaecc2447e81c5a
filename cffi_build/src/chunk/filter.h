/* filter.h - which messages a name wants, asked of a record before anybody is handed it. */
#ifndef SHMQ_FILTER_H
#define SHMQ_FILTER_H

#include "chunk/chunk.h"

/* A look passes so many messages that do not match, then it says so, and how far it has come. */
#define PASS_MOST 1024u

/* Does the message of a DONE word match? 1, or 0, or CORRUPT when its frame is none. Its checksum is not looked at: what
 * does not match is passed over, damaged or not. */
int filter_matches(const shmq_filter *filter, const shmq_chunk *chunk, uint64_t position, uint64_t ordinal, word_t word);

#endif
