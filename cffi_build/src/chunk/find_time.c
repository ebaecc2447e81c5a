/* find_time.c - from a time to the first record of that time or a later one.
 *
 * Times are held against their neighbours; if they disagree, the whole chunk is walked. */
#include "chunk/note.h"
#include "chunk/proof.h"
#include "chunk/record.h"
#include "chunk/settle.h"

#define INDEX_DISAGREES (-1000) /* entries disagree with what they name; never leaves this file */

/* A bound of the search: an entry whose time is known, or one end of the chunk. */
struct bound {
    uint64_t j;
    struct entry entry;
};

/* The entry nearest to `mid` with a known time, strictly between two bounds. */
static bool known_between(shmq_chunk *chunk, uint64_t below, uint64_t mid, uint64_t above, struct bound *found)
{
    for (uint64_t j = mid; j > below; j--) {
        if (entry_load(chunk, j, &found->entry) && found->entry.time_max != TIME_UNKNOWN) {
            found->j = j;
            return true;
        }
    }
    for (uint64_t j = mid + 1; j < above; j++) {
        if (entry_load(chunk, j, &found->entry) && found->entry.time_max != TIME_UNKNOWN) {
            found->j = j;
            return true;
        }
    }
    return false;
}

/* The two neighbouring known entries between whose words the first message of that time must lie. above.j is the
 * number of entries when there is none above. */
static void search(shmq_chunk *chunk, int64_t time, struct bound *below, struct bound *above)
{
    const uint64_t hint = load_relaxed(&((struct chunk_header *)chunk->memory)->hint);
    const uint64_t entries = (uint64_t)chunk->index_blocks * INDEX_ENTRIES;
    const uint64_t noted = hint_ordinal(hint) / chunk->index_spacing + 1;
    *below = (struct bound){0, {walk_from_start(chunk), INT64_MIN}};
    *above = (struct bound){noted < entries ? noted : entries, {{0, UINT64_MAX}, INT64_MAX}};
    struct bound middle;
    while (known_between(chunk, below->j, below->j + (above->j - below->j) / 2, above->j, &middle)) {
        if (middle.entry.time_max < time) {
            *below = middle;
        } else {
            *above = middle;
        }
    }
}

/* May a search begin at that entry? Its word must be a message's, and its time what the entry before it leads to. */
static bool bound_holds(shmq_chunk *chunk, const struct bound *bound)
{
    if (bound->j == 0) {
        return true;
    }
    if (!proven(chunk, bound->j, &bound->entry.walk)) {
        return false;
    }
    struct entry before = {walk_from_start(chunk), INT64_MIN};
    if (bound->j > 1 && (!entry_load(chunk, bound->j - 1, &before) || before.time_max == TIME_UNKNOWN)) {
        return true; /* nothing to hold it against */
    }
    if (before.walk.position > bound->entry.walk.position) {
        return false;
    }
    struct running_max running_max = {true, before.time_max};
    if (!running_max_between(chunk, before.walk, &bound->entry.walk, &running_max) || !running_max.known) {
        return false;
    }
    const int64_t own = time_at(chunk, bound->entry.walk.position);
    return bound->entry.time_max == (own > running_max.time ? own : running_max.time);
}

/* Walk from a bound to the first message of that time. It must come before the ordinal `limit`, or the entries lie. */
static int walk_to_time(shmq_chunk *chunk, const struct entry *from, int64_t time, uint64_t limit, struct walk *walk,
                        uint64_t *open, struct running_max *running_max)
{
    *walk = from->walk;
    *running_max = (struct running_max){true, from->time_max};
    *open = UINT64_MAX;
    for (;;) {
        const word_t word = walk_look(chunk, walk);
        if (walk->ordinal > limit || (word_ends(word) && limit != UINT64_MAX)) {
            return INDEX_DISAGREES;
        }
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
        if (word_state(word) == WORD_CLAIMED) {
            const int code = settle(chunk, walk->position, word);
            if (code == SHMQ_OK) {
                continue; /* it is padding now, or was committed */
            }
            if (code != SHMQ_WAITING) {
                return code;
            }
            *open = *open < walk->ordinal ? *open : walk->ordinal;
        }
        const struct walk here = *walk;
        const int code = running_max_step(chunk, walk, word, running_max);
        if (code != SHMQ_OK) {
            return code;
        }
        if (word_state(word) == WORD_DONE && time_at(chunk, here.position) >= time) {
            *walk = here;
            const int64_t place = check_record(chunk, here.position, here.ordinal, word);
            return place < 0 ? (int)place : SHMQ_OK;
        }
    }
}

int shmq_at(shmq_chunk *chunk, int64_t time_ns, uint64_t *ordinal, uint64_t *open, int64_t *time_max)
{
    int code = may_look(chunk);
    if (code != SHMQ_OK) {
        return code;
    }
    struct bound below;
    struct bound above;
    struct walk walk;
    struct running_max running_max;
    search(chunk, time_ns, &below, &above);
    code = bound_holds(chunk, &below)
               ? walk_to_time(chunk, &below.entry, time_ns, above.entry.walk.ordinal, &walk, open, &running_max)
               : INDEX_DISAGREES;
    if (code == INDEX_DISAGREES || (code == SHMQ_CORRUPT && below.j > 0)) {
        below = (struct bound){0, {walk_from_start(chunk), INT64_MIN}};
        code = walk_to_time(chunk, &below.entry, time_ns, UINT64_MAX, &walk, open, &running_max);
    }
    if (code == SHMQ_ROLL && !running_max.known) {
        code = SHMQ_EMPTY; /* something is still open there */
    }
    if (chunk->writable && (code == SHMQ_OK || code == SHMQ_EMPTY || code == SHMQ_ROLL)
        && walk.ordinal / chunk->index_spacing > below.j) {
        index_fill(chunk, below.entry.walk, (struct running_max){true, below.entry.time_max}, walk.ordinal, false);
    }
    *ordinal = walk.ordinal;
    *time_max = running_max.time;
    return code;
}
