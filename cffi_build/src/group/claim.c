/* claim.c - a member walks the chunks and takes what nobody has.
 *
 * Words of regions that are padding are finished by whoever walks over them; so are the indexes that a gap leaves out. A
 * message that is not its time yet, or waits for its key, is left to the side table or to its bucket; one that the window has
 * no room for stops the walk. */
#include "chunk/filter.h"
#include "chunk/find.h"
#include "chunk/record.h"
#include "chunk/settle.h"
#include "chunk/timed.h"
#include "error.h"
#include "group/edge.h"
#include "group/ended.h"
#include "group/figures.h"
#include "group/gate.h"
#include "group/head.h"
#include "group/order.h"
#include "group/side.h"
#include "os/spin.h"

/* ------------------------------------------------------------------ one message */
/* A checked message that has a time: OK to hand it out as *kind from *due_ns on, or EMPTY when it was finished. */
static int timed(shmq_ring *ring, const shmq_chunk *chunk, uint64_t record, uint64_t index, uint64_t word,
                 uint16_t flags, uint32_t *kind, int64_t *due_ns)
{
    uint64_t at = record + RECORD_HEADER_BYTES;
    if (flags & RECORD_EXPIRY) {
        if (record_moment(chunk, at) <= ring_now()) {
            if (ring->keep_expired) {
                *kind = SHMQ_TAKEN_EXPIRED;
                return SHMQ_OK;
            }
            if (cas_release(ring_word(ring, index), word, ring_stamp(ring, index) | RING_DONE)) {
                add_relaxed(&ring->page->expired, 1);
                ring_settled(ring, 1);
            }
            return SHMQ_EMPTY;
        }
        at += sizeof(struct field_when);
    }
    *due_ns = flags & RECORD_DELAY ? record_moment(chunk, at) : 0;
    return SHMQ_OK;
}

/* Is it passed, since the group does not want it? 1, and it is finished, as nobody's attempt; 0, or CORRUPT. What it is does
 * not depend on who looks: whoever comes behind one that died here finds the same. */
static int pass_one(shmq_ring *ring, const shmq_chunk *chunk, shmq_reader *reader, const struct walk *walk, word_t word,
                    uint64_t now)
{
    const int matches = filter_matches(reader->filter, chunk, walk->position, walk->ordinal, word);
    if (matches != 0) {
        return matches < 0 ? matches : 0;
    }
    const uint64_t index = chunk->base + walk->ordinal;
    cas_release(ring_word(ring, index), now, ring_stamp(ring, index) | RING_DONE);
    reader->passed++;
    return 1;
}

/* A message in the window: 1 when it was taken (without `taken`: can be), 0 when not, or why the walk must stop. */
static int64_t take_one(shmq_ring *ring, shmq_chunk *chunk, shmq_reader *reader, const struct walk *walk, word_t word,
                        shmq_taken *taken)
{
    const uint64_t index = chunk->base + walk->ordinal;
    const uint64_t now = ring_look(ring, index);
    if (ring_state(ring, index, now) != RING_PENDING) {
        return 0;
    }
    if (ring_is_dropped(ring, index)) { /* it lay behind the window then; what is damaged there is nobody's concern */
        ring_settled(ring, ring_drop(ring, index));
        ring_finished(ring);
        return 0;
    }
    if (reader->filter != NULL) {
        const int passes = pass_one(ring, chunk, reader, walk, word, now);
        if (passes != 0) {
            return passes < 0 ? passes : 0;
        }
    }
    const int64_t place = check_record(chunk, walk->position, walk->ordinal, word);
    if (place < 0) {
        return place;
    }
    const uint16_t times = record_times(chunk, walk->position);
    uint32_t kind = SHMQ_TAKEN_MESSAGE;
    int64_t due_ns = 0;
    if (times != 0 && timed(ring, chunk, walk->position, index, now, times, &kind, &due_ns) != SHMQ_OK) {
        return 0;
    }
    shmq_taken order = {.bucket = ring->bucket_count == 0 ? 0 : keyed_bucket(ring, chunk, walk->position)};
    int code = SHMQ_OK;
    if (taken == NULL && due_ns <= ring_now() && (order.bucket == 0 || keyed_idle(ring, order.bucket))) {
        return 1; /* a glance: it is to be had */
    }
    if (order.bucket != 0) {
        code = keyed_enter(ring, index, now, due_ns, (times & RECORD_DELAY) != 0, &order);
    } else if (due_ns > ring_now()) {
        code = shmq_ring_park(ring, index, now, due_ns, 0, 0, 0);
    }
    if (code != SHMQ_OK) {
        return code == SHMQ_GROW ? code : 0;
    }
    if (taken == NULL || !ring_claim(ring, index, now, kind, ring->finish, taken)) {
        keyed_ready(ring, order.bucket); /* the gate is BUSY, and nothing may be there */
        return 0;
    }
    taken->bucket = order.bucket;
    taken->gate = order.gate;
    taken->place = (uint64_t)place;
    taken->record = walk->position;
    return 1;
}

