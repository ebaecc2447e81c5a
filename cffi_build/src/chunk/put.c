/* put.c - claim, write, commit: how a message comes to be there. Half of the protocol; settle.c and seal.c are the rest.
 *
 * The word in front of a record is the only truth: it is zero until someone claims it, and it moves only forward:
 * FREE -> CLAIMED -> DONE here, CLAIMED -> PAD in settle.c, FREE -> SEAL in seal.c. A claim is one CAS on the FREE word at the
 * end, which announces the region and signs it. Between it and the commit the region is ours alone. The commit is one CAS,
 * behind every byte of the region: a batch is there wholly or not at all. docs/protocol.md says why this is right. */
#include <inttypes.h>

#include "chunk/bounds.h"
#include "chunk/note.h"
#include "chunk/walk.h"
#include "chunk/write.h"
#include "error.h"
#include "os/os.h"

/* ------------------------------------------------------------------ claim, commit */
struct claim {
    uint64_t position;
    uint64_t ordinal;
    word_t word;
};

/* Have the pages of a claim, and those just ahead, mapped in one go: a tenth of the price of faulting them one by one.
 * Those ahead only for whoever came to the end of what it had asked for by itself: of many producers another one has nearly
 * always gone beyond it, and each would map all, and dirty what the disk has to be told again at every sync. Two threads
 * may both do it, to no harm. */
