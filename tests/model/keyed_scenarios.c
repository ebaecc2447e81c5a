/* keyed_scenarios.c - the schedules of a group in order by key: its gates, what waits behind them, and who dies there.
 *
 * What is judged at each store, on the newest of every word, is the promise itself: of one key no two messages are out,
 * and none is out before all earlier ones are finished. Whoever works on a message also writes down plainly, one word for
 * each bucket, that it did: so who is handed the next one must be ordered behind whoever finished the last, or that is a
 * fault. At the end the one who stays (`stays`) goes on where it stands, and must be handed whatever is not finished yet:
 * what nobody looks for any more is found to be lost then.
 *
 * There are two buckets. A message's key is one letter, and `bucket_of` says where it falls. Notes are as in
 * group_scenarios.c: bit i of [1], message i was handed to it; of [2], its end of it was accepted. */
#include <string.h>

#include "atomic.h"
#include "crc.h"
#include "group/gate.h"
#include "group/order.h"
#include "group/side.h"
#include "stage.h"

#define BUCKETS 2u
#define MESSAGES 5u
#define LEASE INT64_C(50000000)
#define DELAY INT64_C(100000000)
#define AFTER (4 * DELAY)
#define NEVER (INT64_C(1) << 60)
#define LATER (NEVER + DELAY) /* when those come that were given back until NEVER */

static struct ring *the_ring(void) { return (struct ring *)(image + RING_AT); }
static uint64_t *the_word(uint64_t i) { return (uint64_t *)(image + RING_AT + RING_HEADER_BYTES) + i; }

/* ------------------------------------------------------------------ handles */
static uint32_t window; /* 1, 2 or 4; as the setup says */
static uint64_t blocks; /* of the side table */
static uint32_t count;  /* messages */
static uint64_t buckets_of[MESSAGES]; /* 0 = it has no key */
static shmq_taken handed[THREADS];    /* in setup */
static uint32_t stays;                /* who goes on at the end, where it stands; 1 if the setup does not say otherwise */
static bool zombies;                  /* some work on what is another's by now */

static uint64_t bucket_of(char key) { return (crc32c(0, &key, 1) & (BUCKETS - 1)) + 1; }
/* Letters whose keys fall into one bucket, and one that falls into the other. */
static char key_a;
static char key_too;
static char key_other;
static void choose_keys(void)
{
    key_a = 'a';
    for (key_too = 'b'; bucket_of(key_too) != bucket_of(key_a); key_too++) {
    }
    for (key_other = 'b'; bucket_of(key_other) == bucket_of(key_a); key_other++) {
    }
}

/* A member that has looked for what came back, and found nothing. */
static struct shmq_ring worker(uint32_t thread)
{
    struct shmq_ring ring = stage_keyed_ring(thread, BUCKETS, blocks);
    ring.window = window;
    ring.window_shift = window == 4 ? 2 : window - 1;
    ring.returns_seen = 0;
    ring.retry_next = UINT64_MAX;
    ring.reaped_ns = NEVER;
    return ring;
}
static struct shmq_ring leaser(uint32_t thread)
{
    struct shmq_ring ring = worker(thread);
    ring.lease_ns = LEASE;
    return ring;
}
/* One that looks through everything first. */
static struct shmq_ring newcomer(uint32_t thread)
{
    struct shmq_ring ring = worker(thread);
    ring.returns_seen = UINT64_MAX;
    ring.reaped_ns = 0;
    return ring;
}
static struct ring_bucket *the_bucket(char key) { return &worker(0).buckets[bucket_of(key) - 1]; }
static struct side_block *the_block(void) { return (struct side_block *)(void *)worker(0).side; }
static struct ring_side *the_entry(uint64_t i) { return (struct ring_side *)(void *)worker(0).side + i; }
static uint64_t entries(void) { return blocks * (SIDE_ENTRIES + 1); }

/* ------------------------------------------------------------------ at every step */
enum fate { WAITS, OUT, IS_FINISHED };

