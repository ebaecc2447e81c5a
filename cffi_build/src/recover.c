/* recover.c - one walk over a chunk that asks of every region whether it is whole, and what may be done about the rest.
 *
 * Recovery, verify and repair are the same walk; what they do with its answer is decided in Python
 * (shmq/storage/recover.py, verify.py). Nothing here needs a member: the owner of a claim is not asked for, since a walk
 * after a reboot meets nobody alive, and one beside the living changes nothing. */
#include <inttypes.h>

#include "chunk.h"
#include "crc.h"
#include "error.h"
#include "index.h"

/* ------------------------------------------------------------------ the walk */
struct place_in_batch {
    uint16_t place;
    uint16_t batch;
};

static struct place_in_batch place_of_record(const shmq_chunk *chunk, uint64_t position)
{
    struct place_in_batch in;
    shared_read(&in, chunk->memory + position + offsetof(struct record, place), sizeof in);
    return in;
}

static int broken(const shmq_chunk *chunk, uint64_t position, const char *reason)
{
    return error_set(SHMQ_CORRUPT, "chunk %016" PRIx64 "-%08" PRIx64 ", position %" PRIu64 ": %s", chunk->base,
                     chunk->sequence, position, reason);
}

/* What was counted so far, and what of it is proven to be so: a word has no checksum, a message has. */
static void proven_to(shmq_survey *survey, const struct walk *walk, const shmq_survey *seen)
{
    survey->position = walk->position;
    survey->ordinal = walk->ordinal;
    survey->messages = seen->messages;
    survey->bytes = seen->bytes;
    survey->padded = seen->padded;
}

