/* chunk_file.c - the file of one chunk: format it, clear it, believe its header or not, and hold it by a handle.
 *
 * A header is written before anybody else can open the file, and never again; whoever opens it later believes nothing of it
 * that its checksum, the queue's id, its length and its own name do not bear out. What has no room in a header, or is
 * found out from it, stands in the handle. Of the words behind the header nothing is known here: walk.c reads them. */
#include "chunk/chunk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "chunk/index.h"
#include "crc.h"
#include "error.h"

/* ------------------------------------------------------------------ what a header says */
static uint32_t index_blocks_for(uint64_t capacity, uint32_t spacing)
{
    const uint64_t per_block = (uint64_t)spacing * INDEX_ENTRIES;
    return (uint32_t)(capacity / RECORD_HEADER_BYTES / per_block + 1);
}
static uint64_t first_position(uint64_t capacity, uint32_t spacing, uint32_t grain)
{
    const uint32_t blocks = index_blocks_for(capacity, spacing);
    const uint64_t end = index_slots_end(blocks);
    return grain == 0 ? end : round_to(end + index_blocks_ahead(capacity, blocks) * INDEX_BLOCK_BYTES, grain);
}
static bool is_grain(uint32_t grain, uint64_t capacity, uint32_t spacing)
{
    return grain >= GRAIN_MIN && grain <= PAGE_BYTES && (grain & (grain - 1)) == 0
           && first_position(capacity, spacing, grain) + grain <= capacity;
}
static uint32_t header_crc(const struct chunk_header *header)
{
    return crc32c(0, &header->magic, offsetof(struct chunk_header, hint) - offsetof(struct chunk_header, magic));
}

