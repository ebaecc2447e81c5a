/* search.c - every choice of an execution, tried in turn; or drawn at random.
 *
 * The processes of a scenario are coroutines. Before each atomic operation and each call of the kernel a thread gives
 * way, and the search chooses who goes on, or who is killed; the memory then lets it choose what is read and where a
 * store lands. An execution is its list of choices, and running it again needs nothing else.
 *
 * Depth first: the next execution repeats the choices of the last one up to the last that has an alternative left. A
 * state in which something is chosen is looked up by its hash: what every thread has learned, in which order, what it
 * may still see, all stores, locks and sleepers. Executions that reach a state met before are cut there, since all
 * that follows was explored: a search that ends has exhausted its scenario (but for collisions of 64-bit hashes: one
 * in a million searches of a million states). How many whole executions the explored graph contains is counted along
 * the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#include "explorer.h"

#define STACK_BYTES (128u * 1024u)
#define TRAIL 2000u
#define LOOKS 2u
#define STATES_MAX 24000000u /* half a gigabyte */

enum status { READY, BLOCKED, ASLEEP, DONE, DEAD, STOPPED };

struct thread {
    jmp_buf start; /* at the bottom of its stack, for the next execution */
    jmp_buf here;
    ucontext_t birth;
    void *stack;
    void (*body)(void);
    enum status status;
    bool (*condition)(void);
    const void *words[SLEEP_WORDS]; /* on which it sleeps ... */
    uint32_t words_count;
    uint32_t bits;                  /* ... and for whose wakes */
    int64_t deadline_ns;
    bool late;                      /* the clock woke it */
    uint8_t looks;                  /* how often it may wake by itself, once somebody is stopped */
    uint64_t history; /* what it has learned, or what it kept of that ... */
    uint64_t next;    /* ... and what it is about to do, should it have kept too little */
};

struct choice {
    uint64_t state; /* hash of the state it was made in; 0 = in the middle of a step */
    double covered;
    uint8_t taken;
    uint8_t count;
};

static struct thread threads[THREADS];
static uint32_t threads_count;
static uint32_t current;
static uint32_t kills_left;
static bool booting;
static bool running;
bool model_hashes;
static jmp_buf home;
static ucontext_t home_birth;

static struct search *search;
static struct choice trail[TRAIL];
static uint32_t trail_length; /* choices to repeat, then of this execution */
static uint32_t depth;
static double execution_covers; /* 1, or what the state that cut it covers */
static uint64_t dice;

/* ------------------------------------------------------------------ states met before */
static uint64_t *state_keys;
static double *state_covers;
static uint64_t states_room;
static uint64_t states_count;

static uint64_t state_slot(uint64_t key)
{
    uint64_t slot = key & (states_room - 1);
    while (state_keys[slot] != 0 && state_keys[slot] != key) {
        slot = (slot + 1) & (states_room - 1);
    }
    return slot;
}

static void states_clear(uint64_t room)
{
    free(state_keys);
    free(state_covers);
    state_keys = calloc(room, sizeof *state_keys);
    state_covers = calloc(room, sizeof *state_covers);
    if (state_keys == NULL || state_covers == NULL) {
        fputs("out of memory\n", stderr);
        exit(2);
    }
    states_room = room;
    states_count = 0;
}

static void states_grow(void)
{
    uint64_t *const keys = state_keys;
    double *const covers = state_covers;
    const uint64_t room = states_room;
    const uint64_t count = states_count;
    state_keys = NULL;
    state_covers = NULL;
    states_clear(room * 2);
    for (uint64_t i = 0; i < room; i++) {
        if (keys[i] != 0) {
            const uint64_t slot = state_slot(keys[i]);
            state_keys[slot] = keys[i];
            state_covers[slot] = covers[i];
        }
    }
    states_count = count;
    free(keys);
    free(covers);
}

static uint64_t state_now(void)
{
    uint64_t hash = mix(memory_hash(), mix(kernel_hash(), kills_left));
    for (uint32_t i = 0; i < threads_count; i++) {
        const struct thread *thread = &threads[i];
        const uint64_t status = thread->status + 8u * thread->looks;
        hash = mix(hash, mix(mix(thread->history, thread->next), mix(memory_thread_hash(i), status)));
    }
    return hash == 0 ? 1 : hash;
}

/* ------------------------------------------------------------------ ending an execution */
static void leave(void) __attribute__((noreturn));
static void leave(void)
{
    running = false;
    _longjmp(home, 1);
}

static void write_choices(void)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint32_t length = 0;
    for (uint32_t i = 0; i < depth && length + 1 < sizeof search->choices; i++) {
        search->choices[length++] = digits[trail[i].taken];
    }
    while (length > 0 && search->choices[length - 1] == '0') {
        length--; /* what is missing at the end is 0 */
    }
    search->choices[length] = 0;
}

