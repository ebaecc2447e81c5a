/* side_look.c - what lies in the side table: counted, found, named for a snapshot, and the lowest of a key.
 *
 * Nothing is handed out or finished here; what was left between two steps is moved on. An entry is of one and the same message
 * only while its state is the same word: state, index, and the state again. */
#include "group/side_table.h"

#include <string.h>

/* ------------------------------------------------------------------ how much there is, and where */
uint64_t side_count(const shmq_ring *ring, uint32_t wanted)
{
    uint64_t count = 0;
    EACH_ENTRY(ring, entry)
    {
        count += state_of(load_relaxed(&side_at(ring, entry)->state)) == wanted;
    }
    return count;
}

int64_t side_find(const shmq_ring *ring, uint64_t index)
{
    EACH_ENTRY(ring, entry)
    {
        if (load_acquire(&side_at(ring, entry)->index) == index + 1) {
            return (int64_t)entry;
        }
    }
    return SHMQ_EMPTY;
}

uint64_t side_lowest(const shmq_ring *ring, uint64_t from)
{
    uint64_t lowest = from;
    for (uint64_t number = 0; number < ring->blocks; number++) {
        struct side_block *const block = block_at(ring, number);
        const uint64_t seen = load_acquire(&block->lowest); /* pairs with the release in lowest_lower */
        if (seen >> SIDE_DUE_SHIFT >= lowest) {
            continue;
        }
        uint64_t first = UINT64_MAX;
        for (uint64_t i = 1; i <= SIDE_ENTRIES; i++) {
            const struct ring_side *const side = side_at(ring, number * ENTRIES_PER_BLOCK + i);
            const uint64_t index = load_acquire(&side->index) - 1;
            const uint32_t state = state_of(load_acquire(&side->state));
            first = index < first ? index : first;
            if (index < lowest && state != SIDE_FREE && state != SIDE_ENDING) {
                lowest = index;
            }
        }
        if (ring->member != NULL) { /* else it may be mapped to look at it only */
            lowest_raise(block, seen, first);
        }
    }
    return lowest;
}

int64_t side_worth(const shmq_ring *ring, uint64_t state)
{
    return ring_worth(ring, attempts_of(state), state_of(state) == SIDE_MOVING);
}

int64_t side_any_due(const shmq_ring *ring)
{
    int64_t found = 0;
    const int64_t now_ns = ring_now();
    for (uint64_t block = 0; block < ring->blocks; block++) {
        if ((int64_t)(load_relaxed(&block_at(ring, block)->due) >> SIDE_DUE_SHIFT) * MS > now_ns) {
            continue;
        }
        for (uint64_t i = 1; i <= SIDE_ENTRIES; i++) {
            const struct ring_side *const side = side_at(ring, block * ENTRIES_PER_BLOCK + i);
            const uint64_t state = load_acquire(&side->state);
            const bool live = state_of(state) == SIDE_LIVE && (int64_t)load_relaxed(&side->due_ns) <= now_ns;
            const bool left = state_of(state) == SIDE_MOVING && ring_owner(state) == 0;
            if ((live || left) && load_relaxed(&side->bucket) == 0) {
                found = side_worth(ring, state);
                if (found == 1) {
                    return found;
                }
            }
        }
    }
    return found;
}

/* ------------------------------------------------------------------ what is not finished */
/* Is it parked, and not finished? PREPARED is so once the ring word names it; else it is garbage, or not parked yet. */
static bool is_parked(const shmq_ring *ring, uint64_t entry, uint64_t index)
{
    const uint64_t *const at = &side_at(ring, entry)->state;
    for (;;) {
        const uint64_t state = load_acquire(at);
        if (state_of(state) != SIDE_PREPARED) {
            return state_of(state) != SIDE_FREE && state_of(state) != SIDE_ENDING;
        }
        if (parked_here(ring, index, entry)) {
            return true;
        }
        if (load_acquire(at) == state) { /* else it went on meanwhile, and the ring may be a lap further */
            return false;
        }
    }
}

bool side_next(const shmq_ring *ring, struct parked *at)
{
    while (++at->entry < ring->blocks * ENTRIES_PER_BLOCK) {
        const struct ring_side *const side = side_at(ring, at->entry);
        if (side == NULL) {
            continue; /* the header of a block */
        }
        const uint64_t index = load_acquire(&side->index) - 1;
        if (index != UINT64_MAX && is_parked(ring, at->entry, index)) {
            const uint64_t state = load_acquire(&side->state);
            *at = (struct parked){at->entry, index, state_of(state), ring_owner(state)};
            return true;
        }
    }
    return false;
}