/* The whole batch that begins here: OK, with the walk behind it, or CORRUPT where it is not whole. */
static int pass_batch(shmq_chunk *chunk, struct walk *walk, shmq_survey *seen)
{
    const uint64_t first = walk->position;
    const struct place_in_batch begin = place_of_record(chunk, first);
    if (begin.place != 0 || begin.batch == 0) {
        return broken(chunk, first, "a message of a batch whose beginning is not there");
    }
    shmq_survey counted = *seen;
    for (uint32_t i = 0; i < begin.batch; i++) {
        const word_t word = walk_look(chunk, walk);
        if (word_state(word) != WORD_DONE) {
            return broken(chunk, walk->position, "a batch ends before its last message");
        }
        const int64_t place = check_record(chunk, walk->position, walk->ordinal, word);
        if (place < 0) {
            return SHMQ_CORRUPT;
        }
        const struct place_in_batch in = place_of_record(chunk, walk->position);
        if (in.place != i || in.batch != begin.batch) {
            return broken(chunk, walk->position, "a message is not the one that comes next in its batch");
        }
        const int code = walk_past(chunk, walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
        counted.messages += 1;
        counted.bytes += word_bytes(word);
    }
    seen->messages = counted.messages;
    seen->bytes = counted.bytes;
    return SHMQ_OK;
}

/* A GAP counts only right before its SEAL. */
static void look_for_gap(const shmq_chunk *chunk, const struct walk *walk, word_t word, shmq_survey *survey)
{
    uint64_t next_index;
    if (gap_at(chunk, walk->position, word, &next_index)
        && word_seals(load_relaxed(word_at(chunk, walk->position + GAP_BYTES)))) {
        survey->gap_position = walk->position;
        survey->gap_index = next_index;
    }
}

static int stop_at(shmq_survey *survey, const struct walk *walk, int why)
{
    survey->stopped = walk->position;
    survey->stopped_ordinal = walk->ordinal;
    return why;
}

int shmq_survey_chunk(shmq_chunk *chunk, shmq_survey *survey, uint64_t trusted, bool pass_claims)
{
    struct walk walk = {survey->position, survey->ordinal};
    if (walk.position < chunk->first_position) {
        walk = walk_from_start(chunk);
        survey->position = walk.position;
    }
    if (walk.position + SEAL_BYTES > chunk->capacity || walk.position % SPAN_UNIT != 0) {
        return stop_at(survey, &walk, broken(chunk, walk.position, "no message can be there"));
    }
    survey->gap_index = survey->gap_position = survey->adoption = 0;
    shmq_survey seen = *survey;
    for (;;) {
        const word_t word = walk_look(chunk, &walk);
        if (word == 0) {
            return stop_at(survey, &walk, SHMQ_EMPTY);
        }
        if (word_seals(word)) {
            survey->adoption = word_adoption(word);
            survey->open_padded = seen.padded;
            return stop_at(survey, &walk, SHMQ_ROLL);
        }
        const uint32_t state = word_state(word);
        const struct walk here = walk;
        int code;
        if (state == WORD_DONE) {
            code = pass_batch(chunk, &walk, &seen);
        } else {
            if (state == WORD_META) {
                look_for_gap(chunk, &walk, word, survey);
            }
            code = walk_past(chunk, &walk, word);
        }
        if (code != SHMQ_OK) {
            return stop_at(survey, &here, code);
        }
        if (state == WORD_CLAIMED) {
            if (!pass_claims) {
                return stop_at(survey, &here, SHMQ_WAITING);
            }
            survey->claims += 1;
        }
        seen.padded += state == WORD_PAD ? word_count(word) : 0;
        /* What a claim left behind its messages takes no ordinal, so nothing is believed with it. */
        const bool rest = word >> WORD_COUNT_SHIFT == WORD_PAD << (WORD_STATE_SHIFT - WORD_COUNT_SHIFT)
                          && here.position == survey->position;
        /* Nobody claims the last bytes: what ends there is a GAP, or half of one, and is written anew where it stands. */
        const bool room = walk.position + TAIL_RESERVE <= chunk->capacity;
        if (state == WORD_DONE || ((rest || walk.position <= trusted) && room)) {
            proven_to(survey, &walk, &seen);
        }
    }
}

/* ------------------------------------------------------------------ behind damage */
#define RESYNC_FACTOR 4 /* bytes looked at, per byte of the chunk, before the rest of it is given up */

/* Does a message begin there whose own ordinal, place and checksum agree? `spent` grows by what that cost. */
static bool message_begins(shmq_chunk *chunk, uint64_t position, uint64_t ordinal, uint64_t *found, uint64_t *spent)
{
    const word_t word = load_relaxed(word_at(chunk, position));
    const uint64_t bytes = word_bytes(word);
    if (word_state(word) != WORD_DONE || word_count(word) != 1 || bytes < RECORD_HEADER_BYTES
        || bytes > chunk->capacity - SEAL_BYTES - position) {
        return false;
    }
    struct record record;
    shared_read(&record, chunk->memory + position, sizeof record);
    /* The first of its batch only: inside a batch that was padded, whole messages lie that never were committed. */
    if (record.ordinal < ordinal || record.place != 0 || record.length > bytes || record.length + SPAN_UNIT <= bytes) {
        return false;
    }
    *spent += bytes;
    *found = record.ordinal;
    return check_record(chunk, position, record.ordinal, word) >= 0;
}

static bool can_follow(shmq_chunk *chunk, const struct walk *walk, uint64_t *spent)
{
    const word_t word = walk_look(chunk, walk);
    uint64_t ordinal;
    if (word_state(word) == WORD_DONE) {
        *spent += word_bytes(word);
        return check_record(chunk, walk->position, walk->ordinal, word) >= 0
               || (message_begins(chunk, walk->position, walk->ordinal, &ordinal, spent) && ordinal == walk->ordinal);
    }
    struct walk behind = *walk;
    return word == 0 || word_seals(word) || walk_past(chunk, &behind, word) == SHMQ_OK;
}

int shmq_resync(shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal)
{
    const uint64_t from = *position;
    if (from < chunk->first_position || from % SPAN_UNIT != 0 || from + SEAL_BYTES > chunk->capacity) {
        return SHMQ_EMPTY;
    }
    uint64_t spent = 0;
    /* Its word may be right, and only what it stands for be damaged. */
    struct walk walk = {from, *ordinal};
    const word_t word = walk_look(chunk, &walk);
    if (word != 0 && !word_seals(word) && walk_past(chunk, &walk, word) == SHMQ_OK
        && can_follow(chunk, &walk, &spent)) {
        *position = walk.position;
        *ordinal = walk.ordinal;
        return SHMQ_OK;
    }
    /* The first message of a batch stands where a claim begins; with a grain, what is elsewhere may be an earlier chunk's. */
    uint64_t at = from - from % chunk->grain + chunk->grain;
    for (; at + RECORD_HEADER_BYTES + SEAL_BYTES <= chunk->capacity && spent / RESYNC_FACTOR < chunk->capacity;
         at += chunk->grain) {
        if (message_begins(chunk, at, *ordinal, ordinal, &spent)) {
            *position = at;
            return SHMQ_OK;
        }
    }
    return SHMQ_EMPTY;
}

/* ------------------------------------------------------------------ putting a chunk in order, alone with it */
static uint64_t zero_from(shmq_chunk *chunk, uint64_t position)
{
    /* Only what is not zero yet is written: most of it was never touched, and need not be now. */
    uint64_t end = position;
    for (uint64_t at = position; at < chunk->capacity; at += SPAN_UNIT) {
        uint64_t *const word = word_at(chunk, at);
        if (load_relaxed(word) != 0) {
            store_relaxed(word, 0);
            end = at + SPAN_UNIT;
        }
    }
    return end - position;
}

static uint64_t used_from(const shmq_chunk *chunk, uint64_t position)
{
    uint64_t end = chunk->capacity; /* with a grain, what another chunk left is between the words */
    while (end > position && load_relaxed(word_at(chunk, end - chunk->grain)) == 0) {
        end -= chunk->grain;
    }
    return end > position ? end - position : 0;
}

int64_t shmq_cut(shmq_chunk *chunk, uint64_t position, uint64_t next_index)
{
    if (position < chunk->first_position || position % SPAN_UNIT != 0 || position + TAIL_RESERVE > chunk->capacity) {
        return broken(chunk, position, "there is no room to end the chunk here");
    }
    const uint64_t seal = position + GAP_BYTES;
    uint64_t there = 0;
    if (gap_at(chunk, position, load_relaxed(word_at(chunk, position)), &there) && there == next_index
        && load_relaxed(word_at(chunk, seal)) == word_seal(0)) {
        return (int64_t)zero_from(chunk, seal + SEAL_BYTES);
    }
    /* What lies behind goes last: killed anywhere, whoever looks again stops at the same place, and a chunk that was
     * sealed is sealed all the time. Without that, an adopted set that ends here would look as if it were not whole. */
    const uint64_t gone = used_from(chunk, position);
    gap_write(chunk, position, next_index);
    zero_from(chunk, seal + SEAL_BYTES);
    return (int64_t)gone;
}

int shmq_set_in_order(shmq_chunk *chunk, uint64_t position, uint64_t ordinal)
{
    struct chunk_header *const header = (struct chunk_header *)chunk->memory;
    const uint64_t hint = hint_make(position, ordinal);
    if (load_relaxed(&header->hint) != hint) {
        store_relaxed(&header->hint, hint);
    }
    uint64_t *const others[] = {&header->index_hint, (uint64_t *)&header->time_max_ns, &header->resolved_hint};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (load_relaxed(others[i]) != 0) {
            store_relaxed(others[i], 0);
        }
    }
    index_rebuild(chunk, position);
    return SHMQ_OK;
}

