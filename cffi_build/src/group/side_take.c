/* side_take.c - what is due in the side table is handed out.
 *
 * A handle remembers what each block had when all of it was looked through: it has the same as long as its `due` is the same
 * word, which every change of it changes. What has an order is left to its bucket; what was dropped while somebody had it, and
 * came back, is finished. For a lone consumer the lowest that are due are looked for first, and claimed one by one behind that. */
#include <stdlib.h>
#include <string.h>

#include "group/head.h"
#include "group/side_table.h"

bool side_claim(shmq_ring *ring, uint64_t entry, uint64_t state, shmq_taken *taken)
{
    struct ring_side *const side = side_at(ring, entry);
    const uint64_t index = load_acquire(&side->index);
    const bool moving = state_of(state) == SIDE_MOVING;
    if (index == 0) {
        return false;
    }
    const uint64_t attempts = attempts_of(state) + !moving;
    const uint32_t next = moving ? SIDE_MOVING : SIDE_CLAIMED;
    const uint64_t claimed = version_of(state) | (attempts & 0xffff) << ATTEMPTS_SHIFT
                             | ring_low(ring->member->owner, ring_count(state) + 1, next);
    if (ring->lease_ns != 0) {
        lease_store(ring, &side->lease, claimed, ring_now() + ring->lease_ns);
        due_lower(block_at(ring, entry / ENTRIES_PER_BLOCK), ring_now() + ring->lease_ns);
    }
    if (!cas_release(&side->state, state, claimed)) {
        return false;
    }
    if (ring->lease_ns != 0) {
        went_live(ring); /* nobody else may have looked at it yet, and somebody must when its lease ends */
    }
    *taken = (shmq_taken){.index = index - 1,
                          .word = claimed,
                          .entry = entry,
                          .attempts = (uint32_t)attempts,
                          .kind = moving ? SHMQ_TAKEN_MOVING : SHMQ_TAKEN_MESSAGE};
    return true;
}

/* ------------------------------------------------------------------ looking for it */
struct search {
    int64_t now_ns;
    bool idle;
    int64_t due_ns;   /* when to look again */
    uint64_t behind;
    uint32_t limit;
    uint32_t count;
    shmq_taken *taken;
};
/* What a block had for this handle when all of it was looked through: it has the same as long as its `due` is the same word,
 * which every change of it changes. */
struct looked {
    uint64_t due;
    int64_t due_ns;
    uint64_t behind;
    bool known;
};
/* What is due in a block: for all, as its bound says, and for this handle, which may have to look elsewhere first. */
struct found {
    int64_t bound_ns;
    int64_t due_ns;
    uint64_t behind;
    bool moving_on;   /* something in it is between two steps */
};

#define OFFERED_MAX 512u /* a look through a long table is paid for by as many */
struct offered {
    uint64_t index;
    uint64_t entry;
    uint64_t state;
};

bool side_remember(shmq_ring *ring)
{
    free(ring->looked);
    ring->looked = calloc(ring->blocks + 1, sizeof *ring->looked);
    ring->side_next = 0;
    ring->offered_count = 0;
    ring->offered_next = 0;
    if (ring->in_order && ring->offered == NULL) {
        ring->offered = malloc(OFFERED_MAX * sizeof *ring->offered);
    }
    return ring->looked != NULL && (!ring->in_order || ring->offered != NULL);
}

void side_forget(shmq_ring *ring)
{
    free(ring->looked);
    free(ring->offered);
}

/* One that is due is among the lowest, if it is. */
static void offer(shmq_ring *ring, uint64_t entry, uint64_t state)
{
    const uint64_t index = load_relaxed(&side_at(ring, entry)->index) - 1; /* `state` was read by an acquire */
    uint32_t at = ring->offered_count;
    while (at > 0 && ring->offered[at - 1].index > index) {
        at--;
    }
    if (at == OFFERED_MAX) {
        return;
    }
    ring->offered_count += ring->offered_count < OFFERED_MAX;
    memmove(&ring->offered[at + 1], &ring->offered[at], (ring->offered_count - at - 1) * sizeof *ring->offered);
    ring->offered[at] = (struct offered){index, entry, state};
}

