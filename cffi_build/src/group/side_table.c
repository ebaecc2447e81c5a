/* side_table.c - the side table of a group: messages that wait for their time, or are held for long, outside the window.
 *
 * Parking is a move in three steps: an entry is PREPARED; a CAS turns the message's ring word to PARKED with the entry's
 * id, which is the commit; then the entry becomes what it was prepared for, by anybody. The head passes a PARKED word
 * only behind the third step, so a PREPARED entry whose ring word does not name it is garbage. From then on the entry's
 * state is to its message what the ring word was: one CAS hands it out, one CAS from exactly that word finishes it.
 *
 * Each block says from when on something in it is due, and how low the lowest index in it is. A bound is lowered behind what
 * it speaks of, with a count of its changes: whoever is about to raise it fails. */
#include "group/side_table.h"

#include "error.h"

uint64_t side_then(const shmq_ring *ring, owner_t owner, uint64_t count, uint64_t attempts, uint32_t state)
{
    (void)ring;
    return (attempts & 0xffff) << ATTEMPTS_SHIFT | ring_low(owner, count, state);
}
bool side_is_of(uint64_t state, uint64_t word)
{
    const uint32_t now = state_of(state);
    const bool same = (now == SIDE_CLAIMED && state_of(word) == RING_CLAIMED)
                      || (now == SIDE_MOVING && state_of(word) == RING_MOVING);
    return same && ((state ^ word) & LOW_MASK & ~STATE_MASK) == 0;
}

/* ------------------------------------------------------------------ when something in a block is due */
void due_lower(struct side_block *block, int64_t due_ns)
{
    const uint64_t due = due_ns <= 0 ? 0 : (uint64_t)(due_ns / MS);
    uint64_t old;
    uint64_t lowered;
    do { /* the changes count even when the bound stays: whoever is about to raise it must fail */
        old = load_relaxed(&block->due);
        const uint64_t bound = old >> SIDE_DUE_SHIFT < due ? old >> SIDE_DUE_SHIFT : due;
        lowered = bound << SIDE_DUE_SHIFT | ((old + 1) & ((UINT64_C(1) << SIDE_DUE_SHIFT) - 1));
    } while (!cas_release(&block->due, old, lowered));
}
void due_raise(struct side_block *block, uint64_t seen, int64_t due_ns)
{
    const uint64_t never = (UINT64_C(1) << (64 - SIDE_DUE_SHIFT)) - 1;
    const uint64_t due = due_ns == INT64_MAX ? never : (uint64_t)(due_ns / MS);
    cas_release(&block->due, seen, due << SIDE_DUE_SHIFT | ((seen + 1) & ((UINT64_C(1) << SIDE_DUE_SHIFT) - 1)));
}
static void lowest_lower(struct side_block *block, uint64_t index)
{
    const uint64_t mine = index < LOWEST_NONE ? index : LOWEST_NONE - 1;
    uint64_t old;
    uint64_t lowered;
    do { /* as with the due bound; behind the store of the index, which whoever reads the bound then sees */
        old = load_relaxed(&block->lowest);
        const uint64_t bound = old >> SIDE_DUE_SHIFT < mine ? old >> SIDE_DUE_SHIFT : mine;
        lowered = bound << SIDE_DUE_SHIFT | ((old + 1) & CHANGES_MASK);
    } while (!cas_release(&block->lowest, old, lowered));
}
void lowest_raise(struct side_block *block, uint64_t seen, uint64_t index)
{
    const uint64_t bound = index < LOWEST_NONE ? index : index == UINT64_MAX ? LOWEST_NONE : LOWEST_NONE - 1;
    if (bound != seen >> SIDE_DUE_SHIFT) {
        cas_relaxed(&block->lowest, seen, bound << SIDE_DUE_SHIFT | ((seen + 1) & CHANGES_MASK)); /* says of nothing new */
    }
}
void went_live(shmq_ring *ring)
{
    add_release(&ring->page->side_version, 1);
    shmq_wake(ring->member); /* sleepers must learn of an earlier due time */
    ring_room(ring);         /* and what nobody has may be dropped */
}

/* ------------------------------------------------------------------ entries */
void free_entry(shmq_ring *ring, uint64_t entry, uint64_t state)
{
    struct ring_side *const side = side_at(ring, entry);
    store_release(&side->index, 0);
    const uint64_t version = version_of(state) + (UINT64_C(1) << VERSION_SHIFT);
    if (cas_release(&side->state, state, version | SIDE_FREE)) {
        add_relaxed(&block_at(ring, entry / ENTRIES_PER_BLOCK)->used, UINT64_MAX);
        ring_room(ring); /* the lowest that is parked may be another one now */
    }
}

