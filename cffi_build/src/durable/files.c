/* files.c - the pages beside the chunks: make them, and refuse what is not ours.
 *
 * Pure functions over bytes that are already in memory; which file they go to, and when it is synced, is decided in
 * Python (shmq/storage/). */
#include <inttypes.h>
#include <string.h>

#include "crc.h"
#include "error.h"
#include "layout.h"
#include "shmq.h"

static_assert(SHMQ_PAGE_BYTES == PAGE_BYTES && SHMQ_QUEUE_BYTES == QUEUE_FILE_BYTES
              && SHMQ_QUEUE_HEADER_BYTES == QUEUE_HEADER_BYTES && SHMQ_CONTROL_BYTES == CONTROL_BYTES && SHMQ_CONTROL_BYTES_SMALL == CONTROL_BYTES_SMALL
              && SHMQ_CHECKPOINT_BYTES == CHECKPOINT_BYTES && SHMQ_BATCH_MAX == COUNT_MAX
              && SHMQ_SNAPSHOT_BASE == SNAPSHOT_BASE && SHMQ_SNAPSHOT_BYTES == SNAPSHOT_BYTES,
              "the public sizes are the layout's");

/* The first 16 bytes of queue, control and checkpoint files begin alike. */
struct opening {
    uint64_t magic;
    uint32_t byte_order;
    uint32_t version;
};

static int check_opening(const void *memory, uint64_t magic, const char *what)
{
    struct opening opening;
    memcpy(&opening, memory, sizeof opening);
    if (opening.magic != magic) {
        return error_set(SHMQ_FOREIGN, "it is not %s of a shmq queue", what);
    }
    if (opening.byte_order != BYTE_ORDER_MARK) {
        return error_set(SHMQ_FORMAT, "it was written on a machine of the other byte order");
    }
    if (opening.version != FORMAT_VERSION) {
        return error_set(SHMQ_FORMAT, "it has format version %" PRIu32 "; this library knows version %u",
                         opening.version, FORMAT_VERSION);
    }
    return SHMQ_OK;
}

/* CRC of bytes in which the field that holds it counts as zero. */
static uint32_t crc_around(const uint8_t *memory, size_t bytes, size_t field)
{
    static const uint8_t zero[4];
    uint32_t crc = crc32c(0, memory, field);
    crc = crc32c(crc, zero, sizeof zero);
    return crc32c(crc, memory + field + sizeof zero, bytes - field - sizeof zero);
}

/* ---- queue.shmq, page 0 */
int shmq_queue_format(void *page, const uint8_t queue_id[16], int64_t created_ns, const char *options, uint32_t length)
{
    if (length > PAGE_BYTES - QUEUE_HEADER_BYTES) {
        return error_set(SHMQ_TOO_LARGE, "options of %" PRIu32 " bytes; there is room for %u", length,
                         PAGE_BYTES - QUEUE_HEADER_BYTES);
    }
    struct queue_file header = {
        .magic = QUEUE_MAGIC,
        .byte_order = BYTE_ORDER_MARK,
        .version = FORMAT_VERSION,
        .created_ns = created_ns,
        .options_length = length,
    };
    memcpy(header.queue_id, queue_id, sizeof header.queue_id);
    uint8_t *const bytes = page;
    memset(bytes, 0, PAGE_BYTES);
    memcpy(bytes, &header, sizeof header);
    memcpy(bytes + sizeof header, options, length);
    header.crc = crc_around(bytes, PAGE_BYTES, offsetof(struct queue_file, crc));
    memcpy(bytes, &header, sizeof header);
    return SHMQ_OK;
}

int shmq_queue_check(const void *page, uint8_t queue_id[16], uint32_t *options_length)
{
    struct queue_file header;
    memcpy(&header, page, sizeof header);
    const int code = check_opening(page, QUEUE_MAGIC, "the queue file");
    if (code != SHMQ_OK) {
        return code;
    }
    if (header.incompatible != 0) {
        return error_set(SHMQ_FORMAT, "it uses features %#" PRIx32 " that this library does not know",
                         header.incompatible);
    }
    if (header.crc != crc_around(page, PAGE_BYTES, offsetof(struct queue_file, crc))
        || header.options_length > PAGE_BYTES - QUEUE_HEADER_BYTES) {
        return error_set(SHMQ_CORRUPT, "its first page fails its checksum");
    }
    if (queue_id != NULL) {
        memcpy(queue_id, header.queue_id, sizeof header.queue_id);
    }
    if (options_length != NULL) {
        *options_length = header.options_length;
    }
    return SHMQ_OK;
}

/* ---- queue.shmq, pages 1 and 2 */
enum {
    JOURNAL_JSON_AT = sizeof(struct journal_slot) + sizeof(struct journal_options),
    JOURNAL_JSON_MAX = PAGE_BYTES - JOURNAL_JSON_AT
};