/* It could be had: now, or in order, later. False when the limit is reached. */
static bool had(shmq_ring *ring, struct search *search, uint64_t entry, uint64_t state, int64_t *when)
{
    if (ring->in_order) {
        offer(ring, entry, state);
    } else if (search->count == search->limit) {
        return false;
    } else if (side_claim(ring, entry, state, &search->taken[search->count])) {
        search->count++;
        *when = ring->lease_ns != 0 ? search->now_ns + ring->lease_ns : INT64_MAX;
    }
    return true;
}

/* What has an order is handed out by keyed_take, when nothing before it is left. */
static bool left_to_its_bucket(shmq_ring *ring, const struct ring_side *side)
{
    const uint64_t bucket = bucket_of(ring, side);
    keyed_ready(ring, bucket);
    return bucket != 0;
}

/* One that was dropped while somebody had it, and came back. */
static bool drop_returned(shmq_ring *ring, uint64_t entry, uint64_t state)
{
    if (!ring_is_dropped(ring, load_acquire(&side_at(ring, entry)->index) - 1) || !side_drop_entry(ring, entry, state)) {
        return false;
    }
    ring_count_dropped(ring, 1);
    return true;
}

/* Look at one entry; when it has to be looked at again is noted. False when it could be had, but for the limit. */
static bool search_entry(shmq_ring *ring, struct search *search, uint64_t entry, struct found *found)
{
    struct ring_side *const side = side_at(ring, entry);
    const uint64_t state = load_acquire(&side->state);
    int64_t when = INT64_MAX;
    bool waits = false;
    switch (state_of(state)) {
    case SIDE_PREPARED: /* its owner is between two steps, or stopped there */
        when = search->now_ns + MS;
        found->moving_on = true;
        break;
    case SIDE_CLAIMED:
        if (ring->lease_ns != 0 && lease_ended(ring, &side->lease, state, search->now_ns, &when)) {
            when = search->now_ns;
            if (cas_release(&side->state, state, becomes(state, 0, SIDE_LIVE))) {
                add_relaxed(&ring->page->redelivered, 1);
            }
            keyed_ready(ring, bucket_of(ring, side));
        }
        break;
    case SIDE_LIVE: {
        when = (int64_t)load_relaxed(&side->due_ns);
        const uint64_t behind = load_relaxed(&side->behind);
        if (when > search->now_ns) {
            break;
        }
        when = search->now_ns;
        if (drop_returned(ring, entry, state)) {
            when = INT64_MAX;
            break;
        }
        if (behind > ring_passed(ring) && !search->idle) {
            found->behind = behind < found->behind ? behind : found->behind;
            waits = true;
            break;
        }
        if (left_to_its_bucket(ring, side)) {
            when = INT64_MAX;
            break;
        }
        if (!had(ring, search, entry, state, &when)) {
            return false;
        }
        break;
    }
    case SIDE_MOVING:
        if (ring_owner(state) == 0 && !left_to_its_bucket(ring, side)) {
            when = search->now_ns;
            if (!had(ring, search, entry, state, &when)) {
                return false;
            }
        }
        break;
    default:
        break;
    }
    found->bound_ns = when < found->bound_ns ? when : found->bound_ns;
    found->due_ns = !waits && when < found->due_ns ? when : found->due_ns;
    return true;
}

static void note(struct search *search, int64_t due_ns, uint64_t behind)
{
    search->due_ns = due_ns < search->due_ns ? due_ns : search->due_ns;
    search->behind = behind < search->behind ? behind : search->behind;
}