/* Words of ordinals that never become messages are finished. */
static void finish_padding(shmq_ring *ring, uint64_t index, uint64_t count)
{
    for (; count > 0; index++, count--) {
        const uint64_t word = ring_look(ring, index);
        if (index >= head_of(ring) && ring_state(ring, index, word) == RING_PENDING) {
            cas_release(ring_word(ring, index), word, ring_stamp(ring, index) | RING_DONE);
        }
    }
}

/* Is there room in the window for `count` indexes from `index` on? OK, EDGE or GROW. */
static int room(shmq_ring *ring, uint64_t index, uint64_t count)
{
    if (reaches(ring, index + count)) {
        return SHMQ_OK;
    }
    ring_advance(ring);
    if (!reaches(ring, index + count)) {
        int code = keyed_park(ring);
        code = code == SHMQ_OK ? at_edge(ring, index, index + count) : code;
        if (code != SHMQ_OK) {
            return code;
        }
    }
    if (reaches(ring, index + count)) {
        return SHMQ_OK;
    }
    add_relaxed(&ring->page->edges, 1);
    return SHMQ_EDGE;
}

/* ------------------------------------------------------------------ one step, and what is stepped over */
/* Has somebody had it, of the window or before it? Then it is nobody's first time. */
static bool ring_had(const shmq_ring *ring, uint64_t index)
{
    return ring_state(ring, index, ring_look(ring, index)) != RING_PENDING;
}
/* Go on behind what others have had, where that is much: the window says so of eight messages in a cache line, where the
 * chunk has one word in a line or two. Of many members each would walk over what all the others take. */
static void skim(const shmq_ring *ring, shmq_chunk *chunk, struct walk *walk)
{
    if (ring->skim > ring->window) {
        return;
    }
    const uint64_t index = chunk->base + walk->ordinal;
    const uint64_t head = head_of(ring);
    const uint64_t far = index + ring->skim;
    uint64_t to = index > head ? index : head;
    if (far > head + ring->window || !ring_had(ring, far - 1)) {
        return;
    }
    while (to < head + ring->window && ring_had(ring, to)) {
        to++;
    }
    struct found found;
    if (to < far) {
        return;
    }
    const int code = index_find_place(chunk, to - chunk->base, *walk, &found);
    if (code == SHMQ_OK || code == SHMQ_EMPTY || code == SHMQ_ROLL) {
        *walk = found.walk; /* or the chunk's end; what is wrong on the way is told by whoever walks there */
    }
}

/* One step of the walk: how many were taken (0 or 1), or why it stops. */
static int64_t step(shmq_ring *ring, shmq_chunk *chunk, shmq_reader *reader, struct walk *walk, shmq_taken *taken)
{
    const word_t word = walk_look(chunk, walk);
    const uint64_t index = chunk->base + walk->ordinal;
    int64_t count = 0;
    int code;
    switch (word_state(word)) {
    case WORD_FREE:
        if (word == 0) {
            return nothing_there(chunk, walk); /* OK: something is there by now, look again */
        }
        break; /* walk_past tells what is wrong with it */
    case WORD_SEAL:
        if (word_seals(word)) {
            return SHMQ_ROLL;
        }
        break;
    case WORD_CLAIMED:
        reader->waiting_for = word_owner(word);
        return settle(chunk, walk->position, word); /* OK: it is padding now, look again */
    case WORD_DONE:
    case WORD_PAD:
        if (index + word_count(word) <= head_of(ring)) {
            break;
        }
        code = room(ring, index, word_count(word));
        if (code != SHMQ_OK) {
            return code;
        }
        if (word_state(word) == WORD_PAD) {
            finish_padding(ring, index, word_count(word));
            ring_settled(ring, word_count(word));
            break;
        }
        count = take_one(ring, chunk, reader, walk, word, taken);
        if (count < 0 || (count > 0 && taken == NULL)) {
            return count; /* a glance stays before it */
        }
        break;
    default:
        break;
    }
    code = walk_past(chunk, walk, word);
    if (code == SHMQ_OK && count == 0) {
        skim(ring, chunk, walk);
    }
    return code == SHMQ_OK ? count : code;
}

