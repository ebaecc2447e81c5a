/* find.c - from an ordinal to a record: the nearest entry, and about spacing words from there.
 *
 * Where all messages between two entries have one size, the place is computed and no word is walked over. Whatever was
 * gone by, the record says itself that it is the right one, or the entry has proved to be a place that a walk visits. */
#include "chunk/find.h"
#include "chunk/note.h"
#include "chunk/proof.h"
#include "chunk/record.h"
#include "chunk/settle.h"

/* ------------------------------------------------------------------ to a place */
/* Have the words between an entry and the ordinal on their way, all at once: a walk would wait for one after the other.
 * Close together, every cache line; else where the words are if all messages there have the same size. */
#define CACHE_LINE 64
#define PREFETCH_MAX 128
static void prefetch_words(shmq_chunk *chunk, uint64_t j, const struct entry *entry, uint64_t ordinal)
{
    struct entry next;
    if (!entry_load(chunk, j + 1, &next) || next.walk.ordinal <= entry->walk.ordinal
        || next.walk.position <= entry->walk.position || ordinal - entry->walk.ordinal > PREFETCH_MAX) {
        return;
    }
    const uint64_t bytes = next.walk.position - entry->walk.position;
    const uint64_t size = bytes / (next.walk.ordinal - entry->walk.ordinal);
    const uint64_t stride = size > 2 * CACHE_LINE ? size : CACHE_LINE;
    const uint64_t reach = (ordinal - entry->walk.ordinal) * size + CACHE_LINE;
    const uint8_t *const from = chunk->memory + entry->walk.position;
    for (uint64_t at = stride; at <= reach && at < bytes; at += stride) {
        __builtin_prefetch(from + at);
    }
}

