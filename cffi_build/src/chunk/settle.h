/* settle.h - what becomes of a claim whose owner may be dead. */
#ifndef SHMQ_SETTLE_H
#define SHMQ_SETTLE_H

#include "chunk/chunk.h"

/* A region that is still claimed: OK when its owner is dead and it has been padded, WAITING when not, or CORRUPT. */
int settle(shmq_chunk *chunk, uint64_t position, word_t word);

#endif
