/* explorer.h - what the parts of the explorer, its stage and its scenarios know of each other.
 *
 *   memory.c    what a load may return and where a store may land: the weak memory
 *   search.c    threads as coroutines; every choice, tried in turn or drawn at random
 *   kernel.c    the os table of the model: locks, futex, clocks
 *   stage.c     one chunk and the processes around it; what must hold at every step and at the end
 *   scenarios.c, group_..., keyed_..., space_..., pads_..., sync_scenarios.c  the schedules, by name
 *   litmus.c    known programs with known outcomes, to test memory.c itself
 *   main.c      the command line */
#ifndef SHMQ_EXPLORER_H
#define SHMQ_EXPLORER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model_atomic.h"

#define THREADS 6u

/* ------------------------------------------------------------------ scenarios */
struct model_thread {
    const char *name;
    void (*body)(void);
    bool killable;
    bool stoppable; /* instead: for ever, and nobody is told */
};

struct scenario {
    const char *name;
    const char *rule;         /* where the schedule comes from, and what must hold */
    void (*setup)(void);      /* once, before the first execution, straight on the memory */
    void (*check)(void);      /* after each execution, straight on the memory */
    bool (*may_sleep)(void);  /* may somebody still sleep at the end? NULL = never */
    struct model_thread threads[THREADS];
    uint32_t kills;           /* how many of those may be killed or stopped in one execution */
    bool large;               /* too large for the short share, which draws it at random instead */
    uint32_t (*outcome)(void); /* a litmus test: what came out, 0 .. 31 ... */
    uint32_t outcomes;         /* ... and the set of what must come out in some execution, and may in any */
};
extern const struct scenario scenarios[]; /* of the chunk, the seats and the bell */
extern const size_t scenarios_count;
extern const struct scenario group_scenarios[];
extern const size_t group_scenarios_count;
extern const struct scenario keyed_scenarios[];
extern const size_t keyed_scenarios_count;
extern const struct scenario space_scenarios[];
extern const size_t space_scenarios_count;
extern const struct scenario pads_scenarios[];
extern const size_t pads_scenarios_count;
extern const struct scenario sync_scenarios[];
extern const size_t sync_scenarios_count;
extern const struct scenario litmus[]; /* small programs whose outcomes are known: they test the model itself */
extern const size_t litmus_count;

/* ------------------------------------------------------------------ search.c */
struct search {
    const struct scenario *scenario;
    bool random;
    bool plain;            /* no state is taken for one met before: every execution is run to its end */
    uint64_t seed;
    uint64_t limit;        /* executions, 0 = none */
    double seconds;        /* 0 = none */
    const char *replay;    /* choices of one execution, or NULL */
    /* answers */
    bool fault;
    bool exhausted;
    uint64_t executions;   /* runs to an end or to a state met before */
    uint64_t states;       /* different states in which something was chosen */
    uint32_t outcomes;     /* of a litmus test */
    double covered;        /* executions that the explored graph contains, from begin to end */
    uint64_t steps;
    double took;
    char story[512];
    char choices[2048];
};
void search_run(struct search *search);

/* For bodies, checks and the other parts. */
uint32_t model_self(void);
const char *model_thread_name(uint32_t thread);
bool model_is_dead(uint32_t thread);
bool model_somebody_died(void);
bool model_is_stopped(uint32_t thread);
bool model_somebody_is_stopped(void);
bool model_is_done(uint32_t thread);
bool model_is_asleep(uint32_t thread);
/* Go on only once the condition holds; it may look at the kernel's and the search's state, not at memory. */
void model_until(bool (*condition)(void));
/* The thread's past no longer matters but for these bytes: states that differ in nothing else become one. */
void model_forget(const void *summary, size_t bytes);
void model_fault(const char *story, ...) __attribute__((format(printf, 1, 2), noreturn));
bool model_tracing(void);
void model_trace(const char *line, ...) __attribute__((format(printf, 1, 2)));

