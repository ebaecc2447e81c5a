/* ring.c - a group's window: one word a message; a claim is one CAS on it, an acknowledgement one CAS from exactly the
 * word that was handed out, and the head moves over finished words.
 *
 * Every member walks the chunks for itself; the ring only says which messages are taken. What came back lies behind the
 * walkers: whoever puts it back bumps `returns` afterwards, and whoever finds another number there than it has seen
 * looks through the window. Words of regions that are padding are marked DONE by whoever walks over them. A dead
 * member's messages are found through `tenants`, which it entered before it claimed anything. */
#include "group/ring.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "chunk/record.h"
#include "chunk/settle.h"
#include "chunk/timed.h"
#include "crc.h"
#include "error.h"
#include "os/os.h"
#include "os/owner.h"

#define REAP_EVERY_NS INT64_C(2000000)
#define LEASE_UNIT (INT64_C(1) << LEASE_UNIT_SHIFT)
#define STRAGGLERS 64u     /* words at the head of a window that holds little else, ... */
#define HELD_AT_ONCE 1024u /* ... and at a head that has not moved for ... */
#define STUCK_NS INT64_C(2000000)
#define INDEX_LIMIT (UINT64_C(1) << 62) /* no message has such an index: whatever says so is nonsense */

int64_t ring_now(void) { return os->clock_boottime_ns(); }
int64_t shmq_clock_boottime_ns(void) { return os->clock_boottime_ns(); }

/* ------------------------------------------------------------------ the file */
static uint64_t cells_bytes(uint32_t window, uint32_t cells)
{
    const uint64_t leases = (cells & RING_LEASES) != 0 ? 1 : 0;
    const uint64_t attempts = (cells & RING_ATTEMPTS) != 0 ? 1 : 0;
    return (1 + leases + attempts) * window * sizeof(uint64_t);
}
uint64_t shmq_ring_bytes(uint32_t window, uint32_t buckets, uint32_t cells, uint64_t side_blocks)
{
    return RING_HEADER_BYTES + cells_bytes(window, cells) + keyed_bytes(window, buckets) + side_blocks * SIDE_BLOCK_BYTES;
}
static bool is_count(uint32_t count, uint32_t least, uint32_t most)
{
    return count >= least && count <= most && (count & (count - 1)) == 0;
}

int shmq_ring_format(void *memory, const uint8_t queue_id[16], const uint8_t boot_id[16], uint32_t window,
                     uint32_t buckets, uint32_t cells, uint64_t side_blocks)
{
    if (!is_count(window, RING_WINDOW_MIN, RING_WINDOW)) {
        return error_set(SHMQ_TOO_LARGE, "a window is a power of two from %u to %u", RING_WINDOW_MIN, RING_WINDOW);
    }
    if (buckets != 0 && !is_count(buckets, 64, RING_BUCKETS)) {
        return error_set(SHMQ_TOO_LARGE, "buckets are a power of two from 64 to %u", RING_BUCKETS);
    }
    struct ring *const page = memory;
    memset(page, 0, sizeof *page);
    page->magic = RING_MAGIC;
    page->byte_order = BYTE_ORDER_MARK;
    page->version = FORMAT_VERSION;
    memcpy(page->queue_id, queue_id, sizeof page->queue_id);
    memcpy(page->boot_id, boot_id, sizeof page->boot_id);
    page->window = window;
    page->buckets = buckets;
    page->cells = cells;
    page->side_blocks = side_blocks;
    page->term = 1;
    return SHMQ_OK;
}

/* What a ring says of its size, read once. */
struct extent {
    uint32_t window;
    uint32_t buckets;
    uint32_t cells;
    uint64_t blocks;
};

/* Is it a ring of this queue, and as large as it says? */
static int check(const struct ring *page, uint64_t bytes, const uint8_t queue_id[16], struct extent *extent)
{
    if (bytes < RING_HEADER_BYTES) {
        return error_set(SHMQ_CORRUPT, "it has only %" PRIu64 " bytes", bytes);
    }
    if (page->magic != RING_MAGIC || page->byte_order != BYTE_ORDER_MARK) {
        return error_set(SHMQ_FOREIGN, "it does not begin as a ring of a shmq queue does");
    }
    if (page->version != FORMAT_VERSION) {
        return error_set(SHMQ_FORMAT, "it has format version %" PRIu32 "; this library knows version %u",
                         page->version, FORMAT_VERSION);
    }
    if (memcmp(page->queue_id, queue_id, sizeof page->queue_id) != 0) {
        return error_set(SHMQ_CORRUPT, "it belongs to another queue");
    }
    const uint32_t window = load_relaxed(&page->window);
    const uint64_t blocks = load_acquire(&page->side_blocks); /* pairs with the release in shmq_ring_extend */
    const uint32_t buckets = load_relaxed(&page->buckets);
    const uint32_t cells = load_relaxed(&page->cells);
    *extent = (struct extent){window, buckets, cells, blocks};
    if (!is_count(window, RING_WINDOW_MIN, RING_WINDOW) || (buckets != 0 && !is_count(buckets, 64, RING_BUCKETS))
        || cells > (RING_LEASES | RING_ATTEMPTS) || blocks == 0 || blocks > SIDE_BLOCKS_MAX
        || bytes < shmq_ring_bytes(window, buckets, cells, blocks)) {
        return error_set(SHMQ_CORRUPT, "its window of %" PRIu32 ", %" PRIu32 " buckets and %" PRIu64
                         " side blocks do not fit its %" PRIu64 " bytes", window, buckets, blocks, bytes);
    }
    return SHMQ_OK;
}
static uint64_t term_of(const struct ring *page)
{
    const uint64_t term = load_relaxed(&page->term);
    return term <= RING_TERM_MAX ? term : 0;
}
int shmq_ring_check(const void *memory, uint64_t bytes, const uint8_t queue_id[16], uint8_t boot_id[16])
{
    struct extent extent;
    const int code = check(memory, bytes, queue_id, &extent);
    if (code == SHMQ_OK) {
        memcpy(boot_id, ((const struct ring *)memory)->boot_id, 16);
        if (term_of(memory) == 0) {
            memset(boot_id, 0, 16);
        }
    }
    return code;
}
int shmq_ring_bury(void *memory, uint64_t bytes, const uint8_t queue_id[16], uint32_t slot)
{
    struct ring *const page = memory;
    if (bytes < RING_HEADER_BYTES || slot >= OWNER_SLOTS || page->magic != RING_MAGIC
        || memcmp(page->queue_id, queue_id, sizeof page->queue_id) != 0) {
        return error_set(SHMQ_FORMAT, "it does not begin as a ring of this queue does");
    }
    uint64_t tenant = load_relaxed(&page->tenants[slot]);
    while (tenant != 0 && !cas_release(&page->tenants[slot], tenant, tenant | RING_TENANT_DEAD)) {
        tenant = load_relaxed(&page->tenants[slot]);
    }
    return SHMQ_OK;
}