static enum fate fate_of_state(uint64_t state)
{
    switch (state & 7) {
    case SIDE_LIVE: return WAITS;
    case SIDE_CLAIMED: return OUT;
    case SIDE_MOVING: return ring_owner(state) == 0 ? WAITS : OUT;
    default: return IS_FINISHED;
    }
}
static enum fate parked_fate(uint64_t index, uint64_t entry)
{
    const struct ring_side *const side = the_entry(entry);
    if (side->index != index + 1) {
        return IS_FINISHED;
    }
    return fate_of_state((side->state & 7) == SIDE_PREPARED ? side->then : side->state);
}
static enum fate fate_of(const struct shmq_ring *ring, uint64_t index)
{
    const uint64_t word = *ring_word(ring, index);
    const bool of_it = word >> RING_LAP_SHIFT == ring_stamp(ring, index) >> RING_LAP_SHIFT;
    const uint32_t outside = index < the_checkpoint()->head ? RING_DONE : RING_PENDING;
    const uint32_t state = of_it ? (uint32_t)word & 7 : outside; /* as ring_state, of what is newest */
    if (of_it && state == RING_PARKED) {
        return parked_fate(index, ring_entry(word));
    }
    for (uint64_t i = 1; !of_it && state == RING_DONE && i < entries(); i++) { /* a lap further: it may be parked */
        if (i % (SIDE_ENTRIES + 1) != 0 && the_entry(i)->index == index + 1 && (the_entry(i)->state & 7) != SIDE_PREPARED) {
            return parked_fate(index, i);
        }
    }
    switch (state) {
    case RING_DONE: return IS_FINISHED;
    case RING_CLAIMED: return OUT;
    case RING_MOVING: return ring_owner(word) == 0 ? WAITS : OUT;
    default: return WAITS;
    }
}

static void judge_order(void)
{
    const struct shmq_ring ring = worker(THREADS - 1);
    for (uint64_t later = 1; later < count; later++) {
        if (buckets_of[later] == 0 || fate_of(&ring, later) != OUT) {
            continue;
        }
        for (uint64_t index = 0; index < later; index++) {
            if (buckets_of[index] == buckets_of[later] && fate_of(&ring, index) != IS_FINISHED) {
                model_fault("message %llu is out, and message %llu of its key %s", (unsigned long long)later,
                            (unsigned long long)index, fate_of(&ring, index) == OUT ? "is out, too" : "still waits");
            }
        }
    }
}
static void watch(const void *at, uint64_t before, uint64_t after)
{
    for (uint32_t i = 0; i < window; i++) {
        if (at == the_word(i)) {
            const bool one_lap = before >> RING_LAP_SHIFT == after >> RING_LAP_SHIFT;
            if (one_lap && (before & 7) == RING_DONE && before != after) {
                model_fault("a finished word turns from %#llx to %#llx", (unsigned long long)before,
                            (unsigned long long)after);
            }
            judge_order();
        }
    }
    for (uint64_t i = 1; i < entries(); i++) {
        if (at == &the_entry(i)->state) {
            judge_order();
        }
    }
}

/* ------------------------------------------------------------------ setups */
static void begin(uint32_t room, uint64_t side_blocks)
{
    stage_setup();
    choose_keys();
    memset(handed, 0, sizeof handed);
    stays = 1;
    zombies = false;
    stage.head_rises = true;
    stage.watch = watch;
    window = room;
    blocks = side_blocks;
    count = 0;
    the_ring()->tenants[0] = the_ring()->tenants[1] = the_ring()->tenants[2] = 1;
    the_ring()->side_blocks = side_blocks;
    memory_quiet(&the_ring()->redelivered);
    memory_quiet(&the_ring()->expired);
    memory_quiet(&the_ring()->edges);
    memory_quiet(&the_checkpoint()->handed);
    memory_quiet(&the_ring()->side_hint);
    memory_quiet(&the_ring()->side_blocks);
    memory_quiet(&the_block()->used);
    for (uint32_t i = 0; i < 4; i++) {
        memory_quiet(&worker(0).attempts[i]);
    }
    memory_quiet(&the_bucket(key_a)->low);
    memory_quiet(&the_bucket(key_other)->low);
    memory_quiet(&the_bucket(key_a)->block);
    memory_quiet(&the_bucket(key_other)->block);
}
static void put(char key, uint32_t flags, const struct field_when *fields)
{
    const uint64_t tag = count;
    const shmq_fields with = {.key = &key, .key_length = key != 0, .time_ns = 1, .fixed_flags = flags,
                              .fixed = (const char *)fields};
    shmq_put_record(stage.actors[5].chunk, &with, (const char *)&tag, sizeof tag);
    buckets_of[count++] = key == 0 ? 0 : bucket_of(key);
}
/* All that there is was put long ago: looking at it is no step, but in few schedules. */
static void quieten_messages(void)
{
    const uint64_t first = shmq_chunk_first_position(stage.actors[5].chunk);
    for (uint64_t at = 0; at < 1024; at += sizeof(uint64_t)) {
        memory_quiet(image + CHUNK_AT + first + at);
    }
}
/* What only who sleeps, or looks for what is due, depends on. */
static void bells_are_quiet(void)
{
    memory_quiet(&the_control()->sleepers);
    memory_quiet(&the_ring()->edge);
    memory_quiet(&the_ring()->side_version);
    memory_quiet(&the_block()->due);
}
/* What stands in an entry, but for its message and its state. */
static void quieten_entries(void)
{
    for (uint64_t i = 1; i <= SIDE_ENTRIES; i++) {
        memory_quiet(&the_entry(i)->then);
        memory_quiet(&the_entry(i)->due_ns);
        memory_quiet(&the_entry(i)->behind);
        memory_quiet(&the_entry(i)->bucket);
    }
}
static void nobody_sleeps(void)
{
    bells_are_quiet();
    memory_quiet(&the_block()->lowest);
}
static void put_keys(const char *keys)
{
    quieten_messages();
    for (; *keys != 0; keys++) {
        put(*keys == '2' ? key_too : *keys == 'o' ? key_other : *keys == '-' ? 0 : key_a, 0, NULL);
    }
}
/* What comes next of what nobody has met is handed to that one. */
static void hand_with(uint32_t thread, struct shmq_ring *ring)
{
    struct actor *const actor = &stage.actors[thread];
    shmq_ring_take(ring, actor->chunk, &actor->reader, 1, 0, &handed[thread]);
    actor->notes[1] |= UINT64_C(1) << handed[thread].index;
}
static void hand(uint32_t thread)
{
    struct shmq_ring ring = worker(thread);
    hand_with(thread, &ring);
}
/* That one meets whatever nobody has met, and gets nothing. */
static void meet(uint32_t thread)
{
    struct actor *const actor = &stage.actors[thread];
    struct shmq_ring ring = worker(thread);
    shmq_taken taken;
    if (shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) > 0) {
        stage.actors[thread].chunk = NULL; /* seen at once */
    }
}
/* What thread 0 holds is parked, and its own again. */
static void park_what_is_held(struct shmq_ring *ring)
{
    int64_t next;
    shmq_ring_nack(ring, &handed[0], 0, 0);
    ring->side_seen = UINT64_MAX;
    shmq_ring_retake(ring, false, 1, &handed[0], &next);
    the_ring()->side_version = 0;
}
static void find_ready(char key) /* as whoever finds a death leaves it */
{
    *worker(0).ready |= UINT64_C(1) << (bucket_of(key) - 1);
}

