/* write.c - a message, written into a region that is claimed: its head, its parts, its checksum.
 *
 * All of it lies inside our own claim, where nobody looks before the commit; but for the word itself, which is put.c's.
 * What is wrong with a message is found out before anything is claimed for it. */
#include "chunk/write.h"

#include <inttypes.h>

#include "error.h"
#include "os/os.h"

/* ------------------------------------------------------------------ how its parts lie */
int check_shape(const struct shape *shape, uint64_t key_length, uint64_t payload_length)
{
    if (key_length > KEY_MAX) {
        return error_set(SHMQ_TOO_LARGE, "a key of %" PRIu64 " bytes; a key has at most %u", key_length, KEY_MAX);
    }
    if (shape->extra > (uint64_t)EXTRA_WORDS_MAX * SPAN_UNIT) {
        return error_set(SHMQ_TOO_LARGE, "headers of %" PRIu64 " bytes; they have at most %u", shape->extra,
                         EXTRA_WORDS_MAX * SPAN_UNIT);
    }
    if (payload_length >= (uint64_t)SPAN_MAX * SPAN_UNIT || round_up(shape->length) > (uint64_t)SPAN_MAX * SPAN_UNIT) {
        return error_set(SHMQ_TOO_LARGE, "a message of %" PRIu64 " bytes with its header; one has at most %u",
                         shape->length, SPAN_MAX * SPAN_UNIT);
    }
    return SHMQ_OK;
}

int shmq_check_fields(const shmq_fields *fields, uint64_t length)
{
    const struct shape shape = shape_of(fields->fixed_flags, fields->key_length, fields->headers_length, length);
    return check_shape(&shape, fields->key_length, length);
}

uint64_t shmq_record_bytes(const shmq_fields *fields, uint64_t length)
{
    return round_up(shape_of(fields->fixed_flags, fields->key_length, fields->headers_length, length).length);
}

/* ------------------------------------------------------------------ writing them */
struct record record_of(const shmq_chunk *chunk, const struct shape *shape, const shmq_fields *fields)
{
    return (struct record){
        .length = (uint32_t)shape->length,
        .batch = 1,
        .time_ns = fields->time_ns == INT64_MIN ? os->clock_wall_ns() : fields->time_ns,
        .type = (uint16_t)fields->type,
        .flags = (uint16_t)((fields->fixed_flags & (RECORD_EXPIRY | RECORD_DELAY | RECORD_DEDUP))
                            | (fields->headers_length > 0 ? RECORD_HEADERS : 0)
                            | (chunk->checksum ? 0 : RECORD_UNCHECKED)),
        .key_length = (uint16_t)fields->key_length,
        .extra_words = (uint16_t)(shape->extra / SPAN_UNIT),
    };
}

/* Parts are padded with zeros. Where there is a grain, what lies there already may be anything. */
void pad_part(const shmq_chunk *chunk, uint64_t position, uint64_t length)
{
    static const uint8_t zeros[SPAN_UNIT];
    const uint64_t rest = round_up(length) - length;
    if (chunk->grain != SPAN_UNIT && rest != 0) {
        shared_write(chunk->memory + position + length, zeros, rest);
    }
}

void write_head(shmq_chunk *chunk, uint64_t position, const struct record *record, const shmq_fields *fields)
{
    uint8_t *const at = chunk->memory + position;
    const uint64_t from = offsetof(struct record, length);
    shared_write(at + from, (const uint8_t *)record + from, sizeof *record - from);
    uint64_t offset = RECORD_HEADER_BYTES + fixed_bytes(fields->fixed_flags);
    if (fields->fixed_flags != 0) {
        shared_write(at + RECORD_HEADER_BYTES, fields->fixed, offset - RECORD_HEADER_BYTES);
    }
    if (fields->headers_length > 0) {
        const struct field_bytes field = {fields->headers_length, 0};
        shared_write(at + offset, &field, sizeof field);
        shared_write(at + offset + sizeof field, fields->headers, fields->headers_length);
        pad_part(chunk, position + offset + sizeof field, fields->headers_length);
        offset = RECORD_HEADER_BYTES + record->extra_words * SPAN_UNIT;
    }
    if (fields->key_length > 0) {
        shared_write(at + offset, fields->key, fields->key_length);
        pad_part(chunk, position + offset, fields->key_length);
    }
}

void write_payload(const shmq_chunk *chunk, uint64_t position, struct record *record, const char *payload,
                          uint64_t length)
{
    const uint64_t head = record->length - length;
    uint8_t *const at = chunk->memory + position + head;
    pad_part(chunk, position, record->length);
    if (length < COPIED_BYTES || !chunk->checksum) {
        shared_write(at, payload, length);
        write_crc(chunk, position, record);
        return;
    }
    /* Where all was zeroed, past the cache, it is in nobody's cache. */
    const bool cached = chunk->grain != SPAN_UNIT;
    const uint32_t crc = record_crc_of(chunk, position, record, head);
    record->crc = cached ? crc32c_copy(crc, at, payload, length) : crc32c_stream(crc, at, payload, length);
    shared_write(chunk->memory + position + offsetof(struct record, crc), &record->crc, sizeof record->crc);
}
