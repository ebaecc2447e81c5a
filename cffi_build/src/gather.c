/* gather.c - many messages at once, column by column, in the layout of Arrow.
 *
 * Two passes over at most a batch of messages. The first walks, checks and notes where everything is; the second copies,
 * from a cache that is still warm, into one piece of memory of exactly the size that is needed. What is copied is bounded
 * by what was noted, never by what is read a second time. A reader moves only after the copy is whole.
 *
 * Which bytes are looked at depends on what is wanted: index, time, type and attempts come from a message's head, and its
 * key, headers and payload are not touched for them, so its checksum, which covers all of it, is not looked at either. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "atomic.h"
#include "bounds.h"
#include "chunk.h"
#include "error.h"
#include "layout.h"
#include "owner.h"
#include "shmq.h"

#define ALIGNMENT UINT64_C(64)
#define LOOK_AHEAD 1024
#define OF_BYTES (1u << SHMQ_KEY | 1u << SHMQ_PAYLOAD | 1u << SHMQ_HEADERS)

/* A message that was checked. Small, for a batch of them should stay in the cache; positions in a chunk, which has at
 * most 2 GiB, fit 32 bits. The key ends where the payload begins. */
struct row {
    int64_t time_ns;
    uint32_t ordinal;
    uint32_t payload; /* position */
    uint32_t payload_length;
    uint32_t headers; /* position */
    uint32_t headers_length;
    uint16_t key_length;
    uint16_t type;
};
static_assert(sizeof(struct row) == 32, "two of them in a cache line");

static uint64_t aligned(uint64_t bytes) { return (bytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1); }
static uint64_t to_units(uint64_t bytes) { return (bytes + SPAN_UNIT - 1) / SPAN_UNIT * SPAN_UNIT; }
static bool wants(const shmq_wanted *wanted, enum shmq_column column) { return (wanted->columns >> column & 1u) != 0; }

/* ------------------------------------------------------------------ noting */

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
        bytes = sizeof field + to_units(field.length);
    }
    return bytes <= end - at ? bytes : 0;
}

/* Where the headers of a message are: true, and a length of 0 when there are none. */
static bool find_headers(const shmq_chunk *chunk, uint64_t position, const struct record *record, struct row *row)
{
    uint64_t at = position + RECORD_HEADER_BYTES;
    const uint64_t end = at + record->extra_words * SPAN_UNIT; /* inside the message: its frame was checked */
    for (uint32_t flag = 0; (record->flags & RECORD_HEADERS) != 0; flag++) {
        if ((record->flags >> flag & 1u) == 0) {
            continue;
        }
        uint32_t length = 0;
        const uint64_t bytes = field_bytes(chunk, at, end, flag, &length);
        if (bytes == 0) {
            return false;
        }
        if (1u << flag == RECORD_HEADERS) {
            row->headers = (uint32_t)(at + sizeof(struct field_bytes));
            row->headers_length = length;
            return true;
        }
        at += bytes;
    }
    return true;
}

/* Check the message of a DONE word as far as it is wanted, and note where its parts are: OK or CORRUPT. */
static int note(const shmq_chunk *chunk, const struct walk *walk, word_t word, const shmq_wanted *wanted,
                struct row *row)
{
    struct record record;
    const int64_t place = check_frame(chunk, walk->position, walk->ordinal, word, &record);
    int code = place < 0 ? (int)place : SHMQ_OK;
    if (code == SHMQ_OK && ((wanted->columns & OF_BYTES) != 0 || wanted->checked != 0)) {
        code = check_sum(chunk, walk->position, &record);
    }
    if (code != SHMQ_OK) {
        return code;
    }
    const uint64_t payload =
        walk->position + RECORD_HEADER_BYTES + record.extra_words * SPAN_UNIT + to_units(record.key_length);
    *row = (struct row){
        .time_ns = record.time_ns,
        .ordinal = record.ordinal,
        .payload = (uint32_t)payload,
        .payload_length = wants(wanted, SHMQ_PAYLOAD) ? (uint32_t)(walk->position + record.length - payload) : 0,
        .key_length = wants(wanted, SHMQ_KEY) ? record.key_length : 0,
        .type = record.type,
    };
    if (wants(wanted, SHMQ_HEADERS) && !find_headers(chunk, walk->position, &record, row)) {
        return error_set(SHMQ_CORRUPT, "chunk %016" PRIx64 "-%08" PRIx64 ", position %" PRIu64
                         ": the optional fields of a message reach beyond it", chunk->base, chunk->sequence,
                         walk->position);
    }
    return SHMQ_OK;
}

