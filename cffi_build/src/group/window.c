/* window.c - a group's window: one word a message, and beside it how long it is lent and how often it was.
 *
 * A claim is one CAS on the word, an acknowledgement one CAS from exactly the word that was handed out. The counter in the word
 * makes two claims of one owner differ, so that an old acknowledgement never matches a new claim. Every member walks the
 * chunks for itself; the window only says which messages are taken. */
#include "group/window.h"

#include "os/os.h"

int64_t shmq_clock_boottime_ns(void) { return os->clock_boottime_ns(); }

/* ------------------------------------------------------------------ leases and attempts */
#define LEASE_UNIT (INT64_C(1) << LEASE_UNIT_SHIFT)

static uint64_t lease_tag(uint64_t word) { return word >> RING_COUNT_SHIFT & ((UINT64_C(1) << LEASE_TAG_BITS) - 1); }
static uint64_t lease_units(int64_t ends_ns)
{
    const uint64_t most = (UINT64_C(1) << (64 - LEASE_TAG_BITS)) - 1; /* eighteen years after the boot: for ever */
    const uint64_t units = ((uint64_t)ends_ns >> LEASE_UNIT_SHIFT) + 1;
    return units < most ? units : most;
}
/* Is it the lease of that word, or of the one that its owner is about to make of it by extending? */
static bool lease_is_of(uint64_t lease, uint64_t word)
{
    const uint64_t tag = lease & ((UINT64_C(1) << LEASE_TAG_BITS) - 1);
    return tag == lease_tag(word) || tag == lease_tag(ring_low(ring_owner(word), ring_count(word) + 1, 0));
}

void lease_store(const shmq_ring *ring, uint64_t *cell, uint64_t word, int64_t ends_ns)
{
    (void)ring;
    store_release(cell, lease_units(ends_ns) << LEASE_TAG_BITS | lease_tag(word));
}

bool lease_ended(const shmq_ring *ring, uint64_t *cell, uint64_t word, int64_t now_ns, int64_t *next_ns)
{
    const uint64_t lease = load_acquire(cell);
    if (!lease_is_of(lease, word)) {
        /* Its owner, or somebody who lost against the owner, stopped between two steps: it begins now. */
        *next_ns = now_ns + ring->lease_ns;
        cas_release(cell, lease, lease_units(*next_ns) << LEASE_TAG_BITS | lease_tag(word));
        return false;
    }
    *next_ns = (int64_t)(lease >> LEASE_TAG_BITS) * LEASE_UNIT;
    return *next_ns <= now_ns;
}

/* The attempts cell of a message, as it is; 0 when it says nothing of this one. */
static uint64_t attempts_cell(const shmq_ring *ring, uint64_t index)
{
    if (ring->attempts == NULL) {
        return 0; /* each is finished when it is handed out */
    }
    const uint64_t cell = load_relaxed(&ring->attempts[ring_slot(ring, index)]);
    return cell >> ATTEMPTS_CELL_SHIFT == ring_cell(ring, index) ? cell : 0;
}
uint32_t ring_attempts(const shmq_ring *ring, uint64_t index)
{
    return (uint32_t)(attempts_cell(ring, index) & ((1u << ATTEMPTS_BITS) - 1));
}
/* The bit stays: only who has lost the message can have set it meanwhile, to no effect. */
void attempts_store(const shmq_ring *ring, uint64_t index, uint32_t attempts)
{
    if (ring->attempts != NULL) {
        const uint64_t kept = attempts_cell(ring, index) & ATTEMPTS_FORWARDED;
        store_relaxed(&ring->attempts[ring_slot(ring, index)],
                      ring_cell(ring, index) << ATTEMPTS_CELL_SHIFT | kept | attempts);
    }
}
bool ring_forwarded(const shmq_ring *ring, uint64_t index)
{
    return (attempts_cell(ring, index) & ATTEMPTS_FORWARDED) != 0;
}
bool ring_mark_forwarded(const shmq_ring *ring, uint64_t index)
{
    for (;;) {
        const uint64_t cell = attempts_cell(ring, index);
        if (cell == 0 || (cell & ATTEMPTS_FORWARDED) != 0) {
            return cell != 0; /* of a later lap: it is ours no more, which the CAS behind this says */
        }
        if (cas_relaxed(&ring->attempts[ring_slot(ring, index)], cell, cell | ATTEMPTS_FORWARDED)) {
            return false;
        }
    }
}
static uint32_t attempts_add(const shmq_ring *ring, uint64_t index)
{
    const uint32_t attempts = (ring_attempts(ring, index) + 1) & ((1u << ATTEMPTS_BITS) - 1);
    attempts_store(ring, index, attempts);
    return attempts;
}

/* ------------------------------------------------------------------ handed out, and back */
bool ring_claim(shmq_ring *ring, uint64_t index, uint64_t word, uint32_t kind, bool finishes, shmq_taken *taken)
{
    const uint64_t stamp = ring_stamp(ring, index);
    const uint64_t count = word >> RING_LAP_SHIFT == stamp >> RING_LAP_SHIFT ? ring_count(word) + 1 : 1;
    const bool finish = finishes && kind == SHMQ_TAKEN_MESSAGE;
    const uint32_t state = finish ? RING_DONE : kind == SHMQ_TAKEN_MOVING ? RING_MOVING : RING_CLAIMED;
    const uint64_t claimed = stamp | ring_low(ring->member->owner, count, state);
    if (ring->lease_ns != 0 && !finish) {
        lease_store(ring, &ring->leases[ring_slot(ring, index)], claimed, ring_now() + ring->lease_ns);
    }
    if (!cas_release(ring_word(ring, index), word, claimed)) {
        return false;
    }
    *taken = (shmq_taken){.index = index,
                          .word = claimed,
                          .kind = kind,
                          .attempts = finish                       ? ring_attempts(ring, index) + 1
                                      : kind == SHMQ_TAKEN_MOVING ? ring_attempts(ring, index)
                                                                  : attempts_add(ring, index)};
    return true;
}

void ring_returned(shmq_ring *ring)
{
    add_release(&ring->page->returns, 1); /* pairs with the acquire in retake */
    shmq_wake(ring->member);
    ring_room(ring); /* what nobody has may be dropped */
}

bool ring_is_dropped(const shmq_ring *ring, uint64_t index)
{
    return index < load_relaxed(&ring->page->dropped_to);
}

void ring_count_dropped(shmq_ring *ring, uint64_t count)
{
    add_relaxed(&ring->checkpoint->dropped, count);
}