static void set_memory(shmq_ring *ring, void *memory, uint64_t blocks)
{
    ring->page = memory;
    ring->words = (uint64_t *)(void *)((uint8_t *)memory + RING_HEADER_BYTES);
    uint64_t *next = ring->words + ring->window;
    ring->leases = (ring->cells & RING_LEASES) != 0 ? next : NULL;
    next += ring->leases != NULL ? ring->window : 0;
    ring->attempts = (ring->cells & RING_ATTEMPTS) != 0 ? next : NULL;
    next += ring->attempts != NULL ? ring->window : 0;
    ring->keys = next;
    ring->buckets = (struct ring_bucket *)(void *)(ring->keys + ring->window);
    ring->ready = (uint64_t *)(void *)(ring->buckets + ring->bucket_count);
    ring->side = (uint8_t *)next + keyed_bytes(ring->window, ring->bucket_count);
    ring->blocks = blocks;
}

shmq_ring *shmq_ring_new(void *memory, uint64_t bytes, const uint8_t queue_id[16], void *checkpoint,
                         shmq_member *member, int64_t lease_ns, bool finish, bool keep_expired, int *code)
{
    struct extent extent;
    *code = check(memory, bytes, queue_id, &extent);
    if (*code != SHMQ_OK) {
        return NULL;
    }
    if (lease_ns != 0 && (extent.cells & RING_LEASES) == 0) {
        *code = error_set(SHMQ_CORRUPT, "it has no leases, and its group has");
        return NULL;
    }
    shmq_ring *const ring = calloc(1, sizeof *ring);
    if (ring == NULL) {
        *code = error_system(-ENOMEM, "asked for memory");
        return NULL;
    }
    ring->window = extent.window;
    ring->bucket_count = extent.buckets;
    ring->cells = extent.cells;
    while (UINT32_C(1) << ring->window_shift < ring->window) {
        ring->window_shift++;
    }
    set_memory(ring, memory, extent.blocks);
    ring->term = term_of(ring->page);
    ring->slots = OWNER_SLOTS;
    ring->checkpoint = checkpoint;
    ring->member = member;
    ring->lease_ns = lease_ns;
    ring->finish = finish;
    ring->keep_expired = keep_expired;
    ring->returns_seen = UINT64_MAX;
    ring->side_seen = UINT64_MAX;
    if (!side_remember(ring)) {
        *code = error_system(-ENOMEM, "asked for memory");
        shmq_ring_free(ring);
        return NULL;
    }
    return ring;
}
void shmq_ring_free(shmq_ring *ring)
{
    if (ring != NULL) {
        free(ring->looked);
        free(ring);
    }
}

int shmq_ring_remap(shmq_ring *ring, void *memory, uint64_t bytes)
{
    const uint64_t blocks = load_acquire(&((struct ring *)memory)->side_blocks);
    if (blocks == 0 || blocks > SIDE_BLOCKS_MAX || bytes < shmq_ring_bytes(ring->window, ring->bucket_count, ring->cells, blocks)) {
        return error_set(SHMQ_CORRUPT, "its %" PRIu64 " side blocks do not fit its %" PRIu64 " bytes", blocks, bytes);
    }
    set_memory(ring, memory, blocks);
    ring->side_seen = UINT64_MAX;
    return side_remember(ring) ? SHMQ_OK : error_system(-ENOMEM, "asked for memory");
}
void shmq_ring_extend(shmq_ring *ring, uint64_t blocks)
{
    if (blocks > load_relaxed(&ring->page->side_blocks)) {
        store_release(&ring->page->side_blocks, blocks); /* the file has them already */
    }
}
uint32_t shmq_ring_buckets(const shmq_ring *ring) { return ring->bucket_count; }
uint32_t shmq_ring_cells(const shmq_ring *ring) { return ring->cells; }
uint64_t shmq_ring_side_blocks(const shmq_ring *ring) { return load_relaxed(&ring->page->side_blocks); }

/* ------------------------------------------------------------------ leases and attempts */
static uint64_t lease_tag(uint64_t word) { return word >> RING_COUNT_SHIFT & ((UINT64_C(1) << LEASE_TAG_BITS) - 1); }
static uint64_t lease_units(int64_t ends_ns)
{
    const uint64_t most = (UINT64_C(1) << (64 - LEASE_TAG_BITS)) - 1; /* eighteen years after the boot: for ever */
    const uint64_t units = ((uint64_t)ends_ns >> LEASE_UNIT_SHIFT) + 1;
    return units < most ? units : most;
}
/* Is it the lease of that word, or of the one that its owner is about to make of it by extending? */
static bool lease_is_of(uint64_t lease, uint64_t word)
{
    const uint64_t tag = lease & ((UINT64_C(1) << LEASE_TAG_BITS) - 1);
    return tag == lease_tag(word) || tag == lease_tag(ring_low(ring_owner(word), ring_count(word) + 1, 0));
}

void lease_store(const shmq_ring *ring, uint64_t *cell, uint64_t word, int64_t ends_ns)
{
    (void)ring;
    store_release(cell, lease_units(ends_ns) << LEASE_TAG_BITS | lease_tag(word));
}

bool lease_ended(const shmq_ring *ring, uint64_t *cell, uint64_t word, int64_t now_ns, int64_t *next_ns)
{
    const uint64_t lease = load_acquire(cell);
    if (!lease_is_of(lease, word)) {
        /* Its owner, or somebody who lost against the owner, stopped between two steps: it begins now. */
        *next_ns = now_ns + ring->lease_ns;
        cas_release(cell, lease, lease_units(*next_ns) << LEASE_TAG_BITS | lease_tag(word));
        return false;
    }
    *next_ns = (int64_t)(lease >> LEASE_TAG_BITS) * LEASE_UNIT;
    return *next_ns <= now_ns;
}

uint32_t ring_attempts(const shmq_ring *ring, uint64_t index)
{
    if (ring->attempts == NULL) {
        return 0; /* each is finished when it is handed out */
    }
    const uint64_t cell = load_relaxed(&ring->attempts[ring_slot(ring, index)]);
    const bool mine = cell >> ATTEMPTS_BITS == ring_cell(ring, index);
    return mine ? (uint32_t)(cell & ((1u << ATTEMPTS_BITS) - 1)) : 0;
}
static void attempts_store(const shmq_ring *ring, uint64_t index, uint32_t attempts)
{
    if (ring->attempts != NULL) {
        store_relaxed(&ring->attempts[ring_slot(ring, index)], ring_cell(ring, index) << ATTEMPTS_BITS | attempts);
    }
}
static uint32_t attempts_add(const shmq_ring *ring, uint64_t index)
{
    const uint32_t attempts = (ring_attempts(ring, index) + 1) & ((1u << ATTEMPTS_BITS) - 1);
    attempts_store(ring, index, attempts);
    return attempts;
}

/* ------------------------------------------------------------------ the head */
static uint64_t head_of(const shmq_ring *ring)
{
    const uint64_t head = load_acquire(&ring->checkpoint->head);
    return head < INDEX_LIMIT ? head : INDEX_LIMIT;
}

static bool passes(shmq_ring *ring, uint64_t index)
{
    const uint64_t word = ring_look(ring, index);
    const uint32_t state = ring_state(ring, index, word);
    return state == RING_DONE || (state == RING_PARKED && side_passes(ring, index, word))
           || (ring_is_dropped(ring, index) && ring_drop(ring, index));
}

static void head_moved(shmq_ring *ring)
{
    if (load_relaxed(&ring->page->edge) != 0 && exchange_relaxed(&ring->page->edge, 0) != 0) {
        shmq_wake_always(ring->member->control);
    }
    ring_room(ring);
}