void side_oldest(const shmq_ring *ring, uint64_t head, struct snapshot *made, uint64_t entries[])
{
    uint64_t *const older = made->older;
    uint32_t count = 0;
    made->head = head;
    EACH_ENTRY(ring, entry)
    {
        const uint64_t index = load_acquire(&side_at(ring, entry)->index) - 1;
        if (index >= made->head || !is_parked(ring, entry, index)) {
            continue; /* an index of 0 is none */
        }
        uint32_t at = count;
        while (at > 0 && older[at - 1] > index) {
            at--;
        }
        if (at > 0 && older[at - 1] == index) {
            continue;
        }
        if (count == SNAPSHOT_OLDER) { /* no room: the largest one, or this one, is not named */
            made->head = at == count ? index : older[count - 1];
            if (at == count) {
                continue;
            }
            count--;
        }
        memmove(&older[at + 1], &older[at], (count - at) * sizeof *older);
        memmove(&entries[at + 1], &entries[at], (count - at) * sizeof *entries);
        older[at] = index;
        entries[at] = entry;
        count++;
    }
    made->parked = count;
}

void side_unmark(const shmq_ring *ring, struct snapshot *snapshot)
{
    EACH_ENTRY(ring, entry)
    {
        const uint64_t index = load_acquire(&side_at(ring, entry)->index) - 1;
        if (index - snapshot->head < RING_WINDOW && is_parked(ring, entry, index)) {
            snapshot->done[(index - snapshot->head) / 8] &= (uint8_t)~(1u << (index - snapshot->head) % 8);
        }
    }
}

bool side_unfinished(const shmq_ring *ring, uint64_t index, uint64_t entry)
{
    const struct ring_side *const side = side_at(ring, entry);
    if (side == NULL) {
        return true; /* it is where we do not see it */
    }
    const uint32_t state = state_of(load_acquire(&side->state));
    return state != SIDE_FREE && state != SIDE_ENDING && load_acquire(&side->index) == index + 1;
}

void side_collect(const shmq_ring *ring, uint64_t first, uint64_t count, uint64_t *entries)
{
    EACH_ENTRY(ring, entry)
    {
        const uint64_t index = load_acquire(&side_at(ring, entry)->index) - 1;
        if (index - first < count && side_unfinished(ring, index, entry)) {
            entries[index - first] = entry;
        }
    }
}

/* ------------------------------------------------------------------ by key */
/* What an unfinished entry is, as one: false when there is none, or it is about to be parked and not yet. */
static bool unfinished(shmq_ring *ring, uint64_t entry, struct lowest *seen)
{
    struct ring_side *const side = side_at(ring, entry);
    seen->entry = entry;
    do { /* of one and the same message */
        seen->word = load_acquire(&side->state);
        seen->index = load_acquire(&side->index) - 1;
    } while (load_acquire(&side->state) != seen->word);
    if (state_of(seen->word) == SIDE_PREPARED && seen->index != UINT64_MAX && parked_here(ring, seen->index, entry)) {
        side_settle(ring, entry);
        seen->word = load_acquire(&side->state);
    }
    const uint32_t state = state_of(seen->word);
    return state != SIDE_FREE && state != SIDE_PREPARED && state != SIDE_ENDING && seen->index != UINT64_MAX;
}

static void lowest_in(shmq_ring *ring, uint64_t number, uint64_t bucket, struct lowest *lowest)
{
    struct side_block *const block = block_at(ring, number);
    const uint64_t seen = load_acquire(&block->lowest); /* pairs with the release in lowest_lower */
    const uint64_t bound = seen >> SIDE_DUE_SHIFT;
    if (bound >= lowest->index) {
        lowest->more = lowest->more || bound != LOWEST_NONE;
        return;
    }
    uint64_t first = UINT64_MAX;
    for (uint64_t i = 1; i <= SIDE_ENTRIES; i++) {
        struct lowest entry;
        const struct ring_side *const side = side_at(ring, number * ENTRIES_PER_BLOCK + i);
        const uint64_t index = load_acquire(&side->index) - 1;
        first = index < first ? index : first;
        if (index == UINT64_MAX || load_relaxed(&side->bucket) != bucket
            || !unfinished(ring, number * ENTRIES_PER_BLOCK + i, &entry)) {
            continue;
        }
        entry.more = lowest->more || lowest->index != UINT64_MAX;
        if (entry.index < lowest->index) {
            *lowest = entry;
        }
        lowest->more = entry.more;
    }
    lowest_raise(block, seen, first);
}

void side_lowest_of(shmq_ring *ring, uint64_t bucket, uint64_t first_block, struct lowest *lowest)
{
    for (uint64_t i = 0; i < ring->blocks; i++) {
        lowest_in(ring, (first_block + i) % ring->blocks, bucket, lowest);
    }
}

bool side_available(const shmq_ring *ring, const struct lowest *lowest, bool idle)
{
    const struct ring_side *const side = side_at(ring, lowest->entry);
    if (state_of(lowest->word) == SIDE_MOVING) {
        return ring_owner(lowest->word) == 0;
    }
    const int64_t due_ns = (int64_t)load_relaxed(&side->due_ns);
    return state_of(lowest->word) == SIDE_LIVE && (due_ns == INT64_MAX || due_ns <= ring_now())
           && (idle || load_relaxed(&side->behind) <= ring_passed(ring));
}