/* Two of one key, that nobody has met. */
static void setup_two(void)
{
    begin(2, 1);
    put_keys("aa");
}
static void setup_two_met_by_nobody(void)
{
    setup_two();
    nobody_sleeps();
}
static void setup_two_keys_of_one_bucket(void)
{
    begin(2, 1);
    put_keys("a2");
    hand(0);
}
/* Member 0 holds the first of two; nobody has met the second. */
static void setup_held(void)
{
    setup_two();
    hand(0);
}
/* ... and member 1 has met it. */
static void setup_held_and_met(void)
{
    setup_held();
    meet(1);
}
static void setup_held_and_ready(void)
{
    setup_held_and_met();
    find_ready(key_a);
    nobody_sleeps();
}
static void setup_held_parked(void)
{
    setup_two();
    struct shmq_ring ring = worker(0);
    hand_with(0, &ring);
    park_what_is_held(&ring);
    meet(1);
}
static void setup_held_with_lease(void)
{
    setup_two();
    zombies = true;
    struct shmq_ring ring = leaser(0);
    hand_with(0, &ring);
    meet(1);
    nobody_sleeps();
}
/* As when the table has grown behind member 1's back. */
static void setup_grown(void)
{
    setup_held_and_met();
    blocks = 2;
    the_ring()->side_blocks = 1;
    memory_heed(&the_ring()->side_blocks);
    for (uint64_t i = 1; i <= SIDE_ENTRIES; i++) {
        the_entry(i)->state = ring_low(stage.members[0].owner, 0, SIDE_PREPARED);
    }
    the_block()->used = SIDE_ENTRIES;
    find_ready(key_a);
}
static const struct field_when soon = {.boottime_ns = DELAY};
/* The first waits for its time. */
static void setup_delayed(void)
{
    begin(2, 1);
    put(key_a, RECORD_DELAY, &soon);
    put_keys("a");
}
/* Members 0 and 1 hold the first of a key each, and member 2 has met what follows. */
static void setup_both_held(void)
{
    begin(4, 1);
    put_keys("aoao");
    hand(0);
    hand(1);
    meet(2);
    stays = 2;
}
/* Member 0 holds the first; one of another key has come back, and waits; the third is met. */
static void setup_other_is_ready(void)
{
    begin(4, 1);
    put_keys("aoa");
    hand(0);
    hand(1);
    meet(1);
    struct shmq_ring ring = worker(1);
    shmq_ring_return(&ring, &handed[1]);
    handed[1].word = 0;
    the_ring()->returns = 0;
}
/* ... and some of its key may be parked: so all blocks are looked at. */
static void setup_other_may_be_parked(void)
{
    setup_other_is_ready();
    the_bucket(key_other)->gate |= GATE_PARKED;
    bells_are_quiet();
}
/* Members 0 and 1 hold one of each key, and the table has been looked at: it is empty. */
static void setup_both_park(void)
{
    begin(4, 1);
    put_keys("aoao");
    hand(0);
    shmq_reader_seek(stage.actors[1].chunk, &stage.actors[1].reader, 3);
    hand(1);
    *the_word(1) = RING_DONE;
    the_block()->lowest = UINT64_MAX << SIDE_DUE_SHIFT;
    shmq_reader_seek(stage.actors[2].chunk, &stage.actors[2].reader, 2);
    meet(2);
    stays = 2;
    bells_are_quiet();
    memory_quiet(&the_checkpoint()->head);
    quieten_entries();
}
/* The first is finished, somebody should look what comes next, and nobody has met it. */
static void setup_finished_and_ready(void)
{
    begin(4, 1);
    put_keys("aaa");
    hand(0);
    struct shmq_ring ring = worker(0);
    the_bucket(key_a)->gate += GATE_CHANGE;
    shmq_ring_ack(&ring, &handed[0]);
    handed[0].word = 0;
    stage.actors[0].notes[2] |= 1;
    shmq_reader_seek(stage.actors[1].chunk, &stage.actors[1].reader, 1);
}
static void setup_next_is_unmet(void)
{
    begin(2, 1);
    put_keys("aa");
    hand(0);
    struct shmq_ring ring = worker(0);
    the_bucket(key_a)->gate += GATE_CHANGE;
    shmq_ring_ack(&ring, &handed[0]);
    handed[0].word = 0;
    stage.actors[0].notes[2] |= 1;
    shmq_reader_seek(stage.actors[1].chunk, &stage.actors[1].reader, 1);
    nobody_sleeps();
    memory_quiet(&the_checkpoint()->head);
}
static void setup_laps(void)
{
    begin(2, 1);
    put_keys("a-aa");
    *the_word(1) = RING_DONE;
    nobody_sleeps();
    memory_quiet(&the_checkpoint()->head);
    memory_quiet(&the_ring()->returns);
}
/* Member 2 holds the first; two are to meet the others. */
static void setup_held_by_third(void)
{
    begin(4, 1);
    put_keys("aaa");
    hand(2);
    shmq_reader_seek(stage.actors[0].chunk, &stage.actors[0].reader, 1);
    shmq_reader_seek(stage.actors[1].chunk, &stage.actors[1].reader, 1);
}
/* Member 0 holds the first of a window whose others are finished, and what lies behind its edge is of the same key. */
static void setup_straggler(void)
{
    begin(4, 1);
    put_keys("a---a");
    hand(0);
    for (uint64_t i = 1; i < 4; i++) {
        *the_word(i) = RING_DONE;
    }
    shmq_reader_seek(stage.actors[1].chunk, &stage.actors[1].reader, 4);
    nobody_sleeps();
}
/* The first has come back, and the second waits for it. */
static void setup_came_back(void)
{
    setup_held_and_met();
    struct shmq_ring ring = worker(0);
    shmq_ring_return(&ring, &handed[0]);
    handed[0].word = 0;
    the_ring()->returns = 0;
}
/* The second waits for its time, the third follows; the first is finished, and somebody should look what comes next. */
static void setup_delayed_is_next(void)
{
    begin(4, 1);
    put_keys("a");
    put(key_a, RECORD_DELAY, &soon);
    put_keys("a");
    hand(0);
    struct shmq_ring ring = worker(0);
    the_bucket(key_a)->gate += GATE_CHANGE; /* so that the gate stays BUSY */
    shmq_ring_ack(&ring, &handed[0]);
    handed[0].word = 0;
    stage.actors[0].notes[2] |= 1;
    shmq_reader_seek(stage.actors[1].chunk, &stage.actors[1].reader, 1);
}
static void setup_one(void)
{
    begin(1, 1);
    put_keys("a");
    find_ready(key_a);
    nobody_sleeps();
    memory_quiet(&the_checkpoint()->head);
    quieten_entries();
}
/* Member 0 holds the first of two, which two walkers have met at once; member 1 has met none. */
static void setup_held_and_met_twice(void)
{
    setup_held();
    the_bucket(key_a)->gate += GATE_CHANGE;
    find_ready(key_a);
    stays = 2;
    nobody_sleeps();
    memory_quiet(&the_checkpoint()->head);
}
/* The window has two, and member 0 holds the first of another key; one that walks it is to meet the next, and another
 * has met it and stands at the window's edge. */