/* Whoever waits at the edge looks again when so many of the window are finished that what holds it up may be parked. */
static void nearer(shmq_ring *ring, uint64_t count)
{
    uint64_t wanted = load_relaxed(&ring->page->edge);
    while (wanted != 0 && !cas_relaxed(&ring->page->edge, wanted, wanted > count ? wanted - count : 0)) {
        wanted = load_relaxed(&ring->page->edge);
    }
    if (wanted != 0 && wanted <= count) {
        shmq_wake_always(ring->member->control);
    }
}

/* A mark far ahead (a purge's, or a damaged one) is come to in pieces, between which signals are heard: whoever takes or
 * finishes the next message goes on. */
#define PIECE_WINDOWS 1024u

void ring_advance(shmq_ring *ring)
{
    for (uint32_t piece = 0; piece < PIECE_WINDOWS; piece++) {
        /* Whoever finishes a word looks at the head behind it, and whoever moves the head looks at the next word: the
         * fence lets at least one of two such see the other's step. */
        fence_seq_cst();
        const uint64_t head = head_of(ring);
        uint64_t next = head;
        while (next - head < ring->window && passes(ring, next)) {
            next++;
        }
        if (next == head || head >= INDEX_LIMIT) {
            return;
        }
        if (cas_release(&ring->checkpoint->head, head, next)) {
            head_moved(ring);
        }
    }
}
void shmq_ring_advance(shmq_ring *ring) { ring_advance(ring); }

void ring_settled(shmq_ring *ring, uint64_t count)
{
    ring_advance(ring); /* begins with a fence: whoever is about to wait sees what was finished, or we see that it waits */
    nearer(ring, count);
}

static void raise_to(shmq_ring *ring, uint64_t index)
{
    uint64_t head = load_relaxed(&ring->checkpoint->head);
    while (head < index && !cas_release(&ring->checkpoint->head, head, index)) {
        head = load_relaxed(&ring->checkpoint->head);
    }
}

/* The words of the window from `index` on that a message 2^22 laps before has left would be taken for theirs. */
static void forget_laps(shmq_ring *ring, uint64_t index)
{
    for (uint64_t i = 0; i < ring->window; i++) {
        const uint64_t stamp = ring_stamp(ring, index + i);
        uint64_t word = ring_look(ring, index + i);
        while (word >> RING_LAP_SHIFT == stamp >> RING_LAP_SHIFT
               && !cas_release(ring_word(ring, index + i), word, ring_stamp(ring, index + i - ring->window) | RING_DONE)) {
            word = ring_look(ring, index + i);
        }
    }
}

void shmq_ring_raise_head(shmq_ring *ring, uint64_t index)
{
    const uint64_t head = head_of(ring);
    if (head < index && index - head >= ring->window) {
        /* Nobody may take one of those it passes for one that nobody has, while their words are rewritten; nor can it go on
         * by itself from there as far as `index`. Killed in here, the next one comes here again. */
        raise_to(ring, index - head > 2 * (uint64_t)ring->window ? index - 2 * (uint64_t)ring->window : head);
        forget_laps(ring, index);
    }
    raise_to(ring, index);
    head_moved(ring);
    ring_advance(ring); /* what follows may be finished already, by somebody who saw the old head */
}

void ring_returned(shmq_ring *ring)
{
    add_release(&ring->page->returns, 1); /* pairs with the acquire in retake */
    shmq_wake(ring->member);
    ring_room(ring); /* what nobody has may be dropped */
}

/* ------------------------------------------------------------------ handing out */
bool ring_claim(shmq_ring *ring, uint64_t index, uint64_t word, uint32_t kind, bool finishes, shmq_taken *taken)
{
    const uint64_t stamp = ring_stamp(ring, index);
    const uint64_t count = word >> RING_LAP_SHIFT == stamp >> RING_LAP_SHIFT ? ring_count(word) + 1 : 1;
    const bool finish = finishes && kind == SHMQ_TAKEN_MESSAGE;
    const uint32_t state = finish ? RING_DONE : kind == SHMQ_TAKEN_MOVING ? RING_MOVING : RING_CLAIMED;
    const uint64_t claimed = stamp | ring_low(ring->member->owner, count, state);
    if (ring->lease_ns != 0 && !finish) {
        lease_store(ring, &ring->leases[ring_slot(ring, index)], claimed, ring_now() + ring->lease_ns);
    }
    if (!cas_release(ring_word(ring, index), word, claimed)) {
        return false;
    }
    *taken = (shmq_taken){.index = index,
                          .word = claimed,
                          .kind = kind,
                          .attempts = finish                       ? ring_attempts(ring, index) + 1
                                      : kind == SHMQ_TAKEN_MOVING ? ring_attempts(ring, index)
                                                                  : attempts_add(ring, index)};
    return true;
}

/* A checked message that has a time: OK to hand it out as *kind from *due_ns on, or EMPTY when it was finished. */
static int timed(shmq_ring *ring, const shmq_chunk *chunk, uint64_t record, uint64_t index, uint64_t word,
                 uint16_t flags, uint32_t *kind, int64_t *due_ns)
{
    uint64_t at = record + RECORD_HEADER_BYTES;
    if (flags & RECORD_EXPIRY) {
        if (record_moment(chunk, at) <= ring_now()) {
            if (ring->keep_expired) {
                *kind = SHMQ_TAKEN_EXPIRED;
                return SHMQ_OK;
            }
            if (cas_release(ring_word(ring, index), word, ring_stamp(ring, index) | RING_DONE)) {
                add_relaxed(&ring->page->expired, 1);
                ring_settled(ring, 1);
            }
            return SHMQ_EMPTY;
        }
        at += sizeof(struct field_when);
    }
    *due_ns = flags & RECORD_DELAY ? record_moment(chunk, at) : 0;
    return SHMQ_OK;
}

int shmq_ring_park(shmq_ring *ring, uint64_t index, uint64_t word, int64_t due_ns, uint64_t behind, uint32_t attempts,
                   uint64_t bucket)
{
    const uint64_t then = side_then(ring, 0, ring_count(word), attempts, SIDE_LIVE);
    const int64_t entry = side_prepare(ring, index, then, due_ns, behind, bucket);
    if (entry < 0) {
        return (int)entry;
    }
    const uint64_t parked = ring_stamp(ring, index) | (uint64_t)entry << RING_COUNT_SHIFT | RING_PARKED;
    if (!cas_release(ring_word(ring, index), word, parked)) {
        side_release(ring, (uint64_t)entry);
        return SHMQ_LOST;
    }
    side_settle(ring, (uint64_t)entry);
    ring_settled(ring, 1);
    return SHMQ_EMPTY;
}

