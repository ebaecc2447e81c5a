/* ring_file.c - the file of a ring: format it, believe its header or not, map it, and hold it by a handle.
 *
 * What a ring says of its size is read once and held against the bytes there are. It only grows, by blocks of its side table,
 * under the administrative lock: whoever sees too few maps it anew. A term of its header is in every word of its window, so
 * that what was handed out under an earlier one matches no word any more. */
#include "group/ring_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "group/gate.h"
#include "group/side.h"

/* ------------------------------------------------------------------ how large it is */
static uint64_t cells_bytes(uint32_t window, uint32_t cells)
{
    const uint64_t leases = (cells & RING_LEASES) != 0 ? 1 : 0;
    const uint64_t attempts = (cells & RING_ATTEMPTS) != 0 ? 1 : 0;
    return (1 + leases + attempts) * window * sizeof(uint64_t);
}
static uint32_t slots_of(uint32_t cells) { return (cells & RING_SMALL) != 0 ? SMALL_SLOTS : OWNER_SLOTS; }
uint64_t ring_header_bytes(uint32_t cells) { return offsetof(struct ring, tenants) + slots_of(cells) * sizeof(uint64_t); }
uint64_t shmq_ring_bytes(uint32_t window, uint32_t buckets, uint32_t cells, uint64_t side_blocks)
{
    return ring_header_bytes(cells) + cells_bytes(window, cells) + keyed_bytes(window, buckets) + side_blocks * SIDE_BLOCK_BYTES;
}
static bool is_count(uint32_t count, uint32_t least, uint32_t most)
{
    return count >= least && count <= most && (count & (count - 1)) == 0;
}

/* Only a small queue's side table may have no blocks yet. */
static bool is_table(uint32_t cells, uint64_t blocks)
{
    return blocks <= SIDE_BLOCKS_MAX && (blocks > 0 || (cells & RING_SMALL) != 0);
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
    memset(page, 0, ring_header_bytes(cells));
    page->magic = RING_MAGIC;
    page->byte_order = BYTE_ORDER_MARK;
    page->version = RING_VERSION;
    memcpy(page->queue_id, queue_id, sizeof page->queue_id);
    memcpy(page->boot_id, boot_id, sizeof page->boot_id);
    page->window = window;
    page->buckets = buckets;
    page->cells = cells;
    page->side_blocks = side_blocks;
    page->term = 1;
    return SHMQ_OK;
}

int ring_extent(const struct ring *page, uint64_t bytes, const uint8_t queue_id[16], struct extent *extent)
{
    if (bytes < offsetof(struct ring, tenants)) {
        return error_set(SHMQ_CORRUPT, "it has only %" PRIu64 " bytes", bytes);
    }
    if (page->magic != RING_MAGIC || page->byte_order != BYTE_ORDER_MARK) {
        return error_set(SHMQ_FOREIGN, "it does not begin as a ring of a shmq queue does");
    }
    if (page->version != RING_VERSION) {
        return error_set(SHMQ_FORMAT, "it has ring version %" PRIu32 "; this library knows version %u",
                         page->version, RING_VERSION);
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
        || cells > (RING_LEASES | RING_ATTEMPTS | RING_SMALL) || !is_table(cells, blocks)
        || bytes < shmq_ring_bytes(window, buckets, cells, blocks)) {
        return error_set(SHMQ_CORRUPT, "its window of %" PRIu32 ", %" PRIu32 " buckets and %" PRIu64
                         " side blocks do not fit its %" PRIu64 " bytes", window, buckets, blocks, bytes);
    }
    return SHMQ_OK;
}
uint64_t ring_term(const struct ring *page)
{
    const uint64_t term = load_relaxed(&page->term);
    return term <= RING_TERM_MAX ? term : 0;
}
int shmq_ring_check(const void *memory, uint64_t bytes, const uint8_t queue_id[16], uint8_t boot_id[16])
{
    struct extent extent;
    const int code = ring_extent(memory, bytes, queue_id, &extent);
    if (code == SHMQ_OK) {
        memcpy(boot_id, ((const struct ring *)memory)->boot_id, 16);
        if (ring_term(memory) == 0) {
            memset(boot_id, 0, 16);
        }
    }
    return code;
}
int shmq_ring_bury(void *memory, uint64_t bytes, const uint8_t queue_id[16], uint32_t slot)
{
    struct ring *const page = memory;
    if (bytes < offsetof(struct ring, tenants) + (slot + UINT64_C(1)) * sizeof(uint64_t) || page->magic != RING_MAGIC
        || slot >= slots_of(load_relaxed(&page->cells))
        || memcmp(page->queue_id, queue_id, sizeof page->queue_id) != 0) {
        return error_set(SHMQ_FORMAT, "it does not begin as a ring of this queue does");
    }
    uint64_t tenant = load_relaxed(&page->tenants[slot]);
    while (tenant != 0 && !cas_release(&page->tenants[slot], tenant, tenant | RING_TENANT_DEAD)) {
        tenant = load_relaxed(&page->tenants[slot]);
    }
    return SHMQ_OK;
}

