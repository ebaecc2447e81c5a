/* record.c - a message behind its word, read: does it fit its word, is it the one that belongs here, is it whole?
 *
 * Shared bytes are read once, into a local; the local is checked, then used. A record carries its place and its ordinal
 * under its checksum, so no wrong hint delivers a right record under a wrong index. */
#include "chunk/record.h"

#include "chunk/walk.h"
#include "error.h"

/* A DONE region's message, but for its checksum. Shared bytes are read once, into a local; the local is checked, then
 * used. */
int64_t check_frame(const shmq_chunk *chunk, uint64_t position, uint64_t ordinal, word_t word, struct record *whole)
{
    struct record record;
    if (word_count(word) != 1) {
        return corrupt(chunk, position, "a word that no claim could have written");
    }
    if (word_bytes(word) < sizeof record || position + word_bytes(word) > chunk->capacity - SEAL_BYTES) {
        return corrupt(chunk, position, "a message reaches beyond the chunk");
    }
    shared_read(&record, chunk->memory + position, sizeof record);
    const uint64_t payload = RECORD_HEADER_BYTES + record.extra_words * SPAN_UNIT + round_up(record.key_length);
    if (record.length < payload || round_up(record.length) != word_bytes(word)) {
        return corrupt(chunk, position, "a message's length disagrees with its word");
    }
    if (record.ordinal != ordinal) {
        return corrupt(chunk, position, "a message is not the one that belongs here");
    }
    if (record.flags != 0 && fixed_bytes(record.flags) > record.extra_words * SPAN_UNIT) {
        return corrupt(chunk, position, "the optional fields of a message reach beyond it");
    }
    *whole = record;
    return place_of(position + payload, record.length - payload);
}

int check_sum(const shmq_chunk *chunk, uint64_t position, const struct record *record)
{
    if (chunk->checksum && record->crc != record_crc(chunk, position, record)) {
        return corrupt(chunk, position, "a message fails its checksum");
    }
    return SHMQ_OK;
}

int64_t check_record(const shmq_chunk *chunk, uint64_t position, uint64_t ordinal, word_t word)
{
    return check_copying(chunk, position, ordinal, word, NULL);
}

/* Bytes of the optional field that a flag announces, padding included; 0 when it does not fit the rest. */
static uint64_t field_bytes(const shmq_chunk *chunk, uint64_t at, uint64_t end, uint32_t flag, uint32_t *length)
{
    static const uint64_t fixed[] = {sizeof(struct field_when), sizeof(struct field_when), sizeof(struct field_dedup),
                                     sizeof(struct field_trace), sizeof(struct field_transaction)};
    uint64_t bytes;
    if (flag < sizeof fixed / sizeof *fixed) {
        bytes = fixed[flag];
    } else {
        struct field_bytes field;
        if (end - at < sizeof field) {
            return 0;
        }
        shared_read(&field, chunk->memory + at, sizeof field);
        *length = field.length;
        bytes = sizeof field + round_up(field.length);
    }
    return bytes <= end - at ? bytes : 0;
}

bool record_headers(const shmq_chunk *chunk, uint64_t position, const struct record *record, uint64_t *headers,
                    uint32_t *length)
{
    uint64_t at = position + RECORD_HEADER_BYTES;
    const uint64_t end = at + record->extra_words * SPAN_UNIT; /* inside the message: its frame was checked */
    *length = 0;
    for (uint32_t flag = 0; (record->flags & RECORD_HEADERS) != 0; flag++) {
        if ((record->flags >> flag & 1u) == 0) {
            continue;
        }
        uint32_t bytes_there = 0;
        const uint64_t bytes = field_bytes(chunk, at, end, flag, &bytes_there);
        if (bytes == 0) {
            return false;
        }
        if (1u << flag == RECORD_HEADERS) {
            *headers = at + sizeof(struct field_bytes);
            *length = bytes_there;
            return true;
        }
        at += bytes;
    }
    return true;
}

shmq_head shmq_head_of(const void *memory, uint64_t at, uint64_t payload)
{
    struct record record;
    shared_read(&record, (const char *)memory + at, sizeof record);
    const uint64_t key = at + RECORD_HEADER_BYTES + record.extra_words * SPAN_UNIT;
    const uint64_t room = key < payload ? payload - key : 0; /* it was so when it was checked; who may write can change it */
    return (shmq_head){
        .time_ns = record.time_ns,
        .key = key,
        .key_length = record.key_length < room ? record.key_length : (uint32_t)room,
        .type = record.type,
        .flags = record.flags,
    };
}

bool shmq_chunk_holds(const shmq_chunk *chunk, uint64_t record, uint64_t place)
{
    const uint64_t payload = place >> PLACE_LENGTH_BITS;
    return record <= chunk->capacity && payload <= chunk->capacity && record + RECORD_HEADER_BYTES <= payload
           && place_end((int64_t)place) <= chunk->capacity;
}

uint64_t shmq_weight_of(uint64_t record, uint64_t place)
{
    const uint64_t bytes = place_end((int64_t)place) - record - RECORD_HEADER_BYTES;
    return bytes > 0 ? bytes : 1;
}

int64_t shmq_check(shmq_chunk *chunk, uint64_t position, uint64_t ordinal)
{
    if (position < chunk->first_position || position + SEAL_BYTES > chunk->capacity || position % SPAN_UNIT != 0) {
        return corrupt(chunk, position, "no message can be there");
    }
    const struct walk walk = {position, ordinal};
    const word_t word = walk_look(chunk, &walk);
    return word_state(word) == WORD_DONE ? check_record(chunk, position, ordinal, word)
                                         : corrupt(chunk, position, "there is no message");
}
