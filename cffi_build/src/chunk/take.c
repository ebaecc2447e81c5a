/* take.c - reading, message by message: a reader's walk, and what is published before a message is handed out.
 *
 * A reader stops at a claim whose owner lives, settles one whose owner is dead, and never passes a word it has not checked.
 * A consumer's words in its checkpoint move before the message is returned: killed in between, it has had the message, and
 * nobody gets it twice. One thread at a time moves a reader. */
#include "chunk/take.h"

#include "chunk/bounds.h"
#include "chunk/filter.h"
#include "chunk/find.h"
#include "chunk/record.h"
#include "chunk/settle.h"
#include "chunk/timed.h"
#include "error.h"
#include "os/spin.h"

#define CURSOR_SPACING 256 /* a consumer that was killed walks about so many messages to its head */

/* ------------------------------------------------------------------ the next message */
/* Into each of its callers: what a look is for is known there, and on the way through memory it costs a third more. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Which messages a look is for: regions of up to `limit` bytes; where their payloads go, if not NULL, and where to say
 * which message it was. */
struct look {
    uint32_t spins;
    uint64_t limit;
    const struct copy *copy;
    shmq_which *which;
};

int reader_asks(const shmq_chunk *chunk, shmq_reader *reader, const struct walk *walk, word_t word, bool on)
{
    const int matches = filter_matches(reader->filter, chunk, walk->position, walk->ordinal, word);
    if (matches != 0) {
        return matches < 0 ? matches : 0;
    }
    if (reader->passed >= PASS_MOST && !on) {
        return SHMQ_PASSED;
    }
    reader->passed++;
    return 1;
}

/* Move the walk to the next message: its checked place, or why not. Looks `spins` times before it gives up. A message
 * above the limit is not looked at: TOO_LARGE. */