static void setup_edge(void)
{
    begin(2, 1);
    put_keys("oao");
    hand(0);
    shmq_reader_seek(stage.actors[1].chunk, &stage.actors[1].reader, 1);
    shmq_reader_seek(stage.actors[2].chunk, &stage.actors[2].reader, 2);
}

/* ------------------------------------------------------------------ what workers do */
static void end_with(int code, uint64_t index)
{
    if (code == SHMQ_OK) {
        actor_self()->notes[2] |= UINT64_C(1) << index;
    } else if (code != SHMQ_LOST) {
        model_fault("an end was answered by %d", code);
    }
}
static void touch(uint64_t index)
{
    if (!zombies && buckets_of[index] != 0) {
        uint64_t seen;
        shared_read(&seen, &the_words()[buckets_of[index]], sizeof seen);
        seen = index;
        shared_write(&the_words()[buckets_of[index]], &seen, sizeof seen);
    }
}
static void finish(shmq_ring *ring, shmq_taken *taken)
{
    touch(taken->index);
    actor_self()->notes[1] |= UINT64_C(1) << taken->index;
    end_with(shmq_ring_ack(ring, taken), taken->index);
}
static bool had(uint32_t thread, uint64_t index) { return stage.actors[thread].notes[1] >> index & 1; }
static bool ended(uint32_t thread, uint64_t index) { return stage.actors[thread].notes[2] >> index & 1; }