#define POPULATE_AHEAD (UINT64_C(256) << 10)
static void populate_ahead(shmq_chunk *chunk, uint64_t begin, uint64_t end)
{
    const uint64_t from = load_relaxed(&chunk->populated);
    if (end <= from) {
        return;
    }
    const bool alone = begin <= from || from == 0;
    const uint64_t start = from > 0 && alone ? from : begin / PAGE_BYTES * PAGE_BYTES;
    uint64_t to = alone ? (end / POPULATE_AHEAD + 1) * POPULATE_AHEAD : (end + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    to = to < chunk->capacity ? to : chunk->capacity;
    store_relaxed(&chunk->populated, to);
    if (to - start > PAGE_BYTES) { /* one page is mapped by the store into it */
        os->populate(chunk->memory + start, to - start);
    }
}

/* Reserve a region of `bytes` for `count` messages at the end of the chunk: announce it and sign it, in one CAS. */
static int claim_region(shmq_chunk *chunk, uint32_t count, uint64_t bytes, struct claim *claim)
{
    const bool limited = bounded(chunk);
    struct walk walk = walk_from_hint(chunk);
    const bool unhinted = walk.position == chunk->first_position; /* the first put of a chunk, or its hint is lost */
    for (;;) {
        const word_t word = walk_look(chunk, &walk);
        if (word == 0) {
            if (unhinted && nothing_there(chunk, &walk) == SHMQ_CORRUPT) {
                return SHMQ_CORRUPT;
            }
            if (limited && !limit_allows(chunk, walk.ordinal + count, walk.position + bytes)) {
                return bounds_full();
            }
            const uint64_t span = (round_to(walk.position + bytes, chunk->grain) - walk.position) / SPAN_UNIT;
            const bool fits = span <= SPAN_MAX && span * SPAN_UNIT + TAIL_RESERVE <= chunk->capacity - walk.position;
            const word_t claimed = word_make(WORD_CLAIMED, count, chunk->member->owner, (uint32_t)span);
            /* Release: our generation before it, or who reads the claim might take it for a dead tenant's and pad it.
             * Pairs with the acquire in walk_look. */
            if (!cas_release(word_at(chunk, walk.position), word, fits ? claimed : chunk->seal)) {
                continue; /* somebody was faster: look again at the same word */
            }
            if (!fits) {
                return SHMQ_ROLL;
            }
            *claim = (struct claim){walk.position, walk.ordinal, claimed};
            hint_raise(chunk, walk.position + word_bytes(claimed), walk.ordinal + count);
            populate_ahead(chunk, walk.position, walk.position + word_bytes(claimed));
            return SHMQ_OK;
        }
        if (word_seals(word)) {
            return SHMQ_ROLL;
        }
        const int code = walk_past(chunk, &walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
    }
}

/* What its messages leave of a claimed region. Before the commit: behind it, a walker would fall on bytes that are no
 * word. */
static void fill_rest(const shmq_chunk *chunk, uint64_t position, word_t claimed, uint64_t used)
{
    if (used < word_bytes(claimed)) {
        const uint32_t span = word_span(claimed) - (uint32_t)(used / SPAN_UNIT);
        store_relaxed(word_at(chunk, position + used), word_make(WORD_PAD, 0, word_owner(claimed), span));
    }
}

/* Make a claimed region visible, unless it was padded meanwhile. */
static int commit_word(shmq_chunk *chunk, uint64_t position, word_t claimed, word_t done)
{
    /* Release: the whole region before it. Pairs with the acquire in walk_look.
     * CAS, not store: if we were judged dead, the word is PAD and must stay so. */
    if (!cas_release(word_at(chunk, position), claimed, done)) {
        add_relaxed(&chunk->member->control->fenced, 1);
        return error_set(SHMQ_FENCED, "the claim at position %" PRIu64 " of chunk %016" PRIx64 "-%08" PRIx64
                         " was padded: this owner was judged dead", position, chunk->base, chunk->sequence);
    }
    return SHMQ_OK;
}

/* ------------------------------------------------------------------ one message */
/* May this process put here now? */
static int may_put(const shmq_chunk *chunk)
{
    if (member_forked(chunk->member)) {
        return error_forked();
    }
    const struct control *const control = chunk->member->control;
    if (load_relaxed(&control->shut_down) != 0) {
        return error_set(SHMQ_SHUT_DOWN, "the queue was shut down");
    }
    if ((load_relaxed(&control->finished) & FINISHED_MASK) != 0) {
        return error_set(SHMQ_SHUT_DOWN, "the queue was finished, and was open here before; what is opened now may go on");
    }
    return bounded(chunk) && !limit_is_good(chunk) ? bounds_full() : SHMQ_OK;
}

static int64_t reserve(shmq_chunk *chunk, const shmq_fields *fields, uint64_t length, struct shape *shape,
                       struct claim *claim, struct record *record)
{
    int code = may_put(chunk);
    if (code == SHMQ_OK) {
        *shape = shape_of(fields->fixed_flags, fields->key_length, fields->headers_length, length);
        code = check_shape(shape, fields->key_length, length);
    }
    if (code == SHMQ_OK) {
        *record = record_of(chunk, shape, fields);
        code = claim_region(chunk, 1, round_up(shape->length), claim);
    }
    if (code == SHMQ_OK) {
        record->ordinal = (uint32_t)claim->ordinal;
        write_head(chunk, claim->position, record, fields);
    }
    return code;
}

int64_t shmq_put_record(shmq_chunk *chunk, const shmq_fields *fields, const char *payload, uint64_t length)
{
    struct shape shape;
    struct claim claim;
    struct record record;
    int64_t code = reserve(chunk, fields, length, &shape, &claim, &record);
    if (code != SHMQ_OK) {
        return code;
    }
    write_payload(chunk, claim.position, &record, payload, length);
    const uint64_t used = round_up(shape.length);
    fill_rest(chunk, claim.position, claim.word, used);
    const word_t done = word_make(WORD_DONE, 1, word_owner(claim.word), (uint32_t)(used / SPAN_UNIT));
    code = commit_word(chunk, claim.position, claim.word, done);
    if (code != SHMQ_OK) {
        return code;
    }
    shmq_wake(chunk->member);
    index_pass(chunk, claim.position, claim.ordinal, 1);
    return (int64_t)(chunk->base + claim.ordinal);
}

bool shmq_put_fits(const shmq_chunk *chunk, uint32_t count, uint64_t bytes)
{
    if (may_put(chunk) != SHMQ_OK) {
        return false;
    }
    const struct walk walk = walk_from_hint(chunk);
    return !word_seals(walk_look(chunk, &walk))
           && round_to(walk.position + bytes, chunk->grain) + TAIL_RESERVE <= chunk->capacity && (!bounded(chunk) || limit_allows(chunk, walk.ordinal + count, walk.position + bytes));
}

int64_t shmq_put(shmq_chunk *chunk, const char *payload, uint64_t length)
{
    const shmq_fields nothing = {.time_ns = INT64_MIN};
    return shmq_put_record(chunk, &nothing, payload, length);
}

int64_t shmq_reserve(shmq_chunk *chunk, const shmq_fields *fields, uint64_t length, uint64_t *claimed,
                     uint64_t *record_position, uint64_t *payload)
{
    struct shape shape;
    struct claim claim;
    struct record record;
    const int64_t code = reserve(chunk, fields, length, &shape, &claim, &record);
    if (code != SHMQ_OK) {
        return code;
    }
    *claimed = claim.word;
    *record_position = claim.position;
    *payload = claim.position + shape.payload;
    return (int64_t)(chunk->base + claim.ordinal);
}

uint8_t *shmq_map_again(void *begin, size_t bytes) { return os->map_again(begin, bytes); }
int shmq_make_private(uint8_t *again, size_t bytes) { return os->make_private(again, bytes); }
void shmq_unmap_again(uint8_t *again, size_t bytes) { os->unmap_again(again, bytes); }

void shmq_fill(shmq_chunk *chunk, uint64_t payload, const void *data, uint64_t length)
{
    shared_write(chunk->memory + payload, data, length);
}

int shmq_commit(shmq_chunk *chunk, uint64_t position, uint64_t claimed, uint64_t length)
{
    if (member_forked(chunk->member)) {
        return error_forked();
    }
    struct record record = {.word = claimed}; /* the word itself may be padded at this moment: not read plainly */
    const uint64_t from = offsetof(struct record, length);
    shared_read((uint8_t *)&record + from, chunk->memory + position + from, sizeof record - from);
    const uint64_t payload = RECORD_HEADER_BYTES + record.extra_words * SPAN_UNIT + round_up(record.key_length);
    if (payload + length > word_bytes(claimed)) {
        return error_set(SHMQ_TOO_LARGE, "%" PRIu64 " bytes do not fit the %" PRIu64 " that were reserved", length,
                         word_bytes(claimed) - payload);
    }
    record.length = (uint32_t)(payload + length);
    shared_write(chunk->memory + position + offsetof(struct record, length), &record.length, sizeof record.length);
    pad_part(chunk, position, record.length);
    write_crc(chunk, position, &record);
    const uint32_t span = (uint32_t)(round_up(record.length) / SPAN_UNIT);
    fill_rest(chunk, position, claimed, span * SPAN_UNIT);
    const int code = commit_word(chunk, position, claimed, word_make(WORD_DONE, 1, word_owner(claimed), span));
    if (code == SHMQ_OK) {
        shmq_wake(chunk->member);
        index_pass(chunk, position, record.ordinal, 1);
    }
    return code;
}

/* ------------------------------------------------------------------ a batch */
uint64_t shmq_region_bytes(uint32_t count, const uint32_t *lengths, const uint32_t *key_lengths,
                           const uint32_t *header_lengths, uint32_t fixed_flags)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += round_up(shape_of(fixed_flags, length_at(key_lengths, i), length_at(header_lengths, i), lengths[i]).length);
    }
    return bytes;
}

