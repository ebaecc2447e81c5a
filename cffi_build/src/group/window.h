/* window.h - a group's ring, mapped: the handle that all files of a group know, and what a word of the window says. */
#ifndef SHMQ_WINDOW_H
#define SHMQ_WINDOW_H

#include "atomic.h"
#include "chunk/chunk.h"
#include "layout.h"
#include "os/member.h"
#include "os/os.h"
#include "shmq.h"

#define SKIM 64u /* fewer are walked over as quickly as they are gone over */

struct shmq_ring {
    struct ring *page;
    uint64_t *words;
    uint64_t *leases;         /* NULL in a group without a lease */
    uint64_t *attempts;       /* NULL where nothing comes again */
    uint64_t *keys;           /* these three: NULL in a group without order */
    struct ring_bucket *buckets;
    uint64_t *ready;          /* a bit for each bucket: somebody should look at it */
    uint8_t *side;
    uint64_t blocks;          /* of the side table, that are mapped here */
    uint32_t window;          /* from the checked header */
    uint32_t window_shift;
    uint32_t bucket_count;    /* likewise; 0 = in no order */
    uint32_t cells;           /* enum ring_cells */
    uint32_t slots;           /* participants there can be */
    uint64_t term;
    struct checkpoint *checkpoint;
    shmq_member *member;
    int64_t lease_ns;         /* 0 = for ever */
    uint32_t most;            /* attempts that a message is worth, for whoever only looks; 0 = any */
    uint32_t skim;            /* so many messages that others have had are not walked over one by one */
    bool finish;              /* claiming a message finishes it: ack="auto" */
    bool keep_expired;        /* hand expired messages out, to be moved */
    bool in_order;            /* of a lone consumer: what was parked comes lowest first, before what came back in the window */
    /* private to this handle */
    uint64_t returns_seen;
    uint64_t retry_next;      /* where to go on looking for RETRY; UINT64_MAX = nothing to look for */
    int64_t reaped_ns;
    int64_t leases_ns;        /* when to look at leases again */
    uint64_t side_seen;
    int64_t side_due_ns;      /* nothing in the side table is due before */
    uint64_t side_behind;     /* nor before this index was looked at */
    uint64_t side_next;       /* the entry to go on with, in a search that has found as many as were asked for; 0 = none */
    uint64_t side_version;    /* of that search, what it began with ... */
    int64_t side_next_due_ns; /* ... and has found so far */
    uint64_t side_next_behind;
    struct looked *looked;    /* what each block had when it was last looked through; or NULL, and nothing is remembered */
    struct offered *offered;  /* in order: the lowest that were due at the last look, and not claimed yet */
    uint32_t offered_count;
    uint32_t offered_next;
    uint64_t cursor;          /* every index below it was looked at */
    uint32_t ready_next;      /* word of `ready` to begin with */
    bool readied;             /* a bucket became ready, and nobody was woken yet */
    uint64_t stuck_head;      /* where the head stood at stuck_ns, when the window was found full */
    int64_t stuck_ns;
    int64_t park_ns;          /* when to look at the full window again, to park what holds it up; 0 = not */
    uint64_t holds;           /* messages that were handed out by this handle and not finished */
};

static inline uint64_t ring_slot(const shmq_ring *ring, uint64_t index) { return index & (ring->window - 1); }
static inline uint64_t ring_stamp(const shmq_ring *ring, uint64_t index)
{
    const uint64_t lap = index >> ring->window_shift & ((UINT64_C(1) << RING_LAP_BITS) - 1);
    return ring->term << RING_TERM_SHIFT | lap << RING_LAP_SHIFT;
}
/* What cells that are not of every lap say of theirs, above their lowest bits. */
static inline uint64_t ring_cell(const shmq_ring *ring, uint64_t index)
{
    return ring->term << CELL_LAP_BITS | (index >> ring->window_shift & ((UINT64_C(1) << CELL_LAP_BITS) - 1));
}
static inline uint32_t ring_owner(uint64_t word) { return (uint32_t)(word >> RING_OWNER_SHIFT) & 0x1fffff; }
static inline uint64_t ring_count(uint64_t word) { return word >> RING_COUNT_SHIFT & 0xff; }
static inline uint64_t ring_low(owner_t owner, uint64_t count, uint32_t state)
{
    return (uint64_t)owner << RING_OWNER_SHIFT | (count & 0xff) << RING_COUNT_SHIFT | state;
}
static inline bool ring_somebody_has(uint32_t state, uint64_t word)
{
    return state == RING_CLAIMED || state == RING_FORWARDING || (state == RING_MOVING && ring_owner(word) != 0);
}
static inline uint64_t ring_entry(uint64_t word) { return word >> RING_COUNT_SHIFT & ((UINT64_C(1) << 29) - 1); }
/* What a word, as ring_look has read it, says about `index`. One of another lap is of a later one only if the head is beyond
 * `index`: whoever wrote it had seen that, so we see it behind the word. */
