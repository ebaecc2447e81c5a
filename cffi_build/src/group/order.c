/* order.c - a group whose messages of one key come in order, and never two at once.
 *
 * A walker who turns a gate from IDLE to BUSY may claim what it stands before; whoever finds BUSY notes that
 * it was there and goes on, and the message waits where it is. Of a BUSY bucket only the lowest unfinished message is
 * ever handed out. That it is the lowest stays true until it is finished, whoever else looks meanwhile, so nothing is
 * locked while somebody looks, and nobody who dies leaves a lock behind: the CAS on the message's own word decides.
 * Whoever looks at a bucket clears its bit first. */
#include "group/order.h"

#include "group/edge.h"
#include "group/gate.h"
#include "group/head.h"
#include "group/side.h"

#define PARK_AT_ONCE 1024u
#define PARK_BLOCKS_MAX 2048u /* about a million messages that wait for their keys outside the window */
#define PARK_AGAIN_NS INT64_C(2000000)

/* ------------------------------------------------------------------ what walkers have met */
/* One that has been met stays so: a walker who slept over a lap must not write over what is there now. */
static void note_key(const shmq_ring *ring, uint64_t index, uint64_t bucket, bool delayed)
{
    uint64_t *const key = &ring->keys[ring_slot(ring, index)];
    const uint64_t cell = ring_cell(ring, index) << ATTEMPTS_BITS;
    for (;;) {
        const uint64_t old = load_relaxed(key);
        if (old > cell) { /* of this lap, or of a later one */
            return;
        }
        if (cas_release(key, old, cell | bucket | (delayed ? KEY_DELAYED : 0))) {
            return;
        }
    }
}
static void raise(uint64_t *bound, uint64_t value)
{
    uint64_t old = load_relaxed(bound);
    while (old < value && !cas_release(bound, old, value)) {
        old = load_relaxed(bound);
    }
}

int keyed_enter(shmq_ring *ring, uint64_t index, uint64_t word, int64_t due_ns, bool delayed, shmq_taken *taken)
{
    struct ring_bucket *const bucket = bucket_at(ring, taken->bucket);
    const bool later = due_ns > ring_now();
    raise(&bucket->high, index + 1); /* first: whoever sees the note may park it, and then must find it below */
    note_key(ring, index, taken->bucket, delayed);
    for (;;) {
        const uint64_t gate = load_acquire(&bucket->gate); /* pairs with the releases of all who move it */
        const bool idle = (gate & GATE_BUSY) == 0;
        const uint64_t next = (gate + GATE_CHANGE) | GATE_BUSY;
        if (!cas_release(&bucket->gate, gate, next)) {
            continue;
        }
        if (idle && !later) {
            raise(&bucket->low, index);
            taken->gate = next;
            return SHMQ_OK;
        }
        break;
    }
    /* What has a time goes where times are looked at: whoever looks at the bucket does not see the record. */
    const int code = delayed ? shmq_ring_park(ring, index, word, due_ns, 0, 0, taken->bucket) : SHMQ_EMPTY;
    if (code == SHMQ_LOST) {
        keyed_ready(ring, taken->bucket); /* somebody finished it; whoever looked meanwhile has left the bucket to us */
    }
    return code;
}

/* ------------------------------------------------------------------ handing out */
static void lowest_in_window(const shmq_ring *ring, uint64_t bucket, struct lowest *lowest)
{
    const struct ring_bucket *const of = bucket_at(ring, bucket);
    const uint64_t high = load_acquire(&of->high); /* first: whatever was met before it was raised is seen below */
    const uint64_t low = load_relaxed(&of->low);
    const uint64_t head = load_acquire(&ring->checkpoint->head);
    for (uint64_t index = low > head ? low : head; index < high && index < head + ring->window; index++) {
        if (keyed_at(ring, index) != bucket) {
            continue;
        }
        const uint64_t word = ring_look(ring, index);
        const uint32_t state = ring_state(ring, index, word);
        if (state == RING_DONE || state == RING_PARKED) {
            continue;
        }
        if (lowest->index != UINT64_MAX) {
            lowest->more = true;
            return;
        }
        lowest->index = index;
        lowest->word = word;
    }
}

/* Try to have it: 1, or 0 when it is not to be had now, or EMPTY when it changed meanwhile. */
static int64_t claim_in_window(shmq_ring *ring, const struct lowest *lowest, shmq_taken *taken)
{
    const uint32_t state = ring_state(ring, lowest->index, lowest->word);
    const bool moving = state == RING_MOVING && ring_owner(lowest->word) == 0;
    const bool pending = state == RING_PENDING && (key_of(ring, lowest->index) & KEY_DELAYED) == 0;
    if (state == RING_DONE) {
        return SHMQ_EMPTY; /* the head has passed it meanwhile */
    }
    if (ring_is_dropped(ring, lowest->index) && ring_drop(ring, lowest->index)) {
        ring_settled(ring, 1);
        return SHMQ_EMPTY;
    }
    if (!moving && !pending && state != RING_RETRY) {
        return 0; /* who has it, or is about to park it, brings the bucket on */
    }
    if (taken == NULL) {
        return ring_worth(ring, ring_attempts(ring, lowest->index), moving);
    }
    const uint32_t kind = moving ? SHMQ_TAKEN_MOVING : SHMQ_TAKEN_MESSAGE;
    return ring_claim(ring, lowest->index, lowest->word, kind, false, taken) ? 1 : SHMQ_EMPTY;
}
static int64_t claim_parked(shmq_ring *ring, const struct lowest *lowest, bool idle, shmq_taken *taken)
{
    if (side_available(ring, lowest, idle)) {
        if (ring_is_dropped(ring, lowest->index) && side_drop_entry(ring, lowest->entry, lowest->word)) {
            ring_count_dropped(ring, 1);
            return SHMQ_EMPTY;
        }
        if (taken == NULL) {
            return side_worth(ring, lowest->word);
        }
        return side_claim(ring, lowest->entry, lowest->word, taken) ? 1 : SHMQ_EMPTY;
    }
    side_later(ring, lowest->entry);
    return 0;
}

