/* snapshot.c - what a power cut leaves of a group: a snapshot in its checkpoint, and the ring that is made of it.
 *
 * Two snapshots take turns, each with a checksum over itself; the newest whole one counts. Nothing is marked as done that is
 * not: what is unknown comes again. Members go on while one is taken, so it is taken from the last message to the first: what
 * is finished only when one before it is must not be marked when that is not. A ring is rebuilt by one process alone; what
 * says that it is a ring stays all the time, and its boot comes last: killed in between, the next one begins again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crc.h"
#include "error.h"
#include "group/figures.h"
#include "group/gate.h"
#include "group/ring_file.h"
#include "group/side.h"

/* ------------------------------------------------------------------ taken */
static struct snapshot *snapshot_at(void *checkpoint, uint32_t which)
{
    return (struct snapshot *)(void *)((uint8_t *)checkpoint + SNAPSHOT_BASE + which * SNAPSHOT_BYTES);
}
static uint32_t snapshot_crc(const struct snapshot *snapshot)
{
    static const uint8_t zero[4];
    const uint8_t *const bytes = (const uint8_t *)snapshot;
    const size_t at = offsetof(struct snapshot, crc);
    uint32_t crc = crc32c(0, bytes, at);
    crc = crc32c(crc, zero, sizeof zero);
    return crc32c(crc, bytes + at + sizeof zero, sizeof *snapshot - at - sizeof zero);
}
static bool snapshot_valid(const struct snapshot *snapshot)
{
    return snapshot->sequence != 0 && snapshot->parked <= SNAPSHOT_OLDER && snapshot->crc == snapshot_crc(snapshot);
}
/* The newest valid one, or NULL. */
static struct snapshot *newest_snapshot(void *checkpoint)
{
    struct snapshot *newest = NULL;
    for (uint32_t which = 0; which < 2; which++) {
        struct snapshot *const snapshot = snapshot_at(checkpoint, which);
        if (snapshot_valid(snapshot) && (newest == NULL || snapshot->sequence > newest->sequence)) {
            newest = snapshot;
        }
    }
    return newest;
}

/* From the last to the first: members go on meanwhile, and what is finished only when one before it is must not be
 * marked when that is not. `entries`: of what the head has passed. */
static void mark_done(const shmq_ring *ring, struct snapshot *made, uint64_t head, const uint64_t *entries)
{
    const uint64_t end = made->head + RING_WINDOW < head + ring->window ? made->head + RING_WINDOW : head + ring->window;
    for (uint64_t at = end - made->head; at-- > 0;) {
        const uint64_t index = made->head + at;
        if (index < head ? entries[at] == 0 || !side_unfinished(ring, index, entries[at]) : ring_is_done(ring, index)) {
            made->done[at / 8] |= (uint8_t)(1u << at % 8);
        }
    }
}

/* Name no more what was finished since: from the last to the first, as with what is marked. The bucket comes first: where it
 * is that of another message, which lies in the entry by now, we see that ours does not. */
static void keep_unfinished(const shmq_ring *ring, struct snapshot *made, uint64_t entries[])
{
    for (uint32_t at = made->parked; at-- > 0;) {
        made->buckets[at] = (uint16_t)keyed_bounded(ring, load_acquire(&side_at(ring, entries[at])->bucket));
        if (!side_unfinished(ring, made->older[at], entries[at])) {
            entries[at] = 0;
        }
    }
    uint32_t kept = 0;
    for (uint32_t at = 0; at < made->parked; at++) {
        if (entries[at] != 0) {
            made->older[kept] = made->older[at];
            made->buckets[kept] = made->buckets[at];
            kept++;
        }
    }
    made->parked = kept;
}

/* By key, nothing that was handed out may come before what is before it of its key: what is parked is named with its
 * bucket, and where it is more than can be named, all from there on comes by its place. */
static int snapshot_keyed(shmq_ring *ring, struct snapshot *made, uint64_t head)
{
    uint64_t older[SNAPSHOT_OLDER];
    side_oldest(ring, head, made, older);
    made->passed = made->head;
    const uint64_t passed = head - made->head < RING_WINDOW ? head - made->head : RING_WINDOW;
    uint64_t *const entries = calloc(passed + 1, sizeof *entries);
    if (entries == NULL) {
        return error_system(-ENOMEM, "asked for memory");
    }
    side_collect(ring, made->head, passed, entries);
    mark_done(ring, made, head, entries);
    free(entries);
    keep_unfinished(ring, made, older);
    return SHMQ_OK;
}

