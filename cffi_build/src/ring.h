/* ring.h - a group's mapped ring, as ring.c, side.c and keyed.c share it. */
#ifndef SHMQ_RING_H
#define SHMQ_RING_H

#include "atomic.h"
#include "chunk.h"
#include "layout.h"
#include "owner.h"
#include "shmq.h"

struct shmq_ring {
    struct ring *page;
    uint64_t *words;
    uint64_t *leases;
    uint64_t *attempts;
    uint64_t *keys;           /* these three: NULL in a group without order */
    struct ring_bucket *buckets;
    uint64_t *ready;          /* a bit for each bucket: somebody should look at it */
    uint8_t *side;
    uint64_t blocks;          /* of the side table, that are mapped here */
    uint32_t window;          /* from the checked header */
    uint32_t window_shift;
    uint32_t bucket_count;    /* likewise; 0 = in no order */
    uint32_t slots;           /* participants there can be */
    uint64_t term;
    struct checkpoint *checkpoint;
    shmq_member *member;
    int64_t lease_ns;         /* 0 = for ever */
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
    uint64_t cursor;          /* every index below it was looked at */
    uint32_t ready_next;      /* word of `ready` to begin with */
    bool readied;             /* a bucket became ready, and nobody was woken yet */
    uint64_t stuck_head;      /* where the head stood at stuck_ns, when the window was found full */
    int64_t stuck_ns;
    int64_t park_ns;          /* when to look at the full window again, to park what waits for its key; 0 = not */
};

static inline uint64_t ring_slot(const shmq_ring *ring, uint64_t index) { return index & (ring->window - 1); }
static inline uint64_t ring_stamp(const shmq_ring *ring, uint64_t index)
{
    const uint64_t lap = index >> ring->window_shift & ((UINT64_C(1) << RING_LAP_BITS) - 1);
    return ring->term << RING_TERM_SHIFT | lap << RING_LAP_SHIFT;
}
static inline uint32_t ring_owner(uint64_t word) { return (uint32_t)(word >> RING_OWNER_SHIFT) & 0x1fffff; }
static inline uint64_t ring_count(uint64_t word) { return word >> RING_COUNT_SHIFT & 0xff; }
static inline uint64_t ring_low(owner_t owner, uint64_t count, uint32_t state)
{
    return (uint64_t)owner << RING_OWNER_SHIFT | (count & 0xff) << RING_COUNT_SHIFT | state;
}
static inline uint64_t ring_entry(uint64_t word) { return word >> RING_COUNT_SHIFT & ((UINT64_C(1) << 29) - 1); }
/* What a word says about `index`: one of an older lap is PENDING, of a newer one DONE. */
static inline uint32_t ring_state(const shmq_ring *ring, uint64_t index, uint64_t word)
{
    const uint64_t stamp = ring_stamp(ring, index);
    if (word >> RING_LAP_SHIFT == stamp >> RING_LAP_SHIFT) {
        return (uint32_t)word & ((1u << RING_STATE_BITS) - 1);
    }
    const uint32_t ahead = (uint32_t)((word >> RING_LAP_SHIFT) - (stamp >> RING_LAP_SHIFT)) << (32 - RING_LAP_BITS);
    return word >> RING_TERM_SHIFT == ring->term && ahead != 0 && ahead < UINT32_C(1) << 31 ? RING_DONE : RING_PENDING;
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
/* A message nobody has, whose word is `word`, becomes ours: false when it is somebody else's, or finished. */
bool ring_claim(shmq_ring *ring, uint64_t index, uint64_t word, uint32_t kind, shmq_taken *taken);
/* Store the lease of `word` in its cell, and ask whether it has ended; *ends is its end, or later. */
void lease_store(const shmq_ring *ring, uint64_t *cell, uint64_t word, int64_t ends_ns);
bool lease_ended(const shmq_ring *ring, uint64_t *cell, uint64_t word, int64_t now_ns, int64_t *next_ns);
/* The head moves over everything finished. */
void ring_advance(shmq_ring *ring);
/* Something came back: have everybody look. */
void ring_returned(shmq_ring *ring);

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
int64_t side_take(shmq_ring *ring, bool idle, uint32_t limit, shmq_taken *taken);
/* An entry that nobody has, in that state, becomes ours: false when it is somebody else's. */
bool side_claim(shmq_ring *ring, uint64_t entry, uint64_t state, shmq_taken *taken);
/* Has what a side word of CLAIMED says the same owner and count as a ring word of CLAIMED? */
bool side_is_of(uint64_t state, uint64_t word);
struct ring_side *side_at(const shmq_ring *ring, uint64_t entry);
uint64_t side_lowest(const shmq_ring *ring, uint64_t from);
uint64_t side_then(const shmq_ring *ring, owner_t owner, uint64_t count, uint64_t attempts, uint32_t state);
uint64_t side_count(const shmq_ring *ring, uint32_t state);
/* From exactly this word of an entry that was handed out: OK or LOST. */
int side_ack(shmq_ring *ring, uint64_t entry, uint64_t word);
int side_nack(shmq_ring *ring, uint64_t entry, uint64_t word, int64_t due_ns, uint64_t behind);
int side_extend(shmq_ring *ring, uint64_t entry, uint64_t *word, int64_t ends_ns);
int side_moving(shmq_ring *ring, uint64_t entry, uint64_t *word);
/* What lies here is not done. */
void side_unmark(const shmq_ring *ring, struct snapshot *snapshot);
/* The lowest parked messages before `head`, ascending, up to SNAPSHOT_OLDER: how many. Whatever else is parked before
 * `head` is not before *next, which is `head` when there is nothing else. */
uint32_t side_oldest(const shmq_ring *ring, uint64_t head, uint64_t older[], uint64_t *next);
/* In an empty table: park that message, due at once, in the entry behind *last. False when there is no room. */
bool side_put_back(const shmq_ring *ring, uint64_t *last, uint64_t index);
/* What lies here, of the RING_WINDOW indexes from `head` on: claimed or parked. */
void side_mark(const shmq_ring *ring, uint64_t head, uint8_t *states);
/* Does that entry hold that message still, not finished? */
bool side_unfinished(const shmq_ring *ring, uint64_t index, uint64_t entry);
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
bool side_available(const shmq_ring *ring, const struct lowest *lowest, bool idle);
/* It is not to be had yet: have it looked for when it is. */
void side_later(shmq_ring *ring, uint64_t entry);

/* Bytes of keys, buckets and their bits. */
uint64_t keyed_bytes(uint32_t window, uint32_t buckets);
/* The bucket of a message's key, plus one; 0 = it has no key. */
uint64_t keyed_bucket(const shmq_ring *ring, const shmq_chunk *chunk, uint64_t position);
/* The same of one in the window that a walker has met; 0 also when none has. */
uint64_t keyed_at(const shmq_ring *ring, uint64_t index);
/* A walker meets a message that nobody has: OK to claim it, EMPTY when it waits for its key (or its time), or GROW. */
int keyed_enter(shmq_ring *ring, uint64_t index, uint64_t word, int64_t due_ns, bool delayed, shmq_taken *taken);
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
/* Somebody died, wherever he stood. */
void keyed_reap(shmq_ring *ring);
/* The window is full: park what waits for its key, if the head does not move. GROW, or OK. */
int keyed_park(shmq_ring *ring);

#endif