/* Behind the end of a sealed chunk that is followed by one of a new epoch, indexes are missing. */
int shmq_ring_skip(shmq_ring *ring, uint64_t index, uint64_t next)
{
    ring_advance(ring);
    if (next <= head_of(ring)) {
        return SHMQ_OK;
    }
    if (!reaches(ring, next)) { /* once everything before it is finished, the head goes over it in one step */
        int code = keyed_park(ring);
        code = code == SHMQ_OK ? at_edge(ring, index, index + ring->window) : code;
        if (code != SHMQ_OK) {
            return code;
        }
        if (head_of(ring) < index) {
            return SHMQ_EDGE;
        }
        shmq_ring_raise_head(ring, next);
        return SHMQ_OK;
    }
    finish_padding(ring, index, next - index);
    ring_settled(ring, next - index);
    return SHMQ_OK;
}

int shmq_ring_skip_one(shmq_ring *ring, uint64_t index)
{
    for (;;) {
        ring_advance(ring);
        const uint64_t head = head_of(ring);
        if (index < head) {
            const int64_t entry = side_find(ring, index);
            return entry >= 0 && side_unfinished(ring, index, (uint64_t)entry) ? SHMQ_LOST : SHMQ_EMPTY;
        }
        if (index >= head + ring->window) {
            return SHMQ_EDGE;
        }
        const uint64_t word = ring_look(ring, index);
        if (ring_is_done(ring, index)) {
            return SHMQ_EMPTY;
        }
        if (ring_state(ring, index, word) != RING_PENDING) {
            return SHMQ_LOST;
        }
        if (cas_release(ring_word(ring, index), word, ring_stamp(ring, index) | RING_DONE)) {
            ring_advance(ring);
            ring_room(ring);
            ring_finished(ring);
            return SHMQ_OK;
        }
    }
}

/* ------------------------------------------------------------------ the walk */
/* What was passed is finished, all of it at once: the head moves, and whoever waits for that is told. */
static void passed(shmq_ring *ring, const shmq_reader *reader)
{
    if (reader->passed > 0) {
        ring_settled(ring, reader->passed);
        ring_finished(ring);
    }
}

int64_t shmq_ring_take(shmq_ring *ring, shmq_chunk *chunk, shmq_reader *reader, uint32_t limit, uint32_t spins,
                       shmq_taken *taken)
{
    if (member_forked(ring->member)) {
        return error_forked();
    }
    struct walk walk = {reader->position, reader->ordinal};
    reader->passed = 0;
    int64_t count = 0;
    int64_t answer = 0;
    uint32_t pause = 1;
    ring->park_ns = 0;
    if (load_relaxed(&ring->member->control->shut_down) == SHUT_DOWN_AT_ONCE) {
        return SHMQ_EMPTY;
    }
    while (count < limit) {
        answer = step(ring, chunk, reader, &walk, &taken[count]);
        if (answer > 0) {
            count += answer;
        } else if (answer == SHMQ_EMPTY && count == 0 && reader->passed == 0 && spin_on(&spins, &pause)) {
            continue;
        } else if (answer < 0) {
            break;
        }
        if (reader->passed >= PASS_MOST) {
            answer = SHMQ_PASSED;
            break;
        }
    }
    reader->position = walk.position;
    reader->ordinal = walk.ordinal;
    ring->cursor = chunk->base + walk.ordinal;
    passed(ring, reader);
    keyed_wake(ring);
    if (count > 0 || reader->passed > 0) {
        if (load_relaxed(&ring->checkpoint->handed) < ring->cursor) {
            store_relaxed(&ring->checkpoint->handed, ring->cursor); /* about how far the group has come: ring_passed */
        }
        if (ring->finish) {
            ring_settled(ring, (uint64_t)count);
            ring_finished(ring);
        }
    }
    ring->holds += ring->finish || taken == NULL ? 0 : (uint64_t)count; /* at most: shmq_ring_holds says how many it is */
    return count > 0 ? count : answer;
}

int64_t shmq_ring_glance(shmq_ring *ring, shmq_chunk *chunk, shmq_reader *reader)
{
    if (member_forked(ring->member)) {
        return error_forked();
    }
    struct walk walk = {reader->position, reader->ordinal};
    int64_t answer;
    reader->passed = 0;
    do {
        answer = step(ring, chunk, reader, &walk, NULL);
    } while (answer == 0 && reader->passed < PASS_MOST);
    answer = answer == 0 ? SHMQ_PASSED : answer;
    reader->position = walk.position;
    reader->ordinal = walk.ordinal;
    ring->cursor = chunk->base + walk.ordinal;
    passed(ring, reader);
    keyed_wake(ring);
    return answer;
}
