/* once.c - who put a message, and which of its puts it is: what a put that must happen only once is known by. */
#include <string.h>

#include "chunk/record.h"

/* The dedup field of a message whose frame was checked: false when it has none, or is not whole. */
static bool read_dedup(const shmq_chunk *chunk, uint64_t position, const struct record *record,
                       struct field_dedup *field)
{
    uint64_t offset = 0;
    offset += (record->flags & RECORD_EXPIRY) != 0 ? sizeof(struct field_when) : 0;
    offset += (record->flags & RECORD_DELAY) != 0 ? sizeof(struct field_when) : 0;
    if ((record->flags & RECORD_DEDUP) == 0 || offset + sizeof *field > record->extra_words * SPAN_UNIT
        || check_sum(chunk, position, record) != SHMQ_OK) {
        return false;
    }
    shared_read(field, chunk->memory + position + RECORD_HEADER_BYTES + offset, sizeof *field);
    return true;
}

/* What stands at a word, if a put with dedup may have made it: 1, 0 when not, or why the walk stops. */
static int look_at(shmq_chunk *chunk, const struct walk *walk, word_t word, shmq_dedup_found *found)
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
    if (record.place != 0 || !read_dedup(chunk, walk->position, &record, &field)) {
        return 0;
    }
    memcpy(found->producer, field.producer, sizeof found->producer);
    found->sequence = field.sequence;
    found->count = record.batch;
    return 1;
}

/* Is it a later put of the same producer, so that the one before need not be known? */
static bool replaces(const shmq_dedup_found *before, const shmq_dedup_found *now)
{
    return before->end == 0 && now->end == 0 && before->sequence <= now->sequence
           && memcmp(before->producer, now->producer, sizeof now->producer) == 0;
}

int64_t shmq_scan_dedup(shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal, uint64_t until, bool newest,
                        uint32_t capacity, shmq_dedup_found *found, int *code)
{
    struct walk walk = *position == 0 ? walk_from_start(chunk) : (struct walk){*position, *ordinal};
    int64_t count = 0;
    *code = SHMQ_OK;
    while (*code == SHMQ_OK && count < capacity && (until == 0 || walk.position < until)) {
        const word_t word = walk_look(chunk, &walk);
        const int end = word == 0 ? nothing_there(chunk, &walk) : SHMQ_EMPTY;
        if (end == SHMQ_OK) {
            continue;
        }
        const int answer = look_at(chunk, &walk, word, &found[count]);
        *code = word == 0 ? end : answer < 0 ? answer : walk_past(chunk, &walk, word);
        if (*code == SHMQ_OK && answer > 0) {
            if (newest && count > 0 && replaces(&found[count - 1], &found[count])) {
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
