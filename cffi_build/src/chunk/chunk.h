/* chunk.h - one mapped chunk: the handle that all files of the core know, and where what lies in it. */
#ifndef SHMQ_CHUNK_H
#define SHMQ_CHUNK_H

#include <stddef.h>

#include "atomic.h"
#include "layout.h"
#include "os/member.h"
#include "shmq.h"

/* How far a handle may claim: computed from the heads as they were, and good as long as `bounds` agrees. */
struct limit {
    uint64_t bounds;          /* control->bounds as it was before the heads were looked at */
    uint64_t ordinals;        /* claims may take ordinals below this one */
    uint64_t position;        /* and bytes before this place */
};

struct shmq_chunk {
    uint8_t *memory;
    uint64_t capacity;        /* from the checked header, never above what is mapped */
    uint64_t first_position;  /* behind header and index2index, and what stands behind that where there is a grain */
    uint64_t grain;           /* regions begin and end at multiples of it: SPAN_UNIT, if the header says nothing */
    uint64_t base;            /* index of ordinal 0 */
    uint64_t sequence;
    uint64_t epoch;
    uint64_t chunk_id;
    uint32_t crc_seed;        /* CRC of epoch and chunk id */
    uint64_t populated;       /* private: pages below it have been asked for */
    uint32_t index_spacing;
    uint32_t index_blocks;
    uint32_t *index_proven;   /* private, or NULL: by entry, the position in units that proved to be a walk's */
    uint64_t index_next;      /* private: a region that reaches beyond this ordinal is noted in the index */
    word_t seal;              /* private: how this handle seals the chunk */
    struct limit limit;       /* private: how far this handle may claim in a bounded queue */
    bool aside;               /* it is staged: nobody counts what is there */
    bool pads;                /* what the dead left is padded, though it is mapped to be read */
    bool writable;
    bool checksum;
    shmq_member *member;
};

static inline word_t *word_at(const shmq_chunk *chunk, uint64_t position)
{
    return (word_t *)(chunk->memory + position);
}

static inline uint64_t round_to(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) & ~(unit - 1); }
static inline uint64_t round_up(uint64_t bytes) { return round_to(bytes, SPAN_UNIT); }

/* A chunk's header says where what lies in it. */
static inline uint64_t index_slots_end(uint32_t blocks)
{
    return CHUNK_HEADER_BYTES + sizeof(struct index2index) + (uint64_t)blocks * SPAN_UNIT;
}
/* Index blocks that stand behind index2index from the beginning, where there is a grain. */
static inline uint32_t index_blocks_ahead(uint64_t capacity, uint32_t blocks)
{
    const uint64_t share = capacity / INDEX_SHARE / INDEX_BLOCK_BYTES;
    return share < blocks ? (uint32_t)share : blocks;
}

#endif