/* A message in the window: 1 when it was taken (without `taken`: can be), 0 when not, or why the walk must stop. */
static int64_t take_one(shmq_ring *ring, shmq_chunk *chunk, const struct walk *walk, word_t word, shmq_taken *taken)
{
    const uint64_t index = chunk->base + walk->ordinal;
    const uint64_t now = ring_look(ring, index);
    if (ring_state(ring, index, now) != RING_PENDING) {
        return 0;
    }
    if (ring_is_dropped(ring, index)) { /* it lay behind the window then; what is damaged there is nobody's concern */
        ring_settled(ring, ring_drop(ring, index));
        ring_finished(ring);
        return 0;
    }
    const int64_t place = check_record(chunk, walk->position, walk->ordinal, word);
    if (place < 0) {
        return place;
    }
    const uint16_t times = record_times(chunk, walk->position);
    uint32_t kind = SHMQ_TAKEN_MESSAGE;
    int64_t due_ns = 0;
    if (times != 0 && timed(ring, chunk, walk->position, index, now, times, &kind, &due_ns) != SHMQ_OK) {
        return 0;
    }
    shmq_taken order = {.bucket = ring->bucket_count == 0 ? 0 : keyed_bucket(ring, chunk, walk->position)};
    int code = SHMQ_OK;
    if (taken == NULL && due_ns <= ring_now() && (order.bucket == 0 || keyed_idle(ring, order.bucket))) {
        return 1; /* a glance: it is to be had */
    }
    if (order.bucket != 0) {
        code = keyed_enter(ring, index, now, due_ns, (times & RECORD_DELAY) != 0, &order);
    } else if (due_ns > ring_now()) {
        code = shmq_ring_park(ring, index, now, due_ns, 0, 0, 0);
    }
    if (code != SHMQ_OK) {
        return code == SHMQ_GROW ? code : 0;
    }
    if (taken == NULL || !ring_claim(ring, index, now, kind, ring->finish, taken)) {
        keyed_ready(ring, order.bucket); /* the gate is BUSY, and nothing may be there */
        return 0;
    }
    taken->bucket = order.bucket;
    taken->gate = order.gate;
    taken->place = (uint64_t)place;
    taken->record = walk->position;
    return 1;
}

/* Words of ordinals that never become messages are finished. */
static void finish_padding(shmq_ring *ring, uint64_t index, uint64_t count)
{
    for (; count > 0; index++, count--) {
        const uint64_t word = ring_look(ring, index);
        if (index >= head_of(ring) && ring_state(ring, index, word) == RING_PENDING) {
            cas_release(ring_word(ring, index), word, ring_stamp(ring, index) | RING_DONE);
        }
    }
}

/* ------------------------------------------------------------------ the window's edge */
/* How many before `end` are not finished. What comes there is not in flight, nor ever may be: padding, or a gap. */
static uint64_t in_flight(const shmq_ring *ring, uint64_t head, uint64_t end)
{
    uint64_t count = 0;
    for (uint64_t index = head; index < end && index < head + ring->window; index++) {
        const uint32_t state = ring_state(ring, index, ring_look(ring, index));
        count += state != RING_DONE && state != RING_PARKED;
    }
    return count;
}

bool ring_stuck(shmq_ring *ring, uint64_t head)
{
    const int64_t now_ns = ring_now();
    if (ring->stuck_head != head || ring->stuck_ns == 0) {
        ring->stuck_head = head;
        ring->stuck_ns = now_ns;
    }
    if (now_ns - ring->stuck_ns >= STUCK_NS) {
        return true;
    }
    ring->park_ns = ring->stuck_ns + STUCK_NS; /* messages may be being finished: then it moves by itself */
    return false;
}

/* Park what somebody has, or moves to another queue, on its holder's behalf: 1, 0 when there is nothing to park, or GROW. */
static int64_t park_for_holder(shmq_ring *ring, uint64_t index)
{
    const uint64_t word = ring_look(ring, index);
    const uint32_t state = ring_state(ring, index, word);
    if (state != RING_CLAIMED && (state != RING_MOVING || ring_owner(word) == 0)) {
        return 0;
    }
    const uint64_t then = side_then(ring, ring_owner(word), ring_count(word), ring_attempts(ring, index),
                                    state == RING_CLAIMED ? SIDE_CLAIMED : SIDE_MOVING);
    const int64_t entry = side_prepare(ring, index, then, 0, 0, keyed_at(ring, index));
    if (entry < 0) {
        return entry;
    }
    if (ring->leases != NULL) { /* it goes with it */
        store_relaxed(&side_at(ring, (uint64_t)entry)->lease, load_relaxed(&ring->leases[ring_slot(ring, index)]));
    }
    const uint64_t parked = ring_stamp(ring, index) | (uint64_t)entry << RING_COUNT_SHIFT | RING_PARKED;
    if (!cas_release(ring_word(ring, index), word, parked)) {
        side_release(ring, (uint64_t)entry);
        return 0;
    }
    side_settle(ring, (uint64_t)entry);
    return 1;
}
static int park_for_holders(shmq_ring *ring, uint64_t head, uint64_t most)
{
    uint64_t parked = 0;
    int64_t answer = 0;
    for (uint64_t index = head; index < head + most && index < head + ring->window && answer >= 0; index++) {
        answer = park_for_holder(ring, index);
        parked += answer > 0;
    }
    ring_settled(ring, parked);
    return answer < 0 ? (int)answer : SHMQ_OK;
}

/* Wait for no more than `wanted` messages to be finished. */
static void want(shmq_ring *ring, uint64_t wanted)
{
    uint64_t old = load_relaxed(&ring->page->edge);
    while ((old == 0 || old > wanted) && !cas_relaxed(&ring->page->edge, old, wanted)) {
        old = load_relaxed(&ring->page->edge);
    }
    ring_advance(ring); /* begins with a fence: whoever finishes one sees what is wanted, or we see it finished */
}

static bool reaches(const shmq_ring *ring, uint64_t end) { return end <= head_of(ring) + ring->window; }

/* The window does not reach from `index` to `end`: messages that are held for long hold its head back. They are parked on
 * their holders' behalf where nearly all behind them, up to `index`, are finished; and where the head has not moved for some
 * time, however many they are, but not for a member that holds as many itself: finishing them is its own business. OK, also
 * when the window still does not reach; then whoever finishes enough wakes us, or the clock does. Or GROW. */
static int at_edge(shmq_ring *ring, uint64_t index, uint64_t end)
{
    const uint64_t share = ring->window / 4;
    uint64_t wanted = 0;
    for (uint64_t told = 0; !reaches(ring, end); told = wanted) {
        const uint64_t head = head_of(ring);
        const uint64_t open = in_flight(ring, head, index);
        if (open <= share || (ring->holds <= share && ring_stuck(ring, head))) {
            const int code = park_for_holders(ring, head, open <= share ? STRAGGLERS : HELD_AT_ONCE);
            if (code != SHMQ_OK) {
                return code;
            }
            ring->park_ns = ring_now() + STUCK_NS; /* what changed meanwhile is not parked yet */
            wanted = 1;
        } else {
            const uint64_t more = ring->holds > share && ring->holds < open ? ring->holds : open;
            wanted = more - share;
        }
        if (wanted == told) {
            break;
        }
        want(ring, wanted);
    }
    return SHMQ_OK;
}

/* Is there room in the window for `count` indexes from `index` on? OK, EDGE or GROW. */
static int room(shmq_ring *ring, uint64_t index, uint64_t count)
{
    if (reaches(ring, index + count)) {
        return SHMQ_OK;
    }
    ring_advance(ring);
    if (!reaches(ring, index + count)) {
        int code = keyed_park(ring);
        code = code == SHMQ_OK ? at_edge(ring, index, index + count) : code;
        if (code != SHMQ_OK) {
            return code;
        }
    }
    if (reaches(ring, index + count)) {
        return SHMQ_OK;
    }
    add_relaxed(&ring->page->edges, 1);
    return SHMQ_EDGE;
}

