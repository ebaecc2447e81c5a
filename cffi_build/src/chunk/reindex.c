/* reindex.c - a chunk's index, made anew from its words: after a repair, and where it is asked whether it is whole.
 *
 * Nobody else is at the chunk. What is right already is not written, so that a second recovery changes nothing. */
#include "chunk/index.h"
#include "chunk/note.h"

static void set(uint64_t *at, uint64_t value)
{
    if (load_relaxed(at) != value) {
        store_relaxed(at, value);
    }
}

static void adopt_block(shmq_chunk *chunk, uint64_t position, uint64_t number)
{
    block_write(chunk->memory, position, number);
    set(slot_at(chunk, number), position);
}

/* The blocks that a walk meets become numbers 0, 1, 2 ... in that order; slots without one are emptied. */
static uint64_t adopt_blocks(shmq_chunk *chunk, uint64_t end)
{
    uint64_t number = 0;
    if (chunk->grain != SPAN_UNIT) {
        for (; number < index_blocks_ahead(chunk->capacity, chunk->index_blocks); number++) {
            adopt_block(chunk, block_ahead(chunk->index_blocks, number), number);
        }
    }
    struct walk walk = walk_from_start(chunk);
    while (walk.position < end && number < chunk->index_blocks) {
        const uint64_t position = walk.position;
        const word_t word = walk_look(chunk, &walk);
        if (word_ends(word) || step(chunk, &walk, word) != SHMQ_OK) {
            break;
        }
        if (word == BLOCK_WORD) {
            adopt_block(chunk, position, number++);
        }
    }
    for (uint64_t empty = number; empty < chunk->index_blocks; empty++) {
        set(slot_at(chunk, empty), 0);
    }
    return number;
}

bool shmq_indexed(shmq_chunk *chunk, uint64_t ordinals)
{
    if (BLOCK_BYTES > chunk->capacity / 16) {
        return true; /* it has none */
    }
    for (uint64_t j = 1; j * chunk->index_spacing < ordinals && j / INDEX_ENTRIES < chunk->index_blocks; j++) {
        struct entry entry;
        if ((j % INDEX_ENTRIES == 0 || j == 1) && block_of(chunk, j / INDEX_ENTRIES, false) == 0) {
            return false;
        }
        if (!entry_load(chunk, j, &entry)) {
            return false;
        }
    }
    return true;
}

void index_rebuild(shmq_chunk *chunk, uint64_t end)
{
    const uint64_t entries = adopt_blocks(chunk, end) * INDEX_ENTRIES;
    const uint64_t spacing = chunk->index_spacing;
    uint64_t next = 1; /* the entry to be written next; there is no entry 0 */
    struct running_max running_max = {true, INT64_MIN};
    struct walk walk = walk_from_start(chunk);
    while (walk.position < end && next < entries) {
        const struct walk here = walk;
        const word_t word = walk_look(chunk, &walk);
        if (word_ends(word) || running_max_step(chunk, &walk, word, &running_max) != SHMQ_OK) {
            break;
        }
        for (; next < entries && next * spacing < walk.ordinal; next++) {
            struct index_entry *const at = entry_in(chunk, load_relaxed(slot_at(chunk, next / INDEX_ENTRIES)), next);
            set(&at->place, hint_make(here.position, here.ordinal));
            set((uint64_t *)&at->time_max_ns, running_max.known ? (uint64_t)running_max.time : TIME_UNKNOWN);
        }
    }
    for (; next < entries; next++) {
        struct index_entry *const at = entry_in(chunk, load_relaxed(slot_at(chunk, next / INDEX_ENTRIES)), next);
        set(&at->place, 0);
        set((uint64_t *)&at->time_max_ns, 0);
    }
}