static void end_mine(int code)
{
    if (code != SHMQ_OK) {
        model_fault("what is mine cannot be given back: %d", code);
    }
}
static bool look(shmq_ring *ring, bool idle)
{
    shmq_taken taken;
    int64_t next;
    const int64_t answer = shmq_ring_retake(ring, idle, 1, &taken, &next);
    if (answer == 1) {
        finish(ring, &taken);
    } else if (answer == SHMQ_GROW) {
        *ring = worker(model_self()); /* maps it anew, and looks through all of it */
        ring->returns_seen = ring->side_seen = UINT64_MAX;
        return true;
    }
    return answer == 1;
}
static bool walk(shmq_ring *ring)
{
    struct actor *const actor = actor_self();
    shmq_taken taken;
    const int64_t answer = shmq_ring_take(ring, actor->chunk, &actor->reader, 1, 0, &taken);
    if (answer == 1) {
        finish(ring, &taken);
    }
    return answer == 1;
}
static void take_next(void)
{
    struct shmq_ring ring = worker(model_self());
    walk(&ring);
}
/* The window has been full for long. */
static void take_at_the_edge(void)
{
    struct shmq_ring ring = worker(model_self());
    ring.stuck_ns = -NEVER;
    ring.holds = NEVER; /* what others hold is another schedule's business */
    walk(&ring);
}
/* As keyed_park does, to what it finds met. */
static void park_what_is_met(void)
{
    struct shmq_ring ring = worker(model_self());
    const uint64_t bucket = keyed_at(&ring, 0);
    const uint64_t word = ring_look(&ring, 0);
    if (bucket != 0 && ring_state(&ring, 0, word) == RING_PENDING) {
        shmq_ring_park(&ring, 0, word, INT64_MAX, 0, 0, bucket);
    }
}
/* What these are handed they keep until the end. */
static void keep_next(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = worker(model_self());
    shmq_taken taken = {0};
    handed[model_self()].word = 0;
    if (shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1) {
        handed[model_self()] = taken;
    }
}
static void keep_ready(void)
{
    struct shmq_ring ring = worker(model_self());
    shmq_taken taken = {0};
    handed[model_self()].word = 0;
    if (keyed_take(&ring, false, 1, &taken) == 1) {
        handed[model_self()] = taken;
    }
}
/* From one lap to the next: the first is finished, the third given back to its place, the fourth waits for it. */
static void go_round(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = worker(model_self());
    shmq_taken taken;
    handed[model_self()].word = 0;
    if (shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) != 1 || taken.index != 0) {
        return;
    }
    finish(&ring, &taken);
    if (shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1 && taken.index == 2) {
        end_mine(shmq_ring_return(&ring, &taken));
        keep_next();
        keep_ready();
    }
}
/* The first one, as a walk does, and no further. */
static void keep_first(void)
{
    struct shmq_ring ring = worker(model_self());
    shmq_taken *const mine = &handed[model_self()];
    shmq_taken order = {.bucket = buckets_of[0]};
    const uint64_t word = ring_look(&ring, 0);
    mine->word = 0;
    if (ring_state(&ring, 0, word) != RING_PENDING || keyed_enter(&ring, 0, word, 0, false, &order) != SHMQ_OK) {
        return;
    }
    if (!ring_claim(&ring, 0, word, SHMQ_TAKEN_MESSAGE, false, mine)) {
        mine->word = 0;
        keyed_ready(&ring, order.bucket);
        return;
    }
    mine->bucket = order.bucket;
    mine->gate = order.gate;
}
/* At the bits only. */
static void look_at_bits(void)
{
    struct shmq_ring ring = worker(model_self());
    shmq_taken taken;
    if (keyed_take(&ring, false, 1, &taken) == 1) {
        finish(&ring, &taken);
    }
}
static bool second_is_done(void) { return model_is_done(1); }
static void skip_second(void)
{
    struct shmq_ring ring = worker(model_self());
    if (shmq_ring_skip(&ring, 1, 2) != SHMQ_OK) {
        model_fault("what nobody has cannot be skipped");
    }
}
static void look_once(void)
{
    struct shmq_ring ring = worker(model_self());
    look(&ring, false);
}
static void work(void)
{
    struct shmq_ring ring = worker(model_self());
    while (look(&ring, false) || walk(&ring)) {
    }
}
static bool first_is_done(void) { return model_is_done(0); }
/* Asleep until the last one of them was here; it has met all there is. */
static void look_until_last(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = worker(model_self());
    while (!had(model_self(), count - 1)) {
        const uint32_t seen = shmq_wait_begin(actor->member);
        while (look(&ring, false)) {
        }
        if (ring.side_due_ns < NEVER) { /* it sleeps until then, and what the other is about is over by then */
            model_until(first_is_done);
            kernel_set_clock(ring.side_due_ns);
        } else if (!had(model_self(), count - 1)) {
            shmq_wait(actor->member, seen, -1);
        }
    }
}
static void ack_mine(void)
{
    struct shmq_ring ring = worker(model_self());
    shmq_taken taken = handed[model_self()];
    finish(&ring, &taken);
}
static void nack_mine(void)
{
    struct shmq_ring ring = worker(model_self());
    shmq_taken taken = handed[model_self()];
    touch(taken.index);
    end_mine(shmq_ring_nack(&ring, &taken, 0, 0));
}
static void nack_mine_for_long(void)
{
    struct shmq_ring ring = worker(model_self());
    shmq_taken taken = handed[model_self()];
    touch(taken.index);
    end_mine(shmq_ring_nack(&ring, &taken, NEVER, 0));
}
static void return_mine(void)
{
    struct shmq_ring ring = worker(model_self());
    shmq_taken taken = handed[model_self()];
    touch(taken.index);
    end_mine(shmq_ring_return(&ring, &taken));
}
static void nack_into_a_new_block(void)
{
    struct shmq_ring ring = worker(model_self());
    shmq_taken taken = handed[model_self()];
    touch(taken.index);
    ring.blocks = 1;
    int code = shmq_ring_nack(&ring, &taken, NEVER, 0);
    if (code == SHMQ_GROW) {
        shmq_ring_extend(&ring, 2);
        ring.blocks = 2;
        code = shmq_ring_nack(&ring, &taken, NEVER, 0);
    }
    end_mine(code);
}
static void look_by_one_block(void)
{
    struct shmq_ring ring = worker(model_self());
    ring.blocks = 1;
    look(&ring, false);
}
static void move_mine(void)
{
    struct shmq_ring ring = worker(model_self());
    shmq_taken taken = handed[model_self()];
    touch(taken.index);
    if (shmq_ring_moving(&ring, &taken) == SHMQ_OK) {
        end_with(shmq_ring_ack(&ring, &taken), taken.index);
    }
}
static void time_passes(void)
{
    model_step(1);
    kernel_set_clock(AFTER);
}
static void look_at_leases(void)
{
    struct shmq_ring ring = leaser(model_self());
    while (look(&ring, false)) {
    }
}
static void look_at_leases_in_time(void)
{
    time_passes();
    look_at_leases();
}
static void go_not(void) {}
static void go(void)
{
    model_step(1);
    kernel_drop(model_self());
}
static bool first_is_gone(void) { return !kernel_locked(0); }
/* As one who opens the group once the first one is dead. */
static void take_over(void)
{
    struct actor *const actor = actor_self();
    model_until(first_is_gone);
    memory_acquire(0);
    struct shmq_ring ring = newcomer(model_self());
    shmq_ring_join(&ring);
    ring.reaped_ns = NEVER;
    (void)actor;
    while (look(&ring, false) || walk(&ring)) {
    }
}
static void take_next_then(void)
{
    model_until(second_is_done);
    take_next();
}
static void ack_and_go(void)
{
    ack_mine();
    go();
}
static void nack_and_go(void)
{
    nack_mine();
    go();
}
static void move_and_go(void)
{
    move_mine();
    go();
}
static void take_and_go(void)
{
    take_next();
    go();
}
static void look_and_go(void)
{
    look_once();
    go();
}