/* Look through a block from entry `first` of it on: 0, or where to go on when the limit is reached. */
static uint64_t search_block(shmq_ring *ring, struct search *search, uint64_t number, uint64_t first)
{
    struct side_block *const block = block_at(ring, number);
    struct looked *const looked = ring->looked == NULL ? NULL : &ring->looked[number];
    const uint64_t seen = load_acquire(&block->due);
    if (due_of(seen) > search->now_ns) {
        note(search, due_of(seen), UINT64_MAX);
        return 0;
    }
    if (looked != NULL && looked->known && looked->due == seen && search->now_ns < looked->due_ns && !search->idle
        && looked->behind > ring_passed(ring)) {
        note(search, looked->due_ns, looked->behind);
        return 0;
    }
    struct found found = {.bound_ns = INT64_MAX, .due_ns = INT64_MAX, .behind = UINT64_MAX};
    for (uint64_t i = first; i <= SIDE_ENTRIES; i++) {
        if (!search_entry(ring, search, number * ENTRIES_PER_BLOCK + i, &found)) {
            return number * ENTRIES_PER_BLOCK + i;
        }
    }
    note(search, found.due_ns, found.behind);
    if (first != 1) {
        note(search, search->now_ns, UINT64_MAX); /* what is before it may have changed since: look through it again */
        return 0;
    }
    if (found.bound_ns > search->now_ns) {
        due_raise(block, seen, found.bound_ns);
    }
    if (looked != NULL) {
        *looked = (struct looked){seen, found.due_ns, found.behind, !found.moving_on};
    }
    return 0;
}

/* Look through the table, from where the last search has stopped. */
static void search_table(shmq_ring *ring, struct search *search)
{
    const uint64_t first = ring->side_next;
    uint64_t next = 0;
    if (first == 0) {
        ring->side_version = load_acquire(&ring->page->side_version);
    } else {
        note(search, ring->side_next_due_ns, ring->side_next_behind);
    }
    for (uint64_t block = first / ENTRIES_PER_BLOCK; block < ring->blocks && next == 0; block++) {
        next = search_block(ring, search, block, block == first / ENTRIES_PER_BLOCK && first != 0 ? first % ENTRIES_PER_BLOCK : 1);
    }
    ring->side_next = next;
    ring->side_next_due_ns = search->due_ns;
    ring->side_next_behind = search->behind;
    if (next == 0) {
        ring->side_seen = ring->side_version;
        ring->side_due_ns = search->due_ns;
        ring->side_behind = search->behind;
    }
}

bool side_quiet(const shmq_ring *ring, int64_t now_ns)
{
    return ring->side_next == 0 && load_relaxed(&ring->page->side_version) == ring->side_seen
           && now_ns < ring->side_due_ns && (ring->side_behind == UINT64_MAX || ring->side_behind > ring_passed(ring));
}

uint64_t side_offered(const shmq_ring *ring)
{
    return ring->offered_next < ring->offered_count ? ring->offered[ring->offered_next].index : UINT64_MAX;
}

bool side_take_offered(shmq_ring *ring, shmq_taken *taken)
{
    const struct offered *const next = &ring->offered[ring->offered_next++];
    return side_claim(ring, next->entry, next->state, taken); /* if it is what it was */
}

int64_t side_take(shmq_ring *ring, bool idle, uint32_t limit, shmq_taken *taken)
{
    const uint64_t version = load_acquire(&ring->page->side_version);
    const int64_t now_ns = ring_now();
    if (side_quiet(ring, now_ns) && (!idle || ring->side_behind == UINT64_MAX)) {
        return 0;
    }
    if (ring->looked != NULL && version - ring->side_seen > CHANGES_MASK / 2) {
        memset(ring->looked, 0, ring->blocks * sizeof *ring->looked); /* as many changes of one block look like none */
    }
    struct search search = {
        .now_ns = now_ns, .idle = idle, .due_ns = INT64_MAX, .behind = UINT64_MAX, .limit = limit, .taken = taken};
    const bool resumed = ring->side_next != 0;
    ring->offered_next = ring->offered_count = 0;
    search_table(ring, &search);
    if (resumed && search.count == 0) { /* the rest of it had nothing: now all of it */
        search.due_ns = INT64_MAX;
        search.behind = UINT64_MAX;
        search_table(ring, &search);
    }
    return search.count;
}