/* One step of the walk: how many were taken (0 or 1), or why it stops. */
static int64_t step(shmq_ring *ring, shmq_chunk *chunk, shmq_reader *reader, struct walk *walk, shmq_taken *taken)
{
    const word_t word = walk_look(chunk, walk);
    const uint64_t index = chunk->base + walk->ordinal;
    int64_t count = 0;
    int code;
    switch (word_state(word)) {
    case WORD_FREE:
        if (word == 0) {
            return nothing_there(chunk, walk); /* OK: something is there by now, look again */
        }
        break; /* walk_past tells what is wrong with it */
    case WORD_SEAL:
        if (word_seals(word)) {
            return SHMQ_ROLL;
        }
        break;
    case WORD_CLAIMED:
        reader->waiting_for = word_owner(word);
        return settle(chunk, walk->position, word); /* OK: it is padding now, look again */
    case WORD_DONE:
    case WORD_PAD:
        if (index + word_count(word) <= head_of(ring)) {
            break;
        }
        code = room(ring, index, word_count(word));
        if (code != SHMQ_OK) {
            return code;
        }
        if (word_state(word) == WORD_PAD) {
            finish_padding(ring, index, word_count(word));
            ring_settled(ring, word_count(word));
            break;
        }
        count = take_one(ring, chunk, walk, word, taken);
        if (count < 0 || (count > 0 && taken == NULL)) {
            return count; /* a glance stays before it */
        }
        break;
    default:
        break;
    }
    code = walk_past(chunk, walk, word);
    return code == SHMQ_OK ? count : code;
}

/* Behind the end of a sealed chunk that is followed by one of a new epoch, indexes are missing. */
int shmq_ring_skip(shmq_ring *ring, uint64_t index, uint64_t next)
{
    ring_advance(ring);
    if (next <= head_of(ring)) {
        return SHMQ_OK;
    }
    if (!reaches(ring, next)) { /* once everything before it is finished, the head goes over it in one step */
        int code = keyed_park(ring);
        code = code == SHMQ_OK ? at_edge(ring, index, index + ring->window) : code;
        if (code != SHMQ_OK) {
            return code;
        }
        if (head_of(ring) < index) {
            return SHMQ_EDGE;
        }
        shmq_ring_raise_head(ring, next);
        return SHMQ_OK;
    }
    finish_padding(ring, index, next - index);
    ring_settled(ring, next - index);
    return SHMQ_OK;
}

int shmq_ring_skip_one(shmq_ring *ring, uint64_t index)
{
    for (;;) {
        ring_advance(ring);
        const uint64_t head = head_of(ring);
        if (index < head) {
            const int64_t entry = side_find(ring, index);
            return entry >= 0 && side_unfinished(ring, index, (uint64_t)entry) ? SHMQ_LOST : SHMQ_EMPTY;
        }
        if (index >= head + ring->window) {
            return SHMQ_EDGE;
        }
        const uint64_t word = ring_look(ring, index);
        if (ring_is_done(ring, index)) {
            return SHMQ_EMPTY;
        }
        if (ring_state(ring, index, word) != RING_PENDING) {
            return SHMQ_LOST;
        }
        if (cas_release(ring_word(ring, index), word, ring_stamp(ring, index) | RING_DONE)) {
            ring_advance(ring);
            ring_room(ring);
            ring_finished(ring);
            return SHMQ_OK;
        }
    }
}

static bool spin(uint32_t *spins)
{
    if (*spins == 0) {
        return false;
    }
    *spins -= 1;
    spin_pause();
    if (*spins % 64 == 0) {
        os->yield();
    }
    return true;
}

int64_t shmq_ring_take(shmq_ring *ring, shmq_chunk *chunk, shmq_reader *reader, uint32_t limit, uint32_t spins,
                       shmq_taken *taken)
{
    if (member_forked(ring->member)) {
        return error_forked();
    }
    struct walk walk = {reader->position, reader->ordinal};
    int64_t count = 0;
    int64_t answer = 0;
    ring->park_ns = 0;
    if (load_relaxed(&ring->member->control->shut_down) == SHUT_DOWN_AT_ONCE) {
        return SHMQ_EMPTY;
    }
    while (count < limit) {
        answer = step(ring, chunk, reader, &walk, &taken[count]);
        if (answer > 0) {
            count += answer;
        } else if (answer == SHMQ_EMPTY && count == 0 && spin(&spins)) {
            continue;
        } else if (answer < 0) {
            break;
        }
    }
    reader->position = walk.position;
    reader->ordinal = walk.ordinal;
    ring->cursor = chunk->base + walk.ordinal;
    keyed_wake(ring);
    if (count > 0) {
        if (load_relaxed(&ring->checkpoint->handed) < ring->cursor) {
            store_relaxed(&ring->checkpoint->handed, ring->cursor); /* for people: about how far the group has come */
        }
        if (ring->finish) {
            ring_settled(ring, (uint64_t)count);
            ring_finished(ring);
        }
    }
    ring->holds += ring->finish || taken == NULL ? 0 : (uint64_t)count; /* at most: shmq_ring_holds says how many it is */
    return count > 0 ? count : answer;
}

int64_t shmq_ring_glance(shmq_ring *ring, shmq_chunk *chunk, shmq_reader *reader)
{
    if (member_forked(ring->member)) {
        return error_forked();
    }
    struct walk walk = {reader->position, reader->ordinal};
    int64_t answer;
    do {
        answer = step(ring, chunk, reader, &walk, NULL);
    } while (answer == 0);
    reader->position = walk.position;
    reader->ordinal = walk.ordinal;
    ring->cursor = chunk->base + walk.ordinal;
    keyed_wake(ring);
    return answer;
}

/* ------------------------------------------------------------------ what came back */
static int64_t retake_ring(shmq_ring *ring, uint32_t limit, shmq_taken *taken)
{
    const uint64_t returns = load_acquire(&ring->page->returns); /* pairs with the release in ring_returned */
    if (returns != ring->returns_seen) {
        ring->returns_seen = returns;
        ring->retry_next = 0;
    }
    if (ring->retry_next == UINT64_MAX) {
        return 0;
    }
    const uint64_t head = head_of(ring);
    uint64_t index = ring->retry_next > head ? ring->retry_next : head;
    int64_t count = 0;
    uint64_t dropped = 0;
    for (; index < head + ring->window && count < limit; index++) {
        const uint64_t word = ring_look(ring, index);
        const uint32_t state = ring_state(ring, index, word);
        if (state != RING_RETRY && (state != RING_MOVING || ring_owner(word) != 0)) {
            continue;
        }
        if (ring_is_dropped(ring, index)) {
            dropped += ring_drop(ring, index);
            continue;
        }
        if (keyed_at(ring, index) != 0) {
            continue; /* keyed_take has it, when nothing before it is left */
        }
        const uint32_t kind = state == RING_RETRY ? SHMQ_TAKEN_MESSAGE : SHMQ_TAKEN_MOVING;
        count += ring_claim(ring, index, word, kind, false, &taken[count]);
    }
    ring->retry_next = index < head + ring->window ? index : UINT64_MAX;
    if (dropped != 0) {
        ring_settled(ring, dropped);
        ring_finished(ring);
    }
    return count;
}

/* Put back one message of the window, if its owner is dead. One that was parked for that owner is settled here, whoever
 * parked it, so that side_reap finds it as the owner's: killed before that, nobody else would ever look for it. */
