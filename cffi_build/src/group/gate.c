/* gate.c - the gates of a group in order by key: who may claim a message of a bucket, and who should look at one.
 *
 * Keys fall into buckets. The gate of a bucket says IDLE or BUSY, and IDLE means that every message of it that a walker
 * has met is finished. A bucket is looked at when its bit in `ready` is set, by whoever finished the message that was out,
 * found one of it due, or found that somebody died. Whoever finishes releases its gate or its bit, and whoever is handed the
 * next has acquired it: what the one did, the other sees. */
#include "group/gate.h"

#include "crc.h"

uint64_t keyed_bytes(uint32_t window, uint32_t buckets)
{
    const uint64_t of_bucket = sizeof(struct ring_bucket) * (uint64_t)buckets + buckets / 8;
    return buckets == 0 ? 0 : sizeof(uint64_t) * window + of_bucket;
}

uint64_t keyed_bucket(const shmq_ring *ring, const shmq_chunk *chunk, uint64_t position)
{
    struct record record;
    shared_read(&record, chunk->memory + position, sizeof record);
    const uint64_t at = position + RECORD_HEADER_BYTES + record.extra_words * SPAN_UNIT;
    if (record.key_length == 0 || at + record.key_length > chunk->capacity) {
        return 0;
    }
    const uint32_t hash = crc32c(0, shared_span(chunk->memory + at, record.key_length), record.key_length);
    return (hash & (ring->bucket_count - 1)) + 1;
}

/* ------------------------------------------------------------------ moving a gate */
void keyed_parks(shmq_ring *ring, uint64_t bucket)
{
    if (bucket == 0) {
        return;
    }
    uint64_t *const gate = &bucket_at(ring, bucket)->gate;
    uint64_t old = load_relaxed(gate);
    while (!cas_release(gate, old, (old + GATE_CHANGE) | GATE_BUSY | GATE_PARKED)) {
        old = load_relaxed(gate);
    }
    if ((old & GATE_BUSY) == 0) {
        keyed_ready(ring, bucket); /* whoever was about to meet it finds BUSY, and leaves it to whoever made it so */
    }
}

bool keyed_idle(const shmq_ring *ring, uint64_t bucket)
{
    return (load_relaxed(&bucket_at(ring, bucket)->gate) & GATE_BUSY) == 0;
}

void keyed_finished(shmq_ring *ring, const shmq_taken *taken, bool done)
{
    if (taken->bucket == 0) {
        return;
    }
    const uint64_t idle = (taken->gate + GATE_CHANGE) & ~(uint64_t)(GATE_BUSY | GATE_PARKED);
    if (!done || taken->gate == 0 || !cas_release(&bucket_at(ring, taken->bucket)->gate, taken->gate, idle)) {
        keyed_ready(ring, taken->bucket);
    }
}

/* ------------------------------------------------------------------ who should look */
void keyed_ready(shmq_ring *ring, uint64_t bucket)
{
    if (bucket == 0) {
        return;
    }
    uint64_t *const bits = &ring->ready[(bucket - 1) / 64];
    const uint64_t bit = UINT64_C(1) << (bucket - 1) % 64;
    uint64_t old = load_relaxed(bits);
    while (!cas_release(bits, old, old | bit)) { /* also when it is set: whoever clears it must see what we did before */
        old = load_relaxed(bits);
    }
    ring->readied = true;
}

void keyed_wake(shmq_ring *ring)
{
    if (ring->readied) {
        ring->readied = false;
        shmq_wake(ring->member);
    }
}

void keyed_reap(shmq_ring *ring)
{
    for (uint64_t bucket = 1; bucket <= ring->bucket_count; bucket++) {
        if (load_relaxed(&bucket_at(ring, bucket)->gate) & GATE_BUSY) {
            keyed_ready(ring, bucket);
        }
    }
}