static int choice_of(char digit)
{
    return digit <= '9' ? digit - '0' : digit >= 'a' ? digit - 'a' + 10 : digit - 'A' + 36;
}

void model_fault(const char *story, ...)
{
    va_list arguments;
    va_start(arguments, story);
    vsnprintf(search->story, sizeof search->story, story, arguments);
    va_end(arguments);
    search->fault = true;
    write_choices();
    leave();
}

bool model_tracing(void) { return search->replay != NULL; }

void model_trace(const char *line, ...)
{
    va_list arguments;
    va_start(arguments, line);
    printf("  %-10s ", running ? model_thread_name(current) : "");
    vprintf(line, arguments);
    putchar('\n');
    va_end(arguments);
}

/* ------------------------------------------------------------------ choosing */
static uint64_t roll_dice(void)
{
    dice += UINT64_C(0x9e3779b97f4a7c15);
    return mix(dice, 1);
}

uint32_t model_choose(uint32_t count)
{
    if (count == 1) {
        return 0;
    }
    if (depth == TRAIL) {
        model_fault("an execution of more than %u choices", TRAIL);
    }
    struct choice *const choice = &trail[depth++];
    if (depth <= trail_length) {
        if (choice->count != count) {
            fprintf(stderr, "%s: not repeatable: %u choices at %u, once %u\n", search->scenario->name, count, depth,
                    choice->count);
            abort();
        }
        return choice->taken;
    }
    *choice = (struct choice){.count = (uint8_t)count};
    if (search->replay != NULL) {
        const bool given = depth <= strlen(search->replay);
        choice->taken = given ? (uint8_t)choice_of(search->replay[depth - 1]) : 0;
    } else if (search->random) {
        choice->taken = (uint8_t)(roll_dice() % count);
    }
    trail_length = depth;
    return choice->taken;
}

void model_remember(uint64_t result) { threads[current].history = mix(threads[current].history, result); }

void model_forget(const void *summary, size_t bytes)
{
    uint64_t history = 0;
    if (!model_hashes) {
        return;
    }
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, (const uint8_t *)summary + i, bytes - i < 8 ? bytes - i : 8);
        history = mix(history, word);
    }
    threads[current].history = history;
}

/* ------------------------------------------------------------------ threads */
uint32_t model_self(void) { return current; }
bool model_direct(void) { return !running; }
bool model_is_dead(uint32_t thread) { return threads[thread].status == DEAD; }
static bool somebody_is(enum status status)
{
    for (uint32_t i = 0; i < threads_count; i++) {
        if (threads[i].status == status) {
            return true;
        }
    }
    return false;
}
bool model_somebody_died(void) { return somebody_is(DEAD); }
bool model_is_stopped(uint32_t thread) { return threads[thread].status == STOPPED; }
bool model_somebody_is_stopped(void) { return somebody_is(STOPPED); }
bool model_is_done(uint32_t thread) { return threads[thread].status == DONE; }
bool model_is_asleep(uint32_t thread) { return threads[thread].status == ASLEEP; }
const char *model_thread_name(uint32_t thread) { return search->scenario->threads[thread].name; }

static bool enabled(uint32_t i)
{
    return threads[i].status == READY || (threads[i].status == BLOCKED && threads[i].condition());
}

static bool mortal(uint32_t i)
{
    const struct model_thread *const thread = &search->scenario->threads[i];
    return kills_left > 0 && (thread->killable || thread->stoppable) && threads[i].status < DONE;
}

/* Stopped for ever is as good as dead, but that nobody hears of it, and that its locks stay. */
static void kill(uint32_t i)
{
    const bool stops = search->scenario->threads[i].stoppable;
    if (model_tracing()) {
        model_trace("(%s is %s)", model_thread_name(i), stops ? "stopped" : "killed");
    }
    threads[i].status = stops ? STOPPED : DEAD;
    kills_left--;
    if (!stops) {
        kernel_death(i);
    }
}

/* True when all that follows from here was explored before. */
static bool met_before(uint64_t *key)
{
    *key = state_now();
    if (states_count * 4 > states_room * 3) {
        states_grow();
    }
    const uint64_t slot = state_slot(*key);
    if (state_keys[slot] == *key) {
        execution_covers = state_covers[slot];
        return true;
    }
    state_keys[slot] = *key;
    states_count++;
    return false;
}