/* For memory.c and kernel.c. */
extern bool model_hashes;              /* states are told apart; when drawing at random nobody asks */
bool model_direct(void);               /* no execution is running: setup or check */
void model_step(uint64_t next);        /* let anybody go first; next tells one thing to do from another */
uint32_t model_choose(uint32_t count); /* 0 .. count - 1 */
void model_remember(uint64_t result);  /* what the running thread has just learned */
/* Sleep on some words, under some bits, until model_wake; or until nobody else can go on: then the clocks of those who
 * have a deadline ring, the earliest first. True when it was the clock. */
#define SLEEP_WORDS 4u
#define NO_DEADLINE INT64_MAX
bool model_sleep(const void *const *words, uint32_t count, uint32_t bits, int64_t deadline_ns);
void model_wake(const void *word, uint32_t most, uint32_t bits);

static inline uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) ^ (b + UINT64_C(0x7f4a7c159e3779b9) + (a << 6) + (a >> 2));
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* ------------------------------------------------------------------ memory.c */
#define IMAGE_BYTES (128u * 1024u)
extern uint8_t image[IMAGE_BYTES]; /* the one memory all processes share */

void memory_clear(void);                /* all zero, nothing quiet */
void memory_keep(void);                 /* what each execution begins with */
void memory_begin(void);                /* a new execution */
void memory_begin_thread(uint32_t thread);
uint64_t memory_hash(void);
uint64_t memory_thread_hash(uint32_t thread);
/* A word nobody's next step depends on, such as a counter: its calls are no choice and no step. */
void memory_quiet(const void *at);
void memory_heed(const void *at); /* take that back */
/* What a lock passes on from whoever gives it up to whoever takes it; lock 0 .. 7. */
#define MEMORY_LOCKS 8u
void memory_release(uint32_t lock, uint32_t thread);
void memory_acquire(uint32_t lock);
void memory_ages(uint32_t thread); /* so much time has passed that it sees the newest of each word */
/* The kernel's look at a futex word: never older than what an earlier waker of it had seen. */
uint32_t memory_futex_look(const uint32_t *word);
void memory_futex_wake(const uint32_t *word);

/* ------------------------------------------------------------------ kernel.c */
void kernel_clear(void);
void kernel_keep(void);
void kernel_begin(void);
uint64_t kernel_hash(void);
void kernel_death(uint32_t thread);
bool kernel_locked(uint32_t slot);
/* Descriptors of thread t: one to hold locks, one to test them. */
int kernel_lock_fd(uint32_t thread);
int kernel_test_fd(uint32_t thread);
void kernel_hold(uint32_t slot, uint32_t thread); /* in setup */
void kernel_drop(uint32_t slot);                  /* the lock is gone though its holder lives, or it exits */
void kernel_set_clock(int64_t ns);                /* all clocks are one, and stand still until then */
int64_t kernel_clock(void);
/* The disk under the chunk: everything below that position of it is there. */
uint64_t kernel_on_disk(void);
void kernel_tests_order(void);        /* in setup: who finds a lock free sees what its holder did, as Linux has it */
void kernel_wakes_order(void);        /* in setup: who is woken sees what the waker did, as Linux promises */
void kernel_set_patience(int64_t ns); /* in setup: a sleep that takes so long, without a death, is a fault */
void kernel_refuse_sync(uint32_t which); /* in setup: that sync fails, 1 = the first */
extern const uint8_t kernel_guard;

/* ------------------------------------------------------------------ stage.c */
void stage_keep(void);
void stage_begin(void);
/* The chunk's bytes from begin on go to the disk as they are now: so nothing in there may still be open. */
void stage_synced(uint64_t begin, uint64_t end);
/* Each store into the image, as it lands: behind `before` in the order of that word. */
void stage_watch(const void *at, uint64_t before, uint64_t after);

#endif
