/* finish.c - what its holder does with a message: finish it, give it back, keep it longer, move it to another queue.
 *
 * Each is one CAS from exactly the word that was handed out; when it fails, somebody else was given the message, or has parked
 * it on the holder's behalf, and then it is followed to its entry. A fence is behind it: whoever brings the head to it sees it
 * done, or we see the head there. */
#include <inttypes.h>

#include "error.h"
#include "group/edge.h"
#include "group/ended.h"
#include "group/gate.h"
#include "group/head.h"
#include "group/side.h"

/* ------------------------------------------------------------------ where it is */
static int lost(uint64_t index)
{
    return error_set(SHMQ_LOST, "message %" PRIu64 " was given to somebody else meanwhile, or finished", index);
}

/* Where a message that was handed out of the window is now: its entry, when somebody has parked it for its holder. EMPTY,
 * or GROW when it may be where we do not see it. */
static int64_t parked_for_me(shmq_ring *ring, const shmq_taken *taken, uint64_t *state)
{
    const uint64_t word = ring_look(ring, taken->index);
    const uint32_t now = ring_state(ring, taken->index, word);
    int64_t entry = SHMQ_EMPTY;
    if (taken->index < head_of(ring)) {
        entry = side_find(ring, taken->index);
    } else if (now == RING_PARKED) {
        entry = (int64_t)ring_entry(word);
    }
    struct ring_side *const side = entry < 0 ? NULL : side_at(ring, (uint64_t)entry);
    if (side == NULL) {
        const bool elsewhere = taken->index < head_of(ring) || now == RING_PARKED;
        return elsewhere && load_relaxed(&ring->page->side_blocks) > ring->blocks ? SHMQ_GROW : SHMQ_EMPTY;
    }
    side_settle(ring, (uint64_t)entry);
    *state = load_acquire(&side->state);
    return side_is_of(*state, taken->word) && load_acquire(&side->index) == taken->index + 1 ? entry : SHMQ_EMPTY;
}

/* Follow a message to where it was parked on behalf of its holder: OK, LOST when it was not, or GROW. */
static int follow(shmq_ring *ring, shmq_taken *taken)
{
    uint64_t state = 0;
    const int64_t entry = taken->entry == 0 ? parked_for_me(ring, taken, &state) : SHMQ_EMPTY;
    if (entry < 0) {
        return entry == SHMQ_GROW ? SHMQ_GROW : lost(taken->index);
    }
    taken->entry = (uint64_t)entry;
    taken->word = state;
    return SHMQ_OK;
}

static bool move_word(shmq_ring *ring, const shmq_taken *taken, uint64_t low)
{
    return cas_release(ring_word(ring, taken->index), taken->word, ring_stamp(ring, taken->index) | low);
}

/* ------------------------------------------------------------------ finished */
/* Finish one, but for the head. */
static int finish(shmq_ring *ring, shmq_taken *taken)
{
    if (taken->entry == 0) {
        if (move_word(ring, taken, RING_DONE)) {
            return SHMQ_OK;
        }
        const int code = follow(ring, taken);
        if (code != SHMQ_OK) {
            return code;
        }
    }
    return side_ack(ring, taken->entry, taken->word) == SHMQ_OK ? SHMQ_OK : lost(taken->index);
}

int shmq_ring_ack(shmq_ring *ring, shmq_taken *taken)
{
    if (taken->word == 0) {
        return SHMQ_OK; /* its holder has ended it, and a signal's handler kept it from noting so */
    }
    const int code = finish(ring, taken);
    keyed_finished(ring, taken, code == SHMQ_OK);
    keyed_wake(ring);
    fence_seq_cst(); /* as in ring_advance: it is at the head, or whoever brings the head here sees it done */
    if (code == SHMQ_OK && taken->index == head_of(ring)) {
        ring_advance(ring);
    }
    ring_nearer(ring, code == SHMQ_OK);
    ring_finished(ring);
    taken->word = code == SHMQ_OK ? 0 : taken->word;
    return code;
}

int64_t shmq_ring_ack_many(shmq_ring *ring, uint32_t count, shmq_taken *taken)
{
    int64_t finished = 0;
    bool grow = false;
    for (uint32_t i = 0; i < count; i++) {
        if (taken[i].word != 0) { /* else it was finished before we had to map the table anew */
            const int code = finish(ring, &taken[i]);
            grow = grow || code == SHMQ_GROW;
            if (code != SHMQ_OK) {
                keyed_finished(ring, &taken[i], false);
                continue;
            }
            keyed_finished(ring, &taken[i], true);
            taken[i].word = 0;
        }
        finished++;
    }
    keyed_wake(ring);
    ring_settled(ring, (uint64_t)finished);
    ring_finished(ring);
    return grow ? SHMQ_GROW : finished;
}

/* ------------------------------------------------------------------ given back */
/* One that was dropped while we had it, and is given back: finished. As shmq_ring_ack. */
static int drop_mine(shmq_ring *ring, shmq_taken *taken)
{
    const int code = shmq_ring_ack(ring, taken);
    if (code == SHMQ_OK) {
        ring_count_dropped(ring, 1);
    }
    return code;
}

int shmq_ring_return(shmq_ring *ring, shmq_taken *taken)
{
    if (taken->word == 0) {
        return SHMQ_OK; /* ended, as in shmq_ring_ack */
    }
    if (ring_is_dropped(ring, taken->index)) {
        return drop_mine(ring, taken);
    }
    if (taken->entry == 0) {
        if (move_word(ring, taken, ring_low(0, ring_count(taken->word), RING_RETRY))) {
            keyed_ready(ring, taken->bucket);
            ring_returned(ring);
            taken->word = 0;
            return SHMQ_OK;
        }
        const int code = follow(ring, taken);
        if (code != SHMQ_OK) {
            return code;
        }
    }
    return shmq_ring_nack(ring, taken, 0, 0);
}