/* One look at a bucket: as above, and without `taken` whether one is to be had; EMPTY = look again, GROW = once all of the
 * side table is mapped. */
static int64_t look(shmq_ring *ring, uint64_t bucket, bool idle, shmq_taken *taken)
{
    struct ring_bucket *const of = bucket_at(ring, bucket);
    uint64_t gate = load_acquire(&of->gate); /* first: what is met from here on changes it */
    struct lowest lowest = {.index = UINT64_MAX};
    if ((gate & GATE_BUSY) == 0) {
        return 0;
    }
    lowest_in_window(ring, bucket, &lowest); /* before the side table: messages move from there to here only */
    /* Behind the window: of what was PARKED there, the gate says so by then, and its block is counted. */
    if (load_relaxed(&of->gate) & GATE_PARKED) {
        if (load_relaxed(&ring->page->side_blocks) > ring->blocks) {
            return SHMQ_GROW;
        }
        side_lowest_of(ring, bucket, load_relaxed(&of->block), &lowest);
    }
    if (lowest.index == UINT64_MAX) {
        return cas_release(&of->gate, gate, (gate + GATE_CHANGE) & ~(uint64_t)(GATE_BUSY | GATE_PARKED)) ? 0 : SHMQ_EMPTY;
    }
    const int64_t count = lowest.entry == 0 ? claim_in_window(ring, &lowest, taken)
                                            : claim_parked(ring, &lowest, idle, taken);
    if (count == 1 && taken != NULL) {
        raise(&of->low, lowest.index);
        if (lowest.entry != 0) {
            store_relaxed(&of->block, lowest.entry / (SIDE_ENTRIES + 1));
        }
        taken->bucket = bucket;
        taken->gate = lowest.more ? 0 : gate;
    }
    return count;
}

static bool clear_bit(uint64_t *bits, uint64_t bit)
{
    uint64_t old = load_relaxed(bits);
    while (old & bit) {
        if (cas_relaxed(bits, old, old & ~bit)) {
            fence_seq_cst(); /* pairs with the release in keyed_ready: what was done before it was set is seen now */
            return true;
        }
        old = load_relaxed(bits);
    }
    return false;
}

int64_t keyed_take(shmq_ring *ring, bool idle, uint32_t limit, shmq_taken *taken)
{
    const uint32_t words = ring->bucket_count / 64;
    const uint32_t first = ring->ready_next;
    int64_t count = 0;
    for (uint32_t i = 0; i < words && count < limit; i++) {
        const uint32_t at = (first + i) % words;
        ring->ready_next = at;
        uint64_t bits = load_relaxed(&ring->ready[at]);
        for (uint32_t bit = 0; bits >> bit != 0 && count < limit; bit++) {
            if (clear_bit(&ring->ready[at], bits & UINT64_C(1) << bit)) {
                int64_t answer;
                const uint64_t bucket = (uint64_t)at * 64 + bit + 1;
                do {
                    answer = look(ring, bucket, idle, &taken[count]);
                } while (answer == SHMQ_EMPTY);
                if (answer < 0) {
                    keyed_ready(ring, bucket);
                    return count > 0 ? count : answer;
                }
                count += answer;
            }
            if (bit == 63) {
                break;
            }
        }
    }
    return count;
}

int64_t keyed_glance(shmq_ring *ring)
{
    int64_t found = 0;
    for (uint64_t bucket = 1; bucket <= ring->bucket_count; bucket++) {
        uint64_t *const bits = &ring->ready[(bucket - 1) / 64];
        if (!clear_bit(bits, UINT64_C(1) << (bucket - 1) % 64)) {
            continue;
        }
        int64_t answer;
        do {
            answer = look(ring, bucket, true, NULL);
        } while (answer == SHMQ_EMPTY);
        if (answer != 0) {
            keyed_ready(ring, bucket); /* and whoever looked meanwhile is woken: it has not seen the bit */
            found = answer;
        }
        if (answer == 1 || answer < 0) {
            break;
        }
    }
    return found;
}

/* ------------------------------------------------------------------ the window's edge */
int keyed_park(shmq_ring *ring)
{
    const uint64_t head = load_relaxed(&ring->checkpoint->head);
    if (ring->bucket_count == 0) {
        return SHMQ_OK;
    }
    if (!ring_stuck(ring, head)) {
        return SHMQ_OK;
    }
    uint32_t parked = 0;
    for (uint64_t index = head; index < head + ring->window && parked < PARK_AT_ONCE; index++) {
        const uint64_t bucket = keyed_at(ring, index);
        const uint64_t word = ring_look(ring, index);
        if (bucket == 0 || ring_state(ring, index, word) != RING_PENDING || (key_of(ring, index) & KEY_DELAYED) != 0) {
            continue;
        }
        const int code = shmq_ring_park(ring, index, word, INT64_MAX, 0, 0, bucket);
        if (code == SHMQ_GROW) {
            return ring->blocks < PARK_BLOCKS_MAX ? code : SHMQ_OK;
        }
        parked += code == SHMQ_EMPTY;
    }
    ring->park_ns = parked != 0 ? ring_now() + PARK_AGAIN_NS : 0;
    return SHMQ_OK;
}