/* What was noted so far. */
struct notes {
    struct row *rows;
    uint64_t count;
    uint64_t keys; /* bytes */
    uint64_t payloads;
    uint64_t headers;
    uint64_t without_key;
    uint64_t without_headers;
    uint64_t dropped; /* messages that were passed, and are no rows */
};

static bool has_room(const struct notes *notes, const struct row *row, const shmq_wanted *wanted)
{
    const uint64_t bytes = notes->keys + notes->payloads + notes->headers;
    const uint64_t more = (uint64_t)row->key_length + row->payload_length + row->headers_length;
    return notes->count == 0 || bytes + more <= wanted->bytes;
}

static void add_up(struct notes *notes, const struct row *row)
{
    notes->count++;
    notes->keys += row->key_length;
    notes->payloads += row->payload_length;
    notes->headers += row->headers_length;
    notes->without_key += row->key_length == 0;
    notes->without_headers += row->headers_length == 0;
}

/* What a consumer's name gets of a message that was checked, as shmq_next has it: OK, EMPTY when it gets nothing of it, since
 * it was dropped or has expired, or WAITING for its time. */
static int wanted_now(const shmq_chunk *chunk, shmq_reader *reader, const struct walk *walk, struct notes *notes)
{
    if (reader->checkpoint == NULL) {
        return SHMQ_OK;
    }
    if (reader_drops(chunk, reader, chunk->base + walk->ordinal)) {
        reader->due_ns = 0;
        notes->dropped++;
        return SHMQ_EMPTY;
    }
    const uint16_t times = record_times(chunk, walk->position);
    return times == 0 ? SHMQ_OK : record_timely(chunk, reader, walk->position, times);
}