static void snapshot_parked(shmq_ring *ring, struct snapshot *made, uint64_t head)
{
    uint64_t entries[SNAPSHOT_OLDER];
    side_oldest(ring, head, made, entries);
    made->passed = head;
    for (uint64_t index = made->head; index < made->head + RING_WINDOW && index < head + ring->window; index++) {
        const uint32_t state = index < head ? RING_DONE : ring_state(ring, index, ring_look(ring, index));
        if (state == RING_DONE || state == RING_PARKED) { /* what is parked, the table knows: it may be finished there */
            made->done[(index - made->head) / 8] |= (uint8_t)(1u << (index - made->head) % 8);
        }
    }
    side_unmark(ring, made);
}

int shmq_ring_fix(shmq_ring *ring, uint64_t epoch, void *content)
{
    struct snapshot *const made = content;
    memset(made, 0, sizeof *made);
    const struct snapshot *const newest = newest_snapshot(ring->checkpoint);
    const uint64_t head = head_of(ring);
    made->sequence = newest == NULL ? 1 : newest->sequence + 1;
    made->epoch = epoch;
    made->window = RING_WINDOW;
    /* First the table: what the head passed and is not finished stays there until it is. */
    if (ring->bucket_count != 0) {
        const int code = snapshot_keyed(ring, made, head);
        if (code != SHMQ_OK) {
            return code;
        }
    } else {
        snapshot_parked(ring, made, head);
    }
    if (load_acquire(&ring->page->side_blocks) > ring->blocks) {
        return SHMQ_GROW; /* something may be parked where we do not see it, and must not be called done */
    }
    made->crc = snapshot_crc(made);
    return SHMQ_OK;
}

int64_t shmq_ring_write_fixed(void *checkpoint, const void *content)
{
    const struct snapshot *const made = content;
    const struct snapshot *const newest = newest_snapshot(checkpoint);
    if (made->sequence != (newest == NULL ? 1 : newest->sequence + 1)) {
        return SHMQ_EMPTY;
    }
    memcpy(snapshot_at(checkpoint, newest == snapshot_at(checkpoint, 0)), made, sizeof *made);
    return (int64_t)made->sequence;
}

int64_t shmq_ring_snapshot(shmq_ring *ring, uint64_t epoch)
{
    struct snapshot *const made = calloc(1, sizeof *made);
    if (made == NULL) {
        return error_system(-ENOMEM, "asked for memory");
    }
    const int code = shmq_ring_fix(ring, epoch, made);
    const int64_t sequence = code == SHMQ_OK ? shmq_ring_write_fixed(ring->checkpoint, made) : code;
    free(made);
    return sequence;
}

/* ------------------------------------------------------------------ what it leaves open */
static bool snapshot_done(const struct snapshot *snapshot, uint64_t index)
{
    const uint64_t bit = index - snapshot->head;
    return bit < RING_WINDOW && (snapshot->done[bit / 8] >> bit % 8 & 1) != 0;
}

uint64_t shmq_snapshot_open(const void *content, uint64_t *floor, uint64_t *runs)
{
    const struct snapshot *const snapshot = content;
    const uint64_t edge = snapshot->head + RING_WINDOW;
    uint64_t count = 0;
    *floor = snapshot->passed < snapshot->head ? snapshot->head : snapshot->passed < edge ? snapshot->passed : edge;
    for (uint32_t i = 0; i < snapshot->parked && i < SNAPSHOT_OLDER; i++) {
        runs[2 * count] = snapshot->older[i];
        runs[2 * count++ + 1] = snapshot->older[i] + 1;
    }
    for (uint64_t index = snapshot->head; index < *floor; index++) {
        if (snapshot_done(snapshot, index)) {
            continue;
        }
        if (count > 0 && runs[2 * count - 1] == index) {
            runs[2 * count - 1] = index + 1;
        } else {
            runs[2 * count] = index;
            runs[2 * count++ + 1] = index + 1;
        }
    }
    return count;
}

