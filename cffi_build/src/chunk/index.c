/* index.c - from an ordinal, or a time, to a record: index2index -> index block -> about spacing words.
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
 * Nothing here is believed. An entry is a guess at where to begin; what is found from it counts when the record's own
 * ordinal and checksum say so, or when the record at the entry does; else the next earlier one is tried, at last the
 * chunk's first word. A record inside a batch proves nothing by itself: its word says DONE before the batch is committed,
 * and for ever when the batch is padded. So an entry that names one is walked to from before the batch, once. Times are held against their neighbours; if they disagree, the whole chunk is walked.
 *
 * A block is claimed by one CAS FREE -> META at the tail, so it begins as zeros; then its position goes into its slot
 * of index2index by another CAS. Killed in between, or second in the race for the slot, a block is an orphan that walks
 * step over. A chunk too small to spare a sixteenth for a block has none: walking it is short. In a chunk with a grain
 * blocks stand where they were made with it, and no others are made: what lies at its tail is not zero. */
#include "chunk/index.h"

#include <inttypes.h>
#include <stdlib.h>

#include "chunk/record.h"
#include "chunk/settle.h"
#include "error.h"

#define BLOCK_BYTES INDEX_BLOCK_BYTES
#define BLOCK_WORD word_make(WORD_META, 0, 0, BLOCK_BYTES / SPAN_UNIT)
#define TIME_UNKNOWN 0
#define NOTE_WALK 1024 /* ordinals a producer walks at most to learn the running maximum */
#define NOTE_BACK 16   /* entries it looks back for one to go on from */
#define DISTRUST (-1000) /* entries disagree with what they name; never leaves this file */


/* ------------------------------------------------------------------ blocks and entries */
static uint64_t *slot_at(const shmq_chunk *chunk, uint64_t number)
{
    return (uint64_t *)(chunk->memory + CHUNK_HEADER_BYTES + sizeof(struct index2index)) + number;
}

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

