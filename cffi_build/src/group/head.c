/* head.c - a group's head moves over everything finished.
 *
 * Whoever finishes a word looks at the head behind it, and whoever moves the head looks at the next word: a fence on either
 * side lets at least one of two such see the other's step. A head passes a PARKED word only once its entry has gone on; what
 * was dropped and nobody has, it finishes on its way. A head that jumps by a window or more first has the words rewritten that
 * a message of 2^22 laps before has left. */
#include "group/head.h"

#include "group/gate.h"
#include "group/side.h"

/* ------------------------------------------------------------------ finishing what was dropped */
bool ring_drop_word(shmq_ring *ring, uint64_t index, bool by_force)
{
    for (;;) {
        const uint64_t word = ring_look(ring, index);
        const uint32_t state = ring_state(ring, index, word);
        if (state == RING_PARKED) {
            side_passes(ring, index, word); /* from here on the table says who has it */
            return false;
        }
        if (state == RING_DONE || (!by_force && ring_somebody_has(state, word))
            || index < load_acquire(&ring->checkpoint->head)
            || (load_relaxed(&ring->page->term) & ((1u << RING_TERM_BITS) - 1)) != ring->term) {
            return false; /* the last: its only member has moved the group; what we have seen is of before */
        }
        if (cas_release(ring_word(ring, index), word, ring_stamp(ring, index) | RING_DONE)) {
            keyed_ready(ring, keyed_at(ring, index));
            return true;
        }
    }
}

bool ring_drop(shmq_ring *ring, uint64_t index)
{
    const bool done = ring_drop_word(ring, index, false);
    if (done) {
        ring_count_dropped(ring, 1);
    }
    return done;
}

/* ------------------------------------------------------------------ moving */
static bool passes(shmq_ring *ring, uint64_t index)
{
    const uint64_t word = ring_look(ring, index);
    const uint32_t state = ring_state(ring, index, word);
    return state == RING_DONE || (state == RING_PARKED && side_passes(ring, index, word))
           || (ring_is_dropped(ring, index) && ring_drop(ring, index));
}

static void head_moved(shmq_ring *ring)
{
    if (load_relaxed(&ring->page->edge) != 0 && exchange_relaxed(&ring->page->edge, 0) != 0) {
        shmq_wake_always(ring->member->control);
    }
    ring_room(ring);
}

/* Whoever waits at the edge looks again when so many of the window are finished that what holds it up may be parked. */
void ring_nearer(shmq_ring *ring, uint64_t count)
{
    uint64_t wanted = load_relaxed(&ring->page->edge);
    while (wanted != 0 && !cas_relaxed(&ring->page->edge, wanted, wanted > count ? wanted - count : 0)) {
        wanted = load_relaxed(&ring->page->edge);
    }
    if (wanted != 0 && wanted <= count) {
        shmq_wake_always(ring->member->control);
    }
}

/* A mark far ahead (a purge's, or a damaged one) is come to in pieces, between which signals are heard: whoever takes or
 * finishes the next message goes on. */
#define PIECE_WINDOWS 1024u

void ring_advance(shmq_ring *ring)
{
    for (uint32_t piece = 0; piece < PIECE_WINDOWS; piece++) {
        /* Whoever finishes a word looks at the head behind it, and whoever moves the head looks at the next word: the
         * fence lets at least one of two such see the other's step. */
        fence_seq_cst();
        const uint64_t head = head_of(ring);
        uint64_t next = head;
        while (next - head < ring->window && passes(ring, next)) {
            next++;
        }
        if (next == head || head >= INDEX_LIMIT) {
            return;
        }
        if (cas_release(&ring->checkpoint->head, head, next)) {
            head_moved(ring);
        }
    }
}
void shmq_ring_advance(shmq_ring *ring) { ring_advance(ring); }

/* ------------------------------------------------------------------ jumping */
static void raise_to(shmq_ring *ring, uint64_t index)
{
    uint64_t head = load_relaxed(&ring->checkpoint->head);
    while (head < index && !cas_release(&ring->checkpoint->head, head, index)) {
        head = load_relaxed(&ring->checkpoint->head);
    }
}

/* The words of the window from `index` on that a message 2^22 laps before has left would be taken for theirs. */
static void forget_laps(shmq_ring *ring, uint64_t index)
{
    for (uint64_t i = 0; i < ring->window; i++) {
        const uint64_t stamp = ring_stamp(ring, index + i);
        uint64_t word = ring_look(ring, index + i);
        while (word >> RING_LAP_SHIFT == stamp >> RING_LAP_SHIFT
               && !cas_release(ring_word(ring, index + i), word, ring_stamp(ring, index + i - ring->window) | RING_DONE)) {
            word = ring_look(ring, index + i);
        }
    }
}

void shmq_ring_raise_head(shmq_ring *ring, uint64_t index)
{
    const uint64_t head = head_of(ring);
    if (head < index && index - head >= ring->window) {
        /* Nobody may take one of those it passes for one that nobody has, while their words are rewritten; nor can it go on
         * by itself from there as far as `index`. Killed in here, the next one comes here again. */
        raise_to(ring, index - head > 2 * (uint64_t)ring->window ? index - 2 * (uint64_t)ring->window : head);
        forget_laps(ring, index);
    }
    raise_to(ring, index);
    head_moved(ring);
    ring_advance(ring); /* what follows may be finished already, by somebody who saw the old head */
}