/* ------------------------------------------------------------------ mapped */
void ring_set_memory(shmq_ring *ring, void *memory, uint64_t blocks)
{
    ring->page = memory;
    ring->words = (uint64_t *)(void *)((uint8_t *)memory + ring_header_bytes(ring->cells));
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
    *code = ring_extent(memory, bytes, queue_id, &extent);
    if (*code != SHMQ_OK) {
        return NULL;
    }
    if (lease_ns != 0 && (extent.cells & RING_LEASES) == 0) {
        *code = error_set(SHMQ_CORRUPT, "it has no leases, and its group has");
        return NULL;
    }
    if (member != NULL && member->seats > slots_of(extent.cells)) { /* a bit that says RING_SMALL shifts everything */
        *code = error_set(SHMQ_CORRUPT, "it has places for %u participants, and its queue for %u", slots_of(extent.cells),
                          member->seats);
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
    ring_set_memory(ring, memory, extent.blocks);
    ring->term = ring_term(ring->page);
    ring->slots = slots_of(extent.cells);
    ring->checkpoint = checkpoint;
    ring->member = member;
    ring->lease_ns = lease_ns;
    ring->finish = finish;
    ring->keep_expired = keep_expired;
    ring->in_order = load_relaxed(&ring->checkpoint->kind) == CHECKPOINT_LONE;
    ring->skim = SKIM;
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
        side_forget(ring);
        free(ring);
    }
}

int shmq_ring_remap(shmq_ring *ring, void *memory, uint64_t bytes)
{
    const uint64_t blocks = load_acquire(&((struct ring *)memory)->side_blocks);
    if (!is_table(ring->cells, blocks) || bytes < shmq_ring_bytes(ring->window, ring->bucket_count, ring->cells, blocks)) {
        return error_set(SHMQ_CORRUPT, "its %" PRIu64 " side blocks do not fit its %" PRIu64 " bytes", blocks, bytes);
    }
    ring_set_memory(ring, memory, blocks);
    ring->side_seen = UINT64_MAX;
    return side_remember(ring) ? SHMQ_OK : error_system(-ENOMEM, "asked for memory");
}
void shmq_ring_extend(shmq_ring *ring, uint64_t blocks)
{
    if (blocks > load_relaxed(&ring->page->side_blocks)) {
        store_release(&ring->page->side_blocks, blocks); /* the file has them already */
    }
}
void shmq_ring_unsure(shmq_ring *ring, uint64_t end, bool known)
{
    uint64_t seen = load_relaxed(&ring->page->unsure_to);
    while ((seen == UINT64_MAX || known) && !cas_relaxed(&ring->page->unsure_to, seen, end)) {
        seen = load_relaxed(&ring->page->unsure_to);
    }
}
uint32_t shmq_ring_buckets(const shmq_ring *ring) { return ring->bucket_count; }
uint32_t shmq_ring_cells(const shmq_ring *ring) { return ring->cells; }
uint64_t shmq_ring_side_blocks(const shmq_ring *ring) { return load_relaxed(&ring->page->side_blocks); }
