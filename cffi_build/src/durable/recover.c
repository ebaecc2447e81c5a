/* recover.c - one walk over a chunk that asks of every region whether it is whole, and what may be done about the rest.
 *
 * Recovery, verify and repair are the same walk; what they do with its answer is decided in Python
 * (shmq/storage/recover/, verify.py). Nothing here needs a member: the owner of a claim is not asked for, since a walk
 * after a reboot meets nobody alive, and one beside the living changes nothing. */
#include <inttypes.h>

#include "chunk/index.h"
#include "chunk/record.h"
#include "chunk/seal.h"
#include "chunk/settle.h"
#include "crc.h"
#include "error.h"

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

/* A message by itself, of a batch or not: its batch was committed, and what of it is whole counts. *missing: how many of its
 * batch come behind it. */
static int pass_message(shmq_chunk *chunk, struct walk *walk, word_t word, shmq_survey *seen, uint64_t *missing)
{
    const int64_t place = check_record(chunk, walk->position, walk->ordinal, word);
    if (place < 0) {
        return SHMQ_CORRUPT;
    }
    const struct place_in_batch in = place_of_record(chunk, walk->position);
    *missing = in.batch > in.place ? in.batch - in.place - 1u : 0;
    seen->messages += 1;
    seen->bytes += word_bytes(word);
    return walk_past(chunk, walk, word);
}

/* Nothing has to be said about what is behind the end but that it is zero, where words may be looked for. OK: the word that
 * said FREE says something else by now. */
static int end_or_hole(const shmq_chunk *chunk, const struct walk *walk)
{
    if (walk->position % chunk->grain != 0) {
        return broken(chunk, walk->position, A_HOLE); /* no claim ends there */
    }
    for (uint64_t at = walk->position + chunk->grain; at + SPAN_UNIT <= chunk->capacity; at += chunk->grain) {
        const uint64_t looked = chunk->grain < GRAIN_ZEROS ? chunk->grain : GRAIN_ZEROS;
        for (uint64_t i = 0; i < looked && at + i + SPAN_UNIT <= chunk->capacity; i += SPAN_UNIT) {
            /* Acquire: what was claimed before it. Pairs with the release in claim_region and commit_word. */
            if (load_acquire(word_at(chunk, at + i)) != 0) {
                return walk_look(chunk, walk) != 0 ? SHMQ_OK : broken(chunk, walk->position, A_HOLE);
            }
        }
    }
    return SHMQ_EMPTY;
}

/* Padding that repair wrote: only there it may stand for some messages of a batch. */
static bool by_repair(word_t word) { return word_state(word) == WORD_PAD && owner_generation(word_owner(word)) == 0; }

/* The whole batch that begins here, or what repair has left of it: OK, with the walk behind it, or CORRUPT where it is not
 * whole. */