/* Time passes only where nobody can go on without: for those who sleep, the earliest deadline first. */
static uint32_t whose_clock_rings(uint8_t *who)
{
    uint32_t count = 0;
    int64_t earliest = NO_DEADLINE;
    for (uint32_t i = 0; i < threads_count; i++) {
        if (threads[i].status == ASLEEP && threads[i].deadline_ns < earliest) {
            earliest = threads[i].deadline_ns;
        }
    }
    for (uint32_t i = 0; i < threads_count && earliest != NO_DEADLINE; i++) {
        if (threads[i].status == ASLEEP && threads[i].deadline_ns == earliest) {
            who[count++] = (uint8_t)i;
        }
    }
    return count;
}

/* Each sleep ends by itself after a while. While all go on, nobody may need that; so here it does only where somebody is
 * stopped and nobody else can go on, and not for ever again. */
static bool sleepers_look(void)
{
    bool look = false;
    for (uint32_t i = 0; model_somebody_is_stopped() && i < threads_count; i++) {
        if (threads[i].status == ASLEEP && threads[i].looks > 0) {
            if (model_tracing()) {
                model_trace("(%s looks by itself)", model_thread_name(i));
            }
            threads[i].looks--;
            memory_ages(i);
            threads[i].status = READY;
            look = true;
        }
    }
    return look;
}

/* Who goes on? Kills on the way. Does not return when the execution is over. */
static uint32_t next_thread(void)
{
    for (;;) {
        uint8_t who[2 * THREADS];
        uint32_t count = 0;
        uint32_t runs = 0;
        for (uint32_t k = 0; k < threads_count; k++) {
            const uint32_t i = (current + k) % threads_count; /* the same one first: few changes come first */
            if (enabled(i)) {
                who[count++] = (uint8_t)i;
            }
        }
        if (count == 0) {
            count = whose_clock_rings(who);
        }
        runs = count;
        for (uint32_t i = 0; i < threads_count; i++) {
            if (mortal(i)) {
                who[count++] = (uint8_t)i;
            }
        }
        if (runs == 0 && sleepers_look()) {
            continue;
        }
        if (runs == 0) { /* who could still be killed has nothing more to do: that changes nothing for anybody */
            leave();
        }
        uint64_t key = 0;
        const bool exploring = model_hashes && count > 1 && depth >= trail_length;
        if (exploring && met_before(&key)) {
            leave();
        }
        const uint32_t choice = model_choose(count);
        if (exploring) {
            trail[depth - 1].state = key;
        }
        search->steps++;
        if (choice < runs) {
            current = who[choice];
            threads[current].late = threads[current].status == ASLEEP;
            if (threads[current].late && model_somebody_is_stopped()) {
                memory_ages(current);
            }
            threads[current].status = READY;
            return current;
        }
        kill(who[choice]);
    }
}

static __attribute__((noinline)) void go_to(struct thread *from, uint32_t to)
{
    if (from == NULL || _setjmp(from->here) == 0) {
        _longjmp(threads[to].here, 1);
    }
}

static void give_way(void)
{
    struct thread *const me = &threads[current];
    if (booting) {
        if (_setjmp(me->here) == 0) {
            _longjmp(home, 1);
        }
        return;
    }
    const uint32_t next = next_thread();
    if (&threads[next] != me) {
        go_to(me, next);
    }
}

void model_step(uint64_t next)
{
    threads[current].next = next;
    give_way();
    model_remember(next);
}

void model_until(bool (*condition)(void))
{
    threads[current].condition = condition;
    threads[current].status = BLOCKED;
    give_way();
}

bool model_sleep(const void *const *words, uint32_t count, uint32_t bits, int64_t deadline_ns)
{
    struct thread *const me = &threads[current];
    memcpy(me->words, words, count * sizeof *words);
    me->words_count = count;
    me->bits = bits;
    me->deadline_ns = deadline_ns;
    me->status = ASLEEP;
    give_way();
    return me->late;
}

static bool hears(const struct thread *thread, const void *word, uint32_t bits)
{
    for (uint32_t i = 0; thread->status == ASLEEP && (thread->bits & bits) != 0 && i < thread->words_count; i++) {
        if (thread->words[i] == word) {
            return true;
        }
    }
    return false;
}

void model_wake(const void *word, uint32_t most, uint32_t bits)
{
    for (; most > 0; most--) {
        uint8_t who[THREADS];
        uint32_t count = 0;
        for (uint32_t i = 0; i < threads_count; i++) {
            if (hears(&threads[i], word, bits)) {
                who[count++] = (uint8_t)i;
            }
        }
        if (count == 0) {
            return;
        }
        /* Of several any may be woken; where there is room for all it is all the same. */
        threads[who[count > most ? model_choose(count) : 0]].status = READY;
    }
}

/* A coroutine is born once; each execution jumps back to the bottom of its stack. */
static void live(void)
{
    struct thread *const me = &threads[current];
    if (_setjmp(me->start) == 0) {
        setcontext(&home_birth);
    }
    threads[current].body();
    threads[current].status = DONE;
    if (booting) {
        _longjmp(home, 1);
    }
    go_to(NULL, next_thread());
}

