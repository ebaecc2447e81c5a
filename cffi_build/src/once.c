/* once.c - who put a message, and which of his it is: what a put that must happen only once is known by. */
#include "chunk.h"

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

int shmq_next_dedup(shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal, uint8_t *producer, uint64_t *sequence,
                    uint64_t *first, uint32_t *count)
{
    struct walk walk = *position == 0 ? walk_from_start(chunk) : (struct walk){*position, *ordinal};
    for (;;) {
        const word_t word = walk_look(chunk, &walk);
        struct record record = {0};
        bool found = false;
        struct field_dedup field;
        int code = SHMQ_OK;
        if (word == 0 || word_seals(word)) {
            code = word == 0 ? SHMQ_EMPTY : SHMQ_ROLL;
        } else {
            if (word_state(word) == WORD_DONE) {
                const int64_t place = check_frame(chunk, walk.position, walk.ordinal, word, &record);
                code = place < 0 ? (int)place : SHMQ_OK;
                found = place >= 0 && record.place == 0 && read_dedup(chunk, walk.position, &record, &field);
                *first = walk.ordinal;
            }
            if (code == SHMQ_OK) {
                code = walk_past(chunk, &walk, word);
            }
        }
        *position = walk.position;
        *ordinal = walk.ordinal;
        if (code != SHMQ_OK) {
            return code;
        }
        if (found) {
            for (uint32_t i = 0; i < sizeof field.producer; i++) {
                producer[i] = field.producer[i];
            }
            *sequence = field.sequence;
            *count = record.batch;
            return SHMQ_OK;
        }
    }
}