void shmq_end_at(shmq_chunk *chunk, uint64_t position)
{
    store_relaxed(word_at(chunk, position), 0);
}

int64_t shmq_zero_from(shmq_chunk *chunk, uint64_t position) { return (int64_t)zero_from(chunk, position); }

int shmq_pad_over(shmq_chunk *chunk, uint64_t position, uint64_t end, uint64_t count)
{
    const uint64_t span = (end - position) / SPAN_UNIT;
    if (end <= position || span > SPAN_MAX || count > COUNT_MAX || count * RECORD_HEADER_BYTES > end - position) {
        return error_set(SHMQ_TOO_LARGE, "%" PRIu64 " ordinals in %" PRIu64 " bytes are no padding", count,
                         end - position);
    }
    store_relaxed(word_at(chunk, position), word_make(WORD_PAD, (uint32_t)count, 0, (uint32_t)span));
    return SHMQ_OK;
}

uint64_t shmq_pads(const shmq_chunk *chunk)
{
    struct walk walk = walk_from_start(chunk);
    uint64_t count = 0;
    for (;;) {
        const word_t word = walk_look(chunk, &walk);
        if (word == 0 || word_seals(word) || walk_past(chunk, &walk, word) != SHMQ_OK) {
            return count;
        }
        count += word_state(word) == WORD_PAD ? word_count(word) : 0;
    }
}

void shmq_padded_more(void *control, uint64_t count)
{
    add_relaxed(&((struct control *)control)->padded, count);
}

void shmq_padded_less(void *control, uint64_t count)
{
    uint64_t *const padded = &((struct control *)control)->padded;
    uint64_t seen = load_relaxed(padded);
    /* Never below 0: who padded may have been killed before he counted. */
    while (!cas_relaxed(padded, seen, seen - (count < seen ? count : seen))) {
        seen = load_relaxed(padded);
    }
}
