/* gate.h - the gates of buckets, and what walkers have noted of keys. */
#ifndef SHMQ_GATE_H
#define SHMQ_GATE_H

#include "group/window.h"

#define KEY_LOW ((UINT64_C(1) << ATTEMPTS_BITS) - 1)

static inline struct ring_bucket *bucket_at(const shmq_ring *ring, uint64_t bucket) { return &ring->buckets[bucket - 1]; }

static inline uint64_t key_of(const shmq_ring *ring, uint64_t index)
{
    const uint64_t key = load_acquire(&ring->keys[ring_slot(ring, index)]);
    return key >> ATTEMPTS_BITS == ring_cell(ring, index) ? key & KEY_LOW : 0;
}
/* A number of a bucket as it was read from the file; 0 also when there is no such bucket. */
static inline uint64_t keyed_bounded(const shmq_ring *ring, uint64_t bucket)
{
    return bucket <= ring->bucket_count ? bucket : 0;
}
/* The same of one in the window that a walker has met; 0 also when none has. */
static inline uint64_t keyed_at(const shmq_ring *ring, uint64_t index)
{
    return ring->bucket_count == 0 ? 0 : keyed_bounded(ring, key_of(ring, index) & (KEY_DELAYED - 1));
}

/* Bytes of keys, buckets and their bits. */
uint64_t keyed_bytes(uint32_t window, uint32_t buckets);
/* The bucket of a message's key, plus one; 0 = it has no key. */
uint64_t keyed_bucket(const shmq_ring *ring, const shmq_chunk *chunk, uint64_t position);
/* Would a walker that meets a message of that bucket have it? */
bool keyed_idle(const shmq_ring *ring, uint64_t bucket);
/* Somebody should look at this bucket (0 = none). */
void keyed_ready(shmq_ring *ring, uint64_t bucket);
/* Wake others, if a bucket became ready. */
void keyed_wake(shmq_ring *ring);
/* What was handed out is done, or is not ours any more. */
void keyed_finished(shmq_ring *ring, const shmq_taken *taken, bool done);
/* An entry of this bucket is about to be committed. */
void keyed_parks(shmq_ring *ring, uint64_t bucket);
/* Somebody died, wherever it stood. */
void keyed_reap(shmq_ring *ring);

#endif
