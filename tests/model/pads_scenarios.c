/* pads_scenarios.c - the schedules of padding: how much there is, counted anew when somebody was killed between writing a
 * word and counting it; and what is padded in a chunk that nobody counts yet. */
#include "atomic.h"
#include "chunk/walk.h"
#include "stage.h"

#define DEAD 4u /* whose seat is empty, and whose claim lies in the chunk */

static uint64_t claim;
static uint64_t record_at;

static void claim_of_dead(void)
{
    const shmq_fields nothing = {.time_ns = INT64_MIN};
    uint64_t payload;
    shmq_reserve(stage.actors[DEAD].chunk, &nothing, 8, &claim, &record_at, &payload);
    kernel_drop(DEAD);
}

/* ------------------------------------------------------------------ counted anew */
#define ADDED (&the_words()[0]) /* chunks that another has made part of the queue, as a rename does */

/* Somebody was killed before: what is counted is wrong. */
static void setup_doubted(void)
{
    stage_setup();
    kernel_tests_order();
    claim_of_dead();
    memory_heed(&the_control()->padded);
    for (uint32_t i = 3; i < THREADS; i++) {
        memory_quiet(&the_control()->participants[i].padding);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        the_control()->participants[i].padding = UINT64_C(1) << 32;
    }
    the_control()->padded = 7;
    the_control()->pads_doubted = 1;
}
/* The same, and nobody has doubts. */
static void setup_counted_right(void)
{
    setup_doubted();
    the_control()->padded = 0;
    the_control()->pads_doubted = 0;
}
/* Two threads of one process. */
static void setup_one_seat(void)
{
    setup_counted_right();
    stage.members[1].slot = stage.members[0].slot;
    stage.members[1].owner = stage.members[0].owner;
}
static uint64_t padding_there(const shmq_chunk *chunk)
{
    struct walk walk = walk_from_start(chunk);
    uint64_t count = 0;
    for (;;) {
        const word_t word = walk_look(chunk, &walk);
        if (word == 0 || word_seals(word) || walk_past(chunk, &walk, word) != SHMQ_OK) {
            return count + load_relaxed(ADDED);
        }
        count += word_state(word) == WORD_PAD ? word_count(word) : 0;
    }
}
static void count_by(const struct actor *actor, uint32_t tries)
{
    for (; tries > 0; tries--) {
        uint64_t doubted;
        uint64_t padded;
        const int code = shmq_pads_count(actor->member, &doubted, &padded);
        const uint64_t total = padding_there(actor->chunk);
        if (code == SHMQ_OK && shmq_pads_counted(actor->member, doubted, padded, total) == SHMQ_OK) {
            return;
        }
    }
}
static void count_anew(void) { count_by(actor_self(), 1); }
static void bury(void) { shmq_bury(actor_self()->chunk, stage.members[DEAD].owner); }
/* As Python moves chunks: their padding goes into the count. */
static void add_chunk(void)
{
    struct shmq_member *const member = actor_self()->member;
    shmq_pads_begin(member);
    store_relaxed(ADDED, 1);
    shmq_add_padding(the_control(), 1);
    shmq_pads_end(member);
}
static void take_chunk_away(void)
{
    struct shmq_member *const member = actor_self()->member;
    shmq_pads_begin(member);
    store_relaxed(ADDED, 0);
    shmq_remove_padding(the_control(), 1);
    shmq_pads_end(member);
}
static void setup_chunk_to_lose(void)
{
    setup_doubted();
    *ADDED = 1;
    the_control()->padded = 1;
}
/* How much there is, for whoever is told that nobody has doubts: never what was wrong. */
static void ask(void)
{
    uint64_t padded = 0;
    uint64_t fenced = 0;
    if (!shmq_pads_doubted(actor_self()->member)) {
        shmq_counters(the_control(), &padded, &fenced);
        if (padded == 7) {
            model_fault("nobody has doubts, and what was wrong is told");
        }
    }
}
static void add_chunk_and_fail(void)
{
    struct shmq_member *const member = actor_self()->member;
    shmq_pads_begin(member);
    store_relaxed(ADDED, 1);
    shmq_pads_doubt(the_control());
    shmq_pads_end(member);
}
static bool first_seat_is_free(void) { return !kernel_locked(0); }
static void bury_and_exit(void)
{
    bury();
    model_step(1);
    kernel_drop(0);
}
static void sit_down(void)
{
    struct actor *const actor = actor_self();
    uint64_t since = 0;
    uint32_t generation = 0;
    model_until(first_seat_is_free);
    shmq_member_lock(actor->member, &since, &generation);
    shmq_member_join(actor->member, 0, 0, 0, 0, 0);
}
static void setup_one_seat_after_another(void)
{
    setup_counted_right();
    stage.members[1].owner = 0;
    kernel_drop(1);
    memory_quiet(&the_control()->bell);
    memory_quiet(&the_control()->sleepers);
    memory_quiet(&the_control()->participants[0].generation);
}
static void check_one_of_two(void)
{
    if (the_control()->padded != 1) {
        model_fault("one came and one went, and %llu are counted", (unsigned long long)the_control()->padded);
    }
}
/* Somebody was killed in that seat between a word, that is written, and its count; and it is empty. */
static void setup_marked_seat(void)
{
    setup_counted_right();
    *ADDED = 1;
    the_control()->participants[0].padding |= 1;
    kernel_drop(0);
    stage.members[0].owner = 0;
    memory_quiet(&the_control()->bell);
    memory_quiet(&the_control()->sleepers);
    memory_quiet(&the_control()->participants[0].generation);
}
static void sit_down_and_bury(void)
{
    sit_down();
    bury();
}
static void count_twice(void) { count_by(actor_self(), 2); }

