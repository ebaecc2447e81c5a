/* entry.h - blocks and entries of a chunk's index, as the files that speak of the index share them. */
#ifndef SHMQ_ENTRY_H
#define SHMQ_ENTRY_H

#include "chunk/walk.h"

#define BLOCK_BYTES INDEX_BLOCK_BYTES
#define BLOCK_WORD word_make(WORD_META, 0, 0, BLOCK_BYTES / SPAN_UNIT)
#define TIME_UNKNOWN 0

static inline uint64_t *slot_at(const shmq_chunk *chunk, uint64_t number)
{
    return (uint64_t *)(chunk->memory + CHUNK_HEADER_BYTES + sizeof(struct index2index)) + number;
}

/* Where block `number` of a chunk with a grain stands. */
static inline uint64_t block_ahead(uint32_t slots, uint64_t number) { return index_slots_end(slots) + number * BLOCK_BYTES; }
static inline void block_write(uint8_t *memory, uint64_t position, uint64_t number)
{
    const struct index_block block = {BLOCK_WORD, META_INDEX, (uint32_t)number};
    shared_write(memory + position, &block, sizeof block);
}
/* Block `number`, made if it is not there: its position, or 0. */
uint64_t block_of(shmq_chunk *chunk, uint64_t number, bool make);

static inline struct index_entry *entry_in(const shmq_chunk *chunk, uint64_t block, uint64_t j)
{
    return (struct index_entry *)(chunk->memory + block + sizeof(struct index_block)) + j % INDEX_ENTRIES;
}
/* Entry j, to be written: its block is looked at first. */
struct index_entry *entry_at(shmq_chunk *chunk, uint64_t j, bool make);

/* An entry, if there is one that could be true. */
struct entry {
    struct walk walk;
    int64_t time_max;
};
bool entry_load(shmq_chunk *chunk, uint64_t j, struct entry *entry);
/* Write entry j, unless it says so already. */
void entry_put(shmq_chunk *chunk, uint64_t j, const struct walk *walk, int64_t time_max, bool make);
/* The nearest entry at or before j that has a place; 0 for none. */
uint64_t entry_before(shmq_chunk *chunk, uint64_t j, struct entry *entry);

/* walk_past, with its plain case in line: a lookup steps over some thirty messages. */
static inline int step(const shmq_chunk *chunk, struct walk *walk, word_t word)
{
    const uint64_t bytes = word_bytes(word);
    if (word >> WORD_COUNT_SHIFT == (WORD_DONE << (WORD_STATE_SHIFT - WORD_COUNT_SHIFT) | 1)
        && bytes >= RECORD_HEADER_BYTES && bytes <= chunk->capacity - SEAL_BYTES - walk->position) {
        walk->position += bytes;
        walk->ordinal += 1;
        return SHMQ_OK;
    }
    return walk_past(chunk, walk, word);
}

static inline bool word_ends(word_t word) { return word == 0 || word_seals(word); }

/* Whether this handle may look into the chunk at all: OK, FORKED or RETIRED. */
int may_look(const shmq_chunk *chunk);

#endif
