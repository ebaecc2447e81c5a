/* index.c - where a chunk's index lies: index2index -> index block -> entry.
 *
 * Entry j names the last word that a walk visits whose ordinal is <= spacing * j, and the running maximum of time_ns
 * up to and with that word. What every entry keeps to, whoever writes it:
 *
 *   1. It is written after the region's commit, or by a walker that passed it; for an ordinal inside a PAD it names the
 *      PAD. A resolved region never changes, so an entry is a function of the chunk's words: all writers write the same
 *      value, in any order, late or twice.
 *   2. Its time is written only when everything before it is resolved and was looked at; 0 is "not known". (A maximum
 *      of exactly 0 is never known. It costs a walk.)
 *   3. It may be missing. There is no entry 0: that is the chunk's first word.
 *
 * Nothing here is believed: proof.c says what an entry is worth. note.c writes entries, find.c and find_time.c go by them,
 * reindex.c makes them all anew.
 *
 * A block is claimed by one CAS FREE -> META at the tail, so it begins as zeros; then its position goes into its slot
 * of index2index by another CAS. Killed in between, or second in the race for the slot, a block is an orphan that walks
 * step over. A chunk too small to spare a sixteenth for a block has none: walking it is short. In a chunk with a grain
 * blocks stand where they were made with it, and no others are made: what lies at its tail is not zero. */
#include "chunk/index.h"

#include <inttypes.h>
#include <stdlib.h>

#include "chunk/entry.h"
#include "error.h"

/* ------------------------------------------------------------------ blocks */
/* Could a block be at that position? */
static bool block_fits(const shmq_chunk *chunk, uint64_t position)
{
    return position >= index_slots_end(chunk->index_blocks) && position % SPAN_UNIT == 0
           && position <= chunk->capacity - SEAL_BYTES - BLOCK_BYTES;
}

/* Is there a block of that number at that position? */
static bool block_is_there(const shmq_chunk *chunk, uint64_t number, uint64_t position)
{
    if (!block_fits(chunk, position) || load_relaxed(word_at(chunk, position)) != BLOCK_WORD) {
        return false;
    }
    struct index_block *const block = (struct index_block *)(chunk->memory + position);
    const uint32_t kind = load_relaxed(&block->kind); /* 0: its maker has not come to it */
    return kind == 0 || (kind == META_INDEX && load_relaxed(&block->number) == number);
}

void index_blocks_format(uint8_t *memory, uint32_t slots, uint32_t made)
{
    for (uint32_t number = 0; number < made; number++) {
        const uint64_t position = block_ahead(slots, number);
        block_write(memory, position, number);
        memcpy(memory + index_slots_end(number), &position, sizeof position);
    }
}

/* Claim room for a block at the tail: its position, or 0 when there is none. */
static uint64_t block_claim(shmq_chunk *chunk)
{
    if (chunk->grain != SPAN_UNIT) {
        return 0; /* what it would begin as is not zero there */
    }
    struct walk walk = walk_from_hint(chunk);
    for (;;) {
        const word_t word = walk_look(chunk, &walk);
        if (word == 0) {
            if (BLOCK_BYTES + TAIL_RESERVE > chunk->capacity - walk.position) {
                return 0;
            }
            if (cas_relaxed(word_at(chunk, walk.position), word, BLOCK_WORD)) { /* nothing before it to be ordered */
                hint_raise(chunk, walk.position + BLOCK_BYTES, walk.ordinal);
                return walk.position;
            }
            continue;
        }
        if (word_seals(word) || walk_past(chunk, &walk, word) != SHMQ_OK) {
            return 0;
        }
    }
}

uint64_t index_bytes(const shmq_chunk *chunk, uint64_t from, uint64_t to)
{
    uint64_t bytes = 0;
    for (uint64_t number = 0; number < chunk->index_blocks; number++) {
        const uint64_t position = load_acquire(slot_at(chunk, number)); /* as in block_of */
        bytes += position >= from && position < to && block_is_there(chunk, number, position) ? BLOCK_BYTES : 0;
    }
    return bytes;
}

