/* record.h - a message behind its word: how its parts lie, and whether it is what its word says. */
#ifndef SHMQ_RECORD_H
#define SHMQ_RECORD_H

#include "chunk/walk.h"
#include "crc.h"

/* From so many bytes on a payload is copied and summed up in one pass. The sum is always that of the copy: what is checked
 * is what is delivered, whatever others do to the original meanwhile. */
#define COPIED_BYTES 2048u
/* What has to be decoded is looked at where it lies, up to so many. */
#define LARGE_BYTES 32768u

/* A payload's place in the chunk, as one number. */
#define PLACE_LENGTH_BITS 30
static inline int64_t place_of(uint64_t position, uint64_t length) { return (int64_t)(position << PLACE_LENGTH_BITS | length); }
static inline uint64_t place_end(int64_t place)
{
    return ((uint64_t)place >> PLACE_LENGTH_BITS) + ((uint64_t)place & ((1u << PLACE_LENGTH_BITS) - 1));
}

/* Bytes of the fields of fixed size that these flags announce. */
static inline uint64_t fixed_bytes(uint32_t flags)
{
    return (uint64_t)((flags & RECORD_EXPIRY) != 0) * sizeof(struct field_when)
           + (uint64_t)((flags & RECORD_DELAY) != 0) * sizeof(struct field_when)
           + (uint64_t)((flags & RECORD_DEDUP) != 0) * sizeof(struct field_dedup);
}

/* What a message's checksum covers behind that of its chunk, and before the message itself from its ordinal on. */
struct summed_place {
    uint64_t position;
    uint32_t ordinal;
    uint32_t length;
};
#define SUMMED_FROM offsetof(struct record, ordinal)

/* So many messages of one size in a row have their sums made side by side, which takes little longer than one; not large ones,
 * of which a single one has parts enough. */
#define FOUR 4u
#define FOUR_BYTES 2048u

/* The sums of four messages of `length` bytes, from `position` on, `span` bytes apart. */
static inline void record_crc_of_four(const shmq_chunk *chunk, uint64_t position, uint64_t span, uint32_t length,
                                      const struct summed_place places[FOUR], uint32_t sums[FOUR])
{
    const uint64_t from = position + SUMMED_FROM;
    crc32c_four(chunk->crc_seed, places, shared_span(chunk->memory + from, span * FOUR - SUMMED_FROM), span,
                length - SUMMED_FROM, sums);
}

/* Of its first `bytes` bytes, and of where it stands. */
static inline uint32_t record_crc_of(const shmq_chunk *chunk, uint64_t position, const struct record *record, uint64_t bytes)
{
    const struct summed_place place = {position, record->ordinal, record->length};
    const uint32_t crc = crc32c(chunk->crc_seed, &place, sizeof place);
    const uint64_t from = SUMMED_FROM;
    return crc32c(crc, shared_span(chunk->memory + position + from, bytes - from), bytes - from);
}

static inline uint32_t record_crc(const shmq_chunk *chunk, uint64_t position, const struct record *record)
{
    return record_crc_of(chunk, position, record, record->length);
}

/* A DONE region's message, but for its checksum: the head as it was read, and its payload's place or CORRUPT. */
int64_t check_frame(const shmq_chunk *chunk, uint64_t position, uint64_t ordinal, word_t word, struct record *whole);
/* And then only that. */
int check_sum(const shmq_chunk *chunk, uint64_t position, const struct record *record);
/* The message of a DONE word, checked: its payload's place or CORRUPT. */
int64_t check_record(const shmq_chunk *chunk, uint64_t position, uint64_t ordinal, word_t word);

/* Where the headers of a message lie whose frame was checked: a length of 0 when it has none, false when its optional fields
 * reach beyond it. */
bool record_headers(const shmq_chunk *chunk, uint64_t position, const struct record *record, uint64_t *headers,
                    uint32_t *length);

/* Where a payload is wanted besides being checked: `to`, if it has no more than `room` bytes. */
struct copy {
    char *to;
    uint64_t room;
};

/* Check a message, and copy its payload in the same pass where it is wanted and fits: what is checked is the copy. */
static inline int64_t check_copying(const shmq_chunk *chunk, uint64_t position, uint64_t ordinal, word_t word,
                                    const struct copy *copy)
{
    struct record record;
    const int64_t place = check_frame(chunk, position, ordinal, word, &record);
    if (place < 0) {
        return place;
    }
    const uint64_t payload = ((uint64_t)place >> PLACE_LENGTH_BITS) - position;
    const uint64_t length = record.length - payload;
    if (copy == NULL || length > copy->room) {
        const int code = check_sum(chunk, position, &record);
        return code == SHMQ_OK ? place : code;
    }
    if (!chunk->checksum) {
        shared_read(copy->to, chunk->memory + position + payload, length);
    } else if (record.crc != crc32c_copy(record_crc_of(chunk, position, &record, payload), copy->to,
                                         chunk->memory + position + payload, length)) {
        return corrupt(chunk, position, "a message fails its checksum");
    }
    return place;
}

#endif
