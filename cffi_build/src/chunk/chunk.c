/* chunk.c - one chunk: claim, commit, read, pad, seal. The protocol, whole, in one file.
 *
 * A chunk is a header and then records, each behind one 64-bit word. The word is the only truth: it is zero until
 * someone claims it, and it moves only forward: FREE -> CLAIMED -> DONE, or CLAIMED -> PAD when the owner is dead.
 * Walkers go from word to word by their spans; inside a region there is nothing to see until it is resolved. Which
 * chunk comes next, and which file that is, is somebody else's business. docs/protocol.md says why this is right. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "chunk/chunk.h"

#include "atomic.h"
#include "chunk/bounds.h"
#include "crc.h"
#include "error.h"
#include "chunk/index.h"
#include "os/os.h"

static uint64_t round_to(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) & ~(unit - 1); }
static uint64_t round_up(uint64_t bytes) { return round_to(bytes, SPAN_UNIT); }

/* A payload's place in the chunk, as one number. */
#define PLACE_LENGTH_BITS 30
static int64_t place_of(uint64_t position, uint64_t length) { return (int64_t)(position << PLACE_LENGTH_BITS | length); }
static uint64_t place_end(int64_t place)
{
    return ((uint64_t)place >> PLACE_LENGTH_BITS) + ((uint64_t)place & ((1u << PLACE_LENGTH_BITS) - 1));
}

static int corrupt(const shmq_chunk *chunk, uint64_t position, const char *reason)
{
    return error_set(SHMQ_CORRUPT, "chunk %016" PRIx64 "-%08" PRIx64 ", position %" PRIu64 ": %s", chunk->base,
                     chunk->sequence, position, reason);
}
static int forked(void) { return error_set(SHMQ_FORKED, "this handle belongs to the parent process"); }

/* ------------------------------------------------------------------ making and checking a chunk */
static uint32_t index_blocks_for(uint64_t capacity, uint32_t spacing)
{
    const uint64_t per_block = (uint64_t)spacing * INDEX_ENTRIES;
    return (uint32_t)(capacity / RECORD_HEADER_BYTES / per_block + 1);
}
static uint64_t first_position(uint64_t capacity, uint32_t spacing, uint32_t grain)
{
    const uint32_t blocks = index_blocks_for(capacity, spacing);
    const uint64_t end = index_slots_end(blocks);
    return grain == 0 ? end : round_to(end + index_blocks_ahead(capacity, blocks) * INDEX_BLOCK_BYTES, grain);
}
static bool is_grain(uint32_t grain, uint64_t capacity, uint32_t spacing)
{
    return grain >= GRAIN_MIN && grain <= PAGE_BYTES && (grain & (grain - 1)) == 0
           && first_position(capacity, spacing, grain) + grain <= capacity;
}
static uint32_t header_crc(const struct chunk_header *header)
{
    return crc32c(0, &header->magic, offsetof(struct chunk_header, hint) - offsetof(struct chunk_header, magic));
}

int shmq_chunk_format(void *memory, uint64_t bytes, const uint8_t queue_id[16], uint64_t chunk_id, uint64_t epoch,
                      uint64_t base, uint64_t sequence, uint32_t index_spacing, uint32_t grain, int64_t created_ns)
{
    if (bytes < CAPACITY_MIN || bytes > POSITION_MAX || bytes % PAGE_BYTES != 0 || index_spacing == 0) {
        return error_set(SHMQ_TOO_LARGE, "a chunk has %u to %" PRIu64 " bytes, in whole pages; asked for %" PRIu64,
                         CAPACITY_MIN, POSITION_MAX, bytes);
    }
    if (grain != 0 && !is_grain(grain, bytes, index_spacing)) {
        return error_set(SHMQ_TOO_LARGE, "a chunk of %" PRIu64 " bytes cannot have a grain of %" PRIu32, bytes, grain);
    }
    struct chunk_header header = {
        .word = word_make(WORD_META, 0, 0, CHUNK_HEADER_BYTES / SPAN_UNIT),
        .kind = META_HEADER,
        .magic = CHUNK_MAGIC,
        .byte_order = BYTE_ORDER_MARK,
        .version = FORMAT_VERSION,
        .incompatible = grain == 0 ? 0 : CHUNK_GRAINED,
        .chunk_id = chunk_id,
        .epoch = epoch,
        .capacity = bytes,
        .index_spacing = index_spacing,
        .index_entries = INDEX_ENTRIES,
        .index_blocks = index_blocks_for(bytes, index_spacing),
        .grain = grain,
        .created_ns = created_ns,
        .born_base = base,
        .born_sequence = sequence,
    };
    memcpy(header.queue_id, queue_id, sizeof header.queue_id);
    header.crc = header_crc(&header);
    memcpy(memory, &header, sizeof header);

    const uint64_t span = (first_position(bytes, index_spacing, grain) - CHUNK_HEADER_BYTES) / SPAN_UNIT;
    const struct index2index index2index = {
        .word = word_make(WORD_META, 0, 0, (uint32_t)span),
        .kind = META_INDEX2INDEX,
        .blocks = header.index_blocks,
    };
    memcpy((uint8_t *)memory + CHUNK_HEADER_BYTES, &index2index, sizeof index2index);
    if (grain != 0) {
        index_blocks_format(memory, header.index_blocks, index_blocks_ahead(bytes, header.index_blocks));
    }
    return SHMQ_OK;
}

/* Past the cache where that can be said: it is zeroed long before it is written, and there are better things to keep. */
static void zero(uint8_t *at, uint64_t bytes)
{
#if defined(__SSE2__)
    const uint64_t head = bytes < 16 ? bytes : -(uintptr_t)at % 16;
    memset(at, 0, head);
    for (at += head, bytes -= head; bytes >= 64; at += 64, bytes -= 64) {
        for (unsigned int i = 0; i < 64; i += 16) {
            _mm_stream_si128((void *)(at + i), _mm_setzero_si128());
        }
    }
    _mm_sfence();
#endif
    memset(at, 0, bytes);
}

void shmq_chunk_clear(void *memory, uint64_t bytes, uint64_t used, uint32_t index_spacing, uint32_t grain)
{
    uint8_t *const from = memory;
    used = used < bytes ? used : bytes;
    zero(from, CHUNK_HEADER_BYTES); /* first: killed behind it, nothing says how far it was used */
    if (grain == 0) {
        zero(from, used);
        return;
    }
    const uint64_t first = first_position(bytes, index_spacing, grain);
    zero(from, first < bytes ? first : bytes);
    for (uint64_t at = first; at < used; at += grain) {
        memset(from + at, 0, GRAIN_ZEROS);
    }
}

