/* measure.c - how much a chunk holds: from the first message that is left to its end.
 *
 * Nothing is counted as it comes and goes. The smallest head says where to begin, the words say where the end is, and what the
 * index takes in between is no message. */
#include "chunk/find.h"
#include "chunk/index.h"
#include "chunk/settle.h"
#include "chunk/walk.h"

int shmq_floor(shmq_chunk *chunk, uint64_t *ordinal, uint64_t *position)
{
    struct found found;
    int code = index_find_place(chunk, *ordinal, walk_from_start(chunk), &found);
    if (code == SHMQ_CORRUPT) {
        return code;
    }
    struct walk walk = found.walk;
    for (;;) {
        const word_t word = walk_look(chunk, &walk);
        *ordinal = walk.ordinal > *ordinal ? walk.ordinal : *ordinal;
        *position = walk.position;
        if (word_seals(word)) {
            return SHMQ_ROLL;
        }
        if (word == 0 || word_state(word) == WORD_DONE) {
            return SHMQ_OK;
        }
        if (word_state(word) == WORD_CLAIMED) {
            code = settle(chunk, walk.position, word);
            if (code != SHMQ_OK) {
                return code == SHMQ_WAITING ? SHMQ_OK : code;
            }
            continue; /* it was a dead one's: look again at the padding */
        }
        code = walk_past(chunk, &walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
    }
}

int shmq_filled(shmq_chunk *chunk, uint64_t start, uint64_t *end, uint64_t *bytes)
{
    uint64_t next_index;
    const int code = shmq_tail(chunk, &next_index, end);
    if (code != SHMQ_OK) {
        return code;
    }
    *bytes = *end > start ? *end - start : 0;
    const uint64_t blocks = index_bytes(chunk, start, *end);
    *bytes -= blocks < *bytes ? blocks : *bytes;
    return SHMQ_OK;
}
