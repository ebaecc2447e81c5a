/* walk.c - from word to word: where a walk begins, what it may step over, and when there is nothing.
 *
 * Walkers go from word to word by their spans; inside a region there is nothing to see until it is resolved. The hint names
 * the end of some claimed region: nothing before it is looked at by whoever wants the end, and what is FREE before it, at a
 * second look, is a hole and not the end. A word is stepped over only if it can be what it says. */
#include "chunk/walk.h"

#include <inttypes.h>

#include "error.h"

int corrupt(const shmq_chunk *chunk, uint64_t position, const char *reason)
{
    return error_set(SHMQ_CORRUPT, "chunk %016" PRIx64 "-%08" PRIx64 ", position %" PRIu64 ": %s", chunk->base,
                     chunk->sequence, position, reason);
}

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
int check_word(const shmq_chunk *chunk, uint64_t position, word_t word)
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
