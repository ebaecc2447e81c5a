/* side.c - the side table of a group: messages that wait for their time, or are held for long, outside the window.
 *
 * Parking is a move in three steps: an entry is PREPARED; a CAS turns the message's ring word to PARKED with the entry's
 * id, which is the commit; then the entry becomes what it was prepared for, by anybody. The head passes a PARKED word
 * only behind the third step, so a PREPARED entry whose ring word does not name it is garbage. From then on the entry's
 * state is to its message what the ring word was: one CAS hands it out, one CAS from exactly that word finishes it. */
#include "group/ring.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"

#define STATE_MASK UINT64_C(7)
#define LOW_MASK UINT64_C(0xffffffff)
#define ATTEMPTS_SHIFT 32
#define VERSION_SHIFT 48
#define MS INT64_C(1000000)
#define CHANGES_MASK ((UINT64_C(1) << SIDE_DUE_SHIFT) - 1)
#define LOWEST_NONE ((UINT64_C(1) << (64 - SIDE_DUE_SHIFT)) - 1)
#define ENTRIES_PER_BLOCK (SIDE_ENTRIES + 1) /* entry 0 of a block is its header */

static struct side_block *block_at(const shmq_ring *ring, uint64_t block)
{
    return (struct side_block *)(ring->side + block * SIDE_BLOCK_BYTES);
}
struct ring_side *side_at(const shmq_ring *ring, uint64_t entry)
{
    if (entry / ENTRIES_PER_BLOCK >= ring->blocks || entry % ENTRIES_PER_BLOCK == 0) {
        return NULL; /* not mapped here yet, or nonsense */
    }
    return (struct ring_side *)(ring->side + entry * sizeof(struct ring_side));
}
static uint32_t state_of(uint64_t state) { return (uint32_t)(state & STATE_MASK); }
static uint64_t attempts_of(uint64_t state) { return state >> ATTEMPTS_SHIFT & 0xffff; }
static uint64_t version_of(uint64_t state) { return state >> VERSION_SHIFT << VERSION_SHIFT; }
/* The same entry with another owner and state. */
static uint64_t becomes(uint64_t state, owner_t owner, uint32_t next)
{
    return version_of(state) | attempts_of(state) << ATTEMPTS_SHIFT | ring_low(owner, ring_count(state), next);
}
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
/* The bucket of an entry; 0 also when there is no such bucket. */
static uint64_t bucket_of(const shmq_ring *ring, const struct ring_side *side)
{
    return keyed_bounded(ring, load_relaxed(&side->bucket));
}
/* Milliseconds of a bound, as nanoseconds. */
static int64_t due_of(uint64_t due)
{
    const uint64_t ms = due >> SIDE_DUE_SHIFT;
    return ms < (uint64_t)(INT64_MAX / MS) ? (int64_t)ms * MS : INT64_MAX;
}

/* ------------------------------------------------------------------ when something in a block is due */
static void due_lower(struct side_block *block, int64_t due_ns)
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
static void due_raise(struct side_block *block, uint64_t seen, int64_t due_ns)
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
static void lowest_raise(struct side_block *block, uint64_t seen, uint64_t index)
{
    const uint64_t bound = index < LOWEST_NONE ? index : index == UINT64_MAX ? LOWEST_NONE : LOWEST_NONE - 1;
    if (bound != seen >> SIDE_DUE_SHIFT) {
        cas_relaxed(&block->lowest, seen, bound << SIDE_DUE_SHIFT | ((seen + 1) & CHANGES_MASK)); /* says of nothing new */
    }
}
static void went_live(shmq_ring *ring)
{
    add_release(&ring->page->side_version, 1);
    shmq_wake(ring->member); /* sleepers must learn of an earlier due time */
    ring_room(ring);         /* and what nobody has may be dropped */
}

/* ------------------------------------------------------------------ entries */
static void free_entry(shmq_ring *ring, uint64_t entry, uint64_t state)
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

static bool parked_here(const shmq_ring *ring, uint64_t index, uint64_t entry)
{
    const uint64_t word = ring_look(ring, index);
    return word >> RING_LAP_SHIFT == ring_stamp(ring, index) >> RING_LAP_SHIFT
           && (word & ((1u << RING_STATE_BITS) - 1)) == RING_PARKED && ring_entry(word) == entry;
}

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

#define EACH_ENTRY(ring, entry)                                                                                      \
    for (uint64_t entry = 1; entry < (ring)->blocks * ENTRIES_PER_BLOCK; entry++)                                    \
        if (entry % ENTRIES_PER_BLOCK != 0)

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
        const bool held = state_of(state) == SIDE_CLAIMED || state_of(state) == SIDE_MOVING;
        from = held && !nobody_has(state) && index < from ? index : from;
    }
    return from;
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

uint64_t side_count(const shmq_ring *ring, uint32_t wanted)
{
    uint64_t count = 0;
    EACH_ENTRY(ring, entry)
    {
        count += state_of(load_relaxed(&side_at(ring, entry)->state)) == wanted;
    }
    return count;
}

/* ------------------------------------------------------------------ handing out */
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

bool side_remember(shmq_ring *ring)
{
    free(ring->looked);
    ring->looked = calloc(ring->blocks, sizeof *ring->looked);
    ring->side_next = 0;
    return ring->looked != NULL;
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
        if (behind > ring->cursor && !search->idle) {
            found->behind = behind < found->behind ? behind : found->behind;
            waits = true;
            break;
        }
        if (left_to_its_bucket(ring, side)) {
            when = INT64_MAX;
            break;
        }
        if (search->count == search->limit) {
            return false;
        }
        if (side_claim(ring, entry, state, &search->taken[search->count])) {
            search->count++;
            when = ring->lease_ns != 0 ? search->now_ns + ring->lease_ns : INT64_MAX;
        }
        break;
    }
    case SIDE_MOVING:
        if (ring_owner(state) == 0 && !left_to_its_bucket(ring, side)) {
            when = search->now_ns;
            if (search->count == search->limit) {
                return false;
            }
            search->count += side_claim(ring, entry, state, &search->taken[search->count]);
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
        && looked->behind > ring->cursor) {
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

int64_t side_take(shmq_ring *ring, bool idle, uint32_t limit, shmq_taken *taken)
{
    const uint64_t version = load_acquire(&ring->page->side_version);
    const int64_t now_ns = ring_now();
    const bool behind = ring->side_behind <= ring->cursor || (idle && ring->side_behind != UINT64_MAX);
    if (ring->side_next == 0 && version == ring->side_seen && now_ns < ring->side_due_ns && !behind) {
        return 0;
    }
    if (ring->looked != NULL && version - ring->side_seen > CHANGES_MASK / 2) {
        memset(ring->looked, 0, ring->blocks * sizeof *ring->looked); /* as many changes of one block look like none */
    }
    struct search search = {
        .now_ns = now_ns, .idle = idle, .due_ns = INT64_MAX, .behind = UINT64_MAX, .limit = limit, .taken = taken};
    const bool resumed = ring->side_next != 0;
    search_table(ring, &search);
    if (resumed && search.count == 0) { /* the rest of it had nothing: now all of it */
        search.due_ns = INT64_MAX;
        search.behind = UINT64_MAX;
        search_table(ring, &search);
    }
    return search.count;
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
           && (idle || load_relaxed(&side->behind) <= ring->cursor);
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
