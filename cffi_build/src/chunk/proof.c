/* proof.c - what an entry of the index is worth.
 *
 * Nothing in an entry is believed. It is a guess at where to begin; what is found from it counts when the record's own
 * ordinal and checksum say so, or when the record at the entry does; else the next earlier one is tried, at last the
 * chunk's first word. A record inside a batch proves nothing by itself: its word says DONE before the batch is committed,
 * and for ever when the batch is padded. So an entry that names one is walked to from before the batch, once. */
#include "chunk/proof.h"

#include "chunk/record.h"

bool proven_before(const shmq_chunk *chunk, uint64_t j, const struct walk *walk)
{
    return chunk->index_proven != NULL
           && load_relaxed(&chunk->index_proven[j]) == (uint32_t)(walk->position / SPAN_UNIT);
}
void prove(const shmq_chunk *chunk, uint64_t j, const struct walk *walk)
{
    if (chunk->index_proven != NULL && j / INDEX_ENTRIES < chunk->index_blocks) {
        store_relaxed(&chunk->index_proven[j], (uint32_t)(walk->position / SPAN_UNIT));
    }
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

bool proven(shmq_chunk *chunk, uint64_t j, const struct walk *walk)
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
