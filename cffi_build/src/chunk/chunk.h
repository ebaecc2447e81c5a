/* chunk.h - one mapped chunk, as the other files of the core see it. */
#ifndef SHMQ_CHUNK_H
#define SHMQ_CHUNK_H

#include <stddef.h>

#include "atomic.h"
#include "layout.h"
#include "os/owner.h"
#include "shmq.h"

/* How far a handle may claim: computed from the heads as they were, and good as long as `bounds` agrees. */
struct limit {
    uint64_t bounds;          /* control->bounds as it was before the heads were looked at */
    uint64_t ordinals;        /* claims may take ordinals below this one */
    uint64_t position;        /* and bytes before this place */
};

struct shmq_chunk {
    uint8_t *memory;
    uint64_t capacity;        /* from the checked header, never above what is mapped */
    uint64_t first_position;  /* behind header and index2index, and what stands behind that where there is a grain */
    uint64_t grain;           /* regions begin and end at multiples of it: SPAN_UNIT, if the header says nothing */
    uint64_t base;            /* index of ordinal 0 */
    uint64_t sequence;
    uint64_t epoch;
    uint64_t chunk_id;
    uint32_t crc_seed;        /* CRC of epoch and chunk id */
    uint64_t populated;       /* private: pages below it have been asked for */
    uint32_t index_spacing;
    uint32_t index_blocks;
    uint32_t *index_proven;   /* private, or NULL: by entry, the position in units that proved to be a walk's */
    uint64_t index_next;      /* private: a region that reaches beyond this ordinal is noted in the index */
    word_t seal;              /* private: how this handle seals the chunk */
    struct limit limit;       /* private: how far this handle may claim in a bounded queue */
    bool aside;               /* it is staged: nobody counts what is there */
    int fd;
    bool writable;
    bool checksum;
    shmq_member *member;
};

/* What a message's checksum covers behind that of its chunk, and before the message itself from its ordinal on. */
struct summed_place {
    uint64_t position;
    uint32_t ordinal;
    uint32_t length;
};
#define SUMMED_FROM offsetof(struct record, ordinal)

/* Where a walk stands: a word that a walk from the chunk's start visits, and the ordinals before it. */
struct walk {
    uint64_t position;
    uint64_t ordinal;
};

static inline word_t *word_at(const shmq_chunk *chunk, uint64_t position)
{
    return (word_t *)(chunk->memory + position);
}
static inline struct walk walk_from_start(const shmq_chunk *chunk) { return (struct walk){chunk->first_position, 0}; }

/* A SEAL says that it is one and, in the 40 bits of count and span, which adoption follows; it has no owner. Whether
 * there is such an adoption is found out by whoever looks for the successor. */
static inline bool word_seals(word_t word) { return word_state(word) == WORD_SEAL && word_owner(word) == 0; }

static inline word_t walk_look(const shmq_chunk *chunk, const struct walk *walk)
{
    /* Acquire: the words inside a batch were stored before the commit that lets us pass its first one, and a message
     * before its own. Pairs with the release in commit_word. */
    return load_acquire(word_at(chunk, walk->position));
}

/* A chunk's header says where what lies in it. */
static inline uint64_t index_slots_end(uint32_t blocks)
{
    return CHUNK_HEADER_BYTES + sizeof(struct index2index) + (uint64_t)blocks * SPAN_UNIT;
}
/* Index blocks that stand behind index2index from the beginning, where there is a grain. */
static inline uint32_t index_blocks_ahead(uint64_t capacity, uint32_t blocks)
{
    const uint64_t share = capacity / INDEX_SHARE / INDEX_BLOCK_BYTES;
    return share < blocks ? (uint32_t)share : blocks;
}

/* A walk is at a word that says FREE. EMPTY: nothing is there yet; OK: something is, since; CORRUPT: something was. */
int nothing_there(const shmq_chunk *chunk, const struct walk *walk);
#define A_HOLE "a hole: nothing is here, and there is something behind it"
struct walk walk_from_hint(const shmq_chunk *chunk);
void hint_raise(const shmq_chunk *chunk, uint64_t position, uint64_t ordinal);
/* Step over a word, if it can be what it says: OK or CORRUPT. */
int walk_past(const shmq_chunk *chunk, struct walk *walk, word_t word);
/* The message of a DONE word, checked: its payload's place or CORRUPT. */
int64_t check_record(const shmq_chunk *chunk, uint64_t position, uint64_t ordinal, word_t word);
/* Which times a message has: RECORD_EXPIRY, RECORD_DELAY. */
static inline uint16_t record_times(const shmq_chunk *chunk, uint64_t position)
{
    uint16_t flags;
    shared_read(&flags, chunk->memory + position + offsetof(struct record, flags), sizeof flags);
    return flags & (RECORD_EXPIRY | RECORD_DELAY);
}
/* The moment in such a field, on the clock since boot: of another boot, by the wall clock. */
int64_t record_moment(const shmq_chunk *chunk, uint64_t position);
/* A checked message that has a time, for a consumer: OK to hand it out, EMPTY when it is too old, WAITING when it is not
 * its time yet: a consumer alone keeps the order, and waits. */
int record_timely(const shmq_chunk *chunk, shmq_reader *reader, uint64_t position, uint16_t times);
/* The same without its checksum: the head as it was read, and its payload's place or CORRUPT; and then only that. */
int64_t check_frame(const shmq_chunk *chunk, uint64_t position, uint64_t ordinal, word_t word, struct record *record);
int check_sum(const shmq_chunk *chunk, uint64_t position, const struct record *record);
/* Is there a GAP at that word? Recovery writes one before the SEAL of a chunk that it cut; then *next_index is set. */
bool gap_at(const shmq_chunk *chunk, uint64_t position, word_t word, uint64_t *next_index);
/* A GAP and its SEAL: they are there once the first word is, which is stored last. */
void gap_write(const shmq_chunk *chunk, uint64_t position, uint64_t next_index);
/* A region that is still claimed: OK when its owner is dead and it has been padded, WAITING when not, or CORRUPT. */
int settle(shmq_chunk *chunk, uint64_t position, word_t word);

/* Nothing is there for a consumer any more: why, its wait says. Readers look on. */
bool reader_is_shut(const shmq_chunk *chunk, const shmq_reader *reader);
/* One thread at a time moves a reader: false when another one does. */
bool reader_begin(shmq_reader *reader, struct walk *walk);
void reader_end(shmq_reader *reader, const struct walk *walk);
/* Before what was read up to reader->index is returned: move the words of the reader's checkpoint, if it has one. */
bool reader_publish(const shmq_chunk *chunk, const shmq_reader *reader, const struct walk *walk);

#endif