static ALWAYS_INLINE int64_t next_message(shmq_chunk *chunk, shmq_reader *reader, struct walk *walk, struct look look)
{
    uint32_t pause = 1;
    for (;;) {
        const word_t word = walk_look(chunk, walk);
        switch (word_state(word)) {
        case WORD_DONE: {
            const int passes = reader_passes(chunk, reader, walk, word, false);
            if (passes > 0) {
                break;
            }
            if (passes < 0) {
                return passes;
            }
            return word_bytes(word) > look.limit
                       ? SHMQ_TOO_LARGE
                       : check_copying(chunk, walk->position, walk->ordinal, word, look.copy);
        }
        case WORD_SEAL:
            if (!word_seals(word)) {
                break;
            }
            return SHMQ_ROLL;
        case WORD_FREE:
            if (word != 0) {
                break; /* walk_past tells what is wrong with it */
            }
            if (reader->passed > 0 || !spin_on(&look.spins, &pause)) { /* what was passed is told of first */
                const int code = nothing_there(chunk, walk);
                if (code != SHMQ_OK) {
                    return code;
                }
            }
            continue;
        case WORD_CLAIMED: {
            if (spin_on(&look.spins, &pause)) {
                continue;
            }
            reader->waiting_for = word_owner(word);
            const int code = settle(chunk, walk->position, word);
            if (code != SHMQ_OK) {
                return code;
            }
            continue;
        }
        default:
            break;
        }
        const int code = walk_past(chunk, walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
        reader->padded += word_state(word) == WORD_PAD ? word_count(word) : 0;
    }
}

/* The message at the walk was checked: step over it. The word is not read a second time. */
static void step_over(struct walk *walk, int64_t place)
{
    walk->position = round_up(place_end(place));
    walk->ordinal += 1;
}

/* The next message that the reader wants: a region that holds its start may begin before it. What was dropped is not
 * waited for, whatever time it has. */
static ALWAYS_INLINE int64_t wanted_message(shmq_chunk *chunk, shmq_reader *reader, struct walk *walk, struct look look)
{
    for (;;) {
        const int64_t place = next_message(chunk, reader, walk, look);
        if (place >= 0) {
            const uint64_t index = chunk->base + walk->ordinal;
            const uint16_t times = reader->checkpoint == NULL ? 0 : record_times(chunk, walk->position);
            int code = SHMQ_OK;
            if (times != 0 && index >= reader->start && !reader_drops(chunk, reader, index)) {
                code = record_timely(chunk, reader, walk->position, times);
                if (code == SHMQ_WAITING) {
                    return code;
                }
            }
            reader->record = walk->position;
            reader->index = index;
            step_over(walk, place);
            if (index < reader->start || code == SHMQ_EMPTY) {
                continue;
            }
            if (reader_drops(chunk, reader, index)) {
                reader->due_ns = 0;
                note_dropped(reader->checkpoint);
                continue;
            }
        }
        return place;
    }
}

/* The next four messages, if they are of one size, carry nothing that is asked about, are wanted, and are all as they were put.
 * False: somebody looks at the next one by itself, and says what it is. */
static bool next_four(const shmq_chunk *chunk, shmq_reader *reader, struct walk *walk, uint64_t *places, uint64_t *records)
{
    const struct walk from = *walk;
    const uint64_t index = chunk->base + from.ordinal;
    const uint64_t span = word_bytes(walk_look(chunk, walk));
    if (span > FOUR_BYTES || from.position > chunk->capacity - SEAL_BYTES - FOUR * span || index < reader->start
        || reader_drops(chunk, reader, index)) {
        return false;
    }
    struct record heads[FOUR];
    struct summed_place summed[FOUR];
    uint32_t sums[FOUR];
    for (uint32_t i = 0; i < FOUR; i++) {
        const struct walk here = {from.position + i * span, from.ordinal + i};
        const word_t word = walk_look(chunk, &here);
        if (word_state(word) != WORD_DONE || word_count(word) != 1 || word_bytes(word) != span || span < sizeof *heads) {
            return false;
        }
        struct record *const head = &heads[i];
        shared_read(head, chunk->memory + here.position, sizeof *head);
        if (head->length != heads[0].length || round_up(head->length) != span || head->ordinal != here.ordinal
            || head->flags != 0 || head->extra_words != 0
            || head->length < RECORD_HEADER_BYTES + round_up(head->key_length)) {
            return false;
        }
        summed[i] = (struct summed_place){here.position, head->ordinal, head->length};
    }
    record_crc_of_four(chunk, from.position, span, heads[0].length, summed, sums);
    for (uint32_t i = 0; i < FOUR; i++) {
        if (sums[i] != heads[i].crc) {
            return false;
        }
    }
    for (uint32_t i = 0; i < FOUR; i++) {
        const uint64_t payload = RECORD_HEADER_BYTES + round_up(heads[i].key_length);
        if (places != NULL) {
            places[i] = (uint64_t)place_of(summed[i].position + payload, heads[i].length - payload);
        }
        if (records != NULL) {
            records[i] = summed[i].position;
        }
    }
    reader->record = from.position + (FOUR - 1) * span;
    reader->index = index + FOUR - 1;
    *walk = (struct walk){from.position + FOUR * span, from.ordinal + FOUR};
    return true;
}

/* ------------------------------------------------------------------ who moves a reader, and what is said before */
/* Before messages are returned, the last of which the reader stands behind: move the live words of its checkpoint, if it
 * has one. */
void reader_publish(const shmq_chunk *chunk, const shmq_reader *reader, const struct walk *walk)
{
    struct checkpoint *const checkpoint = reader->checkpoint;
    if (checkpoint == NULL) {
        return;
    }
    if (load_relaxed(&checkpoint->handed) <= reader->index) {
        store_relaxed(&checkpoint->handed, reader->index + 1);
    }
    store_relaxed(&checkpoint->head, reader->index + 1);
    if (walk->ordinal % CURSOR_SPACING == 0) {
        shmq_cursor_save(checkpoint, chunk->sequence, walk->position, walk->ordinal, chunk->base + walk->ordinal);
    }
    if (bounded(chunk)) {
        shmq_room(chunk->member->control);
    }
}

void reader_publish_passed(const shmq_chunk *chunk, const shmq_reader *reader, const struct walk *walk)
{
    struct checkpoint *const checkpoint = reader->checkpoint;
    const uint64_t index = chunk->base + walk->ordinal;
    if (checkpoint == NULL || reader->passed == 0 || load_relaxed(&checkpoint->head) >= index) {
        return;
    }
    if (load_relaxed(&checkpoint->handed) < index) {
        store_relaxed(&checkpoint->handed, index); /* first, as above: the head is never beyond it */
    }
    store_relaxed(&checkpoint->head, index);
    shmq_cursor_save(checkpoint, chunk->sequence, walk->position, walk->ordinal, index);
    if (bounded(chunk)) {
        shmq_room(chunk->member->control);
    }
}

/* One thread at a time: a second one is told so, and sorts it out with the first under a lock of theirs. */
bool reader_begin(shmq_reader *reader, struct walk *walk)
{
    /* Acquire: the other thread's moves. Pairs with the release in reader_end. */
    if (exchange_acquire(&reader->busy, 1) != 0) {
        return false;
    }
    shared_read(&walk->position, &reader->position, sizeof reader->position);
    shared_read(&walk->ordinal, &reader->ordinal, sizeof reader->ordinal);
    reader->passed = 0;
    return true;
}
void reader_end(shmq_reader *reader, const struct walk *walk)
{
    shared_write(&reader->position, &walk->position, sizeof walk->position);
    shared_write(&reader->ordinal, &walk->ordinal, sizeof walk->ordinal);
    store_release(&reader->busy, 0); /* pairs with the acquire in reader_begin */
}

bool reader_is_shut(const shmq_chunk *chunk, const shmq_reader *reader)
{
    return reader->checkpoint != NULL && load_relaxed(&chunk->member->control->shut_down) == SHUT_DOWN_AT_ONCE;
}

/* ------------------------------------------------------------------ the calls */
int64_t shmq_next_many(shmq_chunk *chunk, shmq_reader *reader, uint32_t limit, uint64_t *places, uint64_t *records)
{
    if (member_forked(chunk->member)) {
        return error_forked();
    }
    if (reader_is_shut(chunk, reader)) {
        return SHMQ_EMPTY;
    }
    struct walk walk;
    if (!reader_begin(reader, &walk)) {
        return SHMQ_CONTENDED;
    }
    int64_t count = 0;
    int64_t answer = SHMQ_EMPTY;
    bool fours = chunk->checksum && reader->filter == NULL; /* until one is no such message: those behind it may be none, too */
    while (count < limit) {
        if (fours && limit - count >= FOUR) {
            fours = next_four(chunk, reader, &walk, places == NULL ? NULL : places + count,
                              records == NULL ? NULL : records + count);
            count += fours ? FOUR : 0;
            continue;
        }
        answer = wanted_message(chunk, reader, &walk, (struct look){.limit = UINT64_MAX});
        if (answer < 0) {
            break; /* what came before it is delivered; the next call meets it again */
        }
        if (places != NULL) {
            places[count] = (uint64_t)answer;
        }
        if (records != NULL) {
            records[count] = reader->record;
        }
        count++;
    }
    if (count > 0) {
        reader_publish(chunk, reader, &walk);
    }
    reader_publish_passed(chunk, reader, &walk);
    reader_end(reader, &walk);
    return count > 0 ? count : answer;
}

static inline int64_t next_one(shmq_chunk *chunk, shmq_reader *reader, struct look look)
{
    if (member_forked(chunk->member)) {
        return error_forked();
    }
    if (reader_is_shut(chunk, reader)) {
        return SHMQ_EMPTY;
    }
    struct walk walk;
    if (!reader_begin(reader, &walk)) {
        return SHMQ_CONTENDED;
    }
    const int64_t answer = wanted_message(chunk, reader, &walk, look);
    if (answer >= 0) {
        reader_publish(chunk, reader, &walk);
    } else {
        reader_publish_passed(chunk, reader, &walk);
    }
    if (look.which != NULL) {
        *look.which = (shmq_which){reader->record, reader->index}; /* before another thread moves the reader on */
    }
    reader_end(reader, &walk);
    return answer;
}

int64_t shmq_next(shmq_chunk *chunk, shmq_reader *reader, uint32_t spins)
{
    return next_one(chunk, reader, (struct look){.spins = spins, .limit = UINT64_MAX});
}

int64_t shmq_next_which(shmq_chunk *chunk, shmq_reader *reader, uint32_t spins, shmq_which *which)
{
    return next_one(chunk, reader, (struct look){.spins = spins, .limit = UINT64_MAX, .which = which});
}

int64_t shmq_glance(shmq_chunk *chunk, shmq_reader *reader, shmq_which *which)
{
    if (member_forked(chunk->member)) {
        return error_forked();
    }
    if (reader_is_shut(chunk, reader)) {
        return SHMQ_EMPTY;
    }
    struct walk walk;
    if (!reader_begin(reader, &walk)) {
        return SHMQ_CONTENDED;
    }
    const int64_t place = wanted_message(chunk, reader, &walk, (struct look){.limit = UINT64_MAX});
    if (place >= 0) { /* back before it; over what is not to be had, it has gone for good */
        walk = (struct walk){reader->record, reader->index - chunk->base};
        *which = (shmq_which){reader->record, reader->index};
    }
    reader_publish_passed(chunk, reader, &walk);
    reader_end(reader, &walk);
    return place;
}

int64_t shmq_next_small(shmq_chunk *chunk, shmq_reader *reader)
{
    return next_one(chunk, reader, (struct look){.limit = COPIED_BYTES});
}

int64_t shmq_next_small_which(shmq_chunk *chunk, shmq_reader *reader, shmq_which *which)
{
    return next_one(chunk, reader, (struct look){.limit = LARGE_BYTES, .which = which});
}

int64_t shmq_next_copied(shmq_chunk *chunk, shmq_reader *reader, char *to, uint64_t room)
{
    const struct copy copy = {to, room};
    return next_one(chunk, reader, (struct look){.limit = UINT64_MAX, .copy = &copy});
}

uint64_t shmq_next_bytes(const shmq_chunk *chunk, const shmq_reader *reader)
{
    const uint64_t position = reader->position;
    struct record record;
    if (position < chunk->first_position || position + sizeof record > chunk->capacity) {
        return 0;
    }
    shared_read(&record, chunk->memory + position, sizeof record);
    const uint64_t payload = RECORD_HEADER_BYTES + record.extra_words * SPAN_UNIT + round_up(record.key_length);
    return record.length < payload || record.length > chunk->capacity - position ? 0 : record.length - payload;
}

int shmq_reader_seek(shmq_chunk *chunk, shmq_reader *reader, uint64_t ordinal)
{
    struct walk walk = {reader->position, reader->ordinal};
    const bool ahead = walk.position >= chunk->first_position && walk.ordinal <= ordinal;
    struct found found;
    const int code = index_find_place(chunk, ordinal, ahead ? walk : walk_from_start(chunk), &found);
    reader->position = found.walk.position;
    reader->ordinal = found.walk.ordinal;
    return (code == SHMQ_EMPTY || code == SHMQ_ROLL) && found.walk.ordinal == ordinal ? SHMQ_OK : code;
}