/* Where block `number` of a chunk with a grain stands. */
static uint64_t block_ahead(uint32_t slots, uint64_t number) { return index_slots_end(slots) + number * BLOCK_BYTES; }
static void block_write(uint8_t *memory, uint64_t position, uint64_t number)
{
    const struct index_block block = {BLOCK_WORD, META_INDEX, (uint32_t)number};
    shared_write(memory + position, &block, sizeof block);
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

static uint64_t block_of(shmq_chunk *chunk, uint64_t number, bool make)
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

static struct index_entry *entry_in(const shmq_chunk *chunk, uint64_t block, uint64_t j)
{
    return (struct index_entry *)(chunk->memory + block + sizeof(struct index_block)) + j % INDEX_ENTRIES;
}

/* Entry j, to be written: its block is looked at first. */
static struct index_entry *entry_at(shmq_chunk *chunk, uint64_t j, bool make)
{
    const uint64_t block = block_of(chunk, j / INDEX_ENTRIES, make);
    return block == 0 ? NULL : entry_in(chunk, block, j);
}

/* An entry, if there is one that could be true. */
struct entry {
    struct walk walk;
    int64_t time_max;
};
static bool entry_load(shmq_chunk *chunk, uint64_t j, struct entry *entry)
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

/* Write entry j, unless it says so already. */
static void entry_put(shmq_chunk *chunk, uint64_t j, const struct walk *walk, int64_t time_max, bool make)
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

/* The nearest entry at or before j that has a place; 0 for none. */
static uint64_t entry_before(shmq_chunk *chunk, uint64_t j, struct entry *entry)
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

static bool word_ends(word_t word) { return word == 0 || word_seals(word); }

/* ------------------------------------------------------------------ proof */
uint32_t *index_proven_new(const struct chunk_header *header)
{
    const bool none = BLOCK_BYTES > header->capacity / 16;
    return none ? NULL : calloc((size_t)header->index_blocks * INDEX_ENTRIES, sizeof(uint32_t));
}

static bool proven_before(const shmq_chunk *chunk, uint64_t j, const struct walk *walk)
{
    return chunk->index_proven != NULL
           && load_relaxed(&chunk->index_proven[j]) == (uint32_t)(walk->position / SPAN_UNIT);
}
static void prove(const shmq_chunk *chunk, uint64_t j, const struct walk *walk)
{
    if (chunk->index_proven != NULL && j / INDEX_ENTRIES < chunk->index_blocks) {
        store_relaxed(&chunk->index_proven[j], (uint32_t)(walk->position / SPAN_UNIT));
    }
}

static uint16_t place_in_batch(const shmq_chunk *chunk, uint64_t position)
{
    uint16_t place;
    shared_read(&place, chunk->memory + position + offsetof(struct record, place), sizeof place);
    return place;
}

/* Does a message begin there whose own ordinal and checksum agree, and whose word only a commit can have written? */
static bool proves_itself(const shmq_chunk *chunk, const struct walk *walk)
{
    const word_t word = walk_look(chunk, walk);
    struct walk behind = *walk;
    return word_state(word) == WORD_DONE && step(chunk, &behind, word) == SHMQ_OK
           && place_in_batch(chunk, walk->position) == 0
           && check_record(chunk, walk->position, walk->ordinal, word) >= 0;
}

/* Is what entry j says a place that a walk visits? */
static bool proven(shmq_chunk *chunk, uint64_t j, const struct walk *walk)
{
    bool true_place = proven_before(chunk, j, walk) || proves_itself(chunk, walk);
    if (!true_place) {
        struct entry entry;
        uint64_t k = j;
        do {
            k = entry_before(chunk, k - 1, &entry);
        } while (k != 0 && !proven_before(chunk, k, &entry.walk) && !proves_itself(chunk, &entry.walk));
        struct walk from = k == 0 ? walk_from_start(chunk) : entry.walk;
        while (from.position < walk->position) {
            const word_t word = walk_look(chunk, &from);
            if (word_ends(word) || step(chunk, &from, word) != SHMQ_OK) {
                break;
            }
        }
        true_place = from.position == walk->position && from.ordinal == walk->ordinal;
    }
    if (true_place) {
        prove(chunk, j, walk);
    }
    return true_place;
}

/* ------------------------------------------------------------------ walking with the clock */
static int64_t time_at(const shmq_chunk *chunk, uint64_t position)
{
    int64_t time;
    if (position + RECORD_HEADER_BYTES > chunk->capacity) {
        return INT64_MIN; /* an entry named it: no message is there */
    }
    shared_read(&time, chunk->memory + position + offsetof(struct record, time_ns), sizeof time);
    return time;
}

/* The running maximum at a place of a walk. */
struct summit {
    bool known;
    int64_t time;
};
static void summit_pass(const shmq_chunk *chunk, struct summit *summit, const struct walk *walk, word_t word)
{
    if (word_state(word) == WORD_CLAIMED) {
        summit->known = false;
    } else if (word_state(word) == WORD_DONE) {
        const int64_t time = time_at(chunk, walk->position);
        summit->time = time > summit->time ? time : summit->time;
    }
}
/* Step over a word, with the clock: a record is read only once its word was checked. */
static int pass(const shmq_chunk *chunk, struct walk *walk, word_t word, struct summit *summit)
{
    const struct walk here = *walk;
    const int code = step(chunk, walk, word);
    if (code == SHMQ_OK) {
        summit_pass(chunk, summit, &here, word);
    }
    return code;
}

/* Write every entry that belongs between a proven place and `until`, an ordinal. */
static void fill(shmq_chunk *chunk, struct walk walk, struct summit summit, uint64_t until, bool make)
{
    while (walk.ordinal < until) {
        const struct walk here = walk;
        const word_t word = walk_look(chunk, &walk);
        if (word_ends(word) || pass(chunk, &walk, word, &summit) != SHMQ_OK) {
            return;
        }
        if (word_state(word) == WORD_CLAIMED || walk.ordinal == here.ordinal) {
            continue;
        }
        const uint64_t spacing = chunk->index_spacing;
        for (uint64_t j = (here.ordinal + spacing - 1) / spacing; j * spacing < walk.ordinal; j++) {
            entry_put(chunk, j, &here, summit.known ? summit.time : TIME_UNKNOWN, make);
            prove(chunk, j, &here);
        }
    }
}

/* The running maximum just before `to`, walking there from `from`: false when the walk does not come to it. */
static bool summit_between(const shmq_chunk *chunk, struct walk from, const struct walk *to, struct summit *summit)
{
    while (from.position < to->position) {
        const word_t word = walk_look(chunk, &from);
        if (word_ends(word) || pass(chunk, &from, word, summit) != SHMQ_OK) {
            return false;
        }
    }
    return from.position == to->position && from.ordinal == to->ordinal;
}

void index_note(shmq_chunk *chunk, uint64_t position, uint64_t ordinal, uint32_t count)
{
    const uint64_t spacing = chunk->index_spacing;
    const uint64_t end = ordinal + count;
    store_relaxed(&chunk->index_next, ((end - 1) / spacing + 1) * spacing);
    if (BLOCK_BYTES > chunk->capacity / 16) {
        store_relaxed(&chunk->index_next, UINT64_MAX);
        return;
    }
    const struct walk here = {position, ordinal};
    const uint64_t own = (ordinal + spacing - 1) / spacing; /* the first entry that may be this region's */
    for (uint64_t k = own; k > 0 && own - k < NOTE_BACK;) {
        k--;
        struct entry entry = {walk_from_start(chunk), INT64_MIN};
        if (k != 0 && (!entry_load(chunk, k, &entry) || entry.time_max == TIME_UNKNOWN)) {
            continue;
        }
        struct summit summit = {true, entry.time_max};
        if (ordinal - entry.walk.ordinal <= NOTE_WALK && entry.walk.position <= position
            && (k == 0 || proven(chunk, k, &entry.walk)) && summit_between(chunk, entry.walk, &here, &summit)) {
            if (k + 1 < own) { /* those in between could not know their time then, or were lost */
                fill(chunk, entry.walk, (struct summit){true, entry.time_max}, end, true);
            } else {
                fill(chunk, here, summit, end, true);
            }
            return;
        }
        break;
    }
    if (own * spacing < end) {
        fill(chunk, here, (struct summit){false, INT64_MIN}, end, true);
    }
}

/* ------------------------------------------------------------------ anew */
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
    struct summit summit = {true, INT64_MIN};
    struct walk walk = walk_from_start(chunk);
    while (walk.position < end && next < entries) {
        const struct walk here = walk;
        const word_t word = walk_look(chunk, &walk);
        if (word_ends(word) || pass(chunk, &walk, word, &summit) != SHMQ_OK) {
            break;
        }
        for (; next < entries && next * spacing < walk.ordinal; next++) {
            struct index_entry *const at = entry_in(chunk, load_relaxed(slot_at(chunk, next / INDEX_ENTRIES)), next);
            set(&at->place, hint_make(here.position, here.ordinal));
            set((uint64_t *)&at->time_max_ns, summit.known ? (uint64_t)summit.time : TIME_UNKNOWN);
        }
    }
    for (; next < entries; next++) {
        struct index_entry *const at = entry_in(chunk, load_relaxed(slot_at(chunk, next / INDEX_ENTRIES)), next);
        set(&at->place, 0);
        set((uint64_t *)&at->time_max_ns, 0);
    }
}

