/* ended.c - what a group has not finished, and whether its stream has ended.
 *
 * A queue that is shut down or finished ends for a group when nothing is left: nothing that nobody has, and nothing that
 * somebody has and may still give back. Who holds messages itself and waits for the end would wait for itself, or two
 * such for each other. So each says that it waits (`resting`), and for those who hold something the end has come when
 * everything that is not finished is with such: nobody gives any of it back while waiting. Who holds nothing waits on,
 * and is there for what a death brings back. */
#include "group/ended.h"

#include "group/figures.h"
#include "group/gate.h"
#include "group/side.h"
#include "os/owner.h"

/* ------------------------------------------------------------------ the end */
void ring_finished(const shmq_ring *ring)
{
    /* The caller has a fence between what it finished and this: who waits sees that, or is woken. Whoever sees the
     * stream end only behind our look sees it as well: it has begun to wait before, or the bell of the end rings for it. */
    const struct control *const control = ring->member->control;
    if (load_relaxed(&control->shut_down) != 0 || (load_relaxed(&control->finished) & FINISHED_MASK) != 0) {
        shmq_wake(ring->member);
    }
}

void shmq_ring_rest(shmq_ring *ring, bool on)
{
    const uint32_t slot = owner_slot(ring->member->owner);
    uint64_t *const at = &ring->page->resting[slot / 64];
    const uint64_t bit = UINT64_C(1) << slot % 64;
    uint64_t seen = load_relaxed(at);
    while ((seen & bit) != (on ? bit : 0)) {
        if (cas_relaxed(at, seen, seen ^ bit)) { /* the wake has a fence */
            if (on) {
                shmq_wake(ring->member); /* the last one to say so is the end for the others */
            }
            return;
        }
        seen = load_relaxed(at);
    }
}

struct holders {
    const shmq_ring *ring;
    bool holding;      /* those who rest do not count */
    owner_t resting;   /* the last one that was found to live and to rest */
};
/* May what `owner` holds still come back to the others? */
static bool may_return(struct holders *holders, owner_t owner)
{
    const shmq_ring *const ring = holders->ring;
    if (!holders->holding) {
        return true;
    }
    if (owner == ring->member->owner || owner == holders->resting) {
        return false;
    }
    const uint32_t slot = owner_slot(owner);
    if ((load_relaxed(&ring->page->resting[slot / 64]) >> slot % 64 & 1) == 0 || !owner_alive(ring->member, owner)) {
        return true; /* its holder works at it; or is dead, and it comes to whoever looks next */
    }
    holders->resting = owner;
    return false;
}

bool shmq_ring_drained(const shmq_ring *ring, bool holding)
{
    struct holders holders = {.ring = ring, .holding = holding};
    if (load_acquire(&ring->page->side_blocks) > ring->blocks) {
        return false; /* something may be parked where we do not see it: look again */
    }
    const uint64_t head = load_acquire(&ring->checkpoint->head);
    for (uint64_t index = head; index < head + ring->window; index++) {
        const uint64_t word = ring_look(ring, index);
        const uint32_t state = ring_state(ring, index, word);
        if (state == RING_RETRY || state == RING_MOVING || state == RING_FORWARDING || (state == RING_PENDING && keyed_at(ring, index) != 0)
            || (state == RING_CLAIMED && may_return(&holders, ring_owner(word)))) {
            return false;
        }
    }
    struct parked at = {0}; /* behind the window: messages move from there to here only */
    while (side_next(ring, &at)) {
        if (at.state != SIDE_CLAIMED || may_return(&holders, at.owner)) {
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------ how much there is */
uint64_t shmq_ring_open_in(const shmq_ring *ring, uint64_t head, uint64_t first, uint64_t stop)
{
    const uint64_t edge = head + ring->window;
    const uint64_t dropped = load_relaxed(&ring->page->dropped_to); /* behind the window nobody has anything */
    const uint64_t begin = dropped > edge ? dropped : edge;
    uint64_t count = stop > begin ? stop - (first > begin ? first : begin) : 0;
    for (uint64_t index = first > head ? first : head; index < stop && index < edge; index++) {
        count += !ring_is_done(ring, index);
    }
    return count;
}

int shmq_ring_count(const shmq_ring *ring, uint64_t head, const shmq_filter *filter, shmq_chunk *chunk, uint64_t *position,
                    uint64_t *ordinal, uint64_t first, uint64_t stop, uint32_t most, uint64_t *count)
{
    int code;
    while ((code = shmq_filter_next(filter, chunk, position, ordinal, stop, &most)) == SHMQ_OK) {
        const uint64_t index = chunk->base + *ordinal;
        *count += index >= first ? shmq_ring_open_in(ring, head, index, index + 1) : 0;
        most -= most > 0;
        code = shmq_filter_step(chunk, position, ordinal);
        if (code != SHMQ_OK) {
            break;
        }
    }
    return code;
}

uint64_t shmq_ring_unfinished(const shmq_ring *ring, uint64_t first, uint64_t end, uint64_t *head, uint64_t *lowest)
{
    *head = load_acquire(&ring->checkpoint->head);
    uint64_t count = shmq_ring_open_in(ring, *head, first, end);
    uint64_t open = *head > first ? *head : first;
    while (open < end && open < *head + ring->window && ring_is_done(ring, open)) {
        open++;
    }
    *lowest = open;
    struct parked at = {0}; /* behind the window, as above */
    while (side_next(ring, &at)) {
        if (at.index >= first && at.index < *head) {
            count++;
            *lowest = at.index < *lowest ? at.index : *lowest;
        }
    }
    return count;
}

uint32_t shmq_ring_parked(const shmq_ring *ring, uint64_t *entry, uint32_t room, uint64_t *indexes, uint8_t *held)
{
    uint32_t count = 0;
    struct parked at = {.entry = *entry};
    while (count < room && side_next(ring, &at)) {
        indexes[count] = at.index;
        held[count++] = at.state == SIDE_CLAIMED || at.state == SIDE_MOVING || at.state == SIDE_FORWARDING;
    }
    *entry = at.entry;
    return count;
}