static void reap_word(shmq_ring *ring, uint64_t index, owner_t owner)
{
    for (;;) {
        const uint64_t word = ring_look(ring, index);
        const uint32_t state = ring_state(ring, index, word);
        if (state == RING_PARKED) {
            side_passes(ring, index, word);
            return;
        }
        if (ring_owner(word) != owner || (state != RING_CLAIMED && state != RING_MOVING)) {
            return;
        }
        const uint32_t next = state == RING_CLAIMED ? RING_RETRY : RING_MOVING;
        if (cas_release(ring_word(ring, index), word,
                        ring_stamp(ring, index) | ring_low(0, ring_count(word), next))) {
            add_relaxed(&ring->page->redelivered, 1);
            return;
        }
    }
}

static owner_t tenant_owner(uint32_t slot, uint64_t tenant)
{
    return owner_make(slot, (uint32_t)tenant & (OWNER_GENERATIONS - 1));
}
/* Dead, because somebody else has sat down in that seat since; or by what the kernel says. */
static bool tenant_dead(const shmq_ring *ring, uint32_t slot, uint64_t tenant)
{
    return tenant >= OWNER_GENERATIONS || !owner_alive(ring->member, tenant_owner(slot, tenant));
}

/* What a dead tenant held goes to the others. False when the side table has grown meanwhile: map it anew, and again. */
static bool reap(shmq_ring *ring, uint32_t slot, uint64_t tenant)
{
    const owner_t owner = tenant_owner(slot, tenant);
    const uint64_t head = head_of(ring);
    for (uint64_t index = head; index < head + ring->window; index++) {
        reap_word(ring, index, owner);
    }
    side_reap(ring, owner);
    keyed_reap(ring);
    ring_advance(ring); /* the owner may have died between finishing a word and moving the head */
    ring_returned(ring);
    if (load_acquire(&ring->page->side_blocks) > ring->blocks) {
        return false;
    }
    /* Last: if this process dies before, the next one does all of it again. */
    cas_release(&ring->page->tenants[slot], tenant, 0);
    return true;
}

static void reap_the_dead(shmq_ring *ring)
{
    for (uint32_t slot = 0; slot < ring->slots; slot++) {
        const uint64_t tenant = load_acquire(&ring->page->tenants[slot]);
        if (tenant != 0 && tenant_dead(ring, slot, tenant)) {
            reap(ring, slot, tenant);
        }
    }
}

int shmq_ring_join(shmq_ring *ring)
{
    const uint32_t slot = owner_slot(ring->member->owner);
    const uint64_t mine = owner_generation(ring->member->owner);
    uint64_t tenant = load_acquire(&ring->page->tenants[slot]);
    while (tenant != mine) {
        if (tenant != 0 && !reap(ring, slot, tenant)) { /* the slot's last tenant: dead by definition */
            return SHMQ_GROW;
        }
        shmq_ring_rest(ring, false); /* what the slot's last tenant said */
        if (tenant == 0 && cas_release(&ring->page->tenants[slot], 0, mine)) {
            break;
        }
        tenant = load_acquire(&ring->page->tenants[slot]);
    }
    reap_the_dead(ring);
    return SHMQ_OK;
}

/* Take back what is held beyond its lease; when to look again is noted. */
static void end_leases(shmq_ring *ring, int64_t now_ns)
{
    const uint64_t head = head_of(ring);
    int64_t next = now_ns + ring->lease_ns;
    bool came_back = false;
    for (uint64_t index = head; index < head + ring->window; index++) {
        const uint64_t word = ring_look(ring, index);
        int64_t ends = INT64_MAX;
        if (ring_state(ring, index, word) != RING_CLAIMED) {
            continue;
        }
        if (!lease_ended(ring, &ring->leases[ring_slot(ring, index)], word, now_ns, &ends)) {
            next = ends < next ? ends : next;
        } else if (cas_release(ring_word(ring, index), word,
                               ring_stamp(ring, index) | ring_low(0, ring_count(word), RING_RETRY))) {
            add_relaxed(&ring->page->redelivered, 1);
            keyed_ready(ring, keyed_at(ring, index));
            came_back = true;
        }
    }
    ring->leases_ns = next;
    if (came_back) {
        ring_returned(ring);
    }
}

int64_t shmq_ring_retake(shmq_ring *ring, bool idle, uint32_t limit, shmq_taken *taken, int64_t *next_ns)
{
    if (member_forked(ring->member)) {
        return error_forked();
    }
    if (load_acquire(&ring->page->side_blocks) > ring->blocks) {
        return SHMQ_GROW; /* map it anew first */
    }
    if (load_relaxed(&ring->member->control->shut_down) == SHUT_DOWN_AT_ONCE) {
        *next_ns = INT64_MAX;
        return 0;
    }
    const int64_t now_ns = ring_now();
    if (idle || now_ns - ring->reaped_ns >= REAP_EVERY_NS) {
        reap_the_dead(ring);
        ring->reaped_ns = now_ns;
    }
    if (ring->lease_ns != 0 && now_ns >= ring->leases_ns) {
        end_leases(ring, now_ns);
    }
    int64_t count = retake_ring(ring, limit, taken);
    if (count == 0) {
        count = side_take(ring, idle, limit, taken);
    }
    if (count == 0 && ring->bucket_count != 0) {
        count = keyed_take(ring, idle, limit, taken);
        keyed_wake(ring);
    }
    *next_ns = ring->side_due_ns;
    if (ring->lease_ns != 0 && ring->leases_ns < *next_ns) {
        *next_ns = ring->leases_ns;
    }
    if (ring->park_ns != 0 && ring->park_ns < *next_ns) {
        *next_ns = ring->park_ns;
    }
    ring->holds += ring->finish || count < 0 ? 0 : (uint64_t)count;
    return count;
}

int64_t shmq_ring_glance_back(shmq_ring *ring, uint32_t most, int64_t *next_ns)
{
    int64_t found = 0;
    ring->most = most;
    const int64_t code = shmq_ring_retake(ring, true, 0, NULL, next_ns); /* what the dead had, and leases that ended */
    if (code < 0) {
        return code;
    }
    const uint64_t head = head_of(ring);
    for (uint64_t index = head; index < head + ring->window; index++) {
        const uint64_t word = ring_look(ring, index);
        const uint32_t state = ring_state(ring, index, word);
        if ((state == RING_RETRY || (state == RING_MOVING && ring_owner(word) == 0)) && keyed_at(ring, index) == 0
            && !ring_is_dropped(ring, index)) {
            found = ring_worth(ring, ring_attempts(ring, index), state == RING_MOVING);
            if (found == 1) {
                return found;
            }
        }
    }
    const int64_t by_key = ring->bucket_count == 0 ? 0 : keyed_glance(ring);
    keyed_wake(ring);
    const int64_t parked = by_key == 1 || by_key < 0 ? by_key : side_any_due(ring);
    return parked == 1 || parked < 0 ? parked : found | by_key | parked;
}

int64_t shmq_ring_peek(const shmq_ring *ring, uint64_t start)
{
    const uint64_t head = head_of(ring);
    for (uint64_t index = start > head ? start : head; index < head + ring->window; index++) {
        const uint32_t state = ring_state(ring, index, ring_look(ring, index));
        const uint64_t bucket = keyed_at(ring, index); /* 0 also where no walker has met it */
        if ((state == RING_PENDING || state == RING_RETRY) && !ring_is_dropped(ring, index)
            && (bucket == 0 || keyed_idle(ring, bucket))) {
            return (int64_t)index;
        }
    }
    return SHMQ_EMPTY;
}

