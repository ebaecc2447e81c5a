/* bounds.c - max_messages and max_bytes: how far a claim may go, who waits for room, and what is dropped for it.
 *
 * Nothing is counted. How much a queue holds is the way from the smallest head to the tail, and both stand in words that
 * a dead process cannot leave wrong. Each handle keeps a limit of its own, computed from the heads as they were, and the
 * claim, which knows its place at its CAS, is held against it. Heads go forward, so a limit that is late is too small and
 * never too large. What can take a head back (seek, a new name, other bounds) moves `bounds` on afterwards, and no limit
 * from before that is gone by any more. docs/decisions/0006-bounds.md. */
#include "chunk/bounds.h"

#include "error.h"

/* ------------------------------------------------------------------ the limit of a handle */
bool limit_is_good(const shmq_chunk *chunk)
{
    /* Acquire: the two numbers that belong to it. Pairs with the release in shmq_limit. */
    return load_acquire(&chunk->limit.bounds) == load_relaxed(&chunk->member->control->bounds);
}

bool limit_allows(const shmq_chunk *chunk, uint64_t ordinal, uint64_t position)
{
    return ordinal <= load_relaxed(&chunk->limit.ordinals) && position <= load_relaxed(&chunk->limit.position);
}

void shmq_limit(shmq_chunk *chunk, uint64_t bounds, uint64_t ordinals, uint64_t position)
{
    store_relaxed(&chunk->limit.ordinals, ordinals);
    store_relaxed(&chunk->limit.position, position);
    store_release(&chunk->limit.bounds, bounds); /* pairs with the acquire in limit_is_good */
}

int bounds_full(void) { return error_set(SHMQ_FULL, "a bound is reached"); }

/* ------------------------------------------------------------------ the bounds themselves */
uint64_t shmq_bounds(const void *control, uint64_t *max_messages, uint64_t *max_bytes, uint64_t *dropped)
{
    const struct control *const page = control;
    /* Acquire: the bounds, and the heads, that were stored before it moved. Pairs with the release in bounds_move. */
    const uint64_t bounds = load_acquire(&page->bounds);
    *max_messages = load_relaxed(&page->max_messages);
    *max_bytes = load_relaxed(&page->max_bytes);
    *dropped = load_relaxed(&page->dropped);
    return bounds;
}

static void bounds_move(struct control *control)
{
    add_release(&control->bounds, 1); /* pairs with the acquire in shmq_bounds */
    shmq_room_always(control);
}

void shmq_bounds_set(void *control, uint64_t max_messages, uint64_t max_bytes)
{
    struct control *const page = control;
    store_relaxed(&page->max_messages, max_messages);
    store_relaxed(&page->max_bytes, max_bytes);
    bounds_move(page);
}

void shmq_bounds_recount(void *control)
{
    if (load_relaxed(&((struct control *)control)->bounds) != 0) {
        bounds_move(control);
    }
}

void shmq_bounds_begin(void *control) { bounds_move(control); }

/* ------------------------------------------------------------------ dropping the oldest */
void shmq_drop(void *control, uint64_t index)
{
    uint64_t *const at = &((struct control *)control)->dropped;
    uint64_t seen = load_relaxed(at);
    while (seen < index && !cas_relaxed(at, seen, index)) {
        seen = load_relaxed(at);
    }
}

bool is_dropped(const shmq_chunk *chunk, const struct checkpoint *checkpoint, uint64_t index)
{
    /* What was handed out before comes again, whatever was dropped since. */
    return index < load_relaxed(&chunk->member->control->dropped) && index >= load_relaxed(&checkpoint->handed);
}

void note_dropped(struct checkpoint *checkpoint)
{
    store_relaxed(&checkpoint->dropped, load_relaxed(&checkpoint->dropped) + 1); /* its holder is alone with it */
}

uint64_t shmq_checkpoint_dropped(const void *memory)
{
    return load_relaxed(&((const struct checkpoint *)memory)->dropped);
}
void shmq_checkpoint_set_dropped(void *memory, uint64_t count)
{
    store_relaxed(&((struct checkpoint *)memory)->dropped, count);
}