static void give_birth(uint32_t i)
{
    if (threads[i].stack != NULL) {
        return;
    }
    threads[i].stack = malloc(STACK_BYTES);
    if (threads[i].stack == NULL) {
        fputs("out of memory\n", stderr);
        exit(2);
    }
    current = i;
    getcontext(&threads[i].birth);
    threads[i].birth.uc_stack.ss_sp = threads[i].stack;
    threads[i].birth.uc_stack.ss_size = STACK_BYTES;
    threads[i].birth.uc_link = NULL;
    makecontext(&threads[i].birth, live, 0);
    swapcontext(&home_birth, &threads[i].birth);
}

/* ------------------------------------------------------------------ one execution */

/* Everybody up to its first step; then from choice to choice. */
static void run_threads(void)
{
    volatile uint32_t booted = 0; /* lives across the jumps home */
    booting = true;
    running = true;
    (void)_setjmp(home);
    if (search->fault) {
        return;
    }
    if (booting && booted < threads_count) {
        current = booted;
        booted = booted + 1;
        _longjmp(threads[current].start, 1);
    }
    if (booting) {
        booting = false;
        current = 0;
        go_to(NULL, next_thread());
    }
}

static bool somebody_sleeps(void)
{
    for (uint32_t i = 0; i < threads_count; i++) {
        if (threads[i].status == ASLEEP) {
            return true;
        }
    }
    return false;
}

/* Faults of the check come back here, too. */
static void check_end(void)
{
    if (_setjmp(home) != 0) {
        return;
    }
    if (somebody_sleeps() && (search->scenario->may_sleep == NULL || !search->scenario->may_sleep())) {
        model_fault("somebody sleeps for ever: the wake-up was lost");
    }
    if (search->scenario->check != NULL) {
        search->scenario->check();
    }
    if (search->scenario->outcome != NULL) {
        search->outcomes |= 1u << search->scenario->outcome();
    }
}

static void execute(void)
{
    depth = 0;
    execution_covers = -1;
    kills_left = search->scenario->kills;
    memory_begin();
    kernel_begin();
    stage_begin();
    for (uint32_t i = 0; i < threads_count; i++) {
        threads[i].body = search->scenario->threads[i].body;
        threads[i].status = READY;
        threads[i].history = 0;
        threads[i].next = 0;
        threads[i].late = false;
        threads[i].looks = LOOKS;
        memory_begin_thread(i);
    }
    run_threads();
    running = false;
    if (!search->fault && execution_covers < 0) { /* not cut */
        execution_covers = 1;
        check_end();
    }
    search->executions++;
}

/* ------------------------------------------------------------------ all of them */

/* On to the next execution: false when there is none. */
static bool backtrack(void)
{
    double covered = execution_covers;
    while (trail_length > 0) {
        struct choice *const last = &trail[trail_length - 1];
        last->covered += covered;
        if (++last->taken < last->count) {
            return true;
        }
        covered = last->covered;
        if (last->state != 0) {
            state_covers[state_slot(last->state)] = covered;
        }
        trail_length--;
    }
    search->covered = covered;
    return false;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool enough(double since)
{
    if (search->limit != 0 && search->executions >= search->limit) {
        return true;
    }
    if (states_count >= STATES_MAX) {
        return true;
    }
    return search->seconds > 0 && search->executions % 256 == 0 && seconds_now() - since > search->seconds;
}

void search_run(struct search *wanted)
{
    search = wanted;
    threads_count = 0;
    while (threads_count < THREADS && search->scenario->threads[threads_count].body != NULL) {
        give_birth(threads_count++);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        threads[i].status = READY; /* the last scenario may have had more */
    }
    running = false;
    memory_clear();
    kernel_clear();
    search->scenario->setup();
    memory_keep();
    kernel_keep();
    stage_keep();
    states_clear(1u << 14);
    model_hashes = !search->random && !search->plain && search->replay == NULL;
    trail_length = 0;
    const double since = seconds_now();
    for (;;) {
        if (search->random || search->replay != NULL) {
            trail_length = 0;
            dice = mix(search->seed, search->executions);
        }
        execute();
        if (search->fault || search->replay != NULL || enough(since)) {
            break;
        }
        if (!search->random && !backtrack()) {
            search->exhausted = true;
            break;
        }
    }
    if (search->exhausted && search->scenario->outcome != NULL && search->outcomes != search->scenario->outcomes) {
        snprintf(search->story, sizeof search->story, "outcomes %#x, expected %#x", search->outcomes,
                 search->scenario->outcomes);
        search->fault = true;
    }
    search->states = states_count;
    search->took = seconds_now() - since;
}