uint64_t shmq_chunk_bytes_for(uint64_t region, uint32_t index_spacing, uint32_t grain)
{
    /* index2index takes less than a thousandth of the chunk for any spacing from 1 up, blocks ahead a 64th; then whole
     * pages. */
    const uint64_t content = round_to(region, grain == 0 ? SPAN_UNIT : grain) + TAIL_RESERVE;
    uint64_t bytes = CHUNK_HEADER_BYTES + sizeof(struct index2index) + content;
    while (first_position(bytes, index_spacing, grain) + content > bytes) {
        bytes += PAGE_BYTES;
    }
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* ------------------------------------------------------------------ made, and cleared to serve again */
int shmq_chunk_format(void *memory, uint64_t bytes, const uint8_t queue_id[16], uint64_t chunk_id, uint64_t epoch,
                      uint64_t base, uint64_t sequence, uint32_t index_spacing, uint32_t grain, int64_t created_ns)
{
    if (bytes < CAPACITY_MIN || bytes > POSITION_MAX || bytes % PAGE_BYTES != 0 || index_spacing == 0) {
        return error_set(SHMQ_TOO_LARGE, "a chunk has %u to %" PRIu64 " bytes, in whole pages; asked for %" PRIu64,
                         CAPACITY_MIN, POSITION_MAX, bytes);
    }
    if (grain != 0 && !is_grain(grain, bytes, index_spacing)) {
        return error_set(SHMQ_TOO_LARGE, "a chunk of %" PRIu64 " bytes cannot have a grain of %" PRIu32, bytes, grain);
    }
    struct chunk_header header = {
        .word = word_make(WORD_META, 0, 0, CHUNK_HEADER_BYTES / SPAN_UNIT),
        .kind = META_HEADER,
        .magic = CHUNK_MAGIC,
        .byte_order = BYTE_ORDER_MARK,
        .version = FORMAT_VERSION,
        .incompatible = grain == 0 ? 0 : CHUNK_GRAINED,
        .chunk_id = chunk_id,
        .epoch = epoch,
        .capacity = bytes,
        .index_spacing = index_spacing,
        .index_entries = INDEX_ENTRIES,
        .index_blocks = index_blocks_for(bytes, index_spacing),
        .grain = grain,
        .created_ns = created_ns,
        .born_base = base,
        .born_sequence = sequence,
    };
    memcpy(header.queue_id, queue_id, sizeof header.queue_id);
    header.crc = header_crc(&header);
    memcpy(memory, &header, sizeof header);

    const uint64_t span = (first_position(bytes, index_spacing, grain) - CHUNK_HEADER_BYTES) / SPAN_UNIT;
    const struct index2index index2index = {
        .word = word_make(WORD_META, 0, 0, (uint32_t)span),
        .kind = META_INDEX2INDEX,
        .blocks = header.index_blocks,
    };
    memcpy((uint8_t *)memory + CHUNK_HEADER_BYTES, &index2index, sizeof index2index);
    if (grain != 0) {
        index_blocks_format(memory, header.index_blocks, index_blocks_ahead(bytes, header.index_blocks));
    }
    return SHMQ_OK;
}

/* Three files of so many bytes stay in a processor's last cache, and rewriting one there costs a third. */
#define CACHED_BYTES (UINT64_C(8) << 20)

/* Past the cache where that can be said and it is not small: then it is zeroed long before it is written. */
static void zero(uint8_t *at, uint64_t bytes, bool cached)
{
#if defined(__SSE2__)
    if (cached) {
        memset(at, 0, bytes);
        return;
    }
    const uint64_t head = bytes < 16 ? bytes : -(uintptr_t)at % 16;
    memset(at, 0, head);
    for (at += head, bytes -= head; bytes >= 64; at += 64, bytes -= 64) {
        for (unsigned int i = 0; i < 64; i += 16) {
            _mm_stream_si128((void *)(at + i), _mm_setzero_si128());
        }
    }
#else
    (void)cached;
#endif
    memset(at, 0, bytes);
}

/* What was zeroed past the cache is zeroed for everybody before what comes next. */
static void zeroed(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

void shmq_chunk_clear(void *memory, uint64_t bytes, uint64_t used, uint32_t index_spacing, uint32_t grain)
{
    uint8_t *const from = memory;
    used = used < bytes ? used : bytes;
    const bool cached = bytes <= CACHED_BYTES;
    zero(from, CHUNK_HEADER_BYTES, cached); /* first: killed behind it, nothing says how far it was used */
    zeroed();
    if (grain == 0) {
        zero(from, used, cached);
    } else {
        const uint64_t first = first_position(bytes, index_spacing, grain);
        zero(from, first < bytes ? first : bytes, cached);
        for (uint64_t at = first; at < used; at += grain) { /* sooner sent to memory than fetched from its last reader */
            zero(from + at, GRAIN_ZEROS, false);
        }
    }
    zeroed();
}

/* ------------------------------------------------------------------ checked, and held */
static int check_header(const struct chunk_header *header, uint64_t bytes, const uint8_t queue_id[16])
{
    if (header->magic != CHUNK_MAGIC) {
        return error_set(SHMQ_FOREIGN, "it does not begin as a chunk of a shmq queue does");
    }
    if (header->byte_order != BYTE_ORDER_MARK) {
        return error_set(SHMQ_FORMAT, "it was written on a machine of the other byte order");
    }
    if (header->version != FORMAT_VERSION || (header->incompatible & ~(uint32_t)CHUNK_GRAINED) != 0) {
        return error_set(SHMQ_FORMAT, "it has format version %" PRIu32 " with features %#" PRIx32
                         "; this library knows version %u with features up to %#x", header->version,
                         header->incompatible, FORMAT_VERSION, CHUNK_GRAINED);
    }
    if (header->crc != header_crc(header) || header->kind != META_HEADER
        || header->word != word_make(WORD_META, 0, 0, CHUNK_HEADER_BYTES / SPAN_UNIT)) {
        return error_set(SHMQ_CORRUPT, "its header fails its checksum");
    }
    if (memcmp(header->queue_id, queue_id, sizeof header->queue_id) != 0) {
        return error_set(SHMQ_CORRUPT, "it belongs to another queue");
    }
    if (header->capacity != bytes || bytes < CAPACITY_MIN || bytes > POSITION_MAX || bytes % PAGE_BYTES != 0
        || header->index_spacing == 0
        || header->index_blocks != index_blocks_for(bytes, header->index_spacing)) {
        return error_set(SHMQ_CORRUPT, "it was made with %" PRIu64 " bytes and has %" PRIu64, header->capacity, bytes);
    }
    if (header->incompatible == 0 ? header->grain != 0 : !is_grain(header->grain, bytes, header->index_spacing)) {
        return error_set(SHMQ_CORRUPT, "its header has an impossible grain of %" PRIu32, header->grain);
    }
    return SHMQ_OK;
}

shmq_chunk *shmq_chunk_new(void *memory, uint64_t bytes, bool pads, bool writable, bool checksum, uint64_t base,
                           uint64_t sequence, const uint8_t queue_id[16], shmq_member *member, int *code)
{
    struct chunk_header header;
    shared_read(&header, memory, sizeof header);
    *code = check_header(&header, bytes, queue_id);
    if (*code == SHMQ_OK && header.born_sequence != UINT64_MAX
        && (header.born_sequence != sequence || header.born_base != base)) {
        *code = error_set(SHMQ_CORRUPT, "it was made as %016" PRIx64 "-%08" PRIx64, header.born_base,
                          header.born_sequence);
    }
    if (*code != SHMQ_OK) {
        return NULL;
    }
    shmq_chunk *chunk = malloc(sizeof *chunk);
    if (chunk == NULL) {
        *code = error_system(-ENOMEM, "asked for memory");
        return NULL;
    }
    const uint64_t birth[2] = {header.epoch, header.chunk_id};
    *chunk = (shmq_chunk){
        .memory = memory,
        .capacity = header.capacity,
        .first_position = first_position(header.capacity, header.index_spacing, header.grain),
        .grain = header.grain == 0 ? SPAN_UNIT : header.grain,
        .base = base,
        .sequence = sequence,
        .epoch = header.epoch,
        .chunk_id = header.chunk_id,
        .crc_seed = crc32c(0, birth, sizeof birth),
        .pads = pads,
        .writable = writable,
        .checksum = checksum,
        .index_spacing = header.index_spacing,
        .index_blocks = header.index_blocks,
        .index_next = header.index_spacing,
        .index_proven = index_proven_new(&header),
        .member = member,
        .seal = word_seal(0),
    };
    return chunk;
}

void shmq_chunk_free(shmq_chunk *chunk)
{
    if (chunk != NULL) {
        free(chunk->index_proven);
        free(chunk);
    }
}
void shmq_chunk_is_populated(shmq_chunk *chunk) { chunk->populated = chunk->capacity; }
uint64_t shmq_chunk_epoch(const shmq_chunk *chunk) { return chunk->epoch; }
uint64_t shmq_chunk_first_position(const shmq_chunk *chunk) { return chunk->first_position; }

const void *shmq_chunk_memory(const shmq_chunk *chunk) { return chunk->memory; }
bool shmq_shut_down_at_once(const shmq_chunk *chunk)
{
    return load_relaxed(&chunk->member->control->shut_down) == SHUT_DOWN_AT_ONCE;
}