static int walk_to(shmq_chunk *chunk, struct walk walk, uint64_t ordinal, struct found *found)
{
    for (;;) {
        const word_t word = walk_look(chunk, &walk);
        found->walk = walk;
        found->word = word;
        if (word == 0) {
            const int end = nothing_there(chunk, &walk);
            if (end != SHMQ_OK) {
                return end;
            }
            continue;
        }
        if (word_seals(word)) {
            return SHMQ_ROLL;
        }
        const int code = step(chunk, &walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
        if (walk.ordinal > ordinal) {
            return SHMQ_OK;
        }
    }
}

/* Does a walk visit this record, whose checksum agrees? It lies between two entries, k and k + 1; `before` is the first of
 * them, or a place that is `sure`. */
static bool committed(shmq_chunk *chunk, const struct record *record, uint64_t k, const struct walk *before, bool sure,
                      const struct walk *next)
{
    const uint64_t first = record->ordinal - (uint64_t)record->place; /* of its batch; a batch never crosses a chunk */
    if (record->place == 0) {
        return true; /* its word says DONE only since its commit */
    }
    if (first < before->ordinal) { /* a walk visits a place inside that batch: it was committed */
        return sure || proven(chunk, k, before);
    }
    return next->ordinal > first && next->ordinal < first + record->batch && proven(chunk, k + 1, next);
}

/* Messages of one size, as most are, need no walk: the place between two entries is computed. What is there counts if its
 * checksum says so, which covers its place and its ordinal; without checksums, a payload could be taken for it. */
static bool computed(shmq_chunk *chunk, uint64_t k, const struct walk *before, bool sure, uint64_t ordinal,
                     struct found *found)
{
    struct entry next;
    if (!chunk->checksum || !entry_load(chunk, k + 1, &next) || next.walk.ordinal <= ordinal
        || next.walk.position <= before->position) {
        return false;
    }
    const uint64_t count = next.walk.ordinal - before->ordinal;
    const uint64_t size = (next.walk.position - before->position) / count;
    const struct walk here = {before->position + (ordinal - before->ordinal) * size, ordinal};
    if (size * count != next.walk.position - before->position || size % SPAN_UNIT != 0) {
        return false;
    }
    __builtin_prefetch(chunk->memory + here.position + CACHE_LINE); /* most records reach into it */
    struct record record;
    found->walk = here;
    found->word = walk_look(chunk, &here);
    if (word_state(found->word) != WORD_DONE || word_bytes(found->word) > size) {
        return false;
    }
    found->place = check_frame(chunk, here.position, ordinal, found->word, &record);
    return found->place >= 0 && check_sum(chunk, here.position, &record) == SHMQ_OK
           && committed(chunk, &record, k, before, sure, &next.walk);
}

static int find(shmq_chunk *chunk, uint64_t ordinal, struct walk floor, struct found *found, bool to_read)
{
    const uint64_t wanted = ordinal / chunk->index_spacing;
    uint64_t j = wanted;
    if (chunk->index_proven != NULL && wanted / INDEX_ENTRIES < chunk->index_blocks) {
        __builtin_prefetch(&chunk->index_proven[wanted]); /* on its way with the entry */
    }
    for (;;) {
        struct entry entry;
        const uint64_t k = entry_before(chunk, j, &entry);
        const bool from_floor = k == 0 || entry.walk.ordinal <= floor.ordinal;
        const struct walk before = from_floor ? floor : entry.walk;
        const bool known = !to_read && (from_floor || proven_before(chunk, k, &entry.walk));
        if (k == wanted && !known && computed(chunk, k, &before, from_floor, ordinal, found)) {
            return SHMQ_OK;
        }
        if (!from_floor) {
            prefetch_words(chunk, k, &entry, ordinal);
        }
        const int code = walk_to(chunk, before, ordinal, found);
        found->place = SHMQ_CORRUPT;
        if (code == SHMQ_OK && word_state(found->word) == WORD_DONE && !known) {
            found->place = check_record(chunk, found->walk.position, ordinal, found->word);
        }
        /* The first of a batch (or alone): its word says DONE only since its commit. */
        const bool certain = found->place >= 0 && place_in_batch(chunk, found->walk.position) == 0;
        if (from_floor || certain || proven(chunk, k, &entry.walk)) {
            if (chunk->writable && k < wanted && code == SHMQ_OK && entry_at(chunk, wanted, false) != NULL) {
                /* put back what was missing */
                index_fill(chunk, before, (struct running_max){false, INT64_MIN}, ordinal + 1, false);
            }
            return code;
        }
        j = k - 1;
    }
}

int index_find(shmq_chunk *chunk, uint64_t ordinal, struct walk floor, struct found *found)
{
    return find(chunk, ordinal, floor, found, true);
}
int index_find_place(shmq_chunk *chunk, uint64_t ordinal, struct walk floor, struct found *found)
{
    return find(chunk, ordinal, floor, found, false);
}

/* ------------------------------------------------------------------ to a message */
int64_t shmq_find(shmq_chunk *chunk, uint64_t ordinal, uint64_t *record)
{
    int code = may_look(chunk);
    if (code != SHMQ_OK) {
        return code;
    }
    for (;;) {
        struct found found;
        code = index_find(chunk, ordinal, walk_from_start(chunk), &found);
        if (code != SHMQ_OK) {
            return code;
        }
        switch (word_state(found.word)) {
        case WORD_DONE:
            *record = found.walk.position;
            return found.place;
        case WORD_CLAIMED:
            code = settle(chunk, found.walk.position, found.word);
            if (code != SHMQ_OK) {
                return code;
            }
            continue;
        default:
            return SHMQ_PADDED;
        }
    }
}

int64_t shmq_range(shmq_chunk *chunk, uint64_t first, uint64_t last, uint64_t *indexes, uint64_t *records,
                   uint64_t *places)
{
    int code = may_look(chunk);
    struct found found;
    if (code == SHMQ_OK) {
        code = index_find(chunk, first, walk_from_start(chunk), &found);
    }
    if (code != SHMQ_OK) {
        return code == SHMQ_EMPTY || code == SHMQ_ROLL ? 0 : code;
    }
    struct walk walk = found.walk;
    int64_t count = 0;
    while (walk.ordinal < last) {
        const word_t word = walk_look(chunk, &walk);
        if (word_seals(word)) {
            break;
        }
        if (word == 0) {
            code = nothing_there(chunk, &walk);
            if (code == SHMQ_OK) {
                continue;
            }
            if (code == SHMQ_CORRUPT) {
                return code;
            }
            break;
        }
        if (word_state(word) == WORD_CLAIMED) {
            code = settle(chunk, walk.position, word);
            if (code == SHMQ_OK) {
                continue;
            }
        } else if (word_state(word) == WORD_DONE) {
            const struct walk here = walk;
            const int64_t place = here.position == found.walk.position && found.place >= 0
                                      ? found.place
                                      : check_record(chunk, here.position, here.ordinal, word);
            if (place < 0) {
                return place;
            }
            if (indexes != NULL) {
                indexes[count] = chunk->base + here.ordinal;
            }
            if (records != NULL) {
                records[count] = here.position;
            }
            if (places != NULL) {
                places[count] = (uint64_t)place;
            }
            count++;
        }
        code = walk_past(chunk, &walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
    }
    return count;
}
