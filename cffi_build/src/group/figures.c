/* figures.c - how a group stands, for whoever looks at it: nothing is decided here but how far its head lets files go. */
#include "group/figures.h"

#include "group/gate.h"
#include "group/side.h"

bool ring_is_done(const shmq_ring *ring, uint64_t index)
{
    const uint64_t word = ring_look(ring, index);
    const uint32_t state = ring_state(ring, index, word);
    return state == RING_DONE || (state == RING_PARKED && !side_unfinished(ring, index, ring_entry(word)))
           || (state != RING_PARKED && ring_is_dropped(ring, index) && !ring_somebody_has(state, word));
}

void shmq_ring_counts(shmq_ring *ring, shmq_ring_figures *figures)
{
    *figures = (shmq_ring_figures){.head = head_of(ring), .handed = load_relaxed(&ring->checkpoint->handed)};
    for (uint64_t index = figures->head; index < figures->head + ring->window; index++) {
        const uint32_t state = ring_state(ring, index, ring_look(ring, index));
        figures->to_drop += (state == RING_PENDING || state == RING_RETRY) && ring_is_dropped(ring, index);
        figures->claimed += state == RING_CLAIMED || state == RING_FORWARDING;
        figures->returned += state == RING_RETRY;
        figures->waiting += state == RING_PENDING && keyed_at(ring, index) != 0;
    }
    const uint64_t dropped = load_relaxed(&ring->page->dropped_to);
    const uint64_t edge = figures->head + ring->window;
    figures->dropped_to = dropped;
    figures->to_drop += dropped > edge ? dropped - edge : 0;
    figures->claimed += side_count(ring, SIDE_CLAIMED) + side_count(ring, SIDE_FORWARDING);
    figures->parked = side_count(ring, SIDE_LIVE);
    figures->redelivered = load_relaxed(&ring->page->redelivered);
    figures->expired = load_relaxed(&ring->page->expired);
    figures->moved = load_relaxed(&ring->page->moved);
    figures->unmoved = load_relaxed(&ring->page->unmoved);
    figures->edges = load_relaxed(&ring->page->edges);
    figures->at_edge = load_relaxed(&ring->page->edge) != 0;
    figures->window = ring->window;
    figures->retired = load_relaxed(&ring->page->retired);
}

uint64_t shmq_ring_floor(shmq_ring *ring)
{
    const uint64_t floor = side_lowest(ring, head_of(ring));
    if (load_acquire(&ring->page->side_blocks) > ring->blocks) {
        return load_relaxed(&ring->checkpoint->floor); /* something may be parked where we do not see it */
    }
    if (load_relaxed(&ring->checkpoint->floor) < floor) {
        store_relaxed(&ring->checkpoint->floor, floor);
    }
    return floor;
}

uint64_t shmq_ring_states(const shmq_ring *ring, uint8_t *states)
{
    const uint64_t head = head_of(ring);
    for (uint64_t index = head; index < head + ring->window; index++) {
        states[index - head] = (uint8_t)ring_state(ring, index, ring_look(ring, index));
    }
    return head;
}
