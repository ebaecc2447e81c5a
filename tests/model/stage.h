/* stage.h - one chunk, a control page, and the processes around them, for the scenarios to play on. */
#ifndef SHMQ_STAGE_H
#define SHMQ_STAGE_H

#include "chunk/chunk.h"
#include "group/window.h"
#include "explorer.h"

/* ------------------------------------------------------------------ how schedules are written */
#define THREAD(name_, body_) {.name = name_, .body = body_}
#define MORTAL(name_, body_) {.name = name_, .body = body_, .killable = true}
#define STOPS(name_, body_) {.name = name_, .body = body_, .stoppable = true}
#define SCENARIO(name_, rule_, setup_, check_, may_sleep_, kills_, large_, ...)                                       \
    {.name = name_, .rule = rule_, .setup = setup_, .check = check_, .may_sleep = may_sleep_, .kills = kills_,        \
     .large = large_, .threads = {__VA_ARGS__}}
#define PLAY(name_, rule_, setup_, check_, may_sleep_, kills_, ...)                                                   \
    SCENARIO(name_, rule_, setup_, check_, may_sleep_, kills_, false, __VA_ARGS__)
#define LARGE(name_, rule_, setup_, check_, may_sleep_, kills_, ...)                                                  \
    SCENARIO(name_, rule_, setup_, check_, may_sleep_, kills_, true, __VA_ARGS__)

#define PUTS 4u
#define DELIVERIES 12u

struct put {
    uint32_t count;    /* messages; their tags are tag, tag + 1, ... */
    bool returned;
    int64_t answer;    /* when it returned */
    uint64_t tag;
};

/* What a process knows, and nothing else: the search takes two processes that know the same for the same. */
struct actor {
    shmq_chunk *chunk;
    shmq_member *member;
    shmq_reader reader;   /* its own, out of reach for others; so its lock is plain memory here */
    struct put puts[PUTS];
    uint32_t puts_count;
    uint32_t deliveries_count;
    struct {
        uint64_t index;
        uint64_t tag;
    } deliveries[DELIVERIES];
    uint64_t notes[4]; /* the scenario's own */
    uint64_t handle;   /* what it keeps in its handle of the chunk, as a hash */
};

struct stage {
    struct actor actors[THREADS + 1]; /* the last one belongs to the checks */
    struct shmq_member members[THREADS + 1];
    bool head_rises; /* a group's head never falls */
    bool uncounted;  /* the chunk lies aside: its padding does not count */
    void (*watch)(const void *at, uint64_t before, uint64_t after); /* what the scenario asks of each store; or NULL */
};
extern struct stage stage;

#define CONTROL_AT 0u
#define CHECKPOINT_AT CONTROL_BYTES
#define CHUNK_AT (CHECKPOINT_AT + 4096u)
#define WORDS_AT (CHUNK_AT + CAPACITY_MIN)

static inline struct control *the_control(void) { return (struct control *)(image + CONTROL_AT); }
static inline struct checkpoint *the_checkpoint(void) { return (struct checkpoint *)(image + CHECKPOINT_AT); }
#define RING_AT (WORDS_AT + 4096u)
#define RING_SLOTS 3u
#define SECOND_AT (RING_AT + 16384u)
/* A process's handle on a ring of four words, with no side table; private to it. */
struct shmq_ring stage_ring(uint32_t thread);
/* The same in order by key, with so many buckets, and a side table of so many blocks behind them. */
struct shmq_ring stage_keyed_ring(uint32_t thread, uint32_t buckets, uint64_t blocks);
/* Words of the scenarios' own. */
static inline uint64_t *the_words(void) { return (uint64_t *)(image + WORDS_AT); }

/* Thread i sits in slot i under generation 1, at an empty chunk. */
void stage_setup(void);
/* The same, with an index entry about every so many messages: 64 is none in a chunk this small. */
void stage_setup_spaced(uint32_t spacing);
/* A chunk with a grain, in a file that was another one: what that left lies between the beginnings of the grains. */
void stage_setup_grained(uint32_t grain);
/* A second chunk, written by the first process; it belongs to no chain. */
shmq_chunk *stage_second(void);
/* Leave room for so many bytes of claims. */
void stage_fill_chunk(uint64_t bytes_left);
/* This one maps the chunk read-only: it pads through a window. */
void stage_read_only(uint32_t thread);

struct actor *actor_self(void);
void actor_forget(void);                /* what it did is in its struct */
void actor_put(void);
void actor_put_many(uint32_t count);
struct put *actor_reserve(uint64_t payload_bytes, uint64_t *claimed, uint64_t *record);
void actor_commit(struct put *put, uint64_t claimed, uint64_t record);
/* Read until it has `wanted` messages or has found nothing new `patience` times. The last answer. */
int64_t actor_read(uint32_t wanted, uint32_t patience);

/* The same, by one call for as many as there are. */
void actor_read_many(uint32_t calls);

/* Every returned put is there once, at its index, whole; nothing else is, but whole claims of the killed; whoever has
 * read has read a beginning of it. */
void check_all(void);
uint32_t final_count(void); /* messages, after check_all */

#endif
