/* side.h - the side table of a group, as the other files of the group use it. */
#ifndef SHMQ_SIDE_H
#define SHMQ_SIDE_H

#include "group/window.h"

#define ENTRIES_PER_BLOCK (SIDE_ENTRIES + 1) /* entry 0 of a block is its header */
static inline struct ring_side *side_at(const shmq_ring *ring, uint64_t entry)
{
    if (entry / ENTRIES_PER_BLOCK >= ring->blocks || entry % ENTRIES_PER_BLOCK == 0) {
        return NULL; /* not mapped here yet, or nonsense */
    }
    return (struct ring_side *)(ring->side + entry * sizeof(struct ring_side));
}

/* A free entry, PREPARED: its id, or SHMQ_GROW. */
int64_t side_prepare(shmq_ring *ring, uint64_t index, uint64_t then, int64_t due_ns, uint64_t behind, uint64_t bucket);
void side_release(shmq_ring *ring, uint64_t entry);
/* Its ring word is PARKED: make it what it was prepared for. Anybody may. */
void side_settle(shmq_ring *ring, uint64_t entry);
/* May the head pass this PARKED word? */
bool side_passes(shmq_ring *ring, uint64_t index, uint64_t word);
/* What a dead owner left there goes on; returns whether anything came back. */
bool side_reap(shmq_ring *ring, owner_t owner);
/* The same of an owner that lives, and knows of none that it has. */
bool side_leave(shmq_ring *ring, owner_t owner);
/* The entry that holds `index`, or SHMQ_EMPTY. */
int64_t side_find(const shmq_ring *ring, uint64_t index);
/* Have the handle remember what it saw in each block, as many as are mapped now; false when there is no memory for it. */
bool side_remember(shmq_ring *ring);
void side_forget(shmq_ring *ring);
/* Would side_take hand something out, when nothing else is there? As ring_worth. */
int64_t side_any_due(const shmq_ring *ring);
bool side_quiet(const shmq_ring *ring, int64_t now_ns); /* by what is known, nothing is to be taken, but where all is idle */
int64_t side_take(shmq_ring *ring, bool idle, uint32_t limit, shmq_taken *taken);
/* In order it hands out none, and offers the lowest: the index of the next one, UINT64_MAX for none; and is it ours now? */
uint64_t side_offered(const shmq_ring *ring);
bool side_take_offered(shmq_ring *ring, shmq_taken *taken);
/* An entry that nobody has, in that state, becomes ours: false when it is somebody else's. */
bool side_claim(shmq_ring *ring, uint64_t entry, uint64_t state, shmq_taken *taken);
/* Has a side word of CLAIMED or MOVING the same owner and count as that ring word, which says so too? */
bool side_is_of(uint64_t state, uint64_t word);
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
int side_forward(shmq_ring *ring, uint64_t entry, uint64_t *word, bool *again);
int side_unforward(shmq_ring *ring, uint64_t entry, uint64_t *word);
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

#endif
