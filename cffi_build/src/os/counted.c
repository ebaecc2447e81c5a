/* counted.c - what was done, counted for whoever watches: the ways that are no hot ones, and the sums.
 *
 * Nobody decides anything by these words, so nothing is ordered by them. Each only rises within a boot: a line is left as it
 * is when its seat's tenant dies, and the next one goes on in it. What is counted here is counted in the line that all
 * share, by atomic adds, also of threads that run beside the interpreter's lock; python/counts.h has the lines of the seats. */
#include "atomic.h"
#include "chunk/chunk.h"
#include "group/window.h"
#include "layout.h"
#include "os/os.h"
#include "shmq.h"

#define COUNTS (offsetof(struct counted, reserved) / sizeof(uint64_t))
static_assert(COUNTS == SHMQ_COUNTS && LATENCY_BUCKETS == SHMQ_LATENCY_BUCKETS, "what Python asks for");

static uint64_t *line(struct counted *counted) { return (uint64_t *)(void *)counted; }
static const uint64_t *const_line(const struct counted *counted) { return (const uint64_t *)(const void *)counted; }

void shmq_count(void *control, uint32_t which, uint64_t by)
{
    add_relaxed(&line(&((struct control *)control)->shared)[which % COUNTS], by);
}

void shmq_count_for(const shmq_chunk *chunk, uint32_t which, uint64_t by)
{
    shmq_count(chunk->member->control, which, by);
}

void shmq_ring_counted(const shmq_ring *ring, uint32_t which, uint64_t by) { shmq_count(ring->member->control, which, by); }

void shmq_count_put(const shmq_chunk *chunk, uint64_t messages, uint64_t bytes)
{
    if (!chunk->aside) {
        add_relaxed(&chunk->member->control->shared.put_messages, messages);
        add_relaxed(&chunk->member->control->shared.put_bytes, bytes);
    }
}

uint64_t *shmq_counts_of(const shmq_chunk *chunk)
{
    struct counted *const mine = chunk->member->counted;
    return chunk->aside || mine == NULL ? NULL : line(mine);
}

/* Which bucket counts that age: those before it end where it begins. */
static uint32_t bucket_of(uint64_t ns)
{
    uint32_t bucket = 0;
    while (bucket < LATENCY_BUCKETS - 1 && ns >> LATENCY_SHIFT >> bucket != 0) {
        bucket++;
    }
    return bucket;
}

void shmq_count_latency(const shmq_chunk *chunk, uint64_t record)
{
    int64_t put_ns;
    if (record + RECORD_HEADER_BYTES > chunk->capacity) {
        return;
    }
    shared_read(&put_ns, chunk->memory + record + offsetof(struct record, time_ns), sizeof put_ns);
    const int64_t now_ns = os->clock_wall_ns();
    const uint64_t age_ns = now_ns > put_ns ? (uint64_t)now_ns - (uint64_t)put_ns : 0; /* or its user set its time */
    struct control *const control = chunk->member->control;
    add_relaxed(&control->latency[bucket_of(age_ns)], 1);
    add_relaxed(&control->latency_ns, age_ns);
}

void shmq_counts(const void *control, uint64_t *sums, uint64_t *latency, uint64_t *latency_ns)
{
    const struct control *const page = control;
    for (uint32_t which = 0; which < COUNTS; which++) {
        sums[which] = load_relaxed(&const_line(&page->shared)[which]);
        for (uint32_t seat = 0; seat < COUNTED_SEATS; seat++) {
            sums[which] += load_relaxed(&const_line(&page->counted[seat])[which]);
        }
    }
    for (uint32_t bucket = 0; bucket < LATENCY_BUCKETS; bucket++) {
        latency[bucket] = load_relaxed(&page->latency[bucket]);
    }
    *latency_ns = load_relaxed(&page->latency_ns);
}

uint32_t shmq_syncs(const void *control) { return load_relaxed(&((const struct control *)control)->sync_bell); }
