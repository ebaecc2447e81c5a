/* once.c - who put a message, and which of its puts it is: what a put that must happen only once is known by. */
#include <string.h>

#include "chunk/record.h"
#include "chunk/settle.h"
#include "os/owner.h"

/* Which are looked for. */
#define MINE (SHMQ_DEDUP_SOURCE + 1) /* those that one producer put */
struct wanted {
    uint32_t which;           /* enum shmq_dedup_wanted, or MINE */
    const uint8_t *source;
};
static bool is_wanted(const struct wanted *wanted, const struct record *record, const struct field_dedup *field)
{
    const bool forwarded = (field->sequence & DEDUP_FORWARDED) != 0;
    if (!forwarded && record->place != 0) {
        return false; /* its batch is known by the first of it */
    }
    switch (wanted->which) {
    case SHMQ_DEDUP_ALL: return true;
    case SHMQ_DEDUP_SOURCE:
    case MINE:
        return forwarded == (wanted->which == SHMQ_DEDUP_SOURCE)
               && memcmp(field->producer, wanted->source, sizeof field->producer) == 0;
    default: return !forwarded;
    }
}

/* The dedup field of a message whose frame was checked: false when it has none that is wanted, or is not whole. */
static bool read_dedup(const shmq_chunk *chunk, uint64_t position, const struct record *record,
                       const struct wanted *wanted, struct field_dedup *field)
{
    uint64_t offset = 0;
    offset += (record->flags & RECORD_EXPIRY) != 0 ? sizeof(struct field_when) : 0;
    offset += (record->flags & RECORD_DELAY) != 0 ? sizeof(struct field_when) : 0;
    if ((record->flags & RECORD_DEDUP) == 0 || offset + sizeof *field > record->extra_words * SPAN_UNIT) {
        return false;
    }
    shared_read(field, chunk->memory + position + RECORD_HEADER_BYTES + offset, sizeof *field);
    return is_wanted(wanted, record, field) && check_sum(chunk, position, record) == SHMQ_OK;
}

/* Of a batch that was forwarded, a message says whose it is where what comes of another one begins: how many come of this. */
static uint32_t run_of(shmq_chunk *chunk, struct walk walk, word_t word, const struct record *first)
{
    uint32_t count = 1;
    while (first->place + count < first->batch && walk_past(chunk, &walk, word) == SHMQ_OK) {
        struct record record = {0};
        word = walk_look(chunk, &walk);
        if (word_state(word) != WORD_DONE || check_frame(chunk, walk.position, walk.ordinal, word, &record) < 0
            || record.place != first->place + count || (record.flags & RECORD_DEDUP) != 0) {
            break;
        }
        count++;
    }
    return count;
}

/* What stands at a word, if a put with dedup may have made it: 1, 0 when not, or why the walk stops. */
static int look_at(shmq_chunk *chunk, const struct walk *walk, word_t word, const struct wanted *wanted,
                   shmq_dedup_found *found)
{
    struct record record = {0};
    struct field_dedup field;
    if (word == 0 || word_seals(word)) {
        return word == 0 ? SHMQ_EMPTY : SHMQ_ROLL;
    }
    *found = (shmq_dedup_found){.position = walk->position, .first = walk->ordinal};
    if (word_state(word) == WORD_CLAIMED) {
        found->end = walk->position + word_bytes(word);
        return 1;
    }
    if (word_state(word) != WORD_DONE) {
        return 0;
    }
    const int64_t place = check_frame(chunk, walk->position, walk->ordinal, word, &record);
    if (place < 0) {
        return (int)place;
    }
    if (!read_dedup(chunk, walk->position, &record, wanted, &field)) {
        return 0;
    }
    memcpy(found->producer, field.producer, sizeof found->producer);
    found->sequence = field.sequence;
    found->count = (field.sequence & DEDUP_FORWARDED) != 0 ? run_of(chunk, *walk, word, &record) : record.batch;
    return 1;
}

/* Is it a later put of the same producer, so that the one before need not be known? */
static bool replaces(const shmq_dedup_found *before, const shmq_dedup_found *now)
{
    return before->end == 0 && now->end == 0 && before->sequence <= now->sequence
           && memcmp(before->producer, now->producer, sizeof now->producer) == 0;
}

