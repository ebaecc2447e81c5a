/* seal.h - what recovery leaves before a SEAL. */
#ifndef SHMQ_SEAL_H
#define SHMQ_SEAL_H

#include "chunk/chunk.h"

/* Is there a GAP at that word? Recovery writes one before the SEAL of a chunk that it cut; then *next_index is set. */
bool gap_at(const shmq_chunk *chunk, uint64_t position, word_t word, uint64_t *next_index);
/* A GAP and its SEAL: they are there once the first word is, which is stored last. */
void gap_write(const shmq_chunk *chunk, uint64_t position, uint64_t next_index);

#endif
