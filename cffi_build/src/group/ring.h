/* ring.h - a group's mapped ring, as ring.c, side.c and keyed.c share it. */
#ifndef SHMQ_RING_H
#define SHMQ_RING_H

#include "atomic.h"
#include "chunk/chunk.h"
#include "layout.h"
#include "os/member.h"
#include "shmq.h"

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
    uint32_t most;            /* attempts that a message is worth, for who only looks; 0 = any */
    bool finish;              /* claiming a message finishes it: ack="auto" */
    bool keep_expired;        /* hand expired messages out, to be moved */
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
/* What cells that are not of every lap say of theirs, above ATTEMPTS_BITS. */
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
    return state == RING_CLAIMED || (state == RING_MOVING && ring_owner(word) != 0);
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

int64_t ring_now(void);
/* A message nobody has, whose word is `word`, becomes ours, or with `finishes` is finished by that: false when it is
 * somebody else's, or finished. */
bool ring_claim(shmq_ring *ring, uint64_t index, uint64_t word, uint32_t kind, bool finishes, shmq_taken *taken);
/* Store the lease of `word` in its cell, and ask whether it has ended; *ends is its end, or later. */
void lease_store(const shmq_ring *ring, uint64_t *cell, uint64_t word, int64_t ends_ns);
bool lease_ended(const shmq_ring *ring, uint64_t *cell, uint64_t word, int64_t now_ns, int64_t *next_ns);
/* What a message that was handed out so often is to who takes it: 1 = one to work at, 2 = one that is to be moved elsewhere,
 * as is what a dead one was `moving`. */
static inline int64_t ring_worth(const shmq_ring *ring, uint64_t attempts, bool moving)
{
    return moving || (ring->most != 0 && attempts >= ring->most) ? 2 : 1;
}
uint32_t ring_attempts(const shmq_ring *ring, uint64_t index);
/* The head moves over everything finished. */
void ring_advance(shmq_ring *ring);
/* The same, and `count` words of the window were finished, or parked, just now. */
void ring_settled(shmq_ring *ring, uint64_t count);
/* Is the window full, and its head where it was some time ago? If not, *park_ns says when it will have been. */
bool ring_stuck(shmq_ring *ring, uint64_t head);
/* Something came back: have everybody look. */
void ring_returned(shmq_ring *ring);
/* Somebody may wait for room in the queue, and for this group to have finished something, or to have let go of it. */
static inline void ring_room(const shmq_ring *ring)
{
    if (load_relaxed(&ring->member->control->bounds) != 0) {
        shmq_room(ring->member->control);
    }
}

/* ---- drop.c */
/* Was it dropped while somebody had it? Then it is finished, not handed out again. */
bool ring_is_dropped(const shmq_ring *ring, uint64_t index);
void ring_count_dropped(shmq_ring *ring, uint64_t count);
/* Finish one of the window that was dropped and that nobody has, and count it: whether we did. */
bool ring_drop(shmq_ring *ring, uint64_t index);
/* Finish one of the window, unless somebody has it, or *by_force*: whether we did. */
bool ring_drop_word(shmq_ring *ring, uint64_t index, bool by_force);
/* Something was finished: have those look who wait for the end of the stream, if it is ending. Behind a fence. */
void ring_finished(const shmq_ring *ring);
/* Is that message of the window finished, or was it dropped and nobody has it? */
bool ring_is_done(const shmq_ring *ring, uint64_t index);

/* ---- side.c */
/* A free entry, PREPARED: its id, or SHMQ_GROW. */
int64_t side_prepare(shmq_ring *ring, uint64_t index, uint64_t then, int64_t due_ns, uint64_t behind, uint64_t bucket);
void side_release(shmq_ring *ring, uint64_t entry);
/* Its ring word is PARKED: make it what it was prepared for. Anybody may. */
void side_settle(shmq_ring *ring, uint64_t entry);
/* May the head pass this PARKED word? */
bool side_passes(shmq_ring *ring, uint64_t index, uint64_t word);
/* What a dead owner left there goes on; returns whether anything came back. */
bool side_reap(shmq_ring *ring, owner_t owner);
/* The entry that holds `index`, or SHMQ_EMPTY. */
int64_t side_find(const shmq_ring *ring, uint64_t index);
/* Have the handle remember what it saw in each block, as many as are mapped now; false when there is no memory for it. */
bool side_remember(shmq_ring *ring);
/* Would side_take hand something out, when nothing else is there? As ring_worth. */
int64_t side_any_due(const shmq_ring *ring);
int64_t side_take(shmq_ring *ring, bool idle, uint32_t limit, shmq_taken *taken);
/* An entry that nobody has, in that state, becomes ours: false when it is somebody else's. */
bool side_claim(shmq_ring *ring, uint64_t entry, uint64_t state, shmq_taken *taken);
/* Has a side word of CLAIMED or MOVING the same owner and count as that ring word, which says so too? */
bool side_is_of(uint64_t state, uint64_t word);
struct ring_side *side_at(const shmq_ring *ring, uint64_t entry);
/* The lowest index that is parked, or `from`. */
uint64_t side_lowest(const shmq_ring *ring, uint64_t from);
/* The lowest one that somebody has, or `from`. */
uint64_t side_held(const shmq_ring *ring, uint64_t from);
/* Finish everything below `target` that nobody has: how many. */
uint64_t side_drop(shmq_ring *ring, uint64_t target);
/* Finish one that nobody has, in that state: whether we did. */
bool side_drop_entry(shmq_ring *ring, uint64_t entry, uint64_t state);
uint64_t side_then(const shmq_ring *ring, owner_t owner, uint64_t count, uint64_t attempts, uint32_t state);
uint64_t side_count(const shmq_ring *ring, uint32_t state);
/* From exactly this word of an entry that was handed out: OK or LOST. */
int side_ack(shmq_ring *ring, uint64_t entry, uint64_t word);
int side_nack(shmq_ring *ring, uint64_t entry, uint64_t word, int64_t due_ns, uint64_t behind);
int side_extend(shmq_ring *ring, uint64_t entry, uint64_t *word, int64_t ends_ns);
int side_moving(shmq_ring *ring, uint64_t entry, uint64_t *word);
/* What lies here is not done. */
void side_unmark(const shmq_ring *ring, struct snapshot *snapshot);
/* Name the lowest parked messages before `head`, up to SNAPSHOT_OLDER, with the entries they lie in. Whatever else is
 * parked before `head` is not before made->head, which is `head` when there is nothing else. */