static int check_header(const struct chunk_header *header, uint64_t bytes, const uint8_t queue_id[16])
{
    if (header->magic != CHUNK_MAGIC) {
        return error_set(SHMQ_FOREIGN, "it does not begin as a chunk of a shmq queue does");
    }
    if (header->byte_order != BYTE_ORDER_MARK) {
        return error_set(SHMQ_FORMAT, "it was written on a machine of the other byte order");
    }
    if (header->version != FORMAT_VERSION || (header->incompatible & ~(uint32_t)CHUNK_GRAINED) != 0) {
        return error_set(SHMQ_FORMAT, "it has format version %" PRIu32 " with features %#" PRIx32
                         "; this library knows version %u with features up to %#x", header->version,
                         header->incompatible, FORMAT_VERSION, CHUNK_GRAINED);
    }
    if (header->crc != header_crc(header) || header->kind != META_HEADER
        || header->word != word_make(WORD_META, 0, 0, CHUNK_HEADER_BYTES / SPAN_UNIT)) {
        return error_set(SHMQ_CORRUPT, "its header fails its checksum");
    }
    if (memcmp(header->queue_id, queue_id, sizeof header->queue_id) != 0) {
        return error_set(SHMQ_CORRUPT, "it belongs to another queue");
    }
    if (header->capacity != bytes || bytes < CAPACITY_MIN || bytes > POSITION_MAX || bytes % PAGE_BYTES != 0
        || header->index_spacing == 0
        || header->index_blocks != index_blocks_for(bytes, header->index_spacing)) {
        return error_set(SHMQ_CORRUPT, "it was made with %" PRIu64 " bytes and has %" PRIu64, header->capacity, bytes);
    }
    if (header->incompatible == 0 ? header->grain != 0 : !is_grain(header->grain, bytes, header->index_spacing)) {
        return error_set(SHMQ_CORRUPT, "its header has an impossible grain of %" PRIu32, header->grain);
    }
    return SHMQ_OK;
}

shmq_chunk *shmq_chunk_new(void *memory, uint64_t bytes, int fd, bool writable, bool checksum, uint64_t base,
                           uint64_t sequence, const uint8_t queue_id[16], shmq_member *member, int *code)
{
    struct chunk_header header;
    shared_read(&header, memory, sizeof header);
    *code = check_header(&header, bytes, queue_id);
    if (*code == SHMQ_OK && header.born_sequence != UINT64_MAX
        && (header.born_sequence != sequence || header.born_base != base)) {
        *code = error_set(SHMQ_CORRUPT, "it was made as %016" PRIx64 "-%08" PRIx64, header.born_base,
                          header.born_sequence);
    }
    if (*code != SHMQ_OK) {
        return NULL;
    }
    shmq_chunk *chunk = malloc(sizeof *chunk);
    if (chunk == NULL) {
        *code = error_system(-ENOMEM, "asked for memory");
        return NULL;
    }
    const uint64_t birth[2] = {header.epoch, header.chunk_id};
    *chunk = (shmq_chunk){
        .memory = memory,
        .capacity = header.capacity,
        .first_position = first_position(header.capacity, header.index_spacing, header.grain),
        .grain = header.grain == 0 ? SPAN_UNIT : header.grain,
        .base = base,
        .sequence = sequence,
        .epoch = header.epoch,
        .chunk_id = header.chunk_id,
        .crc_seed = crc32c(0, birth, sizeof birth),
        .fd = fd,
        .writable = writable,
        .checksum = checksum,
        .index_spacing = header.index_spacing,
        .index_blocks = header.index_blocks,
        .index_next = header.index_spacing,
        .index_proven = index_proven_new(&header),
        .member = member,
        .seal = word_seal(0),
    };
    return chunk;
}

void shmq_chunk_free(shmq_chunk *chunk)
{
    if (chunk != NULL) {
        free(chunk->index_proven);
        free(chunk);
    }
}
void shmq_chunk_is_populated(shmq_chunk *chunk) { chunk->populated = chunk->capacity; }
uint64_t shmq_chunk_epoch(const shmq_chunk *chunk) { return chunk->epoch; }
uint64_t shmq_chunk_first_position(const shmq_chunk *chunk) { return chunk->first_position; }

