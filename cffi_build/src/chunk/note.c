/* note.c - entries of the index, written: by producers that pass one, and by readers that find one missing.
 *
 * Only behind the commit of what it names, and with a time only when all before it is resolved and was looked at: so all
 * who write an entry write the same. */
#include "chunk/note.h"

#include "chunk/proof.h"

#define NOTE_WALK 1024 /* ordinals a producer walks at most to learn the running maximum */
#define NOTE_BACK 16   /* entries it looks back for one to go on from */

static void running_max_pass(const shmq_chunk *chunk, struct running_max *running_max, const struct walk *walk, word_t word)
{
    if (word_state(word) == WORD_CLAIMED) {
        running_max->known = false;
    } else if (word_state(word) == WORD_DONE) {
        const int64_t time = time_at(chunk, walk->position);
        running_max->time = time > running_max->time ? time : running_max->time;
    }
}

int running_max_step(const shmq_chunk *chunk, struct walk *walk, word_t word, struct running_max *running_max)
{
    const struct walk here = *walk;
    const int code = step(chunk, walk, word);
    if (code == SHMQ_OK) {
        running_max_pass(chunk, running_max, &here, word);
    }
    return code;
}

void index_fill(shmq_chunk *chunk, struct walk walk, struct running_max running_max, uint64_t until, bool make)
{
    while (walk.ordinal < until) {
        const struct walk here = walk;
        const word_t word = walk_look(chunk, &walk);
        if (word_ends(word) || running_max_step(chunk, &walk, word, &running_max) != SHMQ_OK) {
            return;
        }
        if (word_state(word) == WORD_CLAIMED || walk.ordinal == here.ordinal) {
            continue;
        }
        const uint64_t spacing = chunk->index_spacing;
        for (uint64_t j = (here.ordinal + spacing - 1) / spacing; j * spacing < walk.ordinal; j++) {
            entry_put(chunk, j, &here, running_max.known ? running_max.time : TIME_UNKNOWN, make);
            prove(chunk, j, &here);
        }
    }
}

bool running_max_between(const shmq_chunk *chunk, struct walk from, const struct walk *to, struct running_max *running_max)
{
    while (from.position < to->position) {
        const word_t word = walk_look(chunk, &from);
        if (word_ends(word) || running_max_step(chunk, &from, word, running_max) != SHMQ_OK) {
            return false;
        }
    }
    return from.position == to->position && from.ordinal == to->ordinal;
}

void index_note(shmq_chunk *chunk, uint64_t position, uint64_t ordinal, uint32_t count)
{
    const uint64_t spacing = chunk->index_spacing;
    const uint64_t end = ordinal + count;
    store_relaxed(&chunk->index_next, ((end - 1) / spacing + 1) * spacing);
    if (BLOCK_BYTES > chunk->capacity / 16) {
        store_relaxed(&chunk->index_next, UINT64_MAX);
        return;
    }
    const struct walk here = {position, ordinal};
    const uint64_t own = (ordinal + spacing - 1) / spacing; /* the first entry that may be this region's */
    for (uint64_t k = own; k > 0 && own - k < NOTE_BACK;) {
        k--;
        struct entry entry = {walk_from_start(chunk), INT64_MIN};
        if (k != 0 && (!entry_load(chunk, k, &entry) || entry.time_max == TIME_UNKNOWN)) {
            continue;
        }
        struct running_max running_max = {true, entry.time_max};
        if (ordinal - entry.walk.ordinal <= NOTE_WALK && entry.walk.position <= position
            && (k == 0 || proven(chunk, k, &entry.walk)) && running_max_between(chunk, entry.walk, &here, &running_max)) {
            if (k + 1 < own) { /* those in between could not know their time then, or were lost */
                index_fill(chunk, entry.walk, (struct running_max){true, entry.time_max}, end, true);
            } else {
                index_fill(chunk, here, running_max, end, true);
            }
            return;
        }
        break;
    }
    if (own * spacing < end) {
        index_fill(chunk, here, (struct running_max){false, INT64_MIN}, end, true);
    }
}
