/* drop.c - what a group will not be handed any more: dropped for room, purged, or retired under it.
 *
 * Whoever drops finishes messages that nobody has, each by the one CAS on its own word that finishing always is. A member
 * that claims one at the same moment has it or has it not; no member need look at anything for it. What a member has stays
 * there to be finished; when it comes back instead, given back or by the member's death, the mark `dropped_to` says that it
 * is to be finished and not handed out again. What lies behind the window, because a member holds something before it,
 * is finished by the same mark: when the head comes to it, or a member that walks. */
#include "error.h"
#include "group/gate.h"
#include "group/head.h"
#include "group/side.h"

/* From so many windows on, a head that was left behind is moved in one step, and not over each word. */
#define FAR_WINDOWS 256u

static bool window_is_done(const shmq_ring *ring, uint64_t head)
{
    for (uint64_t index = head; index < head + ring->window; index++) {
        if (ring_state(ring, index, ring_look(ring, index)) != RING_DONE) {
            return false;
        }
    }
    return true;
}

/* Whether that is finished by now, and is a loss: what was dropped is counted as that. */
static bool lose(shmq_ring *ring, uint64_t index, bool by_force)
{
    return !(ring_is_dropped(ring, index) && ring_drop(ring, index)) && ring_drop_word(ring, index, by_force);
}

/* Move a head that is far behind `target` to a window before it, unless somebody has something before it (*by_force*: all the
 * same): how many were lost on the way. Nothing behind the window can have been handed out while the head stands, and in the
 * window each word says who finished it. */
static uint64_t leap(shmq_ring *ring, uint64_t target, bool by_force)
{
    uint64_t lost = 0;
    for (;;) {
        const uint64_t head = load_relaxed(&ring->checkpoint->head); /* the CAS passes on what it was moved over */
        if (target <= head + (uint64_t)FAR_WINDOWS * ring->window) {
            return lost;
        }
        for (uint64_t index = head; index < head + ring->window; index++) {
            lost += lose(ring, index, by_force);
        }
        if (!by_force && !window_is_done(ring, head)) {
            return lost;
        }
        if (cas_release(&ring->checkpoint->head, head, target - ring->window)) {
            const uint64_t begin = head + ring->window;
            const uint64_t end = target - ring->window;
            const uint64_t marked = load_relaxed(&ring->page->dropped_to);
            const uint64_t dropped = marked < begin ? begin : marked < end ? marked : end;
            ring_count_dropped(ring, dropped - begin);
            lost += end - dropped;
        }
    }
}

/* Finish everything below `target` that nobody has; *by_force*: in the window, also what somebody has. How many were lost. */
static uint64_t sweep(shmq_ring *ring, uint64_t target, bool by_force)
{
    uint64_t lost = 0;
    uint64_t head;
    do {
        const uint64_t before = lost;
        lost += leap(ring, target, by_force);
        head = load_acquire(&ring->checkpoint->head);
        const uint64_t end = target < head + ring->window ? target : head + ring->window;
        for (uint64_t index = head; index < end; index++) {
            lost += lose(ring, index, by_force);
        }
        ring_settled(ring, lost - before);
    } while (load_acquire(&ring->checkpoint->head) != head && load_acquire(&ring->checkpoint->head) < target);
    return lost + side_drop(ring, target); /* behind the window: messages move from there to here only */
}

/* As a tenant: whoever finds us dead finishes what we have left between two steps. */
static int enter(shmq_ring *ring)
{
    if (member_forked(ring->member)) {
        return error_forked();
    }
    if (load_acquire(&ring->page->side_blocks) > ring->blocks) {
        return SHMQ_GROW;
    }
    return shmq_ring_join(ring);
}

int shmq_ring_drop(shmq_ring *ring, uint64_t target)
{
    const int code = enter(ring);
    if (code != SHMQ_OK) {
        return code;
    }
    uint64_t seen = load_relaxed(&ring->page->dropped_to);
    while (seen < target && !cas_relaxed(&ring->page->dropped_to, seen, target)) {
        seen = load_relaxed(&ring->page->dropped_to);
    }
    ring_count_dropped(ring, sweep(ring, target, false)); /* the rest: what was put aside */
    keyed_wake(ring);
    return SHMQ_OK;
}

int64_t shmq_ring_held(shmq_ring *ring, uint64_t target)
{
    const int code = enter(ring);
    if (code != SHMQ_OK) {
        return code;
    }
    const uint64_t head = load_acquire(&ring->checkpoint->head);
    const uint64_t end = target < head + ring->window ? target : head + ring->window;
    for (uint64_t index = head; index < end; index++) {
        const uint64_t word = ring_look(ring, index);
        const uint32_t state = ring_state(ring, index, word);
        if (state == RING_PARKED) {
            side_passes(ring, index, word);
        } else if (ring_somebody_has(state, word)) {
            target = index;
        }
    }
    return (int64_t)side_held(ring, target);
}

int64_t shmq_ring_lowest(shmq_ring *ring)
{
    const uint64_t lowest = side_lowest(ring, load_acquire(&ring->checkpoint->head));
    return load_acquire(&ring->page->side_blocks) > ring->blocks ? SHMQ_GROW : (int64_t)lowest;
}

void shmq_ring_count_retired(shmq_ring *ring, uint64_t count) { add_relaxed(&ring->page->retired, count); }

int64_t shmq_ring_retire(shmq_ring *ring, uint64_t first)
{
    const int code = enter(ring);
    if (code != SHMQ_OK) {
        return code;
    }
    const uint64_t lost = sweep(ring, first, true);
    keyed_wake(ring);
    return (int64_t)lost;
}