static inline uint32_t ring_state(const shmq_ring *ring, uint64_t index, uint64_t word)
{
    if (word >> RING_LAP_SHIFT == ring_stamp(ring, index) >> RING_LAP_SHIFT) {
        return (uint32_t)word & ((1u << RING_STATE_BITS) - 1);
    }
    return index < load_relaxed(&ring->checkpoint->head) ? RING_DONE : RING_PENDING;
}
static inline uint64_t *ring_word(const shmq_ring *ring, uint64_t index)
{
    return &ring->words[ring_slot(ring, index)];
}
static inline uint64_t ring_look(const shmq_ring *ring, uint64_t index)
{
    /* Acquire: what whoever moved the word wrote before. Pairs with the releases of all who move it. */
    return load_acquire(ring_word(ring, index));
}

#define INDEX_LIMIT (UINT64_C(1) << 62) /* no message has such an index: whatever says so is nonsense */
static inline uint64_t head_of(const shmq_ring *ring)
{
    const uint64_t head = load_acquire(&ring->checkpoint->head);
    return head < INDEX_LIMIT ? head : INDEX_LIMIT;
}

/* How far the group has come: what was given back comes when all that was put before that was handed out, by whomever. Nothing
 * is read behind it: who is too early hands out a message before another one. */
static inline uint64_t ring_passed(const shmq_ring *ring)
{
    const uint64_t handed = load_relaxed(&ring->checkpoint->handed);
    return handed > ring->cursor ? handed : ring->cursor;
}

static inline int64_t ring_now(void) { return os->clock_boottime_ns(); }
/* A message nobody has, whose word is `word`, becomes ours, or with `finishes` is finished by that: false when it is
 * somebody else's, or finished. */
bool ring_claim(shmq_ring *ring, uint64_t index, uint64_t word, uint32_t kind, bool finishes, shmq_taken *taken);
/* Store the lease of `word` in its cell, and ask whether it has ended; *ends is its end, or later. */
void lease_store(const shmq_ring *ring, uint64_t *cell, uint64_t word, int64_t ends_ns);
bool lease_ended(const shmq_ring *ring, uint64_t *cell, uint64_t word, int64_t now_ns, int64_t *next_ns);
/* What a message that was handed out so often is to whoever takes it: 1 = one to work at, 2 = one that is to be moved elsewhere,
 * as is what a dead one was `moving`. */
static inline int64_t ring_worth(const shmq_ring *ring, uint64_t attempts, bool moving)
{
    return moving || (ring->most != 0 && attempts >= ring->most) ? 2 : 1;
}
uint32_t ring_attempts(const shmq_ring *ring, uint64_t index);
void attempts_store(const shmq_ring *ring, uint64_t index, uint32_t attempts);
/* May somebody have put that message of the window into other queues? And from now on: whether it was so before. */
bool ring_forwarded(const shmq_ring *ring, uint64_t index);
bool ring_mark_forwarded(const shmq_ring *ring, uint64_t index);
/* Something came back: have everybody look. */
void ring_returned(shmq_ring *ring);
/* Somebody may wait for room in the queue, and for this group to have finished something, or to have let go of it. */
static inline void ring_room(const shmq_ring *ring)
{
    if (load_relaxed(&ring->member->control->bounds) != 0) {
        shmq_room(ring->member->control);
    }
}

/* Was it dropped while somebody had it? Then it is finished, not handed out again. */
bool ring_is_dropped(const shmq_ring *ring, uint64_t index);
void ring_count_dropped(shmq_ring *ring, uint64_t count);

#endif
