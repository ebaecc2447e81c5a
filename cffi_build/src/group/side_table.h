/* side_table.h - entries and blocks of the side table, as the files that speak of it share them. */
#ifndef SHMQ_SIDE_TABLE_H
#define SHMQ_SIDE_TABLE_H

#include "group/gate.h"
#include "group/side.h"

#define STATE_MASK UINT64_C(7)
#define LOW_MASK UINT64_C(0xffffffff)
#define ATTEMPTS_SHIFT 32
#define VERSION_SHIFT 48
#define MS INT64_C(1000000)
#define CHANGES_MASK ((UINT64_C(1) << SIDE_DUE_SHIFT) - 1)
#define LOWEST_NONE ((UINT64_C(1) << (64 - SIDE_DUE_SHIFT)) - 1)

static inline struct side_block *block_at(const shmq_ring *ring, uint64_t block)
{
    return (struct side_block *)(ring->side + block * SIDE_BLOCK_BYTES);
}
static inline uint32_t state_of(uint64_t state) { return (uint32_t)(state & STATE_MASK); }
static inline uint64_t attempts_of(uint64_t state) { return state >> ATTEMPTS_SHIFT & 0xffff; }
static inline uint64_t version_of(uint64_t state) { return state >> VERSION_SHIFT << VERSION_SHIFT; }
/* The same entry with another owner and state. */
static inline uint64_t becomes(uint64_t state, owner_t owner, uint32_t next)
{
    return version_of(state) | attempts_of(state) << ATTEMPTS_SHIFT | ring_low(owner, ring_count(state), next);
}
/* The bucket of an entry; 0 also when there is no such bucket. */
static inline uint64_t bucket_of(const shmq_ring *ring, const struct ring_side *side)
{
    return keyed_bounded(ring, load_relaxed(&side->bucket));
}
/* Milliseconds of a bound, as nanoseconds. */
static inline int64_t due_of(uint64_t due)
{
    const uint64_t ms = due >> SIDE_DUE_SHIFT;
    return ms < (uint64_t)(INT64_MAX / MS) ? (int64_t)ms * MS : INT64_MAX;
}

#define EACH_ENTRY(ring, entry)                                                                                      \
    for (uint64_t entry = 1; entry < (ring)->blocks * ENTRIES_PER_BLOCK; entry++)                                    \
        if (entry % ENTRIES_PER_BLOCK != 0)

static inline bool parked_here(const shmq_ring *ring, uint64_t index, uint64_t entry)
{
    const uint64_t word = ring_look(ring, index);
    return word >> RING_LAP_SHIFT == ring_stamp(ring, index) >> RING_LAP_SHIFT
           && (word & ((1u << RING_STATE_BITS) - 1)) == RING_PARKED && ring_entry(word) == entry;
}

/* Something in that block is due then, or earlier: behind the store that says so. */
void due_lower(struct side_block *block, int64_t due_ns);
/* Nothing in it is due before, if its bound is still what was seen. */
void due_raise(struct side_block *block, uint64_t seen, int64_t due_ns);
void lowest_raise(struct side_block *block, uint64_t seen, uint64_t index);
/* Something came to be there for others: have them look. */
void went_live(shmq_ring *ring);
/* An entry that is ours goes back to the free ones. */
void free_entry(shmq_ring *ring, uint64_t entry, uint64_t state);

#endif
