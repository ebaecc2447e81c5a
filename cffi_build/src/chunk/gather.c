/* gather.c - many messages at once, column by column, in the layout of Arrow.
 *
 * Two passes over at most a batch of messages. The first walks, checks and notes where everything is; the second copies,
 * from a cache that is still warm, into one piece of memory of exactly the size that is needed. What is copied is bounded
 * by what was noted, never by what is read a second time. A reader moves only after the copy is whole.
 *
 * Numbers out of records of one size need no noting: each is copied as soon as its message was checked, into memory for as
 * many as there may be.
 *
 * Which bytes are looked at depends on what is wanted: index, time, type and attempts come from a message's head, and its
 * key, headers and payload are not touched for them, so its checksum, which covers all of it, is not looked at either. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "atomic.h"
#include "chunk/bounds.h"
#include "chunk/record.h"
#include "chunk/settle.h"
#include "chunk/take.h"
#include "chunk/timed.h"
#include "crc.h"
#include "error.h"
#include "layout.h"
#include "os/member.h"
#include "shmq.h"

#define ALIGNMENT UINT64_C(64)
#define LOOK_AHEAD 1024
#define OF_BYTES (1u << SHMQ_KEY | 1u << SHMQ_PAYLOAD | 1u << SHMQ_HEADERS)
/* Made twice: for records, and for all else, where nobody asks of each message whether it is one. */
#define SPECIALISED inline __attribute__((always_inline))

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