static int64_t prepare_in(shmq_ring *ring, uint64_t block)
{
    for (uint64_t i = 1; i <= SIDE_ENTRIES; i++) {
        const uint64_t entry = block * ENTRIES_PER_BLOCK + i;
        struct ring_side *const side = side_at(ring, entry);
        const uint64_t state = load_acquire(&side->state);
        if (state_of(state) == SIDE_FREE
            && cas_release(&side->state, state,
                           version_of(state) | ring_low(ring->member->owner, 0, SIDE_PREPARED))) {
            add_relaxed(&block_at(ring, block)->used, 1);
            return (int64_t)entry;
        }
    }
    return SHMQ_EMPTY;
}

int64_t side_prepare(shmq_ring *ring, uint64_t index, uint64_t then, int64_t due_ns, uint64_t behind, uint64_t bucket)
{
    const uint64_t hint = load_relaxed(&ring->page->side_hint);
    for (uint64_t i = 0; i < ring->blocks; i++) {
        const uint64_t block = (hint + i) % ring->blocks;
        if ((int64_t)load_relaxed(&block_at(ring, block)->used) >= (int64_t)SIDE_ENTRIES) { /* a death may miscount */
            continue;
        }
        const int64_t entry = prepare_in(ring, block);
        if (entry >= 0) {
            struct ring_side *const side = side_at(ring, (uint64_t)entry);
            if (i != 0) {
                store_relaxed(&ring->page->side_hint, block);
            }
            store_relaxed(&side->then, version_of(load_relaxed(&side->state)) | then);
            store_relaxed(&side->due_ns, (uint64_t)due_ns);
            store_relaxed(&side->behind, behind);
            store_relaxed(&side->forwarded, ring_forwarded(ring, index)); /* it is in the window still */
            /* Pairs with the acquire in keep_unfinished: who reads ours sees that its own is not here any more. */
            store_release(&side->bucket, bucket);
            store_release(&side->index, index + 1);
            lowest_lower(block_at(ring, block), index);
            keyed_parks(ring, bucket);
            return entry;
        }
    }
    return error_set(SHMQ_GROW, "the side table is full");
}

void side_release(shmq_ring *ring, uint64_t entry)
{
    free_entry(ring, entry, load_relaxed(&side_at(ring, entry)->state));
}

void side_settle(shmq_ring *ring, uint64_t entry)
{
    struct ring_side *const side = side_at(ring, entry);
    const uint64_t state = load_acquire(&side->state);
    if (state_of(state) != SIDE_PREPARED) {
        return;
    }
    const uint64_t then = load_relaxed(&side->then);
    const int64_t due_ns = (int64_t)load_relaxed(&side->due_ns);
    due_lower(block_at(ring, entry / ENTRIES_PER_BLOCK), due_ns);
    if (cas_release(&side->state, state, then) && due_ns != INT64_MAX) {
        went_live(ring); /* one without a time waits for its key, and is found by that */
    }
}

bool side_passes(shmq_ring *ring, uint64_t index, uint64_t word)
{
    struct ring_side *const side = side_at(ring, ring_entry(word));
    if (side == NULL) {
        return false; /* it is where we do not see it; somebody else moves the head */
    }
    if (state_of(load_acquire(&side->state)) == SIDE_PREPARED && load_acquire(&side->index) == index + 1) {
        side_settle(ring, ring_entry(word));
    }
    /* Anything else has gone on from there: what is of another message, or of none, was finished. */
    return true;
}

void side_later(shmq_ring *ring, uint64_t entry)
{
    struct ring_side *const side = side_at(ring, entry);
    if (state_of(load_acquire(&side->state)) == SIDE_LIVE) {
        due_lower(block_at(ring, entry / ENTRIES_PER_BLOCK), (int64_t)load_relaxed(&side->due_ns));
        went_live(ring);
    }
}

bool side_put_back(shmq_ring *ring, uint64_t *last, uint64_t index, uint64_t bucket)
{
    do {
        *last += 1;
    } while (*last % ENTRIES_PER_BLOCK == 0);
    struct ring_side *const side = side_at(ring, *last);
    if (side == NULL) {
        return false;
    }
    side->bucket = bucket;
    side->index = index + 1;
    side->state = ring_low(0, 0, SIDE_LIVE);
    block_at(ring, *last / ENTRIES_PER_BLOCK)->used += 1; /* and `due` is 0: look at once */
    keyed_parks(ring, bucket);
    return true;
}