/* Whoever asks now is told how much there is, or that it has to be counted; and then it can be. */
static void check_padding(void)
{
    const struct actor *const checker = &stage.actors[2];
    const bool doubted = shmq_pads_doubted(checker->member) != 0;
    if (doubted) {
        count_by(checker, 1);
    }
    if (shmq_pads_doubted(checker->member)) {
        model_fault("nobody is at it, and it cannot be counted");
    }
    const uint64_t there = padding_there(checker->chunk);
    if (the_control()->padded != there) {
        model_fault("%llu ordinals are padded, and %llu are counted%s", (unsigned long long)there,
                    (unsigned long long)the_control()->padded, doubted ? ", anew" : "");
    }
}

/* ------------------------------------------------------------------ aside */
static void setup_aside(void)
{
    stage_setup();
    stage.uncounted = true;
    for (uint32_t i = 0; i <= THREADS; i++) {
        shmq_seals_as(stage.actors[i].chunk, 77);
    }
}
static void put_one(void) { actor_put(); }
static void read_twice(void) { actor_read(DELIVERIES, 2); }
static void lose_lock_of_first(void)
{
    model_step(1);
    kernel_drop(0);
}

/* ------------------------------------------------------------------ the table */
const struct scenario pads_scenarios[] = {
    PLAY("pads_counted_beside_a_burier", "counted anew while somebody pads, who may be killed at it", setup_doubted,
         check_padding, NULL, 1, MORTAL("burier", bury), THREAD("counter", count_anew)),
    PLAY("pads_burier_is_killed", "killed between a word and its count, it leaves a mark", setup_counted_right,
         check_padding, NULL, 1, MORTAL("burier", bury)),
    PLAY("pads_two_count_anew", "of two who count at once", setup_doubted, check_padding, NULL, 1,
         MORTAL("counter", count_anew), THREAD("other", count_anew)),
    PLAY("pads_chunk_is_added", "counted anew while a chunk comes with its padding", setup_doubted, check_padding, NULL, 1,
         MORTAL("adopter", add_chunk), THREAD("counter", count_anew)),
    PLAY("pads_chunk_is_retired", "counted anew while one goes", setup_chunk_to_lose, check_padding, NULL, 1,
         MORTAL("retirer", take_chunk_away), THREAD("counter", count_anew)),
    PLAY("pads_chunk_is_not_counted", "who could not count it says so", setup_counted_right, check_padding, NULL, 0,
         THREAD("adopter", add_chunk_and_fail), THREAD("other", add_chunk_and_fail), THREAD("counter", count_anew)),
    PLAY("pads_told_without_doubts", "who is told that nobody has doubts is told how much there is", setup_doubted,
         check_padding, NULL, 0, THREAD("counter", count_anew), THREAD("other", ask)),
    PLAY("pads_chunk_comes_and_goes", "the count loses neither", setup_chunk_to_lose, check_one_of_two, NULL, 0,
         THREAD("adopter", add_chunk), THREAD("retirer", take_chunk_away)),
    PLAY("pads_two_count_beside_a_burier", "who counts last has seen what the other one did", setup_doubted,
         check_padding, NULL, 0, THREAD("burier", bury), THREAD("counter", count_anew), THREAD("other", count_anew)),
    PLAY("pads_seat_is_taken_while_counted", "who sits down in a marked seat has a mark of its own", setup_marked_seat,
         check_padding, NULL, 1, MORTAL("newcomer", sit_down_and_bury), THREAD("counter", count_twice)),
    PLAY("pads_of_two_threads", "the mark of a process counts its threads", setup_one_seat, check_padding, NULL, 1,
         THREAD("burier", bury), THREAD("adopter", add_chunk), THREAD("counter", count_anew)),
    PLAY("pads_of_a_seat_taken_over", "whoever sits down there finds the mark", setup_one_seat_after_another,
         check_padding, NULL, 1, MORTAL("burier", bury_and_exit), THREAD("newcomer", sit_down),
         THREAD("counter", count_anew)),
    PLAY("aside_claim_is_padded_or_done", "A1: also where nobody counts yet, a claim ends once", setup_aside, check_all, NULL,
         0, THREAD("zombie", put_one), THREAD("reader", read_twice), THREAD("mishap", lose_lock_of_first)),
};
const size_t pads_scenarios_count = sizeof pads_scenarios / sizeof pads_scenarios[0];