/* Check the message of a DONE word as far as it is wanted, and note where its parts are: OK or CORRUPT. */
static SPECIALISED int note(const shmq_chunk *chunk, const struct walk *walk, word_t word, const shmq_wanted *wanted,
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
    uint64_t headers = 0;
    if (wants(wanted, SHMQ_HEADERS) && !record_headers(chunk, walk->position, &record, &headers, &row->headers_length)) {
        return error_set(SHMQ_CORRUPT, "chunk %016" PRIx64 "-%08" PRIx64 ", position %" PRIu64
                         ": the optional fields of a message reach beyond it", chunk->base, chunk->sequence,
                         walk->position);
    }
    row->headers = (uint32_t)headers;
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

/* Payloads that are records: columns of some numbers of each, which are filled while walking. What was checked is in the
 * nearest cache then, and nothing needs to be noted. */
struct records {
    uint32_t size; /* of a payload */
    uint32_t count;
    const shmq_field *fields;
    shmq_column_place *places;
    uint8_t *memory;
    uint64_t *index; /* columns beside them, or NULL */
    int64_t *time_ns;
    uint16_t *type;
    uint8_t *validity;
    uint64_t absent;
    uint32_t first; /* ordinal */
};

/* A field of some payloads in a row, which lie `apart` bytes apart and have it, as was checked. */
static void take_numbers(uint8_t *to, const uint8_t *from, uint64_t apart, uint32_t bytes, uint32_t count)
{
    for (; count > 0; count--, to += bytes, from += apart) {
        switch (bytes) { /* each a single load and store */
        case 1:
            shared_read(to, from, 1);
            break;
        case 2:
            shared_read(to, from, 2);
            break;
        case 4:
            shared_read(to, from, 4);
            break;
        default:
            shared_read(to, from, 8);
            break;
        }
    }
}

static void take_head(const shmq_chunk *chunk, struct records *records, const struct record *record, uint64_t number)
{
    records->first = number == 0 ? record->ordinal : records->first;
    if (records->index != NULL) {
        records->index[number] = chunk->base + record->ordinal;
    }
    if (records->time_ns != NULL) {
        records->time_ns[number] = record->time_ns;
    }
    if (records->type != NULL) {
        records->type[number] = record->type;
    }
}

static void take_record(const shmq_chunk *chunk, struct records *records, const struct row *row, uint64_t number)
{
    static const uint8_t nothing[8];
    const struct record head = {.ordinal = row->ordinal, .time_ns = row->time_ns, .type = row->type};
    take_head(chunk, records, &head, number);
    const bool whole = row->payload_length == records->size;
    if (!whole) {
        records->validity[number / 8] &= (uint8_t)~(1u << number % 8);
        records->absent++;
    }
    for (uint32_t i = 0; i < records->count; i++) {
        const shmq_field field = records->fields[i];
        const uint8_t *const from = whole ? chunk->memory + row->payload + field.offset : nothing;
        take_numbers(records->memory + records->places[i].values + number * field.bytes, from, 0, field.bytes, 1);
    }
}

/* The next four messages, if they are records and nothing else, and all four are as they were put: their sums are made side
 * by side. False: somebody looks at the next one by itself, and says what it is. */
static bool take_four(const shmq_chunk *chunk, shmq_reader *reader, struct walk *walk, const shmq_wanted *wanted,
                      struct records *records, struct notes *notes)
{
    const uint64_t length = (uint64_t)RECORD_HEADER_BYTES + records->size;
    const uint64_t span = to_units(length);
    const uint64_t from = walk->position;
    const uint64_t index = chunk->base + walk->ordinal;
    if (notes->count + FOUR > wanted->rows || index < reader->start || index + FOUR > wanted->stop
        || span * FOUR > chunk->capacity - SEAL_BYTES || from > chunk->capacity - SEAL_BYTES - span * FOUR) {
        return false;
    }
    for (uint64_t at = 0; at < span * FOUR; at += ALIGNMENT) {
        __builtin_prefetch(chunk->memory + from + LOOK_AHEAD + at);
    }
    struct record heads[FOUR];
    struct summed_place places[FOUR];
    for (uint32_t i = 0; i < FOUR; i++) {
        const struct walk here = {from + i * span, walk->ordinal + i};
        const word_t word = walk_look(chunk, &here);
        if (word_state(word) != WORD_DONE || word_count(word) != 1 || word_bytes(word) != span) {
            return false;
        }
        shared_read(&heads[i], chunk->memory + here.position, sizeof heads[i]);
        if (heads[i].length != length || heads[i].ordinal != here.ordinal || heads[i].key_length != 0
            || heads[i].extra_words != 0 || heads[i].flags != 0) {
            return false;
        }
        places[i] = (struct summed_place){here.position, heads[i].ordinal, heads[i].length};
    }
    uint32_t sums[FOUR];
    record_crc_of_four(chunk, from, span, (uint32_t)length, places, sums);
    for (uint32_t i = 0; i < FOUR; i++) {
        if (sums[i] != heads[i].crc) {
            return false;
        }
    }
    for (uint32_t i = 0; i < FOUR; i++) {
        take_head(chunk, records, &heads[i], notes->count + i);
    }
    const uint8_t *const payload = chunk->memory + from + RECORD_HEADER_BYTES;
    for (uint32_t i = 0; i < records->count; i++) {
        const shmq_field field = records->fields[i];
        take_numbers(records->memory + records->places[i].values + notes->count * field.bytes, payload + field.offset, span,
                     field.bytes, FOUR);
    }
    notes->count += FOUR;
    reader->record = from + span * (FOUR - 1);
    reader->index = index + FOUR - 1;
    *walk = (struct walk){from + span * FOUR, walk->ordinal + FOUR};
    return true;
}

static SPECIALISED bool has_room(const struct notes *notes, const struct row *row, const shmq_wanted *wanted)
{
    const uint64_t bytes = notes->keys + notes->payloads + notes->headers;
    const uint64_t more = (uint64_t)row->key_length + row->payload_length + row->headers_length;
    return notes->count == 0 || bytes + more <= wanted->bytes;
}

static SPECIALISED void add_up(struct notes *notes, const struct row *row)
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
static SPECIALISED int wanted_now(const shmq_chunk *chunk, shmq_reader *reader, const struct walk *walk,
                                  struct notes *notes)
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

/* Walk over messages and note them, or take what is wanted of records at once: why it ended. OK: at the end of the batch.
 * EMPTY also at the stop. */
static SPECIALISED int collect(shmq_chunk *chunk, shmq_reader *reader, struct walk *walk, const shmq_wanted *wanted,
                               struct records *records, struct notes *notes)
{
    /* Of four at once nobody asks whether they have an hour, or whether a name wants them. */
    const bool plainly = records != NULL && reader->checkpoint == NULL && chunk->checksum
                         && wanted->stop_time_ns == INT64_MAX && reader->filter == NULL;
    while (notes->count < wanted->rows) {
        if (plainly && take_four(chunk, reader, walk, wanted, records, notes)) {
            continue;
        }
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
        struct row *const row = &notes->rows[records == NULL ? notes->count : 0];
        switch (word_state(word)) {
        case WORD_DONE:
            code = reader_passes(chunk, reader, walk, word, notes->count > 0);
            if (code < 0) {
                return code;
            }
            if (code > 0) {
                break;
            }
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
                if (records != NULL) {
                    take_record(chunk, records, row, notes->count);
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

static void copy_column(const shmq_chunk *chunk, const struct notes *notes, enum shmq_column column,
                        const shmq_gathered *batch)
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
            ((uint16_t *)values)[i] = 1;
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
            copy_column(chunk, notes, column, batch);
        }
    }
    return SHMQ_OK;
}

/* Give each column its place for so many rows, and each field. */
static void lay_out_records(const struct records *records, const shmq_wanted *wanted, uint64_t rows, uint64_t start,
                            shmq_gathered *batch)
{
    const struct notes all = {.count = rows};
    lay_out(&all, wanted, start, batch);
    const uint64_t validity = batch->bytes;
    batch->bytes += aligned((rows + 7) / 8);
    for (uint32_t i = 0; i < records->count; i++) {
        records->places[i] = (shmq_column_place){.validity = validity, .values = batch->bytes};
        batch->bytes += aligned(rows * records->fields[i].bytes);
    }
}

/* Memory for as many records as there may be: OK or SYSTEM. */
static int make_room(struct records *records, const shmq_wanted *wanted, shmq_gathered *batch)
{
    lay_out_records(records, wanted, wanted->rows, ALIGNMENT, batch);
    records->memory = malloc(batch->bytes);
    if (records->memory == NULL) {
        return error_system(-ENOMEM, "asked for memory for a batch of %" PRIu64 " bytes", batch->bytes);
    }
    lay_out_records(records, wanted, wanted->rows, ALIGNMENT - (uintptr_t)records->memory % ALIGNMENT, batch);
    const shmq_column_place *const columns = batch->columns;
    uint8_t *const memory = records->memory;
    records->index = wants(wanted, SHMQ_INDEX) ? (uint64_t *)(memory + columns[SHMQ_INDEX].values) : NULL;
    records->time_ns = wants(wanted, SHMQ_TIME) ? (int64_t *)(memory + columns[SHMQ_TIME].values) : NULL;
    records->type = wants(wanted, SHMQ_TYPE) ? (uint16_t *)(memory + columns[SHMQ_TYPE].values) : NULL;
    records->validity = memory + records->places[0].validity;
    memset(records->validity, 0xff, (wanted->rows + 7) / 8);
    return SHMQ_OK;
}

/* They are there: the memory is the batch's. */
static void hand_over(const shmq_chunk *chunk, const shmq_reader *reader, const struct records *records, uint64_t rows,
                      shmq_gathered *batch)
{
    for (uint32_t column = 0; column < SHMQ_COLUMNS; column++) {
        batch->columns[column].bytes = batch->columns[column].values == 0 ? 0 : rows * width[column];
    }
    for (uint32_t i = 0; i < records->count; i++) {
        records->places[i].bytes = rows * records->fields[i].bytes;
        records->places[i].absent = records->absent;
    }
    batch->first = chunk->base + records->first;
    batch->last = reader->index;
    batch->memory = records->memory;
}

static SPECIALISED int64_t gather(shmq_chunk *chunk, shmq_reader *reader, const shmq_wanted *wanted,
                                  struct records *records, shmq_gathered *batch)
{
    *batch = (shmq_gathered){.memory = NULL};
    if (member_forked(chunk->member)) {
        return error_forked();
    }
    if (reader_is_shut(chunk, reader)) {
        return SHMQ_EMPTY;
    }
    const uint64_t most = chunk->capacity / RECORD_HEADER_BYTES;
    shmq_wanted plan = *wanted;
    plan.rows = wanted->rows < most ? wanted->rows : most;
    plan.bytes = wanted->bytes < INT32_MAX ? wanted->bytes : INT32_MAX;
    shmq_wanted looked_at = plan;
    if (records != NULL) { /* which is bounded by its rows, and no column of bytes */
        looked_at.columns |= 1u << SHMQ_PAYLOAD;
        looked_at.bytes = UINT64_MAX;
    }
    const uint64_t noted = records == NULL ? plan.rows : 1;
    struct notes notes = {.rows = malloc(noted * sizeof *notes.rows)};
    int code = SHMQ_OK;
    if (notes.rows == NULL) {
        code = error_system(-ENOMEM, "asked for memory for a batch of %" PRIu64 " messages", plan.rows);
    } else if (records != NULL) {
        code = make_room(records, &plan, batch);
    }
    struct walk walk;
    if (code == SHMQ_OK && !reader_begin(reader, &walk)) {
        code = SHMQ_CONTENDED;
    }
    if (code != SHMQ_OK) {
        free(notes.rows);
        return code;
    }
    const struct walk before = walk;
    int64_t answer = collect(chunk, reader, &walk, &looked_at, records, &notes);
    if (notes.count > 0) {
        if (records == NULL) {
            code = copy(chunk, &notes, &plan, batch);
        } else {
            hand_over(chunk, reader, records, notes.count, batch);
        }
        answer = code == SHMQ_OK ? (int64_t)notes.count : code;
        if (code == SHMQ_OK) {
            reader_publish(chunk, reader, &walk);
        } else {
            walk = before;
        }
    }
    if (code == SHMQ_OK) {
        reader_publish_passed(chunk, reader, &walk);
    }
    for (; code == SHMQ_OK && notes.dropped > 0; notes.dropped--) {
        note_dropped(reader->checkpoint);
    }
    reader_end(reader, &walk);
    free(notes.rows);
    return answer;
}

int64_t shmq_gather(shmq_chunk *chunk, shmq_reader *reader, const shmq_wanted *wanted, shmq_gathered *batch)
{
    return gather(chunk, reader, wanted, NULL, batch);
}

int64_t shmq_gather_records(shmq_chunk *chunk, shmq_reader *reader, const shmq_wanted *wanted, uint32_t size,
                            uint32_t count, const shmq_field *fields, shmq_gathered *batch, shmq_column_place *places)
{
    *batch = (shmq_gathered){.memory = NULL};
    if (count == 0) {
        return error_set(SHMQ_TOO_LARGE, "a record of %" PRIu32 " bytes, and none of its fields", size);
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t bytes = fields[i].bytes;
        if ((bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) || bytes > size || fields[i].offset > size - bytes) {
            return error_set(SHMQ_TOO_LARGE, "a field of %" PRIu32 " bytes at %" PRIu32 " of a record of %" PRIu32, bytes,
                             fields[i].offset, size);
        }
    }
    if ((wanted->columns & ~(1u << SHMQ_INDEX | 1u << SHMQ_TIME | 1u << SHMQ_TYPE)) != 0) {
        return error_set(SHMQ_TOO_LARGE, "columns %#" PRIx32 " beside a record's fields, which are numbers",
                         wanted->columns);
    }
    struct records records = {.size = size, .count = count, .fields = fields, .places = places};
    const int64_t answer = gather(chunk, reader, wanted, &records, batch);
    if (batch->memory == NULL) {
        free(records.memory);
    }
    return answer;
}

void shmq_gathered_free(void *memory) { free(memory); }