static int pass_batch(shmq_chunk *chunk, struct walk *walk, shmq_survey *seen, bool behind_padding)
{
    const uint64_t first = walk->position;
    if (first + RECORD_HEADER_BYTES > chunk->capacity) {
        return broken(chunk, first, "a message reaches beyond the chunk");
    }
    const struct place_in_batch begin = place_of_record(chunk, first);
    if (begin.place >= begin.batch || (begin.place != 0 && !behind_padding)) {
        return broken(chunk, first, "a message of a batch whose beginning is not there");
    }
    shmq_survey counted = *seen;
    for (uint32_t i = begin.place; i < begin.batch; i++) {
        const word_t word = walk_look(chunk, walk);
        if (i > begin.place && by_repair(word)) {
            break; /* what is behind the padding is as much of it as there is */
        }
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
    *seen = counted;
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

/* ------------------------------------------------------------------ behind damage
 *
 * A word has no checksum: what it says is believed once a message behind it agrees. So what is in doubt where a walk stops
 * begins behind the last message that agreed with itself (`agreed`), and goes on from the smallest position behind that
 * where the next one does: its checksum covers its place, its ordinal, and its chunk's epoch and id. */
#define RESYNC_FACTOR 4 /* bytes looked at, per byte of the chunk, before the rest of it is given up */

/* Does a message begin there whose own ordinal, place and checksum agree? */
static bool agrees(const shmq_chunk *chunk, uint64_t position, uint64_t *ordinal, uint32_t *place)
{
    if (position + RECORD_HEADER_BYTES + SEAL_BYTES > chunk->capacity) {
        return false;
    }
    const word_t word = load_relaxed(word_at(chunk, position));
    const uint64_t bytes = word_bytes(word);
    if (word_state(word) != WORD_DONE || word_count(word) != 1 || bytes < RECORD_HEADER_BYTES
        || bytes > chunk->capacity - SEAL_BYTES - position) {
        return false;
    }
    struct record record;
    shared_read(&record, chunk->memory + position, sizeof record);
    *ordinal = record.ordinal;
    *place = record.place;
    return record.length <= bytes && record.length + SPAN_UNIT > bytes;
}

/* The next message from `from` on that agrees with itself. Of messages before `entered` the batch is known to be committed.
 * What is inside another may be anything: inside a batch that was padded, whole messages lie that were never committed. */
static bool find_message(const shmq_chunk *chunk, const struct walk *agreed, uint64_t from, uint64_t end,
                         uint64_t entered, struct walk *found)
{
    /* The first message of a batch stands where a claim begins, and the others anywhere. With a grain, what is elsewhere may be
     * an earlier chunk's, which only a checksum tells. */
    const uint64_t step = chunk->checksum ? SPAN_UNIT : chunk->grain;
    uint64_t spent = 0;
    for (uint64_t at = (from + step - 1) / step * step; at < end && spent / RESYNC_FACTOR < chunk->capacity; at += step) {
        uint64_t ordinal;
        uint32_t place;
        if (!agrees(chunk, at, &ordinal, &place) || ordinal < agreed->ordinal
            || (ordinal - agreed->ordinal) * RECORD_HEADER_BYTES > at - agreed->position /* there is no room for them */
            || !(place == 0 ? at % chunk->grain == 0 : ordinal < entered + place)) {
            continue;
        }
        const word_t word = load_relaxed(word_at(chunk, at));
        spent += word_bytes(word);
        if (check_record(chunk, at, ordinal, word) >= 0) {
            *found = (struct walk){at, ordinal};
            return true;
        }
    }
    return false;
}

/* Is the word of the damaged message at `walk` right, and only what it stands for damaged? When its length says the same, or
 * the next message is where it says. */
static bool word_is_right(const shmq_chunk *chunk, const struct walk *agreed, const struct walk *walk)
{
    const word_t word = walk_look(chunk, walk);
    struct walk behind = *walk;
    if (word_state(word) != WORD_DONE || walk_past(chunk, &behind, word) != SHMQ_OK) {
        return false;
    }
    uint64_t ordinal;
    uint32_t place;
    if (agrees(chunk, walk->position, &ordinal, &place)
        && (ordinal == walk->ordinal || walk->position == agreed->position)) {
        return true;
    }
    return agrees(chunk, behind.position, &ordinal, &place) && ordinal == behind.ordinal
           && check_record(chunk, behind.position, ordinal, walk_look(chunk, &behind)) >= 0;
}

/* Do the words from there on, without any message's, lead to `next`, or, if that is NULL, to the end? */
static bool leads_to(const shmq_chunk *chunk, struct walk walk, const struct walk *next)
{
    while (next == NULL || walk.position < next->position) {
        const word_t word = walk_look(chunk, &walk);
        if (word == 0 || word_seals(word)) {
            return next == NULL && (word != 0 || walk.position % chunk->grain == 0);
        }
        if (word_state(word) == WORD_DONE || walk_past(chunk, &walk, word) != SHMQ_OK) {
            return false;
        }
    }
    return walk.position == next->position && walk.ordinal == next->ordinal;
}

static bool fits(const struct walk *from, const struct walk *behind)
{
    return from->position < behind->position && from->ordinal <= behind->ordinal
           && (behind->ordinal - from->ordinal) * RECORD_HEADER_BYTES <= behind->position - from->position;
}

static int resync(const shmq_chunk *chunk, const struct walk *agreed, const struct walk *stopped, struct walk *from,
                  struct walk *behind)
{
    if (agreed->position < chunk->first_position || agreed->position > stopped->position
        || agreed->ordinal > stopped->ordinal || stopped->position % SPAN_UNIT != 0 || agreed->position % SPAN_UNIT != 0
        || stopped->position + SEAL_BYTES > chunk->capacity) {
        return SHMQ_EMPTY;
    }
    const bool right = word_is_right(chunk, agreed, stopped);
    const uint64_t entered = right ? stopped->ordinal + 1 : agreed->ordinal;
    struct walk next;
    const bool found = find_message(chunk, agreed, agreed->position + SPAN_UNIT, chunk->capacity, entered, &next);
    if (right && (!found || next.position > stopped->position)) {
        struct walk over = *stopped;
        walk_past(chunk, &over, walk_look(chunk, stopped));
        if (leads_to(chunk, over, found ? &next : NULL)) {
            *from = *stopped;
            *behind = over;
            return SHMQ_OK;
        }
    }
    if (!found) {
        return SHMQ_EMPTY;
    }
    *from = fits(stopped, &next) ? *stopped : *agreed;
    *behind = next;
    return SHMQ_OK;
}

int shmq_resync(const shmq_chunk *chunk, uint64_t agreed, uint64_t agreed_ordinal, shmq_damage *damage)
{
    const struct walk begin = {agreed, agreed_ordinal};
    const struct walk stopped = {damage->position, damage->ordinal};
    struct walk from, behind;
    const int code = resync(chunk, &begin, &stopped, &from, &behind);
    if (code == SHMQ_OK) {
        *damage = (shmq_damage){from.position, from.ordinal, behind.position, behind.ordinal};
    }
    return code;
}

/* Where the last message ends that words from `walk` on pass before they come to `stopped`; false if they do not. */
static bool last_message(const shmq_chunk *chunk, struct walk walk, const struct walk *stopped, struct walk *end)
{
    *end = walk;
    while (walk.position < stopped->position) {
        const word_t word = walk_look(chunk, &walk);
        if (word == 0 || word_seals(word) || walk_past(chunk, &walk, word) != SHMQ_OK) {
            return false;
        }
        if (word_state(word) == WORD_DONE) {
            *end = walk;
        }
    }
    return walk.position == stopped->position && walk.ordinal == stopped->ordinal;
}

int shmq_resync_reader(const shmq_chunk *chunk, const shmq_reader *reader, shmq_damage *damage)
{
    const struct walk stopped = {reader->position, reader->ordinal};
    const struct walk read = {reader->record, reader->index - chunk->base};
    const bool known = read.position >= chunk->first_position && read.position < stopped.position
                       && read.position % SPAN_UNIT == 0;
    struct walk agreed;
    if (!(known && last_message(chunk, read, &stopped, &agreed))
        && !last_message(chunk, walk_from_start(chunk), &stopped, &agreed)) {
        agreed = stopped;
    }
    *damage = (shmq_damage){stopped.position, stopped.ordinal, 0, 0};
    return shmq_resync(chunk, agreed.position, agreed.ordinal, damage);
}

/* ------------------------------------------------------------------ the walk, whole */
static int stop_at(shmq_survey *survey, const struct walk *walk, int why)
{
    survey->stopped = walk->position;
    survey->stopped_ordinal = walk->ordinal;
    return why;
}

/* A walk without damage came to its end over words that nothing agrees with: they must not have passed over a message. */
static bool passed_over(const shmq_chunk *chunk, const shmq_survey *survey, const struct walk *walk)
{
    const struct walk agreed = {survey->position, survey->ordinal};
    struct walk next;
    return find_message(chunk, &agreed, agreed.position + SPAN_UNIT, walk->position, agreed.ordinal, &next);
}

/* `singly`, what is proven ends behind the last whole message, or all of it is, where there is no damage. */
static int stop(const shmq_chunk *chunk, shmq_survey *survey, const shmq_survey *seen, const struct walk *walk, int why,
                bool singly)
{
    if (!singly) {
        return stop_at(survey, walk, why);
    }
    struct walk at = *walk;
    if ((why == SHMQ_EMPTY || why == SHMQ_ROLL) && passed_over(chunk, survey, walk)) {
        at = (struct walk){survey->position, survey->ordinal};
        why = broken(chunk, at.position, "a word that passes over a message");
    } else if (why == SHMQ_CORRUPT) {
        survey->doubted = seen->padded - survey->padded;
    } else {
        proven_to(survey, walk, seen);
    }
    return stop_at(survey, &at, why);
}

int shmq_survey_chunk(shmq_chunk *chunk, shmq_survey *survey, uint64_t trusted, bool pass_claims, bool singly)
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
    survey->missing = survey->doubted = 0;
    bool behind_padding = false;
    for (;;) {
        const word_t word = walk_look(chunk, &walk);
        const int end = word == 0 ? end_or_hole(chunk, &walk) : SHMQ_OK;
        if (word == 0 && end == SHMQ_OK) {
            continue;
        }
        if (survey->missing > 0 && end != SHMQ_CORRUPT && word_state(word) != WORD_DONE && !by_repair(word)) {
            return stop(chunk, survey, &seen, &walk, broken(chunk, walk.position, "a batch ends before its last message"), singly);
        }
        if (word == 0) {
            return stop(chunk, survey, &seen, &walk, end, singly);
        }
        if (word_seals(word)) {
            survey->adoption = word_adoption(word);
            survey->open_padded = seen.padded;
            return stop(chunk, survey, &seen, &walk, SHMQ_ROLL, singly);
        }
        const uint32_t state = word_state(word);
        const struct walk here = walk;
        int code;
        if (state == WORD_DONE) {
            code = singly ? pass_message(chunk, &walk, word, &seen, &survey->missing)
                          : pass_batch(chunk, &walk, &seen, behind_padding);
        } else {
            if (state == WORD_META) {
                look_for_gap(chunk, &walk, word, survey);
            }
            code = walk_past(chunk, &walk, word);
        }
        if (code != SHMQ_OK) {
            return stop(chunk, survey, &seen, &here, code, singly);
        }
        if (state == WORD_CLAIMED) {
            if (!pass_claims) {
                return stop(chunk, survey, &seen, &here, SHMQ_WAITING, singly);
            }
            survey->claims += 1;
        }
        const uint64_t padding = state == WORD_PAD ? word_count(word) : 0;
        const bool no_more = by_repair(word) && padding == 0; /* there was no room to say how many are lost */
        survey->missing -= padding < survey->missing && !no_more ? padding : survey->missing;
        behind_padding = by_repair(word) || (behind_padding && state == WORD_PAD);
        seen.padded += padding;
        /* What a claim left behind its messages takes no ordinal, so nothing is believed with it. What repair padded was on
         * the disk before the queue had its name. */
        const bool nothing = word >> WORD_COUNT_SHIFT == WORD_PAD << (WORD_STATE_SHIFT - WORD_COUNT_SHIFT);
        const bool rest = (nothing || by_repair(word)) && here.position == survey->position;
        /* Nobody claims the last bytes: what ends there is a GAP, or half of one, and is written anew where it stands. */
        const bool room = walk.position + TAIL_RESERVE <= chunk->capacity;
        if (state == WORD_DONE || (!singly && (rest || walk.position <= trusted) && room)) {
            proven_to(survey, &walk, &seen);
        }
    }
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
    if (end <= position || count > (end - position) / RECORD_HEADER_BYTES) {
        return error_set(SHMQ_TOO_LARGE, "%" PRIu64 " ordinals in %" PRIu64 " bytes are no padding", count,
                         end - position);
    }
    const uint64_t most = (uint64_t)SPAN_MAX * SPAN_UNIT;
    while (position < end) { /* as many words as it takes: the last one has the rest */
        const uint64_t ordinals = count < COUNT_MAX ? count : COUNT_MAX;
        uint64_t bytes = ordinals < count ? ordinals * RECORD_HEADER_BYTES : end - position;
        bytes = bytes < most ? bytes : most;
        store_relaxed(word_at(chunk, position),
                      word_make(WORD_PAD, (uint32_t)ordinals, OWNER_REPAIR, (uint32_t)(bytes / SPAN_UNIT)));
        position += bytes;
        count -= ordinals;
    }
    return SHMQ_OK;
}

int64_t shmq_pad_behind(shmq_chunk *chunk, uint64_t position, uint64_t count)
{
    const uint64_t least = position + (count == 0 ? SPAN_UNIT : count * RECORD_HEADER_BYTES);
    const uint64_t claimed = (least + chunk->grain - 1) / chunk->grain * chunk->grain; /* where a claim could end */
    const uint64_t end = claimed + TAIL_RESERVE <= chunk->capacity ? claimed : least;
    if (count > chunk->capacity / RECORD_HEADER_BYTES || end + TAIL_RESERVE > chunk->capacity) {
        return error_set(SHMQ_TOO_LARGE, "there is no room for %" PRIu64 " ordinals of padding", count);
    }
    const int code = shmq_pad_over(chunk, position, end, count);
    return code == SHMQ_OK ? (int64_t)end : code;
}

void shmq_hint(const shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal)
{
    const struct walk walk = walk_from_hint(chunk);
    *position = walk.position;
    *ordinal = walk.ordinal;
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

int shmq_next_missing(shmq_chunk *chunk, bool claims, uint64_t *position, uint64_t *ordinal, uint64_t *first,
                      uint64_t *count)
{
    struct walk walk = walk_from_start(chunk);
    int code = SHMQ_OK;
    if (*position > walk.position) {
        walk = (struct walk){*position, *ordinal};
    }
    *count = 0;
    while (code == SHMQ_OK && *count == 0) {
        const word_t word = walk_look(chunk, &walk);
        const uint64_t before = walk.ordinal;
        code = word == 0 ? SHMQ_EMPTY : word_seals(word) ? SHMQ_ROLL : SHMQ_OK;
        if (code == SHMQ_OK && word_state(word) == WORD_CLAIMED) {
            code = settle(chunk, walk.position, word);
            if (code == SHMQ_OK) {
                continue; /* padded, or committed meanwhile */
            }
            code = code == SHMQ_WAITING && claims ? SHMQ_OK : code;
        }
        code = code == SHMQ_OK ? walk_past(chunk, &walk, word) : code;
        if (code == SHMQ_OK && word_state(word) == WORD_PAD) {
            *first = before;
            *count = walk.ordinal - before;
        }
    }
    *position = walk.position;
    *ordinal = walk.ordinal;
    return code;
}
