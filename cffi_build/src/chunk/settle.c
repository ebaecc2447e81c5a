/* settle.c - a claim that will not be committed becomes padding: CLAIMED -> PAD, and its ordinals stay taken.
 *
 * Its owner is dead, which the kernel's lock on its seat says and never the time, or gives it up itself. Nobody passes a
 * CLAIMED word without writing PAD into it: a verdict kept anywhere else could be late. The end of a claim is decided by a CAS
 * on its one word, so it has one outcome: a living owner that was taken for dead finds its commit refused. What is padding is
 * counted, between two marks that a death leaves to be seen. */
#include "chunk/settle.h"

#include <inttypes.h>

#include "chunk/bounds.h"
#include "chunk/walk.h"
#include "error.h"
#include "os/os.h"
#include "os/owner.h"

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
    uint8_t *const window = chunk->pads ? os->map_window(chunk->memory + position, sizeof(word_t)) : NULL;
    if (window == NULL) {
        return false;
    }
    pad_word(chunk, (word_t *)(void *)window, claimed);
    os->unmap_window(window, sizeof(word_t));
    return true;
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

int shmq_abort(shmq_chunk *chunk, uint64_t position, uint64_t claimed)
{
    if (member_forked(chunk->member)) {
        return error_forked();
    }
    if (!pad_word(chunk, word_at(chunk, position), claimed)) {
        return error_set(SHMQ_FENCED, "the claim at position %" PRIu64 " was padded already", position);
    }
    shmq_wake(chunk->member); /* consumers may have been waiting for it */
    return SHMQ_OK;
}
