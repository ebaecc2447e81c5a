/* proof.h - is what an entry of the index says a place that a walk visits? */
#ifndef SHMQ_PROOF_H
#define SHMQ_PROOF_H

#include "chunk/entry.h"

/* Is what entry j says a place that a walk visits? */
bool proven(shmq_chunk *chunk, uint64_t j, const struct walk *walk);
/* Was it found to be one, by this handle? */
bool proven_before(const shmq_chunk *chunk, uint64_t j, const struct walk *walk);
/* It is one. */
void prove(const shmq_chunk *chunk, uint64_t j, const struct walk *walk);

static inline uint16_t place_in_batch(const shmq_chunk *chunk, uint64_t position)
{
    uint16_t place;
    shared_read(&place, chunk->memory + position + offsetof(struct record, place), sizeof place);
    return place;
}

#endif