static uint64_t block_make(shmq_chunk *chunk, uint64_t number, uint64_t seen)
{
    const uint64_t position = block_claim(chunk);
    /* Release: the block's word before it. Pairs with the acquire in block_of. */
    if (position == 0 || !cas_release(slot_at(chunk, number), seen, position)) {
        return position == 0 ? 0 : load_relaxed(slot_at(chunk, number)); /* somebody was faster: ours is an orphan */
    }
    struct index_block *const block = (struct index_block *)(chunk->memory + position);
    store_relaxed(&block->number, (uint32_t)number);
    store_release(&block->kind, META_INDEX); /* the number before it; read relaxed: a block without one is one, too */
    return position;
}

uint64_t block_of(shmq_chunk *chunk, uint64_t number, bool make)
{
    if (number >= chunk->index_blocks || BLOCK_BYTES > chunk->capacity / 16) {
        return 0;
    }
    /* Acquire: the block's word. Pairs with the release in block_make. */
    const uint64_t position = load_acquire(slot_at(chunk, number));
    if (block_is_there(chunk, number, position)) {
        return position;
    }
    return make ? block_make(chunk, number, position) : 0;
}

/* ------------------------------------------------------------------ entries */
/* Entry j, to be written: its block is looked at first. */
struct index_entry *entry_at(shmq_chunk *chunk, uint64_t j, bool make)
{
    const uint64_t block = block_of(chunk, j / INDEX_ENTRIES, make);
    return block == 0 ? NULL : entry_in(chunk, block, j);
}

bool entry_load(shmq_chunk *chunk, uint64_t j, struct entry *entry)
{
    /* The block itself is not looked at: that would be a cache line more, and an entry is not believed anyway.
     * Acquire: its zeros. Pairs with the release in block_make. */
    const uint64_t block = j / INDEX_ENTRIES < chunk->index_blocks ? load_acquire(slot_at(chunk, j / INDEX_ENTRIES)) : 0;
    if (!block_fits(chunk, block)) {
        return false;
    }
    struct index_entry *const at = entry_in(chunk, block, j);
    /* Acquire: the region it names, and the time. Pairs with the release in entry_put. */
    const uint64_t place = load_acquire(&at->place);
    const uint64_t ordinal = hint_ordinal(place);
    *entry = (struct entry){{hint_position(place), ordinal}, load_relaxed(&at->time_max_ns)};
    const uint64_t wanted = j * chunk->index_spacing;
    return entry->walk.position >= chunk->first_position && entry->walk.position + SEAL_BYTES <= chunk->capacity
           && ordinal <= wanted && wanted - ordinal < COUNT_MAX;
}

void entry_put(shmq_chunk *chunk, uint64_t j, const struct walk *walk, int64_t time_max, bool make)
{
    struct index_entry *const at = j == 0 ? NULL : entry_at(chunk, j, make);
    if (at == NULL) {
        return;
    }
    const uint64_t place = hint_make(walk->position, walk->ordinal);
    const bool new_place = load_relaxed(&at->place) != place;
    if (time_max != TIME_UNKNOWN ? load_relaxed(&at->time_max_ns) != time_max : new_place) {
        store_relaxed((uint64_t *)&at->time_max_ns, (uint64_t)time_max);
    }
    if (new_place) {
        store_release(&at->place, place); /* pairs with the acquire in entry_load */
    }
}

uint64_t entry_before(shmq_chunk *chunk, uint64_t j, struct entry *entry)
{
    const uint64_t entries = (uint64_t)chunk->index_blocks * INDEX_ENTRIES;
    for (j = j < entries ? j : entries - 1; j > 0; j--) {
        if (entry_load(chunk, j, entry)) {
            return j;
        }
        if (block_of(chunk, j / INDEX_ENTRIES, false) == 0) {
            j -= j % INDEX_ENTRIES;
            if (j == 0) {
                break;
            }
        }
    }
    return 0;
}

uint32_t *index_proven_new(const struct chunk_header *header)
{
    const bool none = BLOCK_BYTES > header->capacity / 16;
    return none ? NULL : calloc((size_t)header->index_blocks * INDEX_ENTRIES, sizeof(uint32_t));
}

/* ------------------------------------------------------------------ who may look */
int may_look(const shmq_chunk *chunk)
{
    if (member_forked(chunk->member)) {
        return error_forked();
    }
    if (chunk->sequence < load_relaxed(&chunk->member->control->first_live)) {
        return error_set(SHMQ_RETIRED, "chunk %016" PRIx64 "-%08" PRIx64 " was retired", chunk->base, chunk->sequence);
    }
    return SHMQ_OK;
}
