/* index.h - a chunk's index, as the other files of the core use it. */
#ifndef SHMQ_INDEX_H
#define SHMQ_INDEX_H

#include "chunk/walk.h"

/* Make the whole index of a chunk anew from its words before `end`, in the blocks that are there. Nobody else may be at
 * the chunk. What is right already is not written. */
void index_rebuild(shmq_chunk *chunk, uint64_t end);

/* The first `made` of a new chunk's `slots` blocks, behind index2index, into zeros. */
void index_blocks_format(uint8_t *memory, uint32_t slots, uint32_t made);

/* Room for what is known of a chunk's entries; NULL when it has none, or there is no memory. */
uint32_t *index_proven_new(const struct chunk_header *header);

/* Bytes of the index blocks between two places. One whose maker died before it said where it is does not count. */
uint64_t index_bytes(const shmq_chunk *chunk, uint64_t from, uint64_t to);

#endif
