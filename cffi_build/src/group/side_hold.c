/* side_hold.c - who has an entry of the side table lets go of it: finishes it, gives it back, dies; and what nobody has is
 * dropped.
 *
 * Each is one CAS from exactly the state that was seen. What a dead owner left is taken through its entries, then the bounds
 * of all blocks are lowered: also what it gave back itself is found, killed before it said so. */
#include "group/side_table.h"

/* ------------------------------------------------------------------ its holder */
int side_ack(shmq_ring *ring, uint64_t entry, uint64_t word)
{
    struct ring_side *const side = side_at(ring, entry);
    const uint64_t ending = becomes(word, ring->member->owner, SIDE_ENDING);
    if (side == NULL || !cas_release(&side->state, word, ending)) {
        return SHMQ_LOST;
    }
    free_entry(ring, entry, ending);
    return SHMQ_OK;
}

int side_nack(shmq_ring *ring, uint64_t entry, uint64_t word, int64_t due_ns, uint64_t behind)
{
    struct ring_side *const side = side_at(ring, entry);
    if (side == NULL || load_acquire(&side->state) != word) {
        return SHMQ_LOST;
    }
    store_relaxed(&side->due_ns, (uint64_t)due_ns); /* nobody looks at these while it is CLAIMED */
    store_relaxed(&side->behind, behind);
    if (!cas_release(&side->state, word, becomes(word, 0, SIDE_LIVE))) {
        return SHMQ_LOST;
    }
    /* Behind it: who has seen it CLAIMED is about to raise the bound beyond it, and must fail. Killed in between, we are
     * reaped, and all bounds are lowered. */
    due_lower(block_at(ring, entry / ENTRIES_PER_BLOCK), due_ns);
    went_live(ring);
    return SHMQ_OK;
}

int side_extend(shmq_ring *ring, uint64_t entry, uint64_t *word, int64_t ends_ns)
{
    struct ring_side *const side = side_at(ring, entry);
    if (side == NULL) {
        return SHMQ_LOST;
    }
    const uint64_t low = ring_low(ring->member->owner, ring_count(*word) + 1, SIDE_CLAIMED);
    const uint64_t next = (*word & ~LOW_MASK) | low;
    lease_store(ring, &side->lease, next, ends_ns);
    due_lower(block_at(ring, entry / ENTRIES_PER_BLOCK), ends_ns);
    if (!cas_release(&side->state, *word, next)) {
        return SHMQ_LOST;
    }
    *word = next;
    return SHMQ_OK;
}

int side_moving(shmq_ring *ring, uint64_t entry, uint64_t *word)
{
    struct ring_side *const side = side_at(ring, entry);
    const uint64_t next = becomes(*word, ring->member->owner, SIDE_MOVING);
    if (side == NULL || !cas_release(&side->state, *word, next)) {
        return SHMQ_LOST;
    }
    *word = next;
    return SHMQ_OK;
}

int side_forward(shmq_ring *ring, uint64_t entry, uint64_t *word, bool *again)
{
    struct ring_side *const side = side_at(ring, entry);
    const uint64_t next = becomes(*word, ring->member->owner, SIDE_FORWARDING);
    if (side == NULL) {
        return SHMQ_LOST;
    }
    /* First: whoever sees it FORWARDING sees this. Of another message by now, it is one that is looked for in vain. */
    *again = load_relaxed(&side->forwarded) != 0 || *again;
    store_relaxed(&side->forwarded, 1);
    if (!cas_release(&side->state, *word, next)) {
        return SHMQ_LOST;
    }
    *word = next;
    return SHMQ_OK;
}

int side_unforward(shmq_ring *ring, uint64_t entry, uint64_t *word)
{
    struct ring_side *const side = side_at(ring, entry);
    const uint64_t next = becomes(*word, ring->member->owner, SIDE_CLAIMED);
    if (side == NULL || !cas_release(&side->state, *word, next)) {
        return SHMQ_LOST;
    }
    *word = next;
    return SHMQ_OK;
}