/* ------------------------------------------------------------------ finishing */
static int lost(uint64_t index)
{
    return error_set(SHMQ_LOST, "message %" PRIu64 " was given to somebody else meanwhile, or finished", index);
}

/* Where a message that was handed out of the window is now: its entry, when somebody has parked it for its holder. EMPTY,
 * or GROW when it may be where we do not see it. */
static int64_t parked_for_me(shmq_ring *ring, const shmq_taken *taken, uint64_t *state)
{
    const uint64_t word = ring_look(ring, taken->index);
    const uint32_t now = ring_state(ring, taken->index, word);
    int64_t entry = SHMQ_EMPTY;
    if (taken->index < head_of(ring)) {
        entry = side_find(ring, taken->index);
    } else if (now == RING_PARKED) {
        entry = (int64_t)ring_entry(word);
    }
    struct ring_side *const side = entry < 0 ? NULL : side_at(ring, (uint64_t)entry);
    if (side == NULL) {
        const bool elsewhere = taken->index < head_of(ring) || now == RING_PARKED;
        return elsewhere && load_relaxed(&ring->page->side_blocks) > ring->blocks ? SHMQ_GROW : SHMQ_EMPTY;
    }
    side_settle(ring, (uint64_t)entry);
    *state = load_acquire(&side->state);
    return side_is_of(*state, taken->word) && load_acquire(&side->index) == taken->index + 1 ? entry : SHMQ_EMPTY;
}

/* Follow a message to where it was parked on behalf of its holder: OK, LOST when it was not, or GROW. */
static int follow(shmq_ring *ring, shmq_taken *taken)
{
    uint64_t state = 0;
    const int64_t entry = taken->entry == 0 ? parked_for_me(ring, taken, &state) : SHMQ_EMPTY;
    if (entry < 0) {
        return entry == SHMQ_GROW ? SHMQ_GROW : lost(taken->index);
    }
    taken->entry = (uint64_t)entry;
    taken->word = state;
    return SHMQ_OK;
}

static bool move_word(shmq_ring *ring, const shmq_taken *taken, uint64_t low)
{
    return cas_release(ring_word(ring, taken->index), taken->word, ring_stamp(ring, taken->index) | low);
}

/* Finish one, but for the head. */
static int finish(shmq_ring *ring, shmq_taken *taken)
{
    if (taken->entry == 0) {
        if (move_word(ring, taken, RING_DONE)) {
            return SHMQ_OK;
        }
        const int code = follow(ring, taken);
        if (code != SHMQ_OK) {
            return code;
        }
    }
    return side_ack(ring, taken->entry, taken->word) == SHMQ_OK ? SHMQ_OK : lost(taken->index);
}

int shmq_ring_ack(shmq_ring *ring, shmq_taken *taken)
{
    if (taken->word == 0) {
        return SHMQ_OK; /* its holder has ended it, and a signal's handler kept it from noting so */
    }
    const int code = finish(ring, taken);
    keyed_finished(ring, taken, code == SHMQ_OK);
    keyed_wake(ring);
    fence_seq_cst(); /* as in ring_advance: it is at the head, or whoever brings the head here sees it done */
    if (code == SHMQ_OK && taken->index == head_of(ring)) {
        ring_advance(ring);
    }
    nearer(ring, code == SHMQ_OK);
    ring_finished(ring);
    taken->word = code == SHMQ_OK ? 0 : taken->word;
    return code;
}

int64_t shmq_ring_ack_many(shmq_ring *ring, uint32_t count, shmq_taken *taken)
{
    int64_t finished = 0;
    bool grow = false;
    for (uint32_t i = 0; i < count; i++) {
        if (taken[i].word != 0) { /* else it was finished before we had to map the table anew */
            const int code = finish(ring, &taken[i]);
            grow = grow || code == SHMQ_GROW;
            if (code != SHMQ_OK) {
                keyed_finished(ring, &taken[i], false);
                continue;
            }
            keyed_finished(ring, &taken[i], true);
            taken[i].word = 0;
        }
        finished++;
    }
    keyed_wake(ring);
    ring_settled(ring, (uint64_t)finished);
    ring_finished(ring);
    return grow ? SHMQ_GROW : finished;
}

/* One that was dropped while we had it, and is given back: finished. As shmq_ring_ack. */
static int drop_mine(shmq_ring *ring, shmq_taken *taken)
{
    const int code = shmq_ring_ack(ring, taken);
    if (code == SHMQ_OK) {
        ring_count_dropped(ring, 1);
    }
    return code;
}

int shmq_ring_return(shmq_ring *ring, shmq_taken *taken)
{
    if (taken->word == 0) {
        return SHMQ_OK; /* ended, as in shmq_ring_ack */
    }
    if (ring_is_dropped(ring, taken->index)) {
        return drop_mine(ring, taken);
    }
    if (taken->entry == 0) {
        if (move_word(ring, taken, ring_low(0, ring_count(taken->word), RING_RETRY))) {
            keyed_ready(ring, taken->bucket);
            ring_returned(ring);
            taken->word = 0;
            return SHMQ_OK;
        }
        const int code = follow(ring, taken);
        if (code != SHMQ_OK) {
            return code;
        }
    }
    return shmq_ring_nack(ring, taken, 0, 0);
}

int shmq_ring_undo(shmq_ring *ring, shmq_taken *taken)
{
    const bool counted = taken->word != 0 && taken->entry == 0 && taken->kind == SHMQ_TAKEN_MESSAGE;
    if (counted && ring_look(ring, taken->index) == taken->word) { /* before it goes: then it is the next one's */
        attempts_store(ring, taken->index, taken->attempts - 1);
    }
    return shmq_ring_return(ring, taken);
}

static int park(shmq_ring *ring, shmq_taken *taken, int64_t due_ns, uint64_t behind)
{
    if (taken->entry == 0) {
        int code = shmq_ring_park(ring, taken->index, taken->word, due_ns, behind, taken->attempts, taken->bucket);
        if (code == SHMQ_EMPTY) {
            return SHMQ_OK;
        }
        code = code == SHMQ_LOST ? follow(ring, taken) : code;
        if (code != SHMQ_OK) {
            return code;
        }
    }
    return side_nack(ring, taken->entry, taken->word, due_ns, behind) == SHMQ_OK ? SHMQ_OK : lost(taken->index);
}

int shmq_ring_nack(shmq_ring *ring, shmq_taken *taken, int64_t due_ns, uint64_t behind)
{
    if (taken->word == 0) {
        return SHMQ_OK; /* ended, as in shmq_ring_ack */
    }
    if (ring_is_dropped(ring, taken->index)) {
        return drop_mine(ring, taken);
    }
    const int code = park(ring, taken, due_ns, behind);
    taken->word = code == SHMQ_OK ? 0 : taken->word;
    return code;
}

