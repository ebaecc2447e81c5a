/* walk.h - where a walk stands, and how it goes on. */
#ifndef SHMQ_WALK_H
#define SHMQ_WALK_H

#include "chunk/chunk.h"

/* Where a walk stands: a word that a walk from the chunk's start visits, and the ordinals before it. */
struct walk {
    uint64_t position;
    uint64_t ordinal;
};

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

/* A walk is at a word that says FREE. EMPTY: nothing is there yet; OK: something is, since; CORRUPT: something was. */
int nothing_there(const shmq_chunk *chunk, const struct walk *walk);
#define A_HOLE "a hole: nothing is here, and there is something behind it"
struct walk walk_from_hint(const shmq_chunk *chunk);
static inline void hint_raise(const shmq_chunk *chunk, uint64_t position, uint64_t ordinal)
{
    uint64_t *const hint = &((struct chunk_header *)chunk->memory)->hint;
    const uint64_t mine = hint_make(position, ordinal);
    uint64_t seen = load_relaxed(hint);
    /* Release: the claims before it, ours and those we walked over. Pairs with the acquire in nothing_there. */
    while (seen < mine && !cas_release(hint, seen, mine)) {
        seen = load_relaxed(hint);
    }
}
/* Can a word be what it says? OK or CORRUPT. */
int check_word(const shmq_chunk *chunk, uint64_t position, word_t word);
/* Step over a word, if it can be what it says: OK or CORRUPT. */
int walk_past(const shmq_chunk *chunk, struct walk *walk, word_t word);
/* The story of what is wrong at that place of this chunk: CORRUPT. */
int corrupt(const shmq_chunk *chunk, uint64_t position, const char *reason);

#endif