/* ------------------------------------------------------------------ by ordinal */

/* Have the words between an entry and the ordinal on their way, all at once: a walk would wait for one after the other.
 * Close together, every cache line; else where the words are if all messages there have the same size. */
#define CACHE_LINE 64
#define PREFETCH_MAX 128
static void prefetch_words(shmq_chunk *chunk, uint64_t j, const struct entry *entry, uint64_t ordinal)
{
    struct entry next;
    if (!entry_load(chunk, j + 1, &next) || next.walk.ordinal <= entry->walk.ordinal
        || next.walk.position <= entry->walk.position || ordinal - entry->walk.ordinal > PREFETCH_MAX) {
        return;
    }
    const uint64_t bytes = next.walk.position - entry->walk.position;
    const uint64_t size = bytes / (next.walk.ordinal - entry->walk.ordinal);
    const uint64_t stride = size > 2 * CACHE_LINE ? size : CACHE_LINE;
    const uint64_t reach = (ordinal - entry->walk.ordinal) * size + CACHE_LINE;
    const uint8_t *const from = chunk->memory + entry->walk.position;
    for (uint64_t at = stride; at <= reach && at < bytes; at += stride) {
        __builtin_prefetch(from + at);
    }
}

static int walk_to(shmq_chunk *chunk, struct walk walk, uint64_t ordinal, struct found *found)
{
    for (;;) {
        const word_t word = walk_look(chunk, &walk);
        found->walk = walk;
        found->word = word;
        if (word == 0) {
            const int end = nothing_there(chunk, &walk);
            if (end != SHMQ_OK) {
                return end;
            }
            continue;
        }
        if (word_seals(word)) {
            return SHMQ_ROLL;
        }
        const int code = step(chunk, &walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
        if (walk.ordinal > ordinal) {
            return SHMQ_OK;
        }
    }
}

/* Does a walk visit this record, whose checksum agrees? It lies between two entries, k and k + 1; `before` is the first of
 * them, or a place that is `sure`. */
static bool committed(shmq_chunk *chunk, const struct record *record, uint64_t k, const struct walk *before, bool sure,
                      const struct walk *next)
{
    const uint64_t first = record->ordinal - (uint64_t)record->place; /* of its batch; a batch never crosses a chunk */
    if (record->place == 0) {
        return true; /* its word says DONE only since its commit */
    }
    if (first < before->ordinal) { /* a walk visits a place inside that batch: it was committed */
        return sure || proven(chunk, k, before);
    }
    return next->ordinal > first && next->ordinal < first + record->batch && proven(chunk, k + 1, next);
}

/* Messages of one size, as most are, need no walk: the place between two entries is computed. What is there counts if its
 * checksum says so, which covers its place and its ordinal; without checksums, a payload could be taken for it. */
static bool computed(shmq_chunk *chunk, uint64_t k, const struct walk *before, bool sure, uint64_t ordinal,
                     struct found *found)
{
    struct entry next;
    if (!chunk->checksum || !entry_load(chunk, k + 1, &next) || next.walk.ordinal <= ordinal
        || next.walk.position <= before->position) {
        return false;
    }
    const uint64_t count = next.walk.ordinal - before->ordinal;
    const uint64_t size = (next.walk.position - before->position) / count;
    const struct walk here = {before->position + (ordinal - before->ordinal) * size, ordinal};
    if (size * count != next.walk.position - before->position || size % SPAN_UNIT != 0) {
        return false;
    }
    __builtin_prefetch(chunk->memory + here.position + CACHE_LINE); /* most records reach into it */
    struct record record;
    found->walk = here;
    found->word = walk_look(chunk, &here);
    if (word_state(found->word) != WORD_DONE || word_bytes(found->word) > size) {
        return false;
    }
    found->place = check_frame(chunk, here.position, ordinal, found->word, &record);
    return found->place >= 0 && check_sum(chunk, here.position, &record) == SHMQ_OK
           && committed(chunk, &record, k, before, sure, &next.walk);
}

static int find(shmq_chunk *chunk, uint64_t ordinal, struct walk floor, struct found *found, bool to_read)
{
    const uint64_t wanted = ordinal / chunk->index_spacing;
    uint64_t j = wanted;
    if (chunk->index_proven != NULL && wanted / INDEX_ENTRIES < chunk->index_blocks) {
        __builtin_prefetch(&chunk->index_proven[wanted]); /* on its way with the entry */
    }
    for (;;) {
        struct entry entry;
        const uint64_t k = entry_before(chunk, j, &entry);
        const bool from_floor = k == 0 || entry.walk.ordinal <= floor.ordinal;
        const struct walk before = from_floor ? floor : entry.walk;
        const bool known = !to_read && (from_floor || proven_before(chunk, k, &entry.walk));
        if (k == wanted && !known && computed(chunk, k, &before, from_floor, ordinal, found)) {
            return SHMQ_OK;
        }
        if (!from_floor) {
            prefetch_words(chunk, k, &entry, ordinal);
        }
        const int code = walk_to(chunk, before, ordinal, found);
        found->place = SHMQ_CORRUPT;
        if (code == SHMQ_OK && word_state(found->word) == WORD_DONE && !known) {
            found->place = check_record(chunk, found->walk.position, ordinal, found->word);
        }
        /* The first of a batch (or alone): its word says DONE only since its commit. */
        const bool certain = found->place >= 0 && place_in_batch(chunk, found->walk.position) == 0;
        if (from_floor || certain || proven(chunk, k, &entry.walk)) {
            if (chunk->writable && k < wanted && code == SHMQ_OK && entry_at(chunk, wanted, false) != NULL) {
                /* put back what was missing */
                fill(chunk, before, (struct summit){false, INT64_MIN}, ordinal + 1, false);
            }
            return code;
        }
        j = k - 1;
    }
}

int index_find(shmq_chunk *chunk, uint64_t ordinal, struct walk floor, struct found *found)
{
    return find(chunk, ordinal, floor, found, true);
}
int index_find_place(shmq_chunk *chunk, uint64_t ordinal, struct walk floor, struct found *found)
{
    return find(chunk, ordinal, floor, found, false);
}

static int may_look(const shmq_chunk *chunk)
{
    if (member_forked(chunk->member)) {
        return error_forked();
    }
    if (chunk->sequence < load_relaxed(&chunk->member->control->first_live)) {
        return error_set(SHMQ_RETIRED, "chunk %016" PRIx64 "-%08" PRIx64 " was retired", chunk->base, chunk->sequence);
    }
    return SHMQ_OK;
}

int64_t shmq_find(shmq_chunk *chunk, uint64_t ordinal, uint64_t *record)
{
    int code = may_look(chunk);
    if (code != SHMQ_OK) {
        return code;
    }
    for (;;) {
        struct found found;
        code = index_find(chunk, ordinal, walk_from_start(chunk), &found);
        if (code != SHMQ_OK) {
            return code;
        }
        switch (word_state(found.word)) {
        case WORD_DONE:
            *record = found.walk.position;
            return found.place;
        case WORD_CLAIMED:
            code = settle(chunk, found.walk.position, found.word);
            if (code != SHMQ_OK) {
                return code;
            }
            continue;
        default:
            return SHMQ_PADDED;
        }
    }
}

int64_t shmq_range(shmq_chunk *chunk, uint64_t first, uint64_t last, uint64_t *indexes, uint64_t *records,
                   uint64_t *places)
{
    int code = may_look(chunk);
    struct found found;
    if (code == SHMQ_OK) {
        code = index_find(chunk, first, walk_from_start(chunk), &found);
    }
    if (code != SHMQ_OK) {
        return code == SHMQ_EMPTY || code == SHMQ_ROLL ? 0 : code;
    }
    struct walk walk = found.walk;
    int64_t count = 0;
    while (walk.ordinal < last) {
        const word_t word = walk_look(chunk, &walk);
        if (word_seals(word)) {
            break;
        }
        if (word == 0) {
            code = nothing_there(chunk, &walk);
            if (code == SHMQ_OK) {
                continue;
            }
            if (code == SHMQ_CORRUPT) {
                return code;
            }
            break;
        }
        if (word_state(word) == WORD_CLAIMED) {
            code = settle(chunk, walk.position, word);
            if (code == SHMQ_OK) {
                continue;
            }
        } else if (word_state(word) == WORD_DONE) {
            const struct walk here = walk;
            const int64_t place = here.position == found.walk.position && found.place >= 0
                                      ? found.place
                                      : check_record(chunk, here.position, here.ordinal, word);
            if (place < 0) {
                return place;
            }
            if (indexes != NULL) {
                indexes[count] = chunk->base + here.ordinal;
            }
            if (records != NULL) {
                records[count] = here.position;
            }
            if (places != NULL) {
                places[count] = (uint64_t)place;
            }
            count++;
        }
        code = walk_past(chunk, &walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
    }
    return count;
}

/* ------------------------------------------------------------------ by time */

/* A bound of the search: an entry whose time is known, or one end of the chunk. */
struct bound {
    uint64_t j;
    struct entry entry;
};

/* The entry nearest to `mid` with a known time, strictly between two bounds. */
static bool known_between(shmq_chunk *chunk, uint64_t below, uint64_t mid, uint64_t above, struct bound *found)
{
    for (uint64_t j = mid; j > below; j--) {
        if (entry_load(chunk, j, &found->entry) && found->entry.time_max != TIME_UNKNOWN) {
            found->j = j;
            return true;
        }
    }
    for (uint64_t j = mid + 1; j < above; j++) {
        if (entry_load(chunk, j, &found->entry) && found->entry.time_max != TIME_UNKNOWN) {
            found->j = j;
            return true;
        }
    }
    return false;
}

/* The two neighbouring known entries between whose words the first message of that time must lie. above.j is the
 * number of entries when there is none above. */
static void search(shmq_chunk *chunk, int64_t time, struct bound *below, struct bound *above)
{
    const uint64_t hint = load_relaxed(&((struct chunk_header *)chunk->memory)->hint);
    const uint64_t entries = (uint64_t)chunk->index_blocks * INDEX_ENTRIES;
    const uint64_t noted = hint_ordinal(hint) / chunk->index_spacing + 1;
    *below = (struct bound){0, {walk_from_start(chunk), INT64_MIN}};
    *above = (struct bound){noted < entries ? noted : entries, {{0, UINT64_MAX}, INT64_MAX}};
    struct bound middle;
    while (known_between(chunk, below->j, below->j + (above->j - below->j) / 2, above->j, &middle)) {
        if (middle.entry.time_max < time) {
            *below = middle;
        } else {
            *above = middle;
        }
    }
}

/* May a search begin at that entry? Its word must be a message's, and its time what the entry before it leads to. */
static bool bound_holds(shmq_chunk *chunk, const struct bound *bound)
{
    if (bound->j == 0) {
        return true;
    }
    if (!proven(chunk, bound->j, &bound->entry.walk)) {
        return false;
    }
    struct entry before = {walk_from_start(chunk), INT64_MIN};
    if (bound->j > 1 && (!entry_load(chunk, bound->j - 1, &before) || before.time_max == TIME_UNKNOWN)) {
        return true; /* nothing to hold it against */
    }
    if (before.walk.position > bound->entry.walk.position) {
        return false;
    }
    struct summit summit = {true, before.time_max};
    if (!summit_between(chunk, before.walk, &bound->entry.walk, &summit) || !summit.known) {
        return false;
    }
    const int64_t own = time_at(chunk, bound->entry.walk.position);
    return bound->entry.time_max == (own > summit.time ? own : summit.time);
}

/* Walk from a bound to the first message of that time. It must come before the ordinal `limit`, or the entries lie. */
static int walk_to_time(shmq_chunk *chunk, const struct entry *from, int64_t time, uint64_t limit, struct walk *walk,
                        uint64_t *open, struct summit *summit)
{
    *walk = from->walk;
    *summit = (struct summit){true, from->time_max};
    *open = UINT64_MAX;
    for (;;) {
        const word_t word = walk_look(chunk, walk);
        if (walk->ordinal > limit || (word_ends(word) && limit != UINT64_MAX)) {
            return DISTRUST;
        }
        if (word == 0) {
            const int end = nothing_there(chunk, walk);
            if (end != SHMQ_OK) {
                return end;
            }
            continue;
        }
        if (word_seals(word)) {
            return SHMQ_ROLL;
        }
        if (word_state(word) == WORD_CLAIMED) {
            const int code = settle(chunk, walk->position, word);
            if (code == SHMQ_OK) {
                continue; /* it is padding now, or was committed */
            }
            if (code != SHMQ_WAITING) {
                return code;
            }
            *open = *open < walk->ordinal ? *open : walk->ordinal;
        }
        const struct walk here = *walk;
        const int code = pass(chunk, walk, word, summit);
        if (code != SHMQ_OK) {
            return code;
        }
        if (word_state(word) == WORD_DONE && time_at(chunk, here.position) >= time) {
            *walk = here;
            const int64_t place = check_record(chunk, here.position, here.ordinal, word);
            return place < 0 ? (int)place : SHMQ_OK;
        }
    }
}

int shmq_at(shmq_chunk *chunk, int64_t time_ns, uint64_t *ordinal, uint64_t *open, int64_t *time_max)
{
    int code = may_look(chunk);
    if (code != SHMQ_OK) {
        return code;
    }
    struct bound below;
    struct bound above;
    struct walk walk;
    struct summit summit;
    search(chunk, time_ns, &below, &above);
    code = bound_holds(chunk, &below)
               ? walk_to_time(chunk, &below.entry, time_ns, above.entry.walk.ordinal, &walk, open, &summit)
               : DISTRUST;
    if (code == DISTRUST || (code == SHMQ_CORRUPT && below.j > 0)) {
        below = (struct bound){0, {walk_from_start(chunk), INT64_MIN}};
        code = walk_to_time(chunk, &below.entry, time_ns, UINT64_MAX, &walk, open, &summit);
    }
    if (code == SHMQ_ROLL && !summit.known) {
        code = SHMQ_EMPTY; /* something is still open there */
    }
    if (chunk->writable && (code == SHMQ_OK || code == SHMQ_EMPTY || code == SHMQ_ROLL)
        && walk.ordinal / chunk->index_spacing > below.j) {
        fill(chunk, below.entry.walk, (struct summit){true, below.entry.time_max}, walk.ordinal, false);
    }
    *ordinal = walk.ordinal;
    *time_max = summit.time;
    return code;
}