static int check_batch(uint32_t count, const uint32_t *lengths, const uint32_t *key_lengths,
                       const uint32_t *header_lengths, uint32_t fixed_flags)
{
    if (count == 0 || count > COUNT_MAX) {
        return error_set(SHMQ_TOO_MANY, "a batch of %" PRIu32 " messages; one claim counts 1 to %u", count, COUNT_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t key_length = length_at(key_lengths, i);
        const struct shape shape = shape_of(fixed_flags, key_length, length_at(header_lengths, i), lengths[i]);
        const int code = check_shape(&shape, key_length, lengths[i]);
        if (code != SHMQ_OK) {
            return code;
        }
    }
    if (shmq_region_bytes(count, lengths, key_lengths, header_lengths, fixed_flags) > (uint64_t)SPAN_MAX * SPAN_UNIT) {
        return error_set(SHMQ_TOO_LARGE, "a batch of more than %u bytes with its headers", SPAN_MAX * SPAN_UNIT);
    }
    return SHMQ_OK;
}

/* How far the messages of a batch are written, and what makes its claim visible. */
struct written {
    uint64_t position;
    uint32_t count;
    word_t first_done;
};
static void write_next(shmq_chunk *chunk, const struct claim *claim, uint32_t count, struct written *written,
                       const shmq_fields *fields, const char *payload, uint64_t length)
{
    const struct shape shape = shape_of(fields->fixed_flags, fields->key_length, fields->headers_length, length);
    struct record record = record_of(chunk, &shape, fields);
    record.ordinal = (uint32_t)(claim->ordinal + written->count);
    record.place = (uint16_t)written->count;
    record.batch = (uint16_t)count;
    write_head(chunk, written->position, &record, fields);
    write_payload(chunk, written->position, &record, payload, length);
    const uint64_t bytes = round_up(shape.length);
    const word_t done = word_make(WORD_DONE, 1, word_owner(claim->word), (uint32_t)(bytes / SPAN_UNIT));
    if (written->count == 0) {
        written->first_done = done;
    } else { /* seen by nobody before the commit of the first, which orders it */
        store_relaxed(word_at(chunk, written->position), done);
    }
    written->position += bytes;
    written->count++;
}
/* Four messages of one size, of nothing but their payloads, which lie end to end; the sums are made side by side. */
static void write_four(shmq_chunk *chunk, const struct claim *claim, uint32_t count, struct written *written,
                       const uint32_t *types, const int64_t *times, int64_t now, const char *payloads, uint32_t length)
{
    const struct shape shape = shape_of(0, 0, 0, length);
    const uint64_t bytes = round_up(shape.length);
    const word_t done = word_make(WORD_DONE, 1, word_owner(claim->word), (uint32_t)(bytes / SPAN_UNIT));
    const uint64_t first = written->position;
    struct summed_place summed[FOUR];
    uint32_t sums[FOUR];
    for (uint32_t i = 0; i < FOUR; i++) {
        const uint64_t position = first + i * bytes;
        const struct record record = {
            .length = (uint32_t)shape.length,
            .ordinal = (uint32_t)(claim->ordinal + written->count + i),
            .place = (uint16_t)(written->count + i),
            .batch = (uint16_t)count,
            .time_ns = times == NULL ? now : times[i],
            .type = types == NULL ? 0 : (uint16_t)types[i],
        };
        write_plain_head(chunk, position, &record);
        pad_part(chunk, position, shape.length);
        shared_write(chunk->memory + position + RECORD_HEADER_BYTES, payloads + (uint64_t)i * length, length);
        summed[i] = (struct summed_place){position, record.ordinal, record.length};
    }
    record_crc_of_four(chunk, first, bytes, (uint32_t)shape.length, summed, sums);
    for (uint32_t i = 0; i < FOUR; i++) {
        shared_write(chunk->memory + first + i * bytes + offsetof(struct record, crc), &sums[i], sizeof sums[i]);
        if (written->count + i > 0) { /* as in write_next */
            store_relaxed(word_at(chunk, first + i * bytes), done);
        }
    }
    written->first_done = written->count == 0 ? done : written->first_done;
    written->position += FOUR * bytes;
    written->count += FOUR;
}
static bool are_four(const uint32_t *lengths, uint32_t left)
{
    return left >= FOUR && lengths[0] <= FOUR_BYTES - RECORD_HEADER_BYTES && lengths[1] == lengths[0]
           && lengths[2] == lengths[0] && lengths[3] == lengths[0];
}

static int64_t commit_batch(shmq_chunk *chunk, const struct claim *claim, uint32_t count, const struct written *written)
{
    fill_rest(chunk, claim->position, claim->word, written->position - claim->position);
    const int code = commit_word(chunk, claim->position, claim->word, written->first_done);
    if (code != SHMQ_OK) {
        return code;
    }
    shmq_wake(chunk->member);
    index_pass(chunk, claim->position, claim->ordinal, count);
    return (int64_t)(chunk->base + claim->ordinal);
}

int64_t shmq_put_many(shmq_chunk *chunk, uint32_t count, const char *payloads, const uint32_t *lengths,
                      const char *keys, const uint32_t *key_lengths, const uint32_t *types, const int64_t *times,
                      const char *headers, const uint32_t *header_lengths, uint32_t fixed_flags, const char *fixed)
{
    int code = may_put(chunk);
    if (code == SHMQ_OK) {
        code = check_batch(count, lengths, key_lengths, header_lengths, fixed_flags);
    }
    struct claim claim;
    if (code == SHMQ_OK) {
        const uint64_t bytes = shmq_region_bytes(count, lengths, key_lengths, header_lengths, fixed_flags);
        code = claim_region(chunk, count, bytes, &claim);
    }
    if (code != SHMQ_OK) {
        return code;
    }
    const int64_t now = times == NULL ? os->clock_wall_ns() : 0;
    struct written written = {.position = claim.position};
    const bool plain = key_lengths == NULL && header_lengths == NULL && fixed_flags == 0 && chunk->checksum;
    for (uint32_t i = 0; i < count; i++) {
        if (plain && are_four(lengths + i, count - i)) {
            write_four(chunk, &claim, count, &written, types == NULL ? NULL : types + i, times == NULL ? NULL : times + i, now,
                       payloads, lengths[i]);
            payloads += (uint64_t)lengths[i] * FOUR;
            i += FOUR - 1;
            continue;
        }
        const shmq_fields fields = {
            .key = keys,
            .key_length = (uint32_t)length_at(key_lengths, i),
            .type = types == NULL ? 0 : types[i],
            .time_ns = times == NULL ? now : times[i],
            .headers = headers,
            .headers_length = (uint32_t)length_at(header_lengths, i),
            .fixed_flags = fixed_flags,
            .fixed = fixed,
        };
        write_next(chunk, &claim, count, &written, &fields, payloads, lengths[i]);
        payloads += lengths[i];
        keys = keys == NULL ? NULL : keys + fields.key_length;
        headers = headers == NULL ? NULL : headers + fields.headers_length;
    }
    return commit_batch(chunk, &claim, count, &written);
}

int64_t shmq_put_each(shmq_chunk *chunk, uint32_t count, const shmq_fields *fields, const char *const *payloads,
                      const uint64_t *lengths)
{
    int code = may_put(chunk);
    uint64_t bytes = 0;
    if (count == 0 || count > COUNT_MAX) {
        return error_set(SHMQ_TOO_MANY, "a batch of %" PRIu32 " messages; one claim counts 1 to %u", count, COUNT_MAX);
    }
    for (uint32_t i = 0; i < count && code == SHMQ_OK; i++) {
        code = shmq_check_fields(&fields[i], lengths[i]);
        bytes += shmq_record_bytes(&fields[i], lengths[i]);
    }
    if (code == SHMQ_OK && bytes > (uint64_t)SPAN_MAX * SPAN_UNIT) {
        return error_set(SHMQ_TOO_LARGE, "a batch of more than %u bytes with its headers", SPAN_MAX * SPAN_UNIT);
    }
    struct claim claim;
    if (code == SHMQ_OK) {
        code = claim_region(chunk, count, bytes, &claim);
    }
    if (code != SHMQ_OK) {
        return code;
    }
    struct written written = {.position = claim.position};
    for (uint32_t i = 0; i < count; i++) {
        write_next(chunk, &claim, count, &written, &fields[i], payloads[i], lengths[i]);
    }
    return commit_batch(chunk, &claim, count, &written);
}