int64_t shmq_scan_dedup(shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal, uint64_t until, uint32_t which,
                        const uint8_t source[16], uint32_t capacity, shmq_dedup_found *found, int *code)
{
    const struct wanted wanted = {which, source};
    struct walk walk = *position == 0 ? walk_from_start(chunk) : (struct walk){*position, *ordinal};
    int64_t count = 0;
    *code = SHMQ_OK;
    while (*code == SHMQ_OK && count < capacity && (until == 0 || walk.position < until)) {
        const word_t word = walk_look(chunk, &walk);
        const int end = word == 0 ? nothing_there(chunk, &walk) : SHMQ_EMPTY;
        if (end == SHMQ_OK) {
            continue;
        }
        if (which == SHMQ_DEDUP_SOURCE && word_state(word) == WORD_CLAIMED && settle(chunk, walk.position, word) == SHMQ_OK) {
            continue; /* a dead one's: padding now, for ever */
        }
        const int answer = look_at(chunk, &walk, word, &wanted, &found[count]);
        *code = word == 0 ? end : answer < 0 ? answer : walk_past(chunk, &walk, word);
        if (*code == SHMQ_OK && answer > 0) {
            if (which == SHMQ_DEDUP_NEWEST && count > 0 && replaces(&found[count - 1], &found[count])) {
                found[count - 1] = found[count];
            } else {
                count++;
            }
        }
    }
    *position = walk.position;
    *ordinal = walk.ordinal;
    return count;
}

/* ------------------------------------------------------------------ one put, where its producer's last one is known */
#define LOOK_MOST 4096 /* words; who has not put for longer asks Python, which knows what comes between of all producers */

/* Look at what has come since, under the lock: OK, or why Python has to look. A claim that is open is none of this producer's:
 * whoever makes one holds this lock, and one that was killed never commits. */
static int look_on(shmq_chunk *chunk, shmq_once *once)
{
    const struct wanted wanted = {MINE, once->producer};
    struct walk walk = {once->position, once->ordinal};
    for (uint32_t looks = 0; looks < LOOK_MOST; looks++) {
        shmq_dedup_found found = {0};
        const word_t word = walk_look(chunk, &walk);
        if (word == 0) {
            const int end = nothing_there(chunk, &walk);
            if (end == SHMQ_OK) {
                continue;
            }
            once->position = walk.position;
            once->ordinal = walk.ordinal;
            return end == SHMQ_EMPTY ? SHMQ_OK : end;
        }
        const int answer = look_at(chunk, &walk, word, &wanted, &found);
        const int code = answer < 0 ? answer : walk_past(chunk, &walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
        if (answer > 0 && found.end == 0 && (!once->any || found.sequence > once->sequence)) {
            once->any = true;
            once->sequence = found.sequence;
            once->first = chunk->base + found.first;
        }
    }
    return SHMQ_EMPTY;
}

/* It was put at that index: if nothing came before it meanwhile, it need not be looked at again. */
static void note_put(shmq_chunk *chunk, shmq_once *once, uint64_t sequence, int64_t index)
{
    struct walk walk = {once->position, once->ordinal};
    if (index < 0) {
        return;
    }
    once->any = true;
    once->sequence = sequence;
    once->first = (uint64_t)index;
    if (once->first == chunk->base + walk.ordinal && walk_past(chunk, &walk, walk_look(chunk, &walk)) == SHMQ_OK) {
        once->position = walk.position;
        once->ordinal = walk.ordinal;
    }
}

int64_t shmq_put_once(shmq_chunk *chunk, shmq_once *once, uint64_t sequence, const shmq_fields *fields, const char *payload,
                      uint64_t length)
{
    if (shmq_lock_try(once->lock, once->byte) != 1) {
        return SHMQ_EMPTY;
    }
    /* Behind the lock: what is known is changed by whoever has it. */
    int64_t answer = once->chunk == chunk->sequence ? look_on(chunk, once) : SHMQ_EMPTY;
    if (answer == SHMQ_OK && once->any && sequence <= once->sequence) {
        answer = sequence == once->sequence ? (int64_t)once->first : SHMQ_EMPTY;
    } else if (answer == SHMQ_OK) {
        answer = shmq_put_record(chunk, fields, payload, length);
        note_put(chunk, once, sequence, answer);
        if (answer >= 0) {
            shmq_count_put(chunk, 1, length);
        }
    }
    shmq_lock_give_back(once->lock, once->byte);
    return answer;
}

void shmq_forwarded_field(const char *source, uint64_t index, char *field)
{
    struct field_dedup dedup = {.sequence = DEDUP_FORWARDED | index};
    memcpy(dedup.producer, source, sizeof dedup.producer);
    memcpy(field, &dedup, sizeof dedup);
}
