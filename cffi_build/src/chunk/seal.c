/* seal.c - the end of a chunk: its SEAL, the GAP that recovery may have put before it, and how much there is up to it.
 *
 * SEAL is written by a CAS on the FREE word; behind it nothing can be claimed, so the count of the chunk, and with it the
 * name of the next one, is final. A SEAL that carries an id adopts the set of that id; the one place where a SEAL changes is
 * a set that nobody has adopted yet. Which file the next chunk is, is somebody else's business. */
#include "chunk/seal.h"

#include <inttypes.h>

#include "chunk/bounds.h"
#include "chunk/walk.h"
#include "crc.h"
#include "error.h"

/* ------------------------------------------------------------------ sealing */
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
                return bounds_full();
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

/* ------------------------------------------------------------------ gaps */
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

/* ------------------------------------------------------------------ what there is up to it */
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