int shmq_ring_undo(shmq_ring *ring, shmq_taken *taken)
{
    const bool counted = taken->word != 0 && taken->entry == 0 && taken->kind == SHMQ_TAKEN_MESSAGE;
    if (counted && ring_look(ring, taken->index) == taken->word) { /* before it goes: then it is the next one's */
        attempts_store(ring, taken->index, taken->attempts - 1);
    }
    return shmq_ring_return(ring, taken);
}

static int park(shmq_ring *ring, shmq_taken *taken, int64_t due_ns, uint64_t behind)
{
    if (taken->entry == 0) {
        int code = shmq_ring_park(ring, taken->index, taken->word, due_ns, behind, taken->attempts, taken->bucket);
        if (code == SHMQ_EMPTY) {
            return SHMQ_OK;
        }
        code = code == SHMQ_LOST ? follow(ring, taken) : code;
        if (code != SHMQ_OK) {
            return code;
        }
    }
    return side_nack(ring, taken->entry, taken->word, due_ns, behind) == SHMQ_OK ? SHMQ_OK : lost(taken->index);
}

int shmq_ring_nack(shmq_ring *ring, shmq_taken *taken, int64_t due_ns, uint64_t behind)
{
    if (taken->word == 0) {
        return SHMQ_OK; /* ended, as in shmq_ring_ack */
    }
    if (ring_is_dropped(ring, taken->index)) {
        return drop_mine(ring, taken);
    }
    const int code = park(ring, taken, due_ns, behind);
    taken->word = code == SHMQ_OK ? 0 : taken->word;
    return code;
}

/* ------------------------------------------------------------------ kept, and moved */
int shmq_ring_extend_lease(shmq_ring *ring, shmq_taken *taken, int64_t ends_ns)
{
    if (taken->word == 0) {
        return lost(taken->index); /* finished */
    }
    if (taken->entry == 0) {
        const uint64_t low = ring_low(ring->member->owner, ring_count(taken->word) + 1, RING_CLAIMED);
        const uint64_t next = ring_stamp(ring, taken->index) | low;
        if (ring->leases != NULL) { /* of the word that will be: a thief takes from the word that was */
            lease_store(ring, &ring->leases[ring_slot(ring, taken->index)], next, ends_ns);
        }
        if (move_word(ring, taken, low)) {
            taken->word = next;
            return SHMQ_OK;
        }
        const int code = follow(ring, taken);
        if (code != SHMQ_OK) {
            return code;
        }
    }
    return side_extend(ring, taken->entry, &taken->word, ends_ns) == SHMQ_OK ? SHMQ_OK : lost(taken->index);
}

int shmq_ring_moving(shmq_ring *ring, shmq_taken *taken)
{
    if (taken->word == 0) {
        return lost(taken->index); /* finished */
    }
    if (taken->entry == 0) {
        const uint64_t low = ring_low(ring->member->owner, ring_count(taken->word), RING_MOVING);
        if (move_word(ring, taken, low)) {
            taken->word = ring_stamp(ring, taken->index) | low;
            return SHMQ_OK;
        }
        const int code = follow(ring, taken);
        if (code != SHMQ_OK) {
            return code;
        }
    }
    return side_moving(ring, taken->entry, &taken->word) == SHMQ_OK ? SHMQ_OK : lost(taken->index);
}

/* ------------------------------------------------------------------ put into other queues */
int shmq_ring_forward(shmq_ring *ring, shmq_taken *taken, bool *again)
{
    if (taken->word == 0) {
        return lost(taken->index); /* finished */
    }
    *again = taken->index < load_relaxed(&ring->page->unsure_to);
    if (taken->entry == 0) {
        const uint64_t low = ring_low(ring->member->owner, ring_count(taken->word), RING_FORWARDING);
        /* First: whoever sees the word sees the bit, whatever comes of us. */
        *again = ring_mark_forwarded(ring, taken->index) || *again;
        if (move_word(ring, taken, low)) {
            taken->word = ring_stamp(ring, taken->index) | low;
            return SHMQ_OK;
        }
        const int code = follow(ring, taken);
        if (code != SHMQ_OK) {
            return code;
        }
    }
    return side_forward(ring, taken->entry, &taken->word, again) == SHMQ_OK ? SHMQ_OK : lost(taken->index);
}

int shmq_ring_unforward(shmq_ring *ring, shmq_taken *taken)
{
    const uint64_t low = ring_low(ring->member->owner, ring_count(taken->word), RING_CLAIMED);
    if (taken->entry != 0) {
        return side_unforward(ring, taken->entry, &taken->word) == SHMQ_OK ? SHMQ_OK : lost(taken->index);
    }
    if (!move_word(ring, taken, low)) {
        return lost(taken->index);
    }
    taken->word = ring_stamp(ring, taken->index) | low;
    return SHMQ_OK;
}

bool shmq_ring_seated(const shmq_ring *ring)
{
    return shmq_member_seated(ring->member) != 0;
}

bool shmq_taken_forwards(const shmq_taken *taken)
{
    const uint64_t state = taken->word & ((1u << RING_STATE_BITS) - 1);
    static_assert((uint32_t)RING_FORWARDING == (uint32_t)SIDE_FORWARDING, "the same in the window and beside it");
    return taken->word != 0 && state == RING_FORWARDING;
}

void shmq_ring_count_moved(shmq_ring *ring, bool expired)
{
    add_relaxed(expired ? &ring->page->expired : &ring->page->moved, 1);
}
void shmq_ring_count_unmoved(shmq_ring *ring) { add_relaxed(&ring->page->unmoved, 1); }