static uint32_t crc_of_options(uint32_t length, const void *json)
{
    return crc32c(crc32c(0, &length, sizeof length), json, length);
}

int shmq_journal_format(void *page, const shmq_journal *journal, const char *options, uint32_t length)
{
    if (length > JOURNAL_JSON_MAX) {
        return error_set(SHMQ_TOO_LARGE, "changed options of %" PRIu32 " bytes; there is room for %u", length,
                         JOURNAL_JSON_MAX);
    }
    struct journal_slot slot = {
        .sequence = journal->sequence,
        .epoch = journal->epoch,
        .ceiling = journal->ceiling,
        .first_live = journal->first_live,
        .first_index = journal->first_index,
        .device = journal->device,
        .inode = journal->inode,
        .max_messages = journal->max_messages,
        .max_bytes = journal->max_bytes,
        .dropped = journal->dropped,
        .flags = journal->flags,
    };
    memcpy(slot.boot_id, journal->boot_id, sizeof slot.boot_id);
    slot.crc = crc32c(0, &slot, offsetof(struct journal_slot, crc));
    memset(page, 0, PAGE_BYTES);
    memcpy(page, &slot, sizeof slot);
    if (length > 0) {
        const struct journal_options changed = {length, crc_of_options(length, options)};
        memcpy((uint8_t *)page + sizeof slot, &changed, sizeof changed);
        memcpy((uint8_t *)page + JOURNAL_JSON_AT, options, length);
    }
    return SHMQ_OK;
}

int shmq_journal_check(const void *page)
{
    struct journal_slot slot;
    memcpy(&slot, page, sizeof slot);
    if (slot.sequence == 0 || slot.crc != crc32c(0, &slot, offsetof(struct journal_slot, crc))) {
        return SHMQ_CORRUPT; /* and no story: there is another slot, and somebody may be about to tell one of a put */
    }
    struct journal_options changed;
    memcpy(&changed, (const uint8_t *)page + sizeof slot, sizeof changed);
    const uint8_t *const json = (const uint8_t *)page + JOURNAL_JSON_AT;
    if (changed.length > JOURNAL_JSON_MAX
        || (changed.length > 0 && changed.crc != crc_of_options(changed.length, json))) {
        return SHMQ_CORRUPT;
    }
    return (int)changed.length;
}

/* ---- queue.shmq, pages 3 and 4 */
int shmq_watermark_format(void *page, const shmq_watermark *mark)
{
    struct watermark_slot slot = {
        .sequence = mark->sequence,
        .epoch = mark->epoch,
        .chunk_sequence = mark->chunk_sequence,
        .position = mark->position,
        .index = mark->next_index,
    };
    slot.crc = crc32c(0, &slot, offsetof(struct watermark_slot, crc));
    memset(page, 0, PAGE_BYTES);
    memcpy(page, &slot, sizeof slot);
    return SHMQ_OK;
}

int shmq_watermark_check(const void *page, shmq_watermark *mark)
{
    struct watermark_slot slot;
    memcpy(&slot, page, sizeof slot);
    if (slot.sequence == 0 || slot.crc != crc32c(0, &slot, offsetof(struct watermark_slot, crc))) {
        return error_set(SHMQ_CORRUPT, "a watermark slot fails its checksum");
    }
    *mark = (shmq_watermark){
        .sequence = slot.sequence,
        .epoch = slot.epoch,
        .chunk_sequence = slot.chunk_sequence,
        .position = slot.position,
        .next_index = slot.index,
    };
    return SHMQ_OK;
}

/* ---- control.shmq */
int shmq_control_format(void *memory, const uint8_t queue_id[16])
{
    struct control *const control = memory;
    memset(control, 0, sizeof *control);
    control->magic = CONTROL_MAGIC;
    control->byte_order = BYTE_ORDER_MARK;
    control->version = FORMAT_VERSION;
    memcpy(control->queue_id, queue_id, sizeof control->queue_id);
    return SHMQ_OK;
}

int shmq_control_check(const void *memory, uint64_t bytes, const uint8_t queue_id[16])
{
    if (bytes != CONTROL_BYTES && bytes != CONTROL_BYTES_SMALL) {
        return error_set(SHMQ_FORMAT, "it has %" PRIu64 " bytes instead of %u", bytes, CONTROL_BYTES);
    }
    const struct control *const control = memory;
    const int code = check_opening(memory, CONTROL_MAGIC, "the control file");
    if (code == SHMQ_OK && memcmp(control->queue_id, queue_id, sizeof control->queue_id) != 0) {
        return error_set(SHMQ_CORRUPT, "it belongs to another queue");
    }
    return code;
}

/* ---- NAME.checkpoint */
#define CHECKPOINT_FIXED 128u /* bytes that never change, under the CRC */