/* ------------------------------------------------------------------ at the end */
/* Who stays is handed what nobody has finished, each once, and then there is nothing more. */
static uint32_t go_on(struct shmq_ring *ring)
{
    struct actor *const actor = &stage.actors[stays];
    uint32_t done = 0;
    for (uint32_t turns = 0; turns < 20; turns++) {
        shmq_taken taken;
        int64_t next;
        if (shmq_ring_retake(ring, true, 1, &taken, &next) != 1
            && shmq_ring_take(ring, actor->chunk, &actor->reader, 1, 0, &taken) != 1) {
            continue;
        }
        for (uint32_t t = 0; t < THREADS; t++) {
            if (ended(t, taken.index)) {
                model_fault("message %llu was finished, and comes again", (unsigned long long)taken.index);
            }
        }
        judge_order();
        if (shmq_ring_ack(ring, &taken) != SHMQ_OK) {
            model_fault("who stays cannot finish message %llu", (unsigned long long)taken.index);
        }
        done |= 1u << taken.index;
    }
    return done;
}
static void check_rest(void)
{
    struct shmq_ring ring = zombies ? leaser(stays) : worker(stays);
    kernel_set_clock(LATER);
    for (uint32_t t = 0; t < THREADS; t++) {
        if (model_is_dead(t)) {
            kernel_drop(t);
            ring.reaped_ns = 0;
        }
    }
    const uint32_t by_it = go_on(&ring);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t ends = by_it >> i & 1;
        for (uint32_t t = 0; t < THREADS; t++) {
            ends += ended(t, i);
        }
        if (ends > 1) {
            model_fault("message %llu was finished %u times", (unsigned long long)i, ends);
        }
        if (fate_of(&ring, i) != IS_FINISHED) {
            model_fault("message %llu is never handed out: it %s", (unsigned long long)i,
                        fate_of(&ring, i) == OUT ? "is with somebody" : "waits");
        }
    }
    if (the_checkpoint()->head != count) {
        model_fault("the head stands at %llu", (unsigned long long)the_checkpoint()->head);
    }
}
/* Who held one for long lets it go. */
static void check_rest_after_holder(void)
{
    for (uint32_t t = 0; t < THREADS; t++) {
        struct shmq_ring ring = worker(t);
        shmq_taken mine = handed[t]; /* its end may move it on, and the next execution begins with what setup handed out */
        if (mine.word != 0 && !model_is_dead(t) && !ended(t, mine.index)) {
            stage.actors[t].notes[2] |= (uint64_t)(shmq_ring_ack(&ring, &mine) == SHMQ_OK) << mine.index;
        }
    }
    check_rest();
}
static void check_for_second(void)
{
    if (!ended(1, count - 1)) {
        model_fault("who waited for it did not get it");
    }
    check_rest();
}