int shmq_ring_extend_lease(shmq_ring *ring, shmq_taken *taken, int64_t ends_ns)
{
    if (taken->word == 0) {
        return lost(taken->index); /* finished */
    }
    if (taken->entry == 0) {
        const uint64_t low = ring_low(ring->member->owner, ring_count(taken->word) + 1, RING_CLAIMED);
        const uint64_t next = ring_stamp(ring, taken->index) | low;
        if (ring->leases != NULL) { /* of the word that will be: a thief takes from the word that was */
            lease_store(ring, &ring->leases[ring_slot(ring, taken->index)], next, ends_ns);
        }
        if (move_word(ring, taken, low)) {
            taken->word = next;
            return SHMQ_OK;
        }
        const int code = follow(ring, taken);
        if (code != SHMQ_OK) {
            return code;
        }
    }
    return side_extend(ring, taken->entry, &taken->word, ends_ns) == SHMQ_OK ? SHMQ_OK : lost(taken->index);
}

int shmq_ring_moving(shmq_ring *ring, shmq_taken *taken)
{
    if (taken->word == 0) {
        return lost(taken->index); /* finished */
    }
    if (taken->entry == 0) {
        const uint64_t low = ring_low(ring->member->owner, ring_count(taken->word), RING_MOVING);
        if (move_word(ring, taken, low)) {
            taken->word = ring_stamp(ring, taken->index) | low;
            return SHMQ_OK;
        }
        const int code = follow(ring, taken);
        if (code != SHMQ_OK) {
            return code;
        }
    }
    return side_moving(ring, taken->entry, &taken->word) == SHMQ_OK ? SHMQ_OK : lost(taken->index);
}

int64_t shmq_ring_holds(shmq_ring *ring, uint64_t count)
{
    ring->holds = count;
    if (ring->park_ns == 0 && count <= ring->window / 4) {
        ring->park_ns = ring_now() + STUCK_NS; /* when it was asked, it seemed to be more */
    }
    return ring->park_ns == 0 ? INT64_MAX : ring->park_ns;
}

void shmq_ring_count_moved(shmq_ring *ring, bool expired)
{
    add_relaxed(expired ? &ring->page->expired : &ring->page->moved, 1);
}
void shmq_ring_count_unmoved(shmq_ring *ring) { add_relaxed(&ring->page->unmoved, 1); }

/* ------------------------------------------------------------------ looking */
void shmq_ring_counts(shmq_ring *ring, shmq_ring_figures *figures)
{
    *figures = (shmq_ring_figures){.head = head_of(ring), .handed = load_relaxed(&ring->checkpoint->handed)};
    for (uint64_t index = figures->head; index < figures->head + ring->window; index++) {
        const uint32_t state = ring_state(ring, index, ring_look(ring, index));
        figures->to_drop += (state == RING_PENDING || state == RING_RETRY) && ring_is_dropped(ring, index);
        figures->claimed += state == RING_CLAIMED;
        figures->returned += state == RING_RETRY;
        figures->waiting += state == RING_PENDING && keyed_at(ring, index) != 0;
    }
    const uint64_t dropped = load_relaxed(&ring->page->dropped_to);
    const uint64_t edge = figures->head + ring->window;
    figures->dropped_to = dropped;
    figures->to_drop += dropped > edge ? dropped - edge : 0;
    figures->claimed += side_count(ring, SIDE_CLAIMED);
    figures->parked = side_count(ring, SIDE_LIVE);
    figures->redelivered = load_relaxed(&ring->page->redelivered);
    figures->expired = load_relaxed(&ring->page->expired);
    figures->moved = load_relaxed(&ring->page->moved);
    figures->unmoved = load_relaxed(&ring->page->unmoved);
    figures->edges = load_relaxed(&ring->page->edges);
    figures->at_edge = load_relaxed(&ring->page->edge) != 0;
    figures->window = ring->window;
    figures->retired = load_relaxed(&ring->page->retired);
}

uint64_t shmq_ring_floor(shmq_ring *ring)
{
    const uint64_t floor = side_lowest(ring, head_of(ring));
    if (load_acquire(&ring->page->side_blocks) > ring->blocks) {
        return load_relaxed(&ring->checkpoint->floor); /* something may be parked where we do not see it */
    }
    if (load_relaxed(&ring->checkpoint->floor) < floor) {
        store_relaxed(&ring->checkpoint->floor, floor);
    }
    return floor;
}

/* ------------------------------------------------------------------ what a power cut leaves */
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

bool ring_is_done(const shmq_ring *ring, uint64_t index)
{
    const uint64_t word = ring_look(ring, index);
    const uint32_t state = ring_state(ring, index, word);
    return state == RING_DONE || (state == RING_PARKED && !side_unfinished(ring, index, ring_entry(word)))
           || (state != RING_PARKED && ring_is_dropped(ring, index) && !ring_somebody_has(state, word));
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

int64_t shmq_ring_snapshot(shmq_ring *ring, uint64_t epoch)
{
    struct snapshot *const made = calloc(1, sizeof *made);
    if (made == NULL) {
        return error_system(-ENOMEM, "asked for memory");
    }
    const struct snapshot *const newest = newest_snapshot(ring->checkpoint);
    const uint64_t head = head_of(ring);
    made->sequence = newest == NULL ? 1 : newest->sequence + 1;
    made->epoch = epoch;
    made->window = RING_WINDOW;
    /* First the table: what the head passed and is not finished stays there until it is. */
    if (ring->bucket_count != 0) {
        const int code = snapshot_keyed(ring, made, head);
        if (code != SHMQ_OK) {
            free(made);
            return code;
        }
    } else {
        snapshot_parked(ring, made, head);
    }
    if (load_acquire(&ring->page->side_blocks) > ring->blocks) {
        free(made);
        return SHMQ_GROW; /* something may be parked where we do not see it, and must not be called done */
    }
    made->crc = snapshot_crc(made);
    memcpy(snapshot_at(ring->checkpoint, newest == snapshot_at(ring->checkpoint, 0)), made, sizeof *made);
    const int64_t sequence = (int64_t)made->sequence;
    free(made);
    return sequence;
}

uint64_t shmq_ring_states(const shmq_ring *ring, uint8_t *states)
{
    const uint64_t head = head_of(ring);
    for (uint64_t index = head; index < head + ring->window; index++) {
        states[index - head] = (uint8_t)ring_state(ring, index, ring_look(ring, index));
    }
    return head;
}

void shmq_ring_forget(void *memory)
{
    struct ring *const page = memory;
    page->term = term_of(page) % RING_TERM_MAX + 1; /* what was handed out before matches no word any more */
    memset(page->boot_id, 0, sizeof page->boot_id);
}

static bool snapshot_done(const struct snapshot *snapshot, uint64_t index)
{
    const uint64_t bit = index - snapshot->head;
    return bit < RING_WINDOW && (snapshot->done[bit / 8] >> bit % 8 & 1) != 0;
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
    const uint64_t term = term_of(page) == 0 ? 1 : term_of(page);
    uint8_t queue_id[16];
    memcpy(queue_id, page->queue_id, sizeof queue_id);
    struct extent extent;
    const int code = check(page, bytes, queue_id, &extent);
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
    memset((uint8_t *)memory + RING_HEADER_BYTES, 0, used - RING_HEADER_BYTES);
    set_memory(&ring, memory, extent.blocks);
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
           RING_HEADER_BYTES - offsetof(struct ring, side_version));
    memcpy(page->boot_id, boot_id, sizeof page->boot_id); /* last */
    return SHMQ_OK;
}
