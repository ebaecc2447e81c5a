/* index.h - a chunk's index, as the other files of the core use it. */
#ifndef SHMQ_INDEX_H
#define SHMQ_INDEX_H

#include "chunk/walk.h"

/* A region was committed; it reached a multiple of the spacing. Never called before the commit. */
void index_note(shmq_chunk *chunk, uint64_t position, uint64_t ordinal, uint32_t count);

/* After every commit: one comparison, but for about each spacing-th message. */
static inline void index_pass(shmq_chunk *chunk, uint64_t position, uint64_t ordinal, uint32_t count)
{
    if (ordinal + count > load_relaxed(&chunk->index_next)) {
        index_note(chunk, position, ordinal, count);
    }
}

/* Make the whole index of a chunk anew from its words before `end`, in the blocks that are there. Nobody else may be at
 * the chunk. What is right already is not written. */
void index_rebuild(shmq_chunk *chunk, uint64_t end);

/* The first `made` of a new chunk's `slots` blocks, behind index2index, into zeros. */
void index_blocks_format(uint8_t *memory, uint32_t slots, uint32_t made);

/* Room for what is known of a chunk's entries; NULL when it has none, or there is no memory. */
uint32_t *index_proven_new(const struct chunk_header *header);

struct found {
    struct walk walk; /* the region that holds the ordinal, or the chunk's end */
    word_t word;      /* as it was */
    int64_t place;    /* DONE: its payload's place, or CORRUPT */
};

/* The word whose region holds `ordinal`: OK, or EMPTY and ROLL at the chunk's end, or CORRUPT. `floor` is a place that
 * a walk surely visits; from there or from an index entry, whichever is nearer. */
int index_find(shmq_chunk *chunk, uint64_t ordinal, struct walk floor, struct found *found);
/* The same for whoever does not read it: `place` is CORRUPT, and no checksum is looked at where none has to prove the way. */
int index_find_place(shmq_chunk *chunk, uint64_t ordinal, struct walk floor, struct found *found);
/* Bytes of the index blocks between two places. One whose maker died before it said where it is does not count. */
uint64_t index_bytes(const shmq_chunk *chunk, uint64_t from, uint64_t to);

#endif
