/* edge.c - the window's edge: what holds the head back is parked outside, and who waits there is woken in time.
 *
 * Parking is PREPARED, a CAS of the ring word to PARKED with the entry's number, then what it was prepared for, by anybody.
 * Who finds the window full notes in `edge` how many must be finished until it may park, fences, and counts again until that
 * is the same; whoever finishes a word fences and lowers `edge`, and the one who comes to zero wakes it. So does whoever moves
 * the head. */
#include "group/edge.h"

#include "group/gate.h"
#include "group/head.h"
#include "group/side.h"

#define STRAGGLERS 64u     /* words at the head of a window that holds little else, ... */
#define HELD_AT_ONCE 1024u /* ... and at a head that has not moved for ... */
#define STUCK_NS INT64_C(2000000)

int shmq_ring_park(shmq_ring *ring, uint64_t index, uint64_t word, int64_t due_ns, uint64_t behind, uint32_t attempts,
                   uint64_t bucket)
{
    const uint64_t then = side_then(ring, 0, ring_count(word), attempts, SIDE_LIVE);
    const int64_t entry = side_prepare(ring, index, then, due_ns, behind, bucket);
    if (entry < 0) {
        return (int)entry;
    }
    const uint64_t parked = ring_stamp(ring, index) | (uint64_t)entry << RING_COUNT_SHIFT | RING_PARKED;
    if (!cas_release(ring_word(ring, index), word, parked)) {
        side_release(ring, (uint64_t)entry);
        return SHMQ_LOST;
    }
    side_settle(ring, (uint64_t)entry);
    ring_settled(ring, 1);
    return SHMQ_EMPTY;
}

/* How many before `end` are not finished. What comes there is not in flight, nor ever may be: padding, or a gap. */
static uint64_t in_flight(const shmq_ring *ring, uint64_t head, uint64_t end)
{
    uint64_t count = 0;
    for (uint64_t index = head; index < end && index < head + ring->window; index++) {
        const uint32_t state = ring_state(ring, index, ring_look(ring, index));
        count += state != RING_DONE && state != RING_PARKED;
    }
    return count;
}

bool ring_stuck(shmq_ring *ring, uint64_t head)
{
    const int64_t now_ns = ring_now();
    if (ring->stuck_head != head || ring->stuck_ns == 0) {
        ring->stuck_head = head;
        ring->stuck_ns = now_ns;
    }
    if (now_ns - ring->stuck_ns >= STUCK_NS) {
        return true;
    }
    ring->park_ns = ring->stuck_ns + STUCK_NS; /* messages may be being finished: then it moves by itself */
    return false;
}

/* Park what somebody has, or moves to another queue, on its holder's behalf: 1, 0 when there is nothing to park, or GROW. */
static int64_t park_for_holder(shmq_ring *ring, uint64_t index)
{
    const uint64_t word = ring_look(ring, index);
    const uint32_t state = ring_state(ring, index, word);
    if (state != RING_CLAIMED && (state != RING_MOVING || ring_owner(word) == 0)) {
        return 0;
    }
    const uint64_t then = side_then(ring, ring_owner(word), ring_count(word), ring_attempts(ring, index),
                                    state == RING_CLAIMED ? SIDE_CLAIMED : SIDE_MOVING);
    const int64_t entry = side_prepare(ring, index, then, 0, 0, keyed_at(ring, index));
    if (entry < 0) {
        return entry;
    }
    if (ring->leases != NULL) { /* it goes with it */
        store_relaxed(&side_at(ring, (uint64_t)entry)->lease, load_relaxed(&ring->leases[ring_slot(ring, index)]));
    }
    const uint64_t parked = ring_stamp(ring, index) | (uint64_t)entry << RING_COUNT_SHIFT | RING_PARKED;
    if (!cas_release(ring_word(ring, index), word, parked)) {
        side_release(ring, (uint64_t)entry);
        return 0;
    }
    side_settle(ring, (uint64_t)entry);
    return 1;
}
static int park_for_holders(shmq_ring *ring, uint64_t head, uint64_t most)
{
    uint64_t parked = 0;
    int64_t answer = 0;
    for (uint64_t index = head; index < head + most && index < head + ring->window && answer >= 0; index++) {
        answer = park_for_holder(ring, index);
        parked += answer > 0;
    }
    ring_settled(ring, parked);
    return answer < 0 ? (int)answer : SHMQ_OK;
}

/* Wait for no more than `wanted` messages to be finished. */
static void want(shmq_ring *ring, uint64_t wanted)
{
    uint64_t old = load_relaxed(&ring->page->edge);
    while ((old == 0 || old > wanted) && !cas_relaxed(&ring->page->edge, old, wanted)) {
        old = load_relaxed(&ring->page->edge);
    }
    ring_advance(ring); /* begins with a fence: whoever finishes one sees what is wanted, or we see it finished */
}

/* The window does not reach from `index` to `end`: messages that are held for long hold its head back. They are parked on
 * their holders' behalf where nearly all behind them, up to `index`, are finished; and where the head has not moved for some
 * time, however many they are, but not for a member that holds as many itself: finishing them is its own business. OK, also
 * when the window still does not reach; then whoever finishes enough wakes us, or the clock does. Or GROW. */
int at_edge(shmq_ring *ring, uint64_t index, uint64_t end)
{
    const uint64_t share = ring->window / 4;
    uint64_t wanted = 0;
    for (uint64_t told = 0; !reaches(ring, end); told = wanted) {
        const uint64_t head = head_of(ring);
        const uint64_t open = in_flight(ring, head, index);
        if (open <= share || (ring->holds <= share && ring_stuck(ring, head))) {
            const int code = park_for_holders(ring, head, open <= share ? STRAGGLERS : HELD_AT_ONCE);
            if (code != SHMQ_OK) {
                return code;
            }
            ring->park_ns = ring_now() + STUCK_NS; /* what changed meanwhile is not parked yet */
            wanted = 1;
        } else {
            const uint64_t more = ring->holds > share && ring->holds < open ? ring->holds : open;
            wanted = more - share;
        }
        if (wanted == told) {
            break;
        }
        want(ring, wanted);
    }
    return SHMQ_OK;
}

int64_t shmq_ring_holds(shmq_ring *ring, uint64_t count)
{
    ring->holds = count;
    if (ring->park_ns == 0 && count <= ring->window / 4) {
        ring->park_ns = ring_now() + STUCK_NS; /* when it was asked, it seemed to be more */
    }
    return ring->park_ns == 0 ? INT64_MAX : ring->park_ns;
}
