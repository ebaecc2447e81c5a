/* write.h - a message on its way into a claimed region. */
#ifndef SHMQ_WRITE_H
#define SHMQ_WRITE_H

#include "chunk/record.h"

/* How the parts of one message lie behind each other. */
struct shape {
    uint64_t extra;   /* bytes of optional fields, padded */
    uint64_t payload; /* offset of the payload from the word */
    uint64_t length;  /* from the word to the end of the payload */
};

static inline struct shape shape_of(uint32_t fixed_flags, uint64_t key_length, uint64_t headers_length,
                                    uint64_t payload_length)
{
    struct shape shape;
    shape.extra = fixed_bytes(fixed_flags);
    shape.extra += headers_length == 0 ? 0 : sizeof(struct field_bytes) + round_up(headers_length);
    shape.payload = RECORD_HEADER_BYTES + shape.extra + round_up(key_length);
    shape.length = shape.payload + payload_length;
    return shape;
}

/* OK, or TOO_LARGE. */
int check_shape(const struct shape *shape, uint64_t key_length, uint64_t payload_length);
struct record record_of(const shmq_chunk *chunk, const struct shape *shape, const shmq_fields *fields);
/* Everything before the payload, but for the word and the CRC. */
void write_head(shmq_chunk *chunk, uint64_t position, const struct record *record, const shmq_fields *fields);
/* The payload, behind a head that is written already, and the checksum of both. */
void write_payload(const shmq_chunk *chunk, uint64_t position, struct record *record, const char *payload, uint64_t length);
/* The payload was written by somebody else: zeros behind it, and the checksum. */
static inline void write_crc(const shmq_chunk *chunk, uint64_t position, struct record *record)
{
    record->crc = chunk->checksum ? record_crc(chunk, position, record) : 0;
    shared_write(chunk->memory + position + offsetof(struct record, crc), &record->crc, sizeof record->crc);
}
/* The head of a message that has nothing but its payload; the word and the CRC come later. */
static inline void write_plain_head(const shmq_chunk *chunk, uint64_t position, const struct record *record)
{
    const uint64_t from = offsetof(struct record, length);
    shared_write(chunk->memory + position + from, (const uint8_t *)record + from, sizeof *record - from);
}
/* Zeros behind a part, up to the next whole word. Before the checksum. */
void pad_part(const shmq_chunk *chunk, uint64_t position, uint64_t length);

/* Of a column of lengths that may not be there. */
static inline uint64_t length_at(const uint32_t *lengths, uint32_t i) { return lengths == NULL ? 0 : lengths[i]; }

#endif
