/* find.h - the word whose region holds an ordinal. */
#ifndef SHMQ_FIND_H
#define SHMQ_FIND_H

#include "chunk/walk.h"

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

#endif