uint64_t shmq_chunk_bytes_for(uint64_t region, uint32_t index_spacing, uint32_t grain)
{
    /* index2index takes less than a thousandth of the chunk for any spacing from 1 up, blocks ahead a 64th; then whole
     * pages. */
    const uint64_t content = round_to(region, grain == 0 ? SPAN_UNIT : grain) + TAIL_RESERVE;
    uint64_t bytes = CHUNK_HEADER_BYTES + sizeof(struct index2index) + content;
    while (first_position(bytes, index_spacing, grain) + content > bytes) {
        bytes += PAGE_BYTES;
    }
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* ------------------------------------------------------------------ walking */
struct walk walk_from_hint(const shmq_chunk *chunk)
{
    /* Relaxed: a hint names the end of some claimed region, and nothing before that is looked at. */
    const uint64_t hint = load_relaxed(&((struct chunk_header *)chunk->memory)->hint);
    const uint64_t position = hint_position(hint);
    if (position < chunk->first_position || position + SEAL_BYTES > chunk->capacity) {
        return walk_from_start(chunk);
    }
    return (struct walk){position, hint_ordinal(hint)};
}

void hint_raise(const shmq_chunk *chunk, uint64_t position, uint64_t ordinal)
{
    uint64_t *const hint = &((struct chunk_header *)chunk->memory)->hint;
    const uint64_t mine = hint_make(position, ordinal);
    uint64_t seen = load_relaxed(hint);
    /* Release: the claims before it, ours and those we walked over. Pairs with the acquire in nothing_there. */
    while (seen < mine && !cas_release(hint, seen, mine)) {
        seen = load_relaxed(hint);
    }
}

int nothing_there(const shmq_chunk *chunk, const struct walk *walk)
{
    /* Claims are made one behind the other, and a chunk is left once it is sealed: where the hint is farther, or there is
     * a later chunk, this word was claimed. Acquire: that claim, for the second look. Pairs with the release in
     * hint_raise and in shmq_newest_raise. */
    const struct chunk_header *const header = (const struct chunk_header *)chunk->memory;
    const bool passed = hint_position(load_acquire(&header->hint)) > walk->position
                        || (!chunk->aside && load_acquire(&chunk->member->control->newest) > chunk->sequence + 1);
    if (!passed) {
        return SHMQ_EMPTY;
    }
    return walk_look(chunk, walk) != 0 ? SHMQ_OK : corrupt(chunk, walk->position, A_HOLE);
}

/* Can a word be what it says? */
static int check_word(const shmq_chunk *chunk, uint64_t position, word_t word)
{
    const uint64_t bytes = word_bytes(word);
    const uint64_t count = word_count(word);
    if (bytes == 0 || bytes > chunk->capacity - SEAL_BYTES - position) {
        return corrupt(chunk, position, "a region reaches beyond the chunk");
    }
    const uint32_t state = word_state(word);
    if (count * RECORD_HEADER_BYTES > bytes || state == WORD_FREE || state > WORD_PAD
        || (state == WORD_DONE && count != 1) || (state == WORD_META && count != 0)
        || (state == WORD_CLAIMED && count == 0)) {
        return corrupt(chunk, position, "a word that no claim could have written");
    }
    return SHMQ_OK;
}

int walk_past(const shmq_chunk *chunk, struct walk *walk, word_t word)
{
    const int code = check_word(chunk, walk->position, word);
    if (code == SHMQ_OK) {
        walk->position += word_bytes(word);
        walk->ordinal += word_count(word);
    }
    return code;
}

/* ------------------------------------------------------------------ claim, commit, pad, seal */
struct claim {
    uint64_t position;
    uint64_t ordinal;
    word_t word;
};

/* Have the pages of a claim, and those just ahead, mapped in one go: a tenth of the price of faulting them one by one.
 * Those ahead only for who came to the end of what it had asked for by itself: of many producers another one has nearly
 * always gone beyond it, and each would map all, and dirty what the disk has to be told again at every sync. Two threads
 * may both do it, to no harm. */
#define POPULATE_AHEAD (UINT64_C(256) << 10)
static void populate_ahead(shmq_chunk *chunk, uint64_t begin, uint64_t end)
{
    const uint64_t from = load_relaxed(&chunk->populated);
    if (end <= from) {
        return;
    }
    const bool alone = begin <= from || from == 0;
    const uint64_t start = from > 0 && alone ? from : begin / PAGE_BYTES * PAGE_BYTES;
    uint64_t to = alone ? (end / POPULATE_AHEAD + 1) * POPULATE_AHEAD : (end + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    to = to < chunk->capacity ? to : chunk->capacity;
    store_relaxed(&chunk->populated, to);
    if (to - start > PAGE_BYTES) { /* one page is mapped by the store into it */
        os->populate(chunk->memory + start, to - start);
    }
}

static int full(void) { return error_set(SHMQ_FULL, "a bound is reached"); }

/* Reserve a region of `bytes` for `count` messages at the end of the chunk: announce it and sign it, in one CAS. */
static int claim_region(shmq_chunk *chunk, uint32_t count, uint64_t bytes, struct claim *claim)
{
    const bool limited = bounded(chunk);
    struct walk walk = walk_from_hint(chunk);
    const bool unhinted = walk.position == chunk->first_position; /* the first put of a chunk, or its hint is lost */
    for (;;) {
        const word_t word = walk_look(chunk, &walk);
        if (word == 0) {
            if (unhinted && nothing_there(chunk, &walk) == SHMQ_CORRUPT) {
                return SHMQ_CORRUPT;
            }
            if (limited && !limit_allows(chunk, walk.ordinal + count, walk.position + bytes)) {
                return full();
            }
            const uint64_t span = (round_to(walk.position + bytes, chunk->grain) - walk.position) / SPAN_UNIT;
            const bool fits = span <= SPAN_MAX && span * SPAN_UNIT + TAIL_RESERVE <= chunk->capacity - walk.position;
            const word_t claimed = word_make(WORD_CLAIMED, count, chunk->member->owner, (uint32_t)span);
            /* Release: our generation before it, or who reads the claim might take it for a dead tenant's and pad it.
             * Pairs with the acquire in walk_look. */
            if (!cas_release(word_at(chunk, walk.position), word, fits ? claimed : chunk->seal)) {
                continue; /* somebody was faster: look again at the same word */
            }
            if (!fits) {
                return SHMQ_ROLL;
            }
            *claim = (struct claim){walk.position, walk.ordinal, claimed};
            hint_raise(chunk, walk.position + word_bytes(claimed), walk.ordinal + count);
            populate_ahead(chunk, walk.position, walk.position + word_bytes(claimed));
            return SHMQ_OK;
        }
        if (word_seals(word)) {
            return SHMQ_ROLL;
        }
        const int code = walk_past(chunk, &walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
    }
}

/* What its messages leave of a claimed region. Before the commit: behind it, a walker would fall on bytes that are no
 * word. */
static void fill_rest(const shmq_chunk *chunk, uint64_t position, word_t claimed, uint64_t used)
{
    if (used < word_bytes(claimed)) {
        const uint32_t span = word_span(claimed) - (uint32_t)(used / SPAN_UNIT);
        store_relaxed(word_at(chunk, position + used), word_make(WORD_PAD, 0, word_owner(claimed), span));
    }
}

/* Make a claimed region visible, unless it was padded meanwhile. */
static int commit_word(shmq_chunk *chunk, uint64_t position, word_t claimed, word_t done)
{
    /* Release: the whole region before it. Pairs with the acquire in walk_look.
     * CAS, not store: if we were judged dead, the word is PAD and must stay so. */
    if (!cas_release(word_at(chunk, position), claimed, done)) {
        add_relaxed(&chunk->member->control->fenced, 1);
        return error_set(SHMQ_FENCED, "the claim at position %" PRIu64 " of chunk %016" PRIx64 "-%08" PRIx64
                         " was padded: this owner was judged dead", position, chunk->base, chunk->sequence);
    }
    return SHMQ_OK;
}

/* Turn a claim into padding: true when this call did it. Its ordinals stay taken. */
static bool pad_word(shmq_chunk *chunk, word_t *at, word_t claimed)
{
    const word_t pad = word_make(WORD_PAD, word_count(claimed), word_owner(claimed), word_span(claimed));
    if (chunk->aside) { /* it counts when it is adopted */
        return cas_relaxed(at, claimed, pad);
    }
    pads_begin(chunk->member);
    const bool padded = cas_release(at, claimed, pad); /* else it was committed, or padded by somebody else: settled */
    if (padded) {
        /* Release: the word before it. Pairs with the fence in shmq_pads_count, which counts the words behind it. */
        add_release(&chunk->member->control->padded, word_count(claimed));
    }
    pads_end(chunk->member);
    if (!padded) {
        return false;
    }
    if (bounded(chunk)) {
        shmq_room(chunk->member->control); /* padding at the smallest head holds nobody back */
    }
    return true;
}

/* Pad a dead owner's claim, through a momentary window where the chunk is mapped read-only. False when we may not. */
static bool pad_the_dead(shmq_chunk *chunk, uint64_t position, word_t claimed)
{
    if (chunk->writable) {
        pad_word(chunk, word_at(chunk, position), claimed);
        return true;
    }
    word_t *const window = chunk->fd < 0 ? NULL : os->map_window(chunk->fd, position, sizeof(word_t));
    if (window == NULL) {
        return false;
    }
    pad_word(chunk, window, claimed);
    os->unmap_window(window, position, sizeof(word_t));
    return true;
}

/* Write this SEAL at the end of the chunk: OK, or ROLL when there is one already. */
static int seal_as(shmq_chunk *chunk, word_t seal)
{
    struct walk walk = walk_from_hint(chunk);
    for (;;) {
        const word_t word = walk_look(chunk, &walk);
        if (word_seals(word)) {
            return SHMQ_ROLL;
        }
        if (word == 0) {
            if (word_adoption(seal) != 0 && bounded(chunk) && !limit_allows(chunk, walk.ordinal, walk.position)) {
                return full();
            }
            /* Release: what was written into the set that it adopts (shmq_seal_again). Pairs with the acquire in walk_look. */
            if (cas_release(word_at(chunk, walk.position), word, seal)) {
                return SHMQ_OK;
            }
            continue;
        }
        const int code = walk_past(chunk, &walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
    }
}

int shmq_seal(shmq_chunk *chunk)
{
    const int code = seal_as(chunk, chunk->seal);
    return code == SHMQ_ROLL ? SHMQ_OK : code;
}

int shmq_seal_again(shmq_chunk *chunk, uint64_t adoption)
{
    struct walk walk = walk_from_hint(chunk);
    for (;;) {
        const word_t word = walk_look(chunk, &walk);
        if (word_seals(word)) {
            /* Nobody else looks at it before the SEAL that adopts it, whose CAS is a release. */
            store_relaxed(word_at(chunk, walk.position), word_seal(adoption));
            return SHMQ_OK;
        }
        if (word == 0) {
            return SHMQ_EMPTY;
        }
        const int code = walk_past(chunk, &walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
    }
}

int shmq_seal_adopt(shmq_chunk *chunk, uint64_t adoption)
{
    if (adoption == 0 || adoption >> ADOPTION_BITS != 0) {
        return error_set(SHMQ_FORMAT, "%" PRIu64 " is no id of an adoption", adoption);
    }
    return seal_as(chunk, word_seal(adoption));
}

void shmq_seals_as(shmq_chunk *chunk, uint64_t adoption)
{
    chunk->seal = word_seal(adoption);
    chunk->aside = true;
}

static uint32_t gap_crc(const shmq_chunk *chunk, uint64_t position, uint64_t next_index)
{
    const uint64_t rest[2] = {position, next_index};
    return crc32c(chunk->crc_seed, rest, sizeof rest);
}

/* Recovery may have moved the next chunk's base on: its GAP stands right before the SEAL. */
bool gap_at(const shmq_chunk *chunk, uint64_t position, word_t word, uint64_t *next_index)
{
    struct gap gap;
    if (word_state(word) != WORD_META || word_bytes(word) != sizeof gap
        || position + sizeof gap + SEAL_BYTES > chunk->capacity) {
        return false;
    }
    shared_read(&gap, chunk->memory + position, sizeof gap);
    if (gap.kind != META_GAP || gap.crc != gap_crc(chunk, position, gap.next_index)) {
        return false;
    }
    *next_index = gap.next_index;
    return true;
}

void gap_write(const shmq_chunk *chunk, uint64_t position, uint64_t next_index)
{
    const struct gap gap = {
        .word = word_make(WORD_META, 0, 0, GAP_BYTES / SPAN_UNIT),
        .kind = META_GAP,
        .crc = gap_crc(chunk, position, next_index),
        .next_index = next_index,
    };
    shared_write(chunk->memory + position + sizeof gap.word, &gap.kind, sizeof gap - sizeof gap.word);
    store_relaxed(word_at(chunk, position + GAP_BYTES), word_seal(0)); /* behind the gap */
    store_release(word_at(chunk, position), gap.word); /* all of it before it, for whoever walks */
}

static int walk_to_end(shmq_chunk *chunk, struct walk *walk, uint64_t *gap_index)
{
    *walk = walk_from_hint(chunk);
    for (;;) {
        const word_t word = walk_look(chunk, walk);
        if (word == 0) {
            const int end = nothing_there(chunk, walk);
            if (end != SHMQ_OK) {
                return end;
            }
            continue;
        }
        if (word_seals(word)) {
            return SHMQ_OK;
        }
        if (word_state(word) == WORD_META) {
            gap_at(chunk, walk->position, word, gap_index);
        }
        const int code = walk_past(chunk, walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
    }
}

int shmq_sealed(shmq_chunk *chunk, uint64_t *next_index)
{
    struct walk walk;
    uint64_t gap_index = 0;
    const int code = walk_to_end(chunk, &walk, &gap_index);
    *next_index = chunk->base + walk.ordinal;
    if (gap_index > *next_index) {
        *next_index = gap_index;
    }
    return code;
}

uint64_t shmq_adoption(shmq_chunk *chunk)
{
    struct walk walk;
    uint64_t gap_index = 0;
    if (walk_to_end(chunk, &walk, &gap_index) != SHMQ_OK) {
        return 0;
    }
    return word_adoption(walk_look(chunk, &walk)); /* a SEAL never changes */
}

int shmq_tail(shmq_chunk *chunk, uint64_t *next_index, uint64_t *position)
{
    struct walk walk;
    uint64_t gap_index = 0;
    const int code = walk_to_end(chunk, &walk, &gap_index);
    *next_index = chunk->base + walk.ordinal;
    *position = walk.position;
    return code == SHMQ_EMPTY ? SHMQ_OK : code;
}

int64_t shmq_bury(shmq_chunk *chunk, uint32_t owner)
{
    int64_t buried = 0;
    struct walk walk = walk_from_start(chunk);
    for (;;) {
        const word_t word = walk_look(chunk, &walk);
        if (word == 0 || word_seals(word)) {
            return buried;
        }
        if (word_state(word) == WORD_CLAIMED && (owner == 0 || owner_slot(word_owner(word)) == owner_slot(owner))
            && check_word(chunk, walk.position, word) == SHMQ_OK) {
            if (!pad_the_dead(chunk, walk.position, word)) {
                return corrupt(chunk, walk.position, "a dead owner's claim cannot be padded: the file is not writable");
            }
            buried++;
            continue; /* look again: it is PAD now, or was committed before its owner died */
        }
        const int code = walk_past(chunk, &walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
    }
}

/* ------------------------------------------------------------------ writing a message */

/* How the parts of one message lie behind each other. */
struct shape {
    uint64_t extra;   /* bytes of optional fields, padded */
    uint64_t payload; /* offset of the payload from the word */
    uint64_t length;  /* from the word to the end of the payload */
};

/* Bytes of the fields of fixed size that these flags announce. */
static uint64_t fixed_bytes(uint32_t flags)
{
    return (uint64_t)((flags & RECORD_EXPIRY) != 0) * sizeof(struct field_when)
           + (uint64_t)((flags & RECORD_DELAY) != 0) * sizeof(struct field_when)
           + (uint64_t)((flags & RECORD_DEDUP) != 0) * sizeof(struct field_dedup);
}

static struct shape shape_of(uint32_t fixed_flags, uint64_t key_length, uint64_t headers_length,
                             uint64_t payload_length)
{
    struct shape shape;
    shape.extra = fixed_bytes(fixed_flags);
    shape.extra += headers_length == 0 ? 0 : sizeof(struct field_bytes) + round_up(headers_length);
    shape.payload = RECORD_HEADER_BYTES + shape.extra + round_up(key_length);
    shape.length = shape.payload + payload_length;
    return shape;
}

static int check_shape(const struct shape *shape, uint64_t key_length, uint64_t payload_length)
{
    if (key_length > KEY_MAX) {
        return error_set(SHMQ_TOO_LARGE, "a key of %" PRIu64 " bytes; a key has at most %u", key_length, KEY_MAX);
    }
    if (shape->extra > (uint64_t)EXTRA_WORDS_MAX * SPAN_UNIT) {
        return error_set(SHMQ_TOO_LARGE, "headers of %" PRIu64 " bytes; they have at most %u", shape->extra,
                         EXTRA_WORDS_MAX * SPAN_UNIT);
    }
    if (payload_length >= (uint64_t)SPAN_MAX * SPAN_UNIT || round_up(shape->length) > (uint64_t)SPAN_MAX * SPAN_UNIT) {
        return error_set(SHMQ_TOO_LARGE, "a message of %" PRIu64 " bytes with its header; one has at most %u",
                         shape->length, SPAN_MAX * SPAN_UNIT);
    }
    return SHMQ_OK;
}

uint64_t shmq_record_bytes(const shmq_fields *fields, uint64_t length)
{
    return round_up(shape_of(fields->fixed_flags, fields->key_length, fields->headers_length, length).length);
}

/* Of its first `bytes` bytes, and of where it stands. */
static uint32_t record_crc_of(const shmq_chunk *chunk, uint64_t position, const struct record *record, uint64_t bytes)
{
    const struct summed_place place = {position, record->ordinal, record->length};
    const uint32_t crc = crc32c(chunk->crc_seed, &place, sizeof place);
    const uint64_t from = SUMMED_FROM;
    return crc32c(crc, shared_span(chunk->memory + position + from, bytes - from), bytes - from);
}

static uint32_t record_crc(const shmq_chunk *chunk, uint64_t position, const struct record *record)
{
    return record_crc_of(chunk, position, record, record->length);
}

/* Larger payloads are copied and summed up in one pass. The sum is always that of the copy: what is checked is what is
 * delivered, whatever others do to the original meanwhile. */
#define LARGE_BYTES 32768u

/* Parts are padded with zeros. Where there is a grain, what lies there already may be anything. */
static void pad(const shmq_chunk *chunk, uint64_t position, uint64_t length)
{
    static const uint8_t zeros[SPAN_UNIT];
    const uint64_t rest = round_up(length) - length;
    if (chunk->grain != SPAN_UNIT && rest != 0) {
        shared_write(chunk->memory + position + length, zeros, rest);
    }
}

/* Everything before the payload, but for the word and the CRC. */
static void write_head(shmq_chunk *chunk, uint64_t position, const struct record *record, const shmq_fields *fields)
{
    uint8_t *const at = chunk->memory + position;
    const uint64_t from = offsetof(struct record, length);
    shared_write(at + from, (const uint8_t *)record + from, sizeof *record - from);
    uint64_t offset = RECORD_HEADER_BYTES + fixed_bytes(fields->fixed_flags);
    if (fields->fixed_flags != 0) {
        shared_write(at + RECORD_HEADER_BYTES, fields->fixed, offset - RECORD_HEADER_BYTES);
    }
    if (fields->headers_length > 0) {
        const struct field_bytes field = {fields->headers_length, 0};
        shared_write(at + offset, &field, sizeof field);
        shared_write(at + offset + sizeof field, fields->headers, fields->headers_length);
        pad(chunk, position + offset + sizeof field, fields->headers_length);
        offset = RECORD_HEADER_BYTES + record->extra_words * SPAN_UNIT;
    }
    if (fields->key_length > 0) {
        shared_write(at + offset, fields->key, fields->key_length);
        pad(chunk, position + offset, fields->key_length);
    }
}

static void write_crc(const shmq_chunk *chunk, uint64_t position, struct record *record)
{
    record->crc = chunk->checksum ? record_crc(chunk, position, record) : 0;
    shared_write(chunk->memory + position + offsetof(struct record, crc), &record->crc, sizeof record->crc);
}

/* The payload, behind a head that is written already, and the checksum of both. */
static void write_payload(const shmq_chunk *chunk, uint64_t position, struct record *record, const char *payload,
                          uint64_t length)
{
    const uint64_t head = record->length - length;
    uint8_t *const at = chunk->memory + position + head;
    pad(chunk, position, record->length);
    if (length < LARGE_BYTES || !chunk->checksum) {
        shared_write(at, payload, length);
        write_crc(chunk, position, record);
        return;
    }
    /* Where all was zeroed, past the cache, it is in nobody's cache. */
    const bool cached = chunk->grain != SPAN_UNIT;
    const uint32_t crc = record_crc_of(chunk, position, record, head);
    record->crc = cached ? crc32c_copy(crc, at, payload, length) : crc32c_stream(crc, at, payload, length);
    shared_write(chunk->memory + position + offsetof(struct record, crc), &record->crc, sizeof record->crc);
}

static struct record record_of(const shmq_chunk *chunk, const struct shape *shape, const shmq_fields *fields)
{
    return (struct record){
        .length = (uint32_t)shape->length,
        .batch = 1,
        .time_ns = fields->time_ns == INT64_MIN ? os->clock_wall_ns() : fields->time_ns,
        .type = (uint16_t)fields->type,
        .flags = (uint16_t)((fields->fixed_flags & (RECORD_EXPIRY | RECORD_DELAY | RECORD_DEDUP))
                            | (fields->headers_length > 0 ? RECORD_HEADERS : 0)
                            | (chunk->checksum ? 0 : RECORD_UNCHECKED)),
        .key_length = (uint16_t)fields->key_length,
        .extra_words = (uint16_t)(shape->extra / SPAN_UNIT),
    };
}

/* May this process put here now? */
static int may_put(const shmq_chunk *chunk)
{
    if (member_forked(chunk->member)) {
        return forked();
    }
    const struct control *const control = chunk->member->control;
    if (load_relaxed(&control->shut_down) != 0) {
        return error_set(SHMQ_SHUT_DOWN, "the queue was shut down");
    }
    if ((load_relaxed(&control->finished) & FINISHED_MASK) != 0) {
        return error_set(SHMQ_SHUT_DOWN, "the queue was finished, and was open here before; what is opened now may go on");
    }
    return bounded(chunk) && !limit_is_good(chunk) ? full() : SHMQ_OK;
}

static int64_t reserve(shmq_chunk *chunk, const shmq_fields *fields, uint64_t length, struct shape *shape,
                       struct claim *claim, struct record *record)
{
    int code = may_put(chunk);
    if (code == SHMQ_OK) {
        *shape = shape_of(fields->fixed_flags, fields->key_length, fields->headers_length, length);
        code = check_shape(shape, fields->key_length, length);
    }
    if (code == SHMQ_OK) {
        *record = record_of(chunk, shape, fields);
        code = claim_region(chunk, 1, round_up(shape->length), claim);
    }
    if (code == SHMQ_OK) {
        record->ordinal = (uint32_t)claim->ordinal;
        write_head(chunk, claim->position, record, fields);
    }
    return code;
}

int64_t shmq_put_record(shmq_chunk *chunk, const shmq_fields *fields, const char *payload, uint64_t length)
{
    struct shape shape;
    struct claim claim;
    struct record record;
    int64_t code = reserve(chunk, fields, length, &shape, &claim, &record);
    if (code != SHMQ_OK) {
        return code;
    }
    write_payload(chunk, claim.position, &record, payload, length);
    const uint64_t used = round_up(shape.length);
    fill_rest(chunk, claim.position, claim.word, used);
    const word_t done = word_make(WORD_DONE, 1, word_owner(claim.word), (uint32_t)(used / SPAN_UNIT));
    code = commit_word(chunk, claim.position, claim.word, done);
    if (code != SHMQ_OK) {
        return code;
    }
    shmq_wake(chunk->member);
    index_pass(chunk, claim.position, claim.ordinal, 1);
    return (int64_t)(chunk->base + claim.ordinal);
}

int64_t shmq_put(shmq_chunk *chunk, const char *payload, uint64_t length)
{
    const shmq_fields nothing = {.time_ns = INT64_MIN};
    return shmq_put_record(chunk, &nothing, payload, length);
}

int64_t shmq_reserve(shmq_chunk *chunk, const shmq_fields *fields, uint64_t length, uint64_t *claimed,
                     uint64_t *record_position, uint64_t *payload)
{
    struct shape shape;
    struct claim claim;
    struct record record;
    const int64_t code = reserve(chunk, fields, length, &shape, &claim, &record);
    if (code != SHMQ_OK) {
        return code;
    }
    *claimed = claim.word;
    *record_position = claim.position;
    *payload = claim.position + shape.payload;
    return (int64_t)(chunk->base + claim.ordinal);
}

uint8_t *shmq_map_again(void *begin, size_t bytes) { return os->map_again(begin, bytes); }
int shmq_make_private(uint8_t *again, size_t bytes) { return os->make_private(again, bytes); }
void shmq_unmap_again(uint8_t *again, size_t bytes) { os->unmap_again(again, bytes); }

void shmq_fill(shmq_chunk *chunk, uint64_t payload, const void *data, uint64_t length)
{
    shared_write(chunk->memory + payload, data, length);
}

int shmq_commit(shmq_chunk *chunk, uint64_t position, uint64_t claimed, uint64_t length)
{
    if (member_forked(chunk->member)) {
        return forked();
    }
    struct record record = {.word = claimed}; /* the word itself may be padded at this moment: not read plainly */
    const uint64_t from = offsetof(struct record, length);
    shared_read((uint8_t *)&record + from, chunk->memory + position + from, sizeof record - from);
    const uint64_t payload = RECORD_HEADER_BYTES + record.extra_words * SPAN_UNIT + round_up(record.key_length);
    if (payload + length > word_bytes(claimed)) {
        return error_set(SHMQ_TOO_LARGE, "%" PRIu64 " bytes do not fit the %" PRIu64 " that were reserved", length,
                         word_bytes(claimed) - payload);
    }
    record.length = (uint32_t)(payload + length);
    shared_write(chunk->memory + position + offsetof(struct record, length), &record.length, sizeof record.length);
    pad(chunk, position, record.length);
    write_crc(chunk, position, &record);
    const uint32_t span = (uint32_t)(round_up(record.length) / SPAN_UNIT);
    fill_rest(chunk, position, claimed, span * SPAN_UNIT);
    const int code = commit_word(chunk, position, claimed, word_make(WORD_DONE, 1, word_owner(claimed), span));
    if (code == SHMQ_OK) {
        shmq_wake(chunk->member);
        index_pass(chunk, position, record.ordinal, 1);
    }
    return code;
}

int shmq_abort(shmq_chunk *chunk, uint64_t position, uint64_t claimed)
{
    if (member_forked(chunk->member)) {
        return forked();
    }
    if (!pad_word(chunk, word_at(chunk, position), claimed)) {
        return error_set(SHMQ_FENCED, "the claim at position %" PRIu64 " was padded already", position);
    }
    shmq_wake(chunk->member); /* consumers may have been waiting for it */
    return SHMQ_OK;
}

/* ------------------------------------------------------------------ a batch */
static uint64_t length_at(const uint32_t *lengths, uint32_t i) { return lengths == NULL ? 0 : lengths[i]; }

uint64_t shmq_region_bytes(uint32_t count, const uint32_t *lengths, const uint32_t *key_lengths,
                           const uint32_t *header_lengths, uint32_t fixed_flags)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += round_up(shape_of(fixed_flags, length_at(key_lengths, i), length_at(header_lengths, i), lengths[i]).length);
    }
    return bytes;
}

static int check_batch(uint32_t count, const uint32_t *lengths, const uint32_t *key_lengths,
                       const uint32_t *header_lengths, uint32_t fixed_flags)
{
    if (count == 0 || count > COUNT_MAX) {
        return error_set(SHMQ_TOO_MANY, "a batch of %" PRIu32 " messages; one claim counts 1 to %u", count, COUNT_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t key_length = length_at(key_lengths, i);
        const struct shape shape = shape_of(fixed_flags, key_length, length_at(header_lengths, i), lengths[i]);
        const int code = check_shape(&shape, key_length, lengths[i]);
        if (code != SHMQ_OK) {
            return code;
        }
    }
    if (shmq_region_bytes(count, lengths, key_lengths, header_lengths, fixed_flags) > (uint64_t)SPAN_MAX * SPAN_UNIT) {
        return error_set(SHMQ_TOO_LARGE, "a batch of more than %u bytes with its headers", SPAN_MAX * SPAN_UNIT);
    }
    return SHMQ_OK;
}

int64_t shmq_put_many(shmq_chunk *chunk, uint32_t count, const char *payloads, const uint32_t *lengths,
                      const char *keys, const uint32_t *key_lengths, const uint32_t *types, const int64_t *times,
                      const char *headers, const uint32_t *header_lengths, uint32_t fixed_flags, const char *fixed)
{
    int code = may_put(chunk);
    if (code == SHMQ_OK) {
        code = check_batch(count, lengths, key_lengths, header_lengths, fixed_flags);
    }
    struct claim claim;
    if (code == SHMQ_OK) {
        const uint64_t bytes = shmq_region_bytes(count, lengths, key_lengths, header_lengths, fixed_flags);
        code = claim_region(chunk, count, bytes, &claim);
    }
    if (code != SHMQ_OK) {
        return code;
    }
    const int64_t now = times == NULL ? os->clock_wall_ns() : 0;
    uint64_t position = claim.position;
    word_t first_done = 0;
    for (uint32_t i = 0; i < count; i++) {
        const shmq_fields fields = {
            .key = keys,
            .key_length = (uint32_t)length_at(key_lengths, i),
            .type = types == NULL ? 0 : types[i],
            .time_ns = times == NULL ? now : times[i],
            .headers = headers,
            .headers_length = (uint32_t)length_at(header_lengths, i),
            .fixed_flags = fixed_flags,
            .fixed = fixed,
        };
        const struct shape shape = shape_of(fixed_flags, fields.key_length, fields.headers_length, lengths[i]);
        struct record record = record_of(chunk, &shape, &fields);
        record.ordinal = (uint32_t)(claim.ordinal + i);
        record.place = (uint16_t)i;
        record.batch = (uint16_t)count;
        write_head(chunk, position, &record, &fields);
        write_payload(chunk, position, &record, payloads, lengths[i]);
        const uint64_t bytes = round_up(shape.length);
        const word_t done = word_make(WORD_DONE, 1, word_owner(claim.word), (uint32_t)(bytes / SPAN_UNIT));
        if (i == 0) {
            first_done = done;
        } else { /* seen by nobody before the commit of the first, which orders it */
            store_relaxed(word_at(chunk, position), done);
        }
        position += bytes;
        payloads += lengths[i];
        keys = keys == NULL ? NULL : keys + fields.key_length;
        headers = headers == NULL ? NULL : headers + fields.headers_length;
    }
    fill_rest(chunk, claim.position, claim.word, position - claim.position);
    code = commit_word(chunk, claim.position, claim.word, first_done);
    if (code != SHMQ_OK) {
        return code;
    }
    shmq_wake(chunk->member);
    index_pass(chunk, claim.position, claim.ordinal, count);
    return (int64_t)(chunk->base + claim.ordinal);
}

/* ------------------------------------------------------------------ reading */
#define CURSOR_SPACING 256 /* a consumer that was killed walks about so many messages to its head */

/* A DONE region's message, but for its checksum. Shared bytes are read once, into a local; the local is checked, then
 * used. */
int64_t check_frame(const shmq_chunk *chunk, uint64_t position, uint64_t ordinal, word_t word, struct record *whole)
{
    struct record record;
    if (word_count(word) != 1) {
        return corrupt(chunk, position, "a word that no claim could have written");
    }
    if (word_bytes(word) < sizeof record || position + word_bytes(word) > chunk->capacity - SEAL_BYTES) {
        return corrupt(chunk, position, "a message reaches beyond the chunk");
    }
    shared_read(&record, chunk->memory + position, sizeof record);
    const uint64_t payload = RECORD_HEADER_BYTES + record.extra_words * SPAN_UNIT + round_up(record.key_length);
    if (record.length < payload || round_up(record.length) != word_bytes(word)) {
        return corrupt(chunk, position, "a message's length disagrees with its word");
    }
    if (record.ordinal != ordinal) {
        return corrupt(chunk, position, "a message is not the one that belongs here");
    }
    if (record.flags != 0 && fixed_bytes(record.flags) > record.extra_words * SPAN_UNIT) {
        return corrupt(chunk, position, "the optional fields of a message reach beyond it");
    }
    *whole = record;
    return place_of(position + payload, record.length - payload);
}

int check_sum(const shmq_chunk *chunk, uint64_t position, const struct record *record)
{
    if (chunk->checksum && record->crc != record_crc(chunk, position, record)) {
        return corrupt(chunk, position, "a message fails its checksum");
    }
    return SHMQ_OK;
}

/* Where a payload is wanted besides being checked: `to`, if it has no more than `room` bytes. */
struct copy {
    char *to;
    uint64_t room;
};

/* Check a message, and copy its payload in the same pass where it is wanted and fits: what is checked is the copy. */
static inline int64_t check_copying(const shmq_chunk *chunk, uint64_t position, uint64_t ordinal, word_t word,
                                    const struct copy *copy)
{
    struct record record;
    const int64_t place = check_frame(chunk, position, ordinal, word, &record);
    if (place < 0) {
        return place;
    }
    const uint64_t payload = ((uint64_t)place >> PLACE_LENGTH_BITS) - position;
    const uint64_t length = record.length - payload;
    if (copy == NULL || length > copy->room) {
        const int code = check_sum(chunk, position, &record);
        return code == SHMQ_OK ? place : code;
    }
    if (!chunk->checksum) {
        shared_read(copy->to, chunk->memory + position + payload, length);
    } else if (record.crc != crc32c_copy(record_crc_of(chunk, position, &record, payload), copy->to,
                                         chunk->memory + position + payload, length)) {
        return corrupt(chunk, position, "a message fails its checksum");
    }
    return place;
}

int64_t check_record(const shmq_chunk *chunk, uint64_t position, uint64_t ordinal, word_t word)
{
    return check_copying(chunk, position, ordinal, word, NULL);
}

int64_t shmq_check(shmq_chunk *chunk, uint64_t position, uint64_t ordinal)
{
    if (position < chunk->first_position || position + SEAL_BYTES > chunk->capacity || position % SPAN_UNIT != 0) {
        return corrupt(chunk, position, "no message can be there");
    }
    const struct walk walk = {position, ordinal};
    const word_t word = walk_look(chunk, &walk);
    return word_state(word) == WORD_DONE ? check_record(chunk, position, ordinal, word)
                                         : corrupt(chunk, position, "there is no message");
}

int settle(shmq_chunk *chunk, uint64_t position, word_t word)
{
    const int code = check_word(chunk, position, word); /* before anything is written */
    if (code != SHMQ_OK) {
        return code;
    }
    if (owner_alive(chunk->member, word_owner(word)) || !pad_the_dead(chunk, position, word)) {
        return SHMQ_WAITING;
    }
    return SHMQ_OK;
}

/* Let some time pass before the next look; false when the patience is used up. The pauses grow: whoever looks at a
 * word all the time takes its cache line from the producer who is about to write it. And whoever has looked a few times
 * gives way: the producer may be waiting for this very processor. */
#define PAUSE_MAX 64
#define PAUSE_YIELDS 64
static bool spin_on(uint32_t *spins, uint32_t *pause)
{
    if (*spins == 0) {
        return false;
    }
    *spins -= *spins < *pause ? *spins : *pause;
    for (uint32_t i = 0; i < *pause; i++) {
        spin_pause();
    }
    if (*pause >= PAUSE_YIELDS) {
        os->yield();
    }
    *pause = *pause < PAUSE_MAX ? *pause * 2 : PAUSE_MAX;
    return true;
}

/* Into each of its callers: what a look is for is known there, and on the way through memory it costs a third more. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Which messages a look is for: regions of up to `limit` bytes; where their payloads go, if not NULL, and where to say
 * which message it was. */
struct look {
    uint32_t spins;
    uint64_t limit;
    const struct copy *copy;
    shmq_which *which;
};

/* Move the walk to the next message: its checked place, or why not. Looks `spins` times before it gives up. A message
 * above the limit is not looked at: TOO_LARGE. */
static ALWAYS_INLINE int64_t next_message(shmq_chunk *chunk, shmq_reader *reader, struct walk *walk, struct look look)
{
    uint32_t pause = 1;
    for (;;) {
        const word_t word = walk_look(chunk, walk);
        switch (word_state(word)) {
        case WORD_DONE:
            return word_bytes(word) > look.limit
                       ? SHMQ_TOO_LARGE
                       : check_copying(chunk, walk->position, walk->ordinal, word, look.copy);
        case WORD_SEAL:
            if (!word_seals(word)) {
                break;
            }
            return SHMQ_ROLL;
        case WORD_FREE:
            if (word != 0) {
                break; /* walk_past tells what is wrong with it */
            }
            if (!spin_on(&look.spins, &pause)) {
                const int code = nothing_there(chunk, walk);
                if (code != SHMQ_OK) {
                    return code;
                }
            }
            continue;
        case WORD_CLAIMED: {
            if (spin_on(&look.spins, &pause)) {
                continue;
            }
            reader->waiting_for = word_owner(word);
            const int code = settle(chunk, walk->position, word);
            if (code != SHMQ_OK) {
                return code;
            }
            continue;
        }
        default:
            break;
        }
        const int code = walk_past(chunk, walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
        reader->padded += word_state(word) == WORD_PAD ? word_count(word) : 0;
    }
}

/* The message at the walk was checked: step over it. The word is not read a second time. */
static void step_over(struct walk *walk, int64_t place)
{
    walk->position = round_up(place_end(place));
    walk->ordinal += 1;
}

/* The next message that the reader wants: a region that holds its start may begin before it. What was dropped is not
 * waited for, whatever time it has. */
static ALWAYS_INLINE int64_t wanted_message(shmq_chunk *chunk, shmq_reader *reader, struct walk *walk, struct look look)
{
    for (;;) {
        const int64_t place = next_message(chunk, reader, walk, look);
        if (place >= 0) {
            const uint64_t index = chunk->base + walk->ordinal;
            const uint16_t times = reader->checkpoint == NULL ? 0 : record_times(chunk, walk->position);
            int code = SHMQ_OK;
            if (times != 0 && index >= reader->start && !reader_drops(chunk, reader, index)) {
                code = record_timely(chunk, reader, walk->position, times);
                if (code == SHMQ_WAITING) {
                    return code;
                }
            }
            reader->record = walk->position;
            reader->index = index;
            step_over(walk, place);
            if (index < reader->start || code == SHMQ_EMPTY) {
                continue;
            }
            if (reader_drops(chunk, reader, index)) {
                reader->due_ns = 0;
                note_dropped(reader->checkpoint);
                continue;
            }
        }
        return place;
    }
}

/* Before a message is returned: move the live words of the reader's checkpoint, if it has one. False: it must not be
 * returned, since it was dropped meanwhile. */
bool reader_publish(const shmq_chunk *chunk, const shmq_reader *reader, const struct walk *walk)
{
    struct checkpoint *const checkpoint = reader->checkpoint;
    if (checkpoint == NULL) {
        return true;
    }
    const bool again = load_relaxed(&checkpoint->handed) > reader->index;
    if (!again) {
        store_relaxed(&checkpoint->handed, reader->index + 1);
    }
    const bool limited = bounded(chunk);
    if (reader->auto_ack) {
        store_relaxed(&checkpoint->head, reader->index + 1);
        if (walk->ordinal % CURSOR_SPACING == 0) {
            shmq_cursor_save(checkpoint, chunk->sequence, walk->position, walk->ordinal, chunk->base + walk->ordinal);
        }
        if (limited) {
            shmq_room(chunk->member->control);
        }
    } else if (limited && !again && is_dropped_after_all(chunk, reader->index)) {
        note_dropped(checkpoint);
        return false;
    }
    return true;
}

/* One thread at a time: a second one is told so, and sorts it out with the first under a lock of theirs. */
bool reader_begin(shmq_reader *reader, struct walk *walk)
{
    /* Acquire: the other thread's moves. Pairs with the release in reader_end. */
    if (exchange_acquire(&reader->busy, 1) != 0) {
        return false;
    }
    shared_read(&walk->position, &reader->position, sizeof reader->position);
    shared_read(&walk->ordinal, &reader->ordinal, sizeof reader->ordinal);
    return true;
}
void reader_end(shmq_reader *reader, const struct walk *walk)
{
    shared_write(&reader->position, &walk->position, sizeof walk->position);
    shared_write(&reader->ordinal, &walk->ordinal, sizeof walk->ordinal);
    store_release(&reader->busy, 0); /* pairs with the acquire in reader_begin */
}

bool reader_is_shut(const shmq_chunk *chunk, const shmq_reader *reader)
{
    return reader->checkpoint != NULL && load_relaxed(&chunk->member->control->shut_down) == SHUT_DOWN_AT_ONCE;
}

int64_t shmq_next_many(shmq_chunk *chunk, shmq_reader *reader, uint32_t limit, uint64_t *places, uint64_t *records)
{
    if (member_forked(chunk->member)) {
        return forked();
    }
    if (reader_is_shut(chunk, reader)) {
        return SHMQ_EMPTY;
    }
    struct walk walk;
    if (!reader_begin(reader, &walk)) {
        return SHMQ_CONTENDED;
    }
    /* Where messages may be dropped, each that waits for its acknowledgement is said to be handed out by itself. */
    const bool one_by_one = !reader->auto_ack && bounded(chunk);
    int64_t count = 0;
    int64_t answer = SHMQ_EMPTY;
    while (count < limit) {
        answer = wanted_message(chunk, reader, &walk, (struct look){.limit = UINT64_MAX});
        if (answer < 0) {
            break; /* what came before it is delivered; the next call meets it again */
        }
        if (one_by_one && !reader_publish(chunk, reader, &walk)) {
            continue;
        }
        if (places != NULL) {
            places[count] = (uint64_t)answer;
        }
        if (records != NULL) {
            records[count] = reader->record;
        }
        count++;
    }
    if (count > 0 && !one_by_one) {
        reader_publish(chunk, reader, &walk);
    }
    reader_end(reader, &walk);
    return count > 0 ? count : answer;
}

static inline int64_t next_one(shmq_chunk *chunk, shmq_reader *reader, struct look look)
{
    if (member_forked(chunk->member)) {
        return forked();
    }
    if (reader_is_shut(chunk, reader)) {
        return SHMQ_EMPTY;
    }
    struct walk walk;
    if (!reader_begin(reader, &walk)) {
        return SHMQ_CONTENDED;
    }
    int64_t answer;
    do {
        answer = wanted_message(chunk, reader, &walk, look);
    } while (answer >= 0 && !reader_publish(chunk, reader, &walk));
    if (look.which != NULL) {
        *look.which = (shmq_which){reader->record, reader->index}; /* before another thread moves the reader on */
    }
    reader_end(reader, &walk);
    return answer;
}

int64_t shmq_next(shmq_chunk *chunk, shmq_reader *reader, uint32_t spins)
{
    return next_one(chunk, reader, (struct look){.spins = spins, .limit = UINT64_MAX});
}

int64_t shmq_next_which(shmq_chunk *chunk, shmq_reader *reader, uint32_t spins, shmq_which *which)
{
    return next_one(chunk, reader, (struct look){.spins = spins, .limit = UINT64_MAX, .which = which});
}

int64_t shmq_glance(shmq_chunk *chunk, shmq_reader *reader, shmq_which *which)
{
    if (member_forked(chunk->member)) {
        return forked();
    }
    if (reader_is_shut(chunk, reader)) {
        return SHMQ_EMPTY;
    }
    struct walk walk;
    if (!reader_begin(reader, &walk)) {
        return SHMQ_CONTENDED;
    }
    const int64_t place = wanted_message(chunk, reader, &walk, (struct look){.limit = UINT64_MAX});
    if (place >= 0) { /* back before it; over what is not to be had, it has gone for good */
        walk = (struct walk){reader->record, reader->index - chunk->base};
        *which = (shmq_which){reader->record, reader->index};
    }
    reader_end(reader, &walk);
    return place;
}

int64_t shmq_next_small(shmq_chunk *chunk, shmq_reader *reader)
{
    return next_one(chunk, reader, (struct look){.limit = LARGE_BYTES});
}

int64_t shmq_next_copied(shmq_chunk *chunk, shmq_reader *reader, char *to, uint64_t room)
{
    const struct copy copy = {to, room};
    return next_one(chunk, reader, (struct look){.limit = UINT64_MAX, .copy = &copy});
}

uint64_t shmq_next_bytes(const shmq_chunk *chunk, const shmq_reader *reader)
{
    const uint64_t position = reader->position;
    struct record record;
    if (position < chunk->first_position || position + sizeof record > chunk->capacity) {
        return 0;
    }
    shared_read(&record, chunk->memory + position, sizeof record);
    const uint64_t payload = RECORD_HEADER_BYTES + record.extra_words * SPAN_UNIT + round_up(record.key_length);
    return record.length < payload || record.length > chunk->capacity - position ? 0 : record.length - payload;
}

int shmq_reader_seek(shmq_chunk *chunk, shmq_reader *reader, uint64_t ordinal)
{
    struct walk walk = {reader->position, reader->ordinal};
    const bool ahead = walk.position >= chunk->first_position && walk.ordinal <= ordinal;
    struct found found;
    const int code = index_find_place(chunk, ordinal, ahead ? walk : walk_from_start(chunk), &found);
    reader->position = found.walk.position;
    reader->ordinal = found.walk.ordinal;
    return (code == SHMQ_EMPTY || code == SHMQ_ROLL) && found.walk.ordinal == ordinal ? SHMQ_OK : code;
}