uint64_t shmq_snapshots_floor(const void *checkpoint)
{
    const struct checkpoint *const live = checkpoint;
    uint64_t floor = UINT64_MAX;
    uint32_t valid = 0;
    for (uint32_t which = 0; which < 2; which++) {
        const struct snapshot *const snapshot = snapshot_at((void *)(uintptr_t)checkpoint, which);
        if (snapshot_valid(snapshot)) {
            const uint64_t lowest = snapshot->parked > 0 ? snapshot->older[0] : snapshot->head;
            floor = lowest < floor ? lowest : floor;
            valid++;
        }
    }
    return valid > 0 ? floor : load_relaxed(&live->start_index);
}

/* ------------------------------------------------------------------ and used */
void shmq_ring_forget(void *memory)
{
    struct ring *const page = memory;
    page->term = ring_term(page) % RING_TERM_MAX + 1; /* what was handed out before matches no word any more */
    memset(page->boot_id, 0, sizeof page->boot_id);
}

/* What was parked is parked again, due at once; where the table is full, the head stays: where it is then. */
static uint64_t park_again(shmq_ring *ring, const struct snapshot *snapshot, uint64_t *floor)
{
    uint64_t entry = 0;
    const uint64_t older = snapshot->parked;
    *floor = older > 0 ? snapshot->older[0] : snapshot->passed;
    for (uint64_t i = 0; i < older; i++) {
        side_put_back(ring, &entry, snapshot->older[i], keyed_bounded(ring, snapshot->buckets[i]));
    }
    for (uint64_t index = snapshot->head; index < snapshot->passed; index++) {
        if (!snapshot_done(snapshot, index)) {
            *floor = index < *floor ? index : *floor;
            if (!side_put_back(ring, &entry, index, 0)) {
                return index;
            }
        }
    }
    return snapshot->passed > snapshot->head ? snapshot->passed : snapshot->head;
}

int shmq_ring_rebuild(void *memory, uint64_t bytes, void *checkpoint, const uint8_t boot_id[16], uint64_t first)
{
    struct ring *const page = memory;
    const uint64_t term = ring_term(page) == 0 ? 1 : ring_term(page);
    uint8_t queue_id[16];
    memcpy(queue_id, page->queue_id, sizeof queue_id);
    struct extent extent;
    const int code = ring_extent(page, bytes, queue_id, &extent);
    if (code != SHMQ_OK) {
        return code;
    }
    struct checkpoint *const live = checkpoint;
    const struct snapshot *snapshot = newest_snapshot(checkpoint);
    if (first > live->start_index && (snapshot == NULL || snapshot->passed < first)) {
        snapshot = NULL; /* nothing is there that it could speak of */
    }
    shmq_ring ring
        = {.window = extent.window, .bucket_count = extent.buckets, .cells = extent.cells, .term = term, .checkpoint = checkpoint};
    while (UINT32_C(1) << ring.window_shift < ring.window) {
        ring.window_shift++;
    }
    /* As far as its header says. Behind that nothing was ever written, however far the file was grown. */
    const uint64_t used = shmq_ring_bytes(extent.window, extent.buckets, extent.cells, extent.blocks);
    const uint64_t header = ring_header_bytes(extent.cells);
    memset((uint8_t *)memory + header, 0, used - header);
    ring_set_memory(&ring, memory, extent.blocks);
    uint64_t floor = live->start_index > first ? live->start_index : first;
    const uint64_t head = snapshot == NULL ? floor : park_again(&ring, snapshot, &floor);
    store_relaxed(&live->head, head);
    store_relaxed(&live->handed, head);
    store_relaxed(&live->floor, floor);
    for (uint64_t index = head; snapshot != NULL && index < head + ring.window; index++) {
        if (snapshot_done(snapshot, index)) {
            store_relaxed(ring_word(&ring, index), ring_stamp(&ring, index) | RING_DONE);
        }
    }
    store_relaxed(&page->term, term);
    /* What says that it is a ring stays all the time: killed in here, the next one begins again. */
    memset((uint8_t *)memory + offsetof(struct ring, returns), 0,
           offsetof(struct ring, side_blocks) - offsetof(struct ring, returns));
    memset((uint8_t *)memory + offsetof(struct ring, side_version), 0,
           header - offsetof(struct ring, side_version));
    page->unsure_to = UINT64_MAX; /* what was put elsewhere by then, no bit says any more */
    memcpy(page->boot_id, boot_id, sizeof page->boot_id); /* last */
    return SHMQ_OK;
}