/* ------------------------------------------------------------------ a dead one */
/* One entry of a dead owner. */
static bool reap_entry(shmq_ring *ring, uint64_t entry, uint64_t state)
{
    struct ring_side *const side = side_at(ring, entry);
    const uint64_t index = load_acquire(&side->index);
    switch (state_of(state)) {
    case SIDE_PREPARED:
        if (index != 0 && parked_here(ring, index - 1, entry)) {
            side_settle(ring, entry);
            return true;
        }
        free_entry(ring, entry, state);
        return false;
    case SIDE_CLAIMED:
    case SIDE_FORWARDING:
        store_relaxed(&side->due_ns, 0);
        store_relaxed(&side->behind, 0);
        if (cas_release(&side->state, state, becomes(state, 0, SIDE_LIVE))) {
            add_relaxed(&ring->page->redelivered, 1);
            return true;
        }
        return false;
    case SIDE_MOVING:
        return cas_release(&side->state, state, becomes(state, 0, SIDE_MOVING));
    case SIDE_ENDING:
        free_entry(ring, entry, state);
        return false;
    default:
        return false;
    }
}

bool side_reap(shmq_ring *ring, owner_t owner)
{
    bool came_back = false;
    EACH_ENTRY(ring, entry)
    {
        const uint64_t state = load_acquire(&side_at(ring, entry)->state);
        if (state_of(state) != SIDE_FREE && ring_owner(state) == owner) {
            came_back = reap_entry(ring, entry, state) || came_back;
        }
    }
    /* Also what the dead one gave back itself, killed before it said so. Behind the entries, as in side_nack. */
    for (uint64_t block = 0; block < ring->blocks; block++) {
        due_lower(block_at(ring, block), 0);
    }
    went_live(ring);
    return came_back;
}

/* ------------------------------------------------------------------ nobody */
static bool nobody_has(uint64_t state)
{
    return state_of(state) == SIDE_LIVE || (state_of(state) == SIDE_MOVING && ring_owner(state) == 0);
}

/* Has its block nothing from before `index`? Then this is the last entry of it to be looked at. */
static bool block_is_behind(const shmq_ring *ring, uint64_t *entry, uint64_t index)
{
    const uint64_t number = *entry / ENTRIES_PER_BLOCK;
    if (*entry % ENTRIES_PER_BLOCK != 1 || load_acquire(&block_at(ring, number)->lowest) >> SIDE_DUE_SHIFT < index) {
        return false; /* pairs with the release in lowest_lower */
    }
    *entry += SIDE_ENTRIES - 1;
    return true;
}

uint64_t side_held(const shmq_ring *ring, uint64_t from)
{
    EACH_ENTRY(ring, entry)
    {
        if (block_is_behind(ring, &entry, from)) {
            continue;
        }
        const uint64_t state = load_acquire(&side_at(ring, entry)->state);
        const uint64_t index = load_acquire(&side_at(ring, entry)->index) - 1;
        const bool held = state_of(state) == SIDE_CLAIMED || state_of(state) == SIDE_MOVING
                          || state_of(state) == SIDE_FORWARDING;
        from = held && !nobody_has(state) && index < from ? index : from;
    }
    return from;
}

bool side_leave(shmq_ring *ring, owner_t owner)
{
    bool came_back = false;
    EACH_ENTRY(ring, entry)
    {
        if (block_is_behind(ring, &entry, LOWEST_NONE)) {
            continue; /* it has none */
        }
        const uint64_t state = load_relaxed(&side_at(ring, entry)->state); /* ours is as a thread of ours has left it */
        const bool has = state_of(state) == SIDE_CLAIMED || state_of(state) == SIDE_MOVING;
        if (has && ring_owner(state) == owner && reap_entry(ring, entry, state)) {
            due_lower(block_at(ring, entry / ENTRIES_PER_BLOCK), 0);
            came_back = true;
        }
    }
    if (came_back) {
        went_live(ring);
    }
    return came_back;
}

bool side_drop_entry(shmq_ring *ring, uint64_t entry, uint64_t state)
{
    struct ring_side *const side = side_at(ring, entry);
    const uint64_t bucket = bucket_of(ring, side);
    const uint64_t ending = becomes(state, ring->member->owner, SIDE_ENDING);
    if (!nobody_has(state) || !cas_release(&side->state, state, ending)) {
        return false;
    }
    free_entry(ring, entry, ending);
    keyed_ready(ring, bucket);
    return true;
}

uint64_t side_drop(shmq_ring *ring, uint64_t target)
{
    uint64_t count = 0;
    EACH_ENTRY(ring, entry)
    {
        if (block_is_behind(ring, &entry, target)) {
            continue;
        }
        const uint64_t state = load_acquire(&side_at(ring, entry)->state); /* first: its version is of that index */
        if (load_acquire(&side_at(ring, entry)->index) - 1 < target) {
            count += side_drop_entry(ring, entry, state);
        }
    }
    return count;
}