void side_oldest(const shmq_ring *ring, uint64_t head, struct snapshot *made, uint64_t entries[]);
/* In an empty table: park that message of that bucket, due at once, in the entry behind *last. False when there is no
 * room. */
bool side_put_back(shmq_ring *ring, uint64_t *last, uint64_t index, uint64_t bucket);
/* Does that entry hold that message still, not finished? */
bool side_unfinished(const shmq_ring *ring, uint64_t index, uint64_t entry);
/* The next parked message that is not finished, behind entry at->entry: false when there is none. */
struct parked {
    uint64_t entry;
    uint64_t index;
    uint32_t state;           /* enum side_state */
    owner_t owner;
};
bool side_next(const shmq_ring *ring, struct parked *at);
/* The entries of those of `count` messages from `first` on that lie here, at their places. */
void side_collect(const shmq_ring *ring, uint64_t first, uint64_t count, uint64_t *entries);

/* ---- keyed.c */
/* The lowest unfinished message of a bucket. */
struct lowest {
    uint64_t index;           /* UINT64_MAX = there is none */
    uint64_t word;            /* its ring word, or the state of its entry */
    uint64_t entry;           /* 0 = it is in the window */
    bool more;                /* there are others, or there may be */
};
/* ... of those in the side table. Also moves what is between two steps on. */
void side_lowest_of(shmq_ring *ring, uint64_t bucket, uint64_t first_block, struct lowest *lowest);
/* As ring_worth, of an entry in that state. */
int64_t side_worth(const shmq_ring *ring, uint64_t state);
bool side_available(const shmq_ring *ring, const struct lowest *lowest, bool idle);
/* It is not to be had yet: have it looked for when it is. */
void side_later(shmq_ring *ring, uint64_t entry);

/* Bytes of keys, buckets and their bits. */
uint64_t keyed_bytes(uint32_t window, uint32_t buckets);
/* The bucket of a message's key, plus one; 0 = it has no key. */
uint64_t keyed_bucket(const shmq_ring *ring, const shmq_chunk *chunk, uint64_t position);
/* A number of a bucket as it was read from the file; 0 also when there is no such bucket. */
uint64_t keyed_bounded(const shmq_ring *ring, uint64_t bucket);
/* The same of one in the window that a walker has met; 0 also when none has. */
uint64_t keyed_at(const shmq_ring *ring, uint64_t index);
/* A walker meets a message that nobody has: OK to claim it, EMPTY when it waits for its key (or its time), or GROW. */
int keyed_enter(shmq_ring *ring, uint64_t index, uint64_t word, int64_t due_ns, bool delayed, shmq_taken *taken);
/* Would a walker that meets a message of that bucket have it? */
bool keyed_idle(const shmq_ring *ring, uint64_t bucket);
/* Somebody should look at this bucket (0 = none). */
void keyed_ready(shmq_ring *ring, uint64_t bucket);
/* Wake others, if a bucket became ready. */
void keyed_wake(shmq_ring *ring);
/* What was handed out is done, or is not ours any more. */
void keyed_finished(shmq_ring *ring, const shmq_taken *taken, bool done);
/* An entry of this bucket is about to be committed. */
void keyed_parks(shmq_ring *ring, uint64_t bucket);
/* Hand out the lowest of each bucket that is ready: how many, or GROW. */
int64_t keyed_take(shmq_ring *ring, bool idle, uint32_t limit, shmq_taken *taken);
/* Would it hand out any: as ring_worth, 0 or GROW. A bucket that was ready and has none to be had is so no more. */
int64_t keyed_glance(shmq_ring *ring);
/* Somebody died, wherever it stood. */
void keyed_reap(shmq_ring *ring);
/* The window is full: park what waits for its key, if the head does not move. GROW, or OK. */
int keyed_park(shmq_ring *ring);

#endif