int shmq_checkpoint_format(void *memory, const uint8_t queue_id[16], const char *name, uint32_t name_length,
                           uint32_t kind, bool explicit_ack, bool subscribed, uint64_t start_index,
                           int64_t created_ns)
{
    if (name_length == 0 || name_length > sizeof ((struct checkpoint *)memory)->name) {
        return error_set(SHMQ_TOO_LARGE, "a consumer's name has 1 to 64 bytes");
    }
    struct checkpoint *const page = memory;
    memset(page, 0, sizeof *page);
    page->magic = CHECKPOINT_MAGIC;
    page->byte_order = BYTE_ORDER_MARK;
    page->version = FORMAT_VERSION;
    memcpy(page->queue_id, queue_id, sizeof page->queue_id);
    page->kind = kind;
    page->explicit_ack = explicit_ack;
    page->subscribed = subscribed;
    page->created_ns = created_ns;
    page->start_index = start_index;
    page->name_length = name_length;
    memcpy(page->name, name, name_length);
    page->head = start_index;
    page->handed = start_index;
    page->floor = start_index;
    page->crc = crc_around(memory, CHECKPOINT_FIXED, offsetof(struct checkpoint, crc));
    return SHMQ_OK;
}

int shmq_checkpoint_rename(void *memory, const char *name, uint32_t name_length)
{
    struct checkpoint *const page = memory;
    if (name_length == 0 || name_length > sizeof page->name) {
        return error_set(SHMQ_TOO_LARGE, "a consumer's name has 1 to 64 bytes");
    }
    memset(page->name, 0, sizeof page->name);
    memcpy(page->name, name, name_length);
    page->name_length = name_length;
    page->crc = crc_around(memory, CHECKPOINT_FIXED, offsetof(struct checkpoint, crc));
    return SHMQ_OK;
}

int shmq_checkpoint_check(const void *memory, uint64_t bytes, const uint8_t queue_id[16], const char *name,
                          uint32_t name_length)
{
    if (bytes != CHECKPOINT_BYTES) {
        return error_set(SHMQ_CORRUPT, "it has %" PRIu64 " bytes instead of %u", bytes, CHECKPOINT_BYTES);
    }
    const int code = check_opening(memory, CHECKPOINT_MAGIC, "a checkpoint");
    if (code != SHMQ_OK) {
        return code;
    }
    const struct checkpoint *const page = memory;
    if (page->crc != crc_around(memory, CHECKPOINT_FIXED, offsetof(struct checkpoint, crc))) {
        return error_set(SHMQ_CORRUPT, "its header fails its checksum");
    }
    if (memcmp(page->queue_id, queue_id, sizeof page->queue_id) != 0) {
        return error_set(SHMQ_CORRUPT, "it belongs to another queue");
    }
    if (page->name_length != name_length || memcmp(page->name, name, name_length) != 0) {
        return error_set(SHMQ_CORRUPT, "it was made for another name");
    }
    if (page->kind < CHECKPOINT_EXCLUSIVE || page->kind > CHECKPOINT_LONE) {
        return error_set(SHMQ_FORMAT, "it is of kind %" PRIu32 ", which this library does not know", page->kind);
    }
    if (page->explicit_ack > 1 || page->subscribed > 1) {
        return error_set(SHMQ_FORMAT, "it was made with something that this library does not know");
    }
    return SHMQ_OK;
}

int shmq_snapshot_format(void *bytes, const shmq_snapshot *snapshot)
{
    struct snapshot *const slot = bytes;
    memset(bytes, 0, SNAPSHOT_BYTES);
    slot->sequence = snapshot->sequence;
    slot->epoch = snapshot->epoch;
    slot->head = snapshot->head;
    slot->passed = snapshot->head;
    slot->crc = crc_around(bytes, sizeof *slot, offsetof(struct snapshot, crc));
    return SHMQ_OK;
}

int shmq_snapshot_check(const void *bytes, shmq_snapshot *snapshot)
{
    const struct snapshot *const slot = bytes;
    if (slot->sequence == 0 || slot->crc != crc_around(bytes, sizeof *slot, offsetof(struct snapshot, crc))) {
        return error_set(SHMQ_CORRUPT, "a snapshot fails its checksum");
    }
    *snapshot = (shmq_snapshot){.sequence = slot->sequence, .epoch = slot->epoch, .head = slot->head};
    return SHMQ_OK;
}

uint32_t shmq_checkpoint_explicit(const void *memory) { return ((const struct checkpoint *)memory)->explicit_ack; }
uint32_t shmq_checkpoint_subscribed(const void *memory) { return ((const struct checkpoint *)memory)->subscribed; }
uint32_t shmq_checkpoint_kind(const void *memory) { return ((const struct checkpoint *)memory)->kind; }