/* ------------------------------------------------------------------ the table */
const struct scenario keyed_scenarios[] = {
    PLAY("keyed_two_take", "two walk over two messages of one key", setup_two_met_by_nobody, check_rest, NULL, 0,
         THREAD("member", take_next), THREAD("other", take_next)),
    PLAY("keyed_next_is_met_late", "the next of a key is met while the one before it is finished", setup_held, check_rest, NULL, 0,
         THREAD("holder", ack_mine), THREAD("walker", take_next)),
    PLAY("keyed_sleeper_is_woken", "who sleeps until the next of a key comes is woken", setup_held_and_met,
         check_for_second, NULL, 0, THREAD("holder", ack_mine), THREAD("sleeper", look_until_last)),
    PLAY("keyed_nack_keeps_its_place", "what is given back comes before the next of its key", setup_held_and_ready, check_rest,
         NULL, 0, THREAD("holder", nack_mine_for_long), THREAD("looker", look_once)),
    LARGE("keyed_nack_is_found", "what is given back comes, and then the next", setup_held_and_met, check_for_second,
         NULL, 0, THREAD("holder", nack_mine), THREAD("sleeper", look_until_last)),
    PLAY("keyed_return_is_found", "the same of what goes back to its place", setup_held_and_met, check_for_second,
         NULL, 0, THREAD("holder", return_mine), THREAD("sleeper", look_until_last)),
    PLAY("keyed_nack_into_a_new_block", "what lies where one does not see it is not passed over", setup_grown, check_rest, NULL, 0,
         THREAD("holder", nack_into_a_new_block), THREAD("looker", look_by_one_block)),
    PLAY("keyed_holder_is_killed", "killed at any step of an ack, the next of the key comes", setup_held_and_met,
         check_rest, NULL, 1, MORTAL("holder", ack_and_go), THREAD("other", take_over)),
    PLAY("keyed_nacker_is_killed", "killed at any step of giving back", setup_held_and_met, check_rest, NULL, 1,
         MORTAL("holder", nack_and_go), THREAD("other", take_over)),
    PLAY("keyed_mover_is_killed", "killed at any step of a move", setup_held_and_met, check_rest, NULL, 1,
         MORTAL("holder", move_and_go), THREAD("other", take_over)),
    PLAY("keyed_taker_is_killed", "killed at any step of a claim", setup_two, check_rest, NULL, 1,
         MORTAL("member", take_and_go), THREAD("other", take_over)),
    LARGE("keyed_delayed_holds_its_key", "who waits for its time holds its key", setup_delayed, check_rest, NULL, 0,
         THREAD("member", take_next), THREAD("other", work)),
    PLAY("keyed_bits_of_two", "two finish, of two buckets", setup_both_held, check_rest, NULL, 0,
         THREAD("holder", ack_mine), THREAD("other", ack_mine)),
    PLAY("keyed_bit_beside_another", "one bucket is looked at, and one becomes ready", setup_other_is_ready, check_rest, NULL,
         0, THREAD("holder", ack_mine), THREAD("looker", look_once)),
    PLAY("keyed_met_while_looked_at", "met while somebody finds that nothing is left", setup_finished_and_ready,
         check_rest, NULL, 0, THREAD("looker", look_once), THREAD("walker", take_next)),
    PLAY("keyed_two_meet", "two meet what waits", setup_held_by_third, check_rest_after_holder, NULL, 1,
         MORTAL("walker", take_next), THREAD("other", take_next)),
    PLAY("keyed_straggler_is_parked", "finished while another parks it on its holder's behalf", setup_straggler,
         check_rest, NULL, 0, THREAD("holder", ack_mine), THREAD("parker", take_next)),
    PLAY("keyed_work_is_seen", "what was done by whoever finished is seen by whoever is handed the next, whoever looked between",
         setup_held_and_met_twice, check_rest, NULL, 0, THREAD("holder", ack_mine), THREAD("looker", look_at_bits),
         THREAD("walker", take_next_then)),
    PLAY("keyed_parked_while_looked_at", "parked while it is met, and somebody looks", setup_one, check_rest_after_holder,
         NULL, 0, THREAD("parker", park_what_is_met), THREAD("walker", keep_next), THREAD("looker", keep_ready)),
    PLAY("keyed_parked_while_its_block_is_read", "parked while somebody finds its block empty", setup_other_may_be_parked,
         check_rest_after_holder, NULL, 0, THREAD("holder", nack_mine_for_long), THREAD("looker", keep_ready)),
    PLAY("keyed_two_park", "two park into an empty block", setup_both_park, check_rest, NULL, 0,
         THREAD("holder", nack_mine_for_long), THREAD("other", nack_mine_for_long)),
    PLAY("keyed_laps_do_not_mix", "who slept over a lap does not say of the next what it saw", setup_laps,
         check_rest_after_holder, NULL, 0, THREAD("member", go_round), THREAD("walker", keep_first)),
    PLAY("keyed_met_after_a_death", "met behind one who was killed when it had met it", setup_next_is_unmet,
         check_rest_after_holder, NULL, 1, MORTAL("dead", keep_next), THREAD("walker", keep_next),
         THREAD("looker", keep_ready)),
    PLAY("keyed_looker_is_killed", "killed at any step of a look", setup_came_back, check_rest, NULL, 1,
         MORTAL("looker", look_and_go), THREAD("other", take_over)),
    PLAY("keyed_two_keys_of_a_bucket", "two keys of one bucket wait for each other, and not for ever",
         setup_two_keys_of_one_bucket, check_rest, NULL, 0, THREAD("holder", ack_mine), THREAD("walker", take_next)),
    PLAY("keyed_lease_ends_beside_an_ack", "a lease ends while its message is finished", setup_held_with_lease,
         check_rest, NULL, 0, THREAD("holder", ack_mine), THREAD("thief", look_at_leases_in_time)),
    PLAY("keyed_parked_holder", "finished where it was parked", setup_held_parked, check_for_second, NULL, 0,
         THREAD("holder", ack_mine), THREAD("sleeper", look_until_last)),
    LARGE("keyed_skipped_while_parked", "what is finished while somebody parks it lets its key go on", setup_delayed_is_next,
         check_rest, NULL, 0, THREAD("walker", take_next), THREAD("skipper", skip_second), THREAD("looker", look_once)),
    PLAY("keyed_parked_while_met", "parked at the window's edge by another than whoever meets it", setup_edge,
         check_rest_after_holder, NULL, 0, THREAD("holder", go_not), THREAD("walker", take_next),
         THREAD("parker", take_at_the_edge)),
};
const size_t keyed_scenarios_count = sizeof keyed_scenarios / sizeof keyed_scenarios[0];