/* Walk over messages and note them: why it ended. OK: at the end of the batch. EMPTY also at the stop. */
static int collect(shmq_chunk *chunk, shmq_reader *reader, struct walk *walk, const shmq_wanted *wanted,
                   struct notes *notes)
{
    while (notes->count < wanted->rows) {
        /* Small messages lie so close that the processor's own look-ahead, which ends with each page, comes late. */
        __builtin_prefetch(chunk->memory + walk->position + LOOK_AHEAD);
        __builtin_prefetch(chunk->memory + walk->position + LOOK_AHEAD + ALIGNMENT);
        const word_t word = walk_look(chunk, walk);
        if (word == 0) {
            const int end = nothing_there(chunk, walk);
            if (end != SHMQ_OK) {
                return end;
            }
            continue;
        }
        if (word_seals(word)) {
            return SHMQ_ROLL;
        }
        if (chunk->base + walk->ordinal >= wanted->stop) {
            return SHMQ_EMPTY;
        }
        int code;
        struct row *const row = &notes->rows[notes->count];
        switch (word_state(word)) {
        case WORD_DONE:
            code = note(chunk, walk, word, wanted, row);
            if (code != SHMQ_OK) {
                return code;
            }
            if (chunk->base + walk->ordinal >= reader->start) {
                code = wanted_now(chunk, reader, walk, notes);
                if (code == SHMQ_EMPTY) {
                    break;
                }
                if (code != SHMQ_OK) {
                    return code;
                }
                if (row->time_ns >= wanted->stop_time_ns && wanted->stop_time_ns != INT64_MAX) {
                    return SHMQ_EMPTY;
                }
                if (!has_room(notes, row, wanted)) {
                    return SHMQ_OK;
                }
                add_up(notes, row);
                reader->record = walk->position;
                reader->index = chunk->base + walk->ordinal;
            }
            break;
        case WORD_CLAIMED:
            reader->waiting_for = word_owner(word);
            code = settle(chunk, walk->position, word);
            if (code != SHMQ_OK) {
                return code;
            }
            continue; /* it is padding now, or was committed */
        default:
            break;
        }
        code = walk_past(chunk, walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
        reader->padded += word_state(word) == WORD_PAD ? word_count(word) : 0;
    }
    return SHMQ_OK;
}

/* ------------------------------------------------------------------ laying out and copying */
static const uint64_t width[SHMQ_COLUMNS] = {
    [SHMQ_INDEX] = sizeof(uint64_t), [SHMQ_TIME] = sizeof(int64_t), [SHMQ_TYPE] = sizeof(uint16_t),
    [SHMQ_ATTEMPTS] = sizeof(uint16_t)};

static void place_column(const struct notes *notes, enum shmq_column column, shmq_gathered *batch)
{
    shmq_column_place *const place = &batch->columns[column];
    place->bytes = column == SHMQ_KEY       ? notes->keys
                   : column == SHMQ_PAYLOAD ? notes->payloads
                   : column == SHMQ_HEADERS ? notes->headers
                                            : notes->count * width[column];
    place->absent = column == SHMQ_KEY ? notes->without_key : column == SHMQ_HEADERS ? notes->without_headers : 0;
    if (place->absent != 0) {
        place->validity = batch->bytes;
        batch->bytes += aligned((notes->count + 7) / 8);
    }
    if ((1u << column & OF_BYTES) != 0) {
        place->offsets = batch->bytes;
        batch->bytes += aligned((notes->count + 1) * sizeof(int32_t));
    }
    place->values = batch->bytes;
    batch->bytes += aligned(place->bytes);
}

/* One column of bytes, with its offsets and, where some row has none, its bits. */
static void copy_parts(const shmq_chunk *chunk, const struct notes *notes, const shmq_column_place *place,
                       uint8_t *memory, enum shmq_column column)
{
    uint8_t *const validity = memory + place->validity;
    int32_t *const offsets = (int32_t *)(memory + place->offsets);
    uint8_t *to = memory + place->values;
    if (place->absent != 0) {
        memset(validity, 0, (notes->count + 7) / 8);
    }
    for (uint64_t i = 0; i < notes->count; i++) {
        const struct row *const row = &notes->rows[i];
        const uint64_t from = column == SHMQ_KEY       ? row->payload - to_units(row->key_length)
                              : column == SHMQ_PAYLOAD ? row->payload
                                                       : row->headers;
        const uint32_t length = column == SHMQ_KEY       ? row->key_length
                                : column == SHMQ_PAYLOAD ? row->payload_length
                                                         : row->headers_length;
        offsets[i] = (int32_t)(to - (memory + place->values));
        shared_read(to, chunk->memory + from, length);
        to += length;
        if (place->absent != 0 && length != 0) {
            validity[i / 8] |= (uint8_t)(1u << i % 8);
        }
    }
    offsets[notes->count] = (int32_t)(to - (memory + place->values));
}

static void copy_column(const shmq_chunk *chunk, const struct notes *notes, const shmq_wanted *wanted,
                        enum shmq_column column, const shmq_gathered *batch)
{
    const struct row *const rows = notes->rows;
    uint8_t *const memory = batch->memory;
    uint8_t *const values = memory + batch->columns[column].values;
    switch (column) {
    case SHMQ_INDEX:
        for (uint64_t i = 0; i < notes->count; i++) {
            ((uint64_t *)values)[i] = chunk->base + rows[i].ordinal;
        }
        break;
    case SHMQ_TIME:
        for (uint64_t i = 0; i < notes->count; i++) {
            ((int64_t *)values)[i] = rows[i].time_ns;
        }
        break;
    case SHMQ_TYPE:
        for (uint64_t i = 0; i < notes->count; i++) {
            ((uint16_t *)values)[i] = rows[i].type;
        }
        break;
    case SHMQ_ATTEMPTS:
        for (uint64_t i = 0; i < notes->count; i++) {
            ((uint16_t *)values)[i] = chunk->base + rows[i].ordinal < wanted->handed_before ? 2 : 1;
        }
        break;
    default:
        copy_parts(chunk, notes, &batch->columns[column], memory, column);
        break;
    }
}

/* Give every column that is wanted its place, the first one at `start`. */
static void lay_out(const struct notes *notes, const shmq_wanted *wanted, uint64_t start, shmq_gathered *batch)
{
    batch->bytes = start;
    for (uint32_t column = 0; column < SHMQ_COLUMNS; column++) {
        if (wants(wanted, column)) {
            place_column(notes, column, batch);
        }
    }
}

/* All columns that are wanted, in memory of their own: OK or SYSTEM. */
static int copy(const shmq_chunk *chunk, const struct notes *notes, const shmq_wanted *wanted, shmq_gathered *batch)
{
    batch->first = chunk->base + notes->rows[0].ordinal;
    batch->last = chunk->base + notes->rows[notes->count - 1].ordinal;
    lay_out(notes, wanted, ALIGNMENT, batch);
    batch->memory = malloc(batch->bytes);
    if (batch->memory == NULL) {
        return error_system(-ENOMEM, "asked for memory for a batch of %" PRIu64 " bytes", batch->bytes);
    }
    /* From the first aligned address behind its beginning: at 1 to 64, so that no offset is 0. */
    lay_out(notes, wanted, ALIGNMENT - (uintptr_t)batch->memory % ALIGNMENT, batch);
    for (uint32_t column = 0; column < SHMQ_COLUMNS; column++) {
        if (wants(wanted, column)) {
            copy_column(chunk, notes, wanted, column, batch);
        }
    }
    return SHMQ_OK;
}

int64_t shmq_gather(shmq_chunk *chunk, shmq_reader *reader, const shmq_wanted *wanted, shmq_gathered *batch)
{
    *batch = (shmq_gathered){.memory = NULL};
    if (member_forked(chunk->member)) {
        return error_set(SHMQ_FORKED, "this handle belongs to the parent process");
    }
    if (reader_is_shut(chunk, reader)) {
        return SHMQ_EMPTY;
    }
    const uint64_t most = chunk->capacity / RECORD_HEADER_BYTES;
    shmq_wanted plan = *wanted;
    plan.rows = wanted->rows < most ? wanted->rows : most;
    plan.bytes = wanted->bytes < INT32_MAX ? wanted->bytes : INT32_MAX;
    struct notes notes = {.rows = malloc(plan.rows * sizeof *notes.rows)};
    if (notes.rows == NULL) {
        return error_system(-ENOMEM, "asked for memory for a batch of %" PRIu64 " messages", plan.rows);
    }
    struct walk walk;
    if (!reader_begin(reader, &walk)) {
        free(notes.rows);
        return SHMQ_CONTENDED;
    }
    const struct walk before = walk;
    int64_t answer = collect(chunk, reader, &walk, &plan, &notes);
    int code = SHMQ_OK;
    if (notes.count > 0) {
        code = copy(chunk, &notes, &plan, batch);
        answer = code == SHMQ_OK ? (int64_t)notes.count : code;
        if (code == SHMQ_OK) {
            (void)reader_publish(chunk, reader, &walk); /* copied and acknowledged at once: dropping comes too late */
        } else {
            walk = before;
        }
    }
    for (; code == SHMQ_OK && notes.dropped > 0; notes.dropped--) {
        note_dropped(reader->checkpoint);
    }
    reader_end(reader, &walk);
    free(notes.rows);
    return answer;
}

void shmq_gathered_free(void *memory) { free(memory); }
