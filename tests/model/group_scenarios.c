/* group_scenarios.c - the schedules of a group: its window, its side table, its leases, and who dies in the middle.
 *
 * What a member has had is in its notes: bit i of [1], message i was handed to it; of [2], its end of it was accepted;
 * [3] is the word of what it was handed in setup. The window is as many messages
 * as there are, up to four; the side table has two entries. */
#include <string.h>

#include "atomic.h"
#include "group/head.h"
#include "group/side.h"
#include "stage.h"

#define LEASE INT64_C(50000000)
#define AFTER (4 * LEASE)          /* long after each lease that was given at the beginning */
#define NEVER (INT64_C(1) << 60)

static struct ring *the_ring(void) { return (struct ring *)(image + RING_AT); }
static struct side_block *the_block(void) { return (struct side_block *)(image + RING_AT + RING_HEADER_BYTES + 12 * 8); }
static struct ring_side *the_entry(uint64_t i) { return (struct ring_side *)the_block() + i; }
static uint64_t *the_word(uint64_t i) { return (uint64_t *)(image + RING_AT + RING_HEADER_BYTES) + i; }

static bool had(uint32_t thread, uint64_t index) { return stage.actors[thread].notes[1] >> index & 1; }
static bool ended(uint32_t thread, uint64_t index) { return stage.actors[thread].notes[2] >> index & 1; }

/* ------------------------------------------------------------------ handles */
static uint32_t window; /* 1, 2 or 4; as the setup says */

/* A member that has looked for what came back, and found nothing. */
static struct shmq_ring member(uint32_t thread)
{
    struct shmq_ring ring = stage_ring(thread);
    ring.blocks = 1;
    ring.window = window;
    ring.window_shift = window == 4 ? 2 : window - 1;
    ring.returns_seen = 0;
    ring.retry_next = UINT64_MAX;
    ring.reaped_ns = NEVER;
    return ring;
}
static struct shmq_ring member_with_lease(uint32_t thread)
{
    struct shmq_ring ring = member(thread);
    ring.lease_ns = LEASE;
    return ring;
}
/* One that looks through everything first. */
static struct shmq_ring newcomer(uint32_t thread)
{
    struct shmq_ring ring = member(thread);
    ring.returns_seen = UINT64_MAX;
    return ring;
}

static void begin(uint32_t messages)
{
    stage_setup();
    stage.head_rises = true;
    window = messages == 0 ? 1 : messages > 4 ? 4 : messages;
    for (uint64_t i = 0; i < messages; i++) {
        shmq_put(stage.actors[5].chunk, (const char *)&i, sizeof i);
    }
    the_ring()->tenants[0] = the_ring()->tenants[1] = 1;
    the_ring()->side_blocks = 1;
    memory_quiet(&the_ring()->redelivered);
    memory_quiet(&the_ring()->expired);
    memory_quiet(&the_ring()->edges);
    memory_quiet(&the_checkpoint()->handed);
    memory_quiet(&the_ring()->side_hint);
    memory_quiet(&the_ring()->side_blocks);
    memory_quiet(&the_block()->used);
}
/* Message `index` is handed to that one. */
static shmq_taken hand(uint32_t thread, uint64_t index, struct shmq_ring *ring)
{
    struct actor *const actor = &stage.actors[thread];
    shmq_taken taken = {0};
    while (taken.word == 0 || taken.index < index) {
        if (shmq_ring_take(ring, actor->chunk, &actor->reader, 1, 0, &taken) != 1) {
            break;
        }
    }
    actor->notes[3] = taken.word;
    actor->notes[1] |= UINT64_C(1) << index;
    return taken;
}
/* The same, parked for its holder in entry 1. */
static void hand_parked(uint32_t thread, struct shmq_ring *ring)
{
    shmq_taken taken = hand(thread, 0, ring);
    int64_t next;
    shmq_ring_nack(ring, &taken, 0, 0);
    ring->side_seen = UINT64_MAX;
    shmq_ring_retake(ring, false, 1, &taken, &next);
    stage.actors[thread].notes[3] = taken.word;
    the_ring()->side_version = 0;
}
static shmq_taken mine_in(uint64_t entry)
{
    return (shmq_taken){.index = model_self() == 1 && entry == 0 ? 1 : 0, .word = actor_self()->notes[3],
                        .attempts = 1, .entry = entry};
}

/* ------------------------------------------------------------------ what members do */
static void end_with(int code, uint64_t index)
{
    if (code == SHMQ_OK) {
        actor_self()->notes[2] |= UINT64_C(1) << index;
    } else if (code != SHMQ_LOST) {
        model_fault("an end was answered by %d", code);
    }
}
static void finish(shmq_ring *ring, shmq_taken *taken)
{
    actor_self()->notes[1] |= UINT64_C(1) << taken->index;
    end_with(shmq_ring_ack(ring, taken), taken->index);
}
/* Whatever comes back or is due now, one after the other. */
static void work_off(shmq_ring *ring, bool idle)
{
    shmq_taken taken;
    int64_t next;
    while (shmq_ring_retake(ring, idle, 1, &taken, &next) == 1) {
        finish(ring, &taken);
    }
}
static void look_once(void)
{
    struct shmq_ring ring = member(model_self());
    work_off(&ring, false);
}
static void look_at_leases(void)
{
    struct shmq_ring ring = member_with_lease(model_self());
    work_off(&ring, false);
}
static bool first_is_done(void) { return model_is_done(0); }
/* Asleep until message 0 comes. */
static void wait_for_it(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(model_self());
    for (;;) {
        const uint32_t seen = shmq_wait_begin(actor->member);
        work_off(&ring, false);
        if (had(model_self(), 0)) {
            return;
        }
        if (ring.side_due_ns < NEVER) { /* it sleeps until then, and what the other is about is over by then */
            model_until(first_is_done);
            kernel_set_clock(ring.side_due_ns);
            continue;
        }
        shmq_wait(actor->member, seen, -1);
    }
}
static void ack_it(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(0);
    finish(&ring, &taken);
}
static void ack_behind_head(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = {.index = 1 + model_self(), .word = actor_self()->notes[3], .attempts = 1};
    finish(&ring, &taken);
}
static void ack_parked(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(1);
    finish(&ring, &taken);
}
static void nack_it(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(0);
    if (shmq_ring_nack(&ring, &taken, 0, 0) != SHMQ_OK) {
        model_fault("what is mine cannot be given back");
    }
}
static void nack_parked(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(1);
    if (shmq_ring_nack(&ring, &taken, 0, 0) != SHMQ_OK) {
        model_fault("what is mine cannot be given back");
    }
}
static void return_it(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(0);
    if (shmq_ring_return(&ring, &taken) != SHMQ_OK) {
        model_fault("what is mine cannot be given back");
    }
}
static void park_for_an_hour(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(0);
    if (shmq_ring_nack(&ring, &taken, NEVER, 7) != SHMQ_OK) {
        model_fault("what is mine cannot be given back");
    }
}
static void time_passes(void)
{
    model_step(1);
    kernel_set_clock(AFTER);
}
/* Twice: a lease that began anew when it was looked at has ended then, too. */
static void time_passes_twice(void)
{
    time_passes();
    model_step(1);
    kernel_set_clock(2 * AFTER);
}
static void look_twice(void)
{
    struct shmq_ring ring = member_with_lease(model_self());
    work_off(&ring, false);
    ring.leases_ns = 0;
    work_off(&ring, false);
}
static void extend_it(void)
{
    struct shmq_ring ring = member_with_lease(model_self());
    shmq_taken taken = mine_in(0);
    end_with(shmq_ring_extend_lease(&ring, &taken, NEVER), 0);
}
static void extend_parked(void)
{
    struct shmq_ring ring = member_with_lease(model_self());
    shmq_taken taken = mine_in(1);
    end_with(shmq_ring_extend_lease(&ring, &taken, NEVER), 0);
}
static bool time_has_passed(void) { return kernel_clock() == AFTER; }
static void look_at_leases_then(void)
{
    model_until(time_has_passed);
    look_at_leases();
}
static bool in_seat(uint32_t i) { return kernel_locked(i); }
static bool first_is_gone(void) { return !in_seat(0); }
static bool second_is_gone(void) { return !in_seat(1); }
static void go(void)
{
    model_step(1);
    kernel_drop(model_self());
}
/* As one who opens the group: what the dead held, then what nobody has had. */
static void take_all(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = newcomer(model_self());
    shmq_taken taken;
    int64_t next;
    shmq_ring_join(&ring);
    while (shmq_ring_retake(&ring, false, 1, &taken, &next) == 1
           || shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1) {
        finish(&ring, &taken);
        if (taken.kind == SHMQ_TAKEN_MOVING) {
            actor->notes[0]++;
        }
    }
}
static void take_all_and_go(void)
{
    take_all();
    go();
}
static void take_all_after_first(void)
{
    model_until(first_is_gone);
    memory_acquire(0);
    take_all();
}
static void take_all_after_second(void)
{
    model_until(second_is_gone);
    memory_acquire(1);
    take_all();
}
static void take_next(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(model_self());
    shmq_taken taken;
    if (shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1) {
        finish(&ring, &taken);
    }
}
static void take_wanted(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(model_self());
    shmq_taken taken;
    while (shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1) {
        finish(&ring, &taken);
    }
}
/* The same, going over whatever others have had. */
static void skim_wanted(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(model_self());
    shmq_taken taken;
    ring.skim = 1;
    while (shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1) {
        finish(&ring, &taken);
    }
}
/* And what comes back, once the first one is gone. */
static void skim_all_after_first(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = newcomer(model_self());
    shmq_taken taken;
    int64_t next;
    ring.skim = 1;
    while (shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1) {
        finish(&ring, &taken);
    }
    model_until(first_is_gone);
    memory_acquire(0);
    shmq_ring_join(&ring);
    while (shmq_ring_retake(&ring, false, 1, &taken, &next) == 1
           || shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1) {
        finish(&ring, &taken);
    }
}
static void take_next_and_go(void)
{
    take_next();
    go();
}
/* Asleep while the window is full. */
static void take_when_there_is_room(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(model_self());
    shmq_taken taken;
    for (;;) {
        const uint32_t seen = shmq_wait_begin(actor->member);
        const int64_t answer = shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken);
        if (answer == 1) {
            finish(&ring, &taken);
            return;
        }
        if (answer != SHMQ_EDGE) {
            model_fault("who waits for room is told %lld", (long long)answer);
        }
        shmq_wait(actor->member, seen, -1);
    }
}
static void move_it(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(0);
    if (shmq_ring_moving(&ring, &taken) == SHMQ_OK) {
        store_release(&the_words()[0], load_relaxed(&the_words()[0]) + 1); /* stands for the copy */
        end_with(shmq_ring_ack(&ring, &taken), 0);
    }
    go();
}
static void move_it_and_stay(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(0);
    if (shmq_ring_moving(&ring, &taken) == SHMQ_OK) {
        end_with(shmq_ring_ack(&ring, &taken), 0);
    }
}
static void move_parked(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(1);
    if (shmq_ring_moving(&ring, &taken) == SHMQ_OK) {
        end_with(shmq_ring_ack(&ring, &taken), 0);
    }
    go();
}
static void count_moved(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_ring_count_moved(&ring, false);
}
static void count_unmoved(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_ring_count_unmoved(&ring);
}

/* What the dead first one held, and nothing else. */
static void reap_first(void)
{
    struct shmq_ring ring = newcomer(model_self());
    ring.slots = 1;
    shmq_ring_join(&ring);
    work_off(&ring, false);
}

/* ------------------------------------------------------------------ setups */
static void setup_parked(void)
{
    begin(1);
    struct shmq_ring ring = member(5);
    ring.member = &stage.members[2];
    shmq_taken taken = hand(5, 0, &ring);
    shmq_ring_nack(&ring, &taken, 0, 0);
}
static void setup_held(void)
{
    begin(1);
    struct shmq_ring ring = member(0);
    hand(0, 0, &ring);
}
static void setup_held_with_lease(void)
{
    begin(1);
    struct shmq_ring ring = member_with_lease(0);
    hand(0, 0, &ring);
}
static void setup_held_parked(void)
{
    begin(1);
    struct shmq_ring ring = member(0);
    hand_parked(0, &ring);
    memory_heed(&the_block()->used);
}
static void setup_held_parked_with_lease(void)
{
    begin(1);
    struct shmq_ring ring = member_with_lease(0);
    hand_parked(0, &ring);
}
static void setup_one_each(void)
{
    begin(2);
    for (uint32_t i = 0; i < 2; i++) {
        struct shmq_ring ring = member(i);
        shmq_taken taken;
        shmq_ring_take(&ring, stage.actors[i].chunk, &stage.actors[i].reader, 1, 0, &taken);
        stage.actors[i].notes[3] = taken.word;
        stage.actors[i].notes[1] |= UINT64_C(1) << i;
    }
    memory_heed(&the_block()->used);
}
/* Member 0 holds message 0, those up to the edge of the window are finished, and one lies behind it. */
static void setup_edge(void)
{
    begin(5);
    struct shmq_ring ring = member(0);
    hand(0, 0, &ring);
    for (uint64_t i = 1; i < 4; i++) {
        *the_word(i) = RING_DONE;
    }
    shmq_reader_seek(stage.actors[1].chunk, &stage.actors[1].reader, 4);
}
static void setup_edge_of_dead(void)
{
    setup_edge();
    kernel_drop(0);
}
/* A window of one message, which member 0 holds. */
static void setup_full(void)
{
    begin(5);
    for (uint32_t i = 0; i < 4; i++) {
        *the_word(i) = ring_low(stage.members[0].owner, 1, RING_CLAIMED);
    }
    stage.actors[0].notes[3] = *the_word(0);
    the_checkpoint()->handed = 4;
}
/* The first of a window of four is held by one who does nothing, the next by members 0 and 1, as far as there are `held`; the
 * rest is finished. Who has walked to the edge may park the first when the others are finished. */
static void begin_held_at_edge(uint32_t held)
{
    begin(5);
    for (uint32_t i = 0; i < 4; i++) {
        const struct shmq_member *const holder = &stage.members[i == 0 ? 2 : i - 1];
        *the_word(i) = i <= held ? ring_low(holder->owner, 1, RING_CLAIMED) : RING_DONE;
        if (i != 0 && i <= held) {
            stage.actors[i - 1].notes[3] = *the_word(i);
        }
    }
    the_checkpoint()->handed = 4;
    for (uint32_t t = 1; t < 3; t++) {
        shmq_reader_seek(stage.actors[t].chunk, &stage.actors[t].reader, 4);
    }
}
static void setup_one_of_two_at_edge(void) { begin_held_at_edge(1); }
static void setup_two_of_three_at_edge(void) { begin_held_at_edge(2); }
/* Somebody sleeps there until two of them are finished. */
static void setup_two_wanted_at_edge(void)
{
    begin_held_at_edge(2);
    the_ring()->edge = 2;
}
static void setup_first_seat_is_free(void)
{
    begin(2);
    the_ring()->tenants[0] = 0;
}
static void setup_two(void) { begin(2); }
static void setup_two_of_four_held(void)
{
    begin(4);
    struct shmq_ring ring = member(5);
    ring.member = &stage.members[2];
    hand(5, 0, &ring);
    hand(5, 1, &ring);
    stage.actors[0].notes[2] = 3; /* who has them is not on the stage */
}
static void setup_counted(void)
{
    begin(0);
    memory_heed(&the_ring()->moved);
    memory_heed(&the_ring()->unmoved);
}
static void setup_lease_of_dead(void)
{
    setup_held_with_lease();
    memory_heed(&the_ring()->redelivered);
}
static void setup_two_reap(void)
{
    setup_held();
    kernel_drop(0);
    memory_heed(&the_ring()->redelivered);
}
static void setup_two_reap_parked(void)
{
    setup_held_parked();
    kernel_drop(0);
    memory_heed(&the_ring()->redelivered);
}
static void setup_padding(void)
{
    begin(0);
    const shmq_fields nothing = {.time_ns = INT64_MIN};
    uint64_t claimed;
    uint64_t record;
    uint64_t payload;
    shmq_reserve(stage.actors[2].chunk, &nothing, 8, &claimed, &record, &payload);
    shmq_abort(stage.actors[2].chunk, record, claimed);
    memory_quiet(&the_control()->padded);
}
static void put_timed(uint16_t flag, int64_t when)
{
    const struct field_when field = {.boottime_ns = when};
    const uint64_t tag = 0;
    const shmq_fields fields = {.time_ns = 1, .fixed_flags = flag, .fixed = (const char *)&field};
    shmq_put_record(stage.actors[5].chunk, &fields, (const char *)&tag, sizeof tag);
}
static void setup_delayed(void)
{
    begin(0);
    put_timed(RECORD_DELAY, AFTER);
}
static void setup_delayed_parked(void)
{
    setup_delayed();
    struct shmq_ring ring = member(5);
    ring.member = &stage.members[2];
    shmq_taken taken;
    shmq_ring_take(&ring, stage.actors[5].chunk, &stage.actors[5].reader, 1, 0, &taken);
}
static void setup_expired(void)
{
    begin(0);
    put_timed(RECORD_EXPIRY, 1);
    memory_heed(&the_ring()->expired);
    memory_heed(&the_control()->expired);
}

/* Two messages, of which the group wants the second one. */
static void setup_unwanted(void)
{
    static const uint16_t types[] = {1};
    static shmq_filter *filter; /* for ever: each execution asks the same */
    if (filter == NULL) {
        filter = shmq_filter_new("", 0, types, 1, "", 0);
    }
    begin(0);
    window = 4;
    for (uint64_t tag = 0; tag < 2; tag++) {
        const shmq_fields fields = {.time_ns = 1, .type = tag == 1};
        shmq_put_record(stage.actors[5].chunk, &fields, (const char *)&tag, sizeof tag);
    }
    stage.actors[0].reader.filter = stage.actors[1].reader.filter = filter;
}
static void setup_unwanted_and_lap(void)
{
    setup_unwanted();
    window = 1;
}

/* ------------------------------------------------------------------ what must hold at the end */
static void check_once(uint32_t messages)
{
    for (uint64_t i = 0; i < messages; i++) {
        uint32_t ends = 0;
        for (uint32_t t = 0; t < THREADS; t++) {
            ends += ended(t, i);
        }
        if (ends > 1) {
            model_fault("message %llu was finished %u times", (unsigned long long)i, ends);
        }
        if (ends == 0 && (!model_is_dead(0) && !model_is_dead(1))) {
            model_fault("message %llu was finished by nobody", (unsigned long long)i);
        }
    }
}
static void check_head(uint64_t wanted)
{
    if (the_checkpoint()->head != wanted) {
        model_fault("the head stands at %llu of %llu", (unsigned long long)the_checkpoint()->head,
                    (unsigned long long)wanted);
    }
}
static void check_table_empty(void)
{
    for (uint64_t i = 1; i <= SIDE_ENTRIES; i++) {
        if ((the_entry(i)->state & 7) != SIDE_FREE || the_entry(i)->index != 0) {
            model_fault("entry %llu is left with state %#llx, index %llu", (unsigned long long)i,
                        (unsigned long long)the_entry(i)->state, (unsigned long long)the_entry(i)->index);
        }
    }
    if (the_block()->used != 0 && !model_is_dead(0) && !model_is_dead(1)) {
        model_fault("an empty table says that %lld entries are used", (long long)the_block()->used);
    }
}
static void check_one(void)
{
    check_once(1);
    check_head(1);
    check_table_empty();
}
static void check_one_for_second(void)
{
    check_one();
    if (!ended(1, 0)) {
        model_fault("who waited for it did not get it");
    }
}
/* What nobody has had time to finish is still in the table, or in the window, for whoever comes. */
static void check_lease(void)
{
    const bool both = ended(0, 0) && ended(1, 0);
    if (both) {
        model_fault("two ends of one message were both accepted");
    }
    if (had(1, 0) && !ended(1, 0)) {
        model_fault("whom it was given to could not finish it");
    }
}
static void check_extended(void)
{
    if (ended(0, 0) && had(1, 0)) {
        model_fault("a lease was extended, and the message taken away");
    }
    check_lease();
}
static void check_two_parked(void)
{
    check_head(2);
    uint64_t found = 0;
    for (uint64_t i = 1; i <= SIDE_ENTRIES; i++) {
        found |= (the_entry(i)->state & 7) == SIDE_LIVE ? UINT64_C(1) << (the_entry(i)->index - 1) : 0;
        if (the_entry(i)->due_ns != (uint64_t)NEVER || the_entry(i)->behind != 7) {
            model_fault("entry %llu is due at another time", (unsigned long long)i);
        }
    }
    if (found != 3 || the_block()->used != 2) {
        model_fault("two messages were parked, and the table has %llx, and says %llu", (unsigned long long)found,
                    (unsigned long long)the_block()->used);
    }
}
static void check_edge(void)
{
    check_once(1);
    if (ended(1, 4) && the_checkpoint()->head != 5) {
        model_fault("all is finished, and the head stands at %llu", (unsigned long long)the_checkpoint()->head);
    }
    if (!ended(1, 4)) {
        model_fault("a straggler holds the window up");
    }
    check_table_empty();
}
static void check_edge_of_dead(void)
{
    check_head(5);
    for (uint64_t i = 0; i < 5; i += 4) {
        if (ended(1, i) + ended(2, i) != 1 && !(i == 4 && model_is_dead(1))) {
            model_fault("message %llu was finished %u times", (unsigned long long)i, ended(1, i) + ended(2, i));
        }
    }
    check_table_empty();
}
static void check_nobody_sleeps_at_edge(void)
{
    if (the_ring()->edge != 0) {
        model_fault("both are finished, and who sleeps at the edge waits for %llu more",
                    (unsigned long long)the_ring()->edge);
    }
}
static void check_room(void)
{
    if (!ended(1, 4)) {
        model_fault("there was room, and nobody used it");
    }
}
static void check_room_for_third(void)
{
    if (!ended(2, 4)) {
        model_fault("what holds the window up could be parked, and nobody did");
    }
}
static void check_killed(void)
{
    check_once(1);
    check_head(1);
    check_table_empty();
}
static void check_moved(void)
{
    check_killed();
    if (the_words()[0] != 0 && had(1, 0) && stage.actors[1].notes[0] == 0) {
        model_fault("a copy was made, and nobody is told that it may be there");
    }
}
static void check_two_counted(void)
{
    if (the_ring()->moved + the_ring()->unmoved != 2) {
        model_fault("two were moved, or not, and %llu are counted",
                    (unsigned long long)(the_ring()->moved + the_ring()->unmoved));
    }
}
static void check_redelivered(void)
{
    check_once(1);
    check_head(1);
    if (the_ring()->redelivered != 1) {
        model_fault("one message came back, and %llu are counted", (unsigned long long)the_ring()->redelivered);
    }
}
static void check_all_joined(void)
{
    check_once(2);
    check_head(2);
}
static void check_four(void) { check_once(4); }
static void check_padding(void) { check_head(1); }
static void check_unwanted(void)
{
    check_head(2);
    for (uint32_t t = 0; t < 2; t++) {
        if (had(t, 0)) {
            model_fault("member %u was handed what the group does not want", t);
        }
    }
    if (had(0, 1) + had(1, 1) != 1 && !model_is_dead(0)) {
        model_fault("what the group wants was handed out %d times", had(0, 1) + had(1, 1));
    }
}
static void check_expired(void)
{
    check_head(1);
    if (the_ring()->expired != 1 || had(0, 0) || had(1, 0)) {
        model_fault("one message was too old, and %llu are counted", (unsigned long long)the_ring()->expired);
    }
}

/* ------------------------------------------------------------------ more to do */
static void return_and_again(void)
{
    return_it();
    struct shmq_ring ring = newcomer(model_self());
    shmq_taken taken;
    int64_t next;
    if (shmq_ring_retake(&ring, false, 1, &taken, &next) == 1) {
        if (taken.attempts != 2) {
            model_fault("it was handed out twice, and says %u times", taken.attempts);
        }
        finish(&ring, &taken);
    }
}
static void again(void)
{
    struct shmq_ring ring = newcomer(model_self());
    shmq_taken taken;
    int64_t next;
    if (shmq_ring_retake(&ring, false, 1, &taken, &next) == 1) {
        if (taken.attempts != 2) {
            model_fault("it was handed out twice, and says %u times", taken.attempts);
        }
        finish(&ring, &taken);
    }
}
/* Message 0 in one lap of a window of one message, message 1 in the next. */
static struct shmq_ring narrow(uint32_t thread)
{
    struct shmq_ring ring = member(thread);
    ring.window = 1;
    ring.window_shift = 0;
    return ring;
}
static void prepare_one(void)
{
    struct shmq_ring ring = member(model_self());
    actor_self()->notes[0] = (uint64_t)side_prepare(&ring, model_self(), side_then(&ring, 0, 0, 1, SIDE_LIVE), 0, 0, 0);
}
static void prepare_and_release(void)
{
    struct shmq_ring ring = member(model_self());
    side_release(&ring, (uint64_t)side_prepare(&ring, model_self(), side_then(&ring, 0, 0, 1, SIDE_LIVE), 0, 0, 0));
}
static void check_two_prepared(void)
{
    if (stage.actors[0].notes[0] + stage.actors[1].notes[0] != 3 || the_block()->used != 2) {
        model_fault("two entries were found: %llu and %llu, and %llu are counted",
                    (unsigned long long)stage.actors[0].notes[0], (unsigned long long)stage.actors[1].notes[0],
                    (unsigned long long)the_block()->used);
    }
}
static void park_in_miscounted(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(0);
    if (shmq_ring_nack(&ring, &taken, NEVER, 0) != SHMQ_OK) {
        model_fault("an empty block is taken for a full one");
    }
}
/* Somebody was killed between taking an entry and counting it; it is free again. */
static void setup_miscounted(void)
{
    setup_held();
    the_block()->used = UINT64_MAX;
}
static void setup_laps(void)
{
    begin(2);
    memory_quiet(&the_ring()->edge);
}
static void lap_first(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = narrow(model_self());
    shmq_taken taken;
    if (shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1 && taken.index == 0) {
        finish(&ring, &taken);
    }
}
static void lap_second(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = narrow(model_self());
    shmq_taken taken;
    int64_t next;
    if (shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1 && taken.index == 1) {
        shmq_ring_return(&ring, &taken);
        ring.returns_seen = UINT64_MAX;
        if (shmq_ring_retake(&ring, false, 1, &taken, &next) == 1) {
            if (taken.attempts != 2 || taken.index != 1) {
                model_fault("message %llu was handed out twice, and says %u times", (unsigned long long)taken.index,
                            taken.attempts);
            }
            finish(&ring, &taken);
        }
    }
}
static void check_laps(void)
{
    for (uint64_t i = 0; i < 2; i++) {
        if (ended(0, i) + ended(1, i) > 1) {
            model_fault("message %llu was finished twice", (unsigned long long)i);
        }
    }
    if (ended(1, 1)) {
        check_head(2);
    }
}
static void raise_head_to_one(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_ring_raise_head(&ring, 1);
}
static void setup_second_held(void)
{
    setup_one_each();
    *the_word(0) = RING_DONE;
}
/* Message 0 is at the end of one lap of a window of one, message 1 at the beginning of the next. */
static void setup_lap(void)
{
    begin(2);
    window = 1;
    struct shmq_ring ring = member(0);
    hand(0, 0, &ring);
    shmq_reader_seek(stage.actors[1].chunk, &stage.actors[1].reader, 1);
}
static void take_in_next_lap(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(1);
    shmq_taken taken;
    const int64_t answer = shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken);
    if (answer != SHMQ_EDGE && (answer != 1 || taken.index != 1)) {
        model_fault("a message that nobody has was passed over: %lld", (long long)answer);
    }
}
static void check_raised(void) { check_head(2); }
static void check_delayed(void)
{
    check_head(1);
    if (ended(0, 0) + ended(1, 0) > 1) {
        model_fault("a delayed message was finished twice");
    }
    const bool waits = (the_entry(1)->state & 7) == SIDE_LIVE || (the_entry(2)->state & 7) == SIDE_LIVE;
    if (waits == (ended(0, 0) || ended(1, 0))) {
        model_fault("a delayed message is lost, or still there when it is finished");
    }
}
static void look_until_it_comes(void)
{
    struct shmq_ring ring = member(model_self());
    work_off(&ring, false);
    model_until(time_has_passed);
    work_off(&ring, false);
}
static void nack_parked_and_go(void)
{
    nack_parked();
    go();
}
static void reap_when_first_is_gone(void)
{
    model_until(first_is_gone);
    memory_acquire(0);
    reap_first();
}
/* The kernel says that the first is dead, and it is not. */
static void lose_first(void)
{
    model_step(1);
    kernel_drop(0);
}
static void nack_if_mine(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(0);
    actor_self()->notes[0] = shmq_ring_nack(&ring, &taken, 0, 0) == SHMQ_OK;
}
static void nack_parked_if_mine(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(1);
    actor_self()->notes[0] = shmq_ring_nack(&ring, &taken, 0, 0) == SHMQ_OK;
}
static void reap_when_lost(void)
{
    model_until(first_is_gone);
    reap_first();
}
static void check_back_or_taken(void)
{
    uint32_t waits = 0;
    for (uint64_t i = 1; i <= SIDE_ENTRIES; i++) {
        waits += (the_entry(i)->state & 7) == SIDE_LIVE;
    }
    const uint64_t word = *the_word(0) & 7;
    waits += word == RING_RETRY;
    if (ended(0, 0) + ended(1, 0) + waits != 1) {
        model_fault("a message was finished %u times, and waits %u times", ended(0, 0) + ended(1, 0), waits);
    }
}
/* A plain reader of its own name. */
static void read_timed(void)
{
    struct actor *const actor = actor_self();
    actor->reader.checkpoint = the_checkpoint();
    if (shmq_next(actor->chunk, &actor->reader, 0) != SHMQ_EMPTY) {
        model_fault("what was too old is handed out");
    }
}
static void check_both_counted(void)
{
    if (the_control()->expired != 2) {
        model_fault("two names passed it, and %llu are counted", (unsigned long long)the_control()->expired);
    }
}
static void reuse_entry(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(0);
    if (shmq_ring_nack(&ring, &taken, 0, 0) != SHMQ_OK) {
        model_fault("what is mine cannot be given back");
    }
}
/* Member 0 holds message 0 in entry 1, the only one that is free by and by; member 1 holds message 1 in the window. */
static void setup_reuse(void)
{
    begin(2);
    struct shmq_ring first = member(0);
    hand_parked(0, &first);
    struct shmq_ring second = member(1);
    hand(1, 1, &second);
}
static void check_reuse(void)
{
    if (!ended(0, 0) || ended(2, 0)) {
        model_fault("message 0 was finished by another than its holder");
    }
    const bool waits = (the_entry(1)->state & 7) == SIDE_LIVE || (the_entry(2)->state & 7) == SIDE_LIVE;
    if (waits == ended(2, 1)) {
        model_fault("message 1 is lost, or twice there");
    }
    check_head(2);
}

/* ------------------------------------------------------------------ room, and what is dropped for it */
static void begin_bounds_with(void (*setup)(void))
{
    setup();
    the_control()->bounds = 1;
    memory_quiet(&the_control()->bounds);
    memory_quiet(&the_checkpoint()->dropped);
    the_ring()->tenants[2] = 1;
}
static void setup_held_bounded(void) { begin_bounds_with(setup_held); }
static void setup_held_parked_bounded(void) { begin_bounds_with(setup_held_parked); }
static void setup_parked_bounded(void) { begin_bounds_with(setup_parked); }
static void setup_one_bounded(void)
{
    begin(1);
    the_control()->bounds = 1;
    the_ring()->tenants[2] = 1;
    memory_quiet(&the_checkpoint()->dropped);
}
/* A producer that waits until the group has finished message 0. */
static void wait_for_the_group(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(model_self());
    for (;;) {
        const uint32_t seen = shmq_room_begin(actor->member);
        if (shmq_ring_lowest(&ring) >= 1) {
            return;
        }
        shmq_room_wait(actor->member, seen, -1);
    }
}
/* One that waits until it may drop message 0, and drops it. */
static void wait_and_drop(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(model_self());
    for (;;) {
        const uint32_t seen = shmq_room_begin(actor->member);
        if (shmq_ring_held(&ring, 1) == 1) {
            shmq_ring_drop(&ring, 1);
        }
        if (shmq_ring_lowest(&ring) >= 1) {
            return;
        }
        shmq_room_wait(actor->member, seen, -1);
    }
}
static void drop_first(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_ring_drop(&ring, 1);
}
static void retire_first(void)
{
    struct shmq_ring ring = member(model_self());
    actor_self()->notes[0] = (uint64_t)shmq_ring_retire(&ring, 1);
}
/* Drop it, or find that somebody has it; then nothing of it comes any more to us. */
static void drop_and_look(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_ring_drop(&ring, 1);
    ring.returns_seen = ring.side_seen = UINT64_MAX;
    work_off(&ring, true);
    if (had(model_self(), 0)) {
        model_fault("what was dropped was handed out afterwards");
    }
}
/* A window of one: message 1 lies behind it as long as message 0 is held. */
static void setup_held_before_another(void)
{
    begin(2);
    window = 1;
    the_control()->bounds = 1;
    the_ring()->tenants[2] = 1;
    memory_quiet(&the_checkpoint()->dropped);
    memory_quiet(&the_ring()->edge);
    struct shmq_ring ring = member(0);
    hand(0, 0, &ring);
}
static void setup_purged_behind_the_window(void)
{
    setup_held_before_another();
    struct shmq_ring ring = member(0);
    shmq_ring_drop(&ring, 2);
}
static void walk_over_nothing(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(model_self());
    shmq_taken taken;
    while (shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1) {
        model_fault("what lay behind the window when it was dropped was handed out afterwards");
    }
}
/* One that may have had message 1 just before it was dropped. */
static void walk_to_the_end(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(model_self());
    shmq_taken taken;
    while (shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1) {
        finish(&ring, &taken);
    }
}
static void check_both_over(void)
{
    check_head(2);
    if ((the_checkpoint()->dropped != 0) == ended(2, 1)) {
        model_fault("dropped and had, or neither");
    }
}
static void check_had_or_dropped(void)
{
    check_head(1);
    if ((had(0, 0) || had(1, 0)) != (ended(0, 0) || ended(1, 0))) {
        model_fault("whoever was handed a message cannot finish it");
    }
    if ((the_checkpoint()->dropped != 0) == (ended(0, 0) || ended(1, 0))) {
        model_fault("dropped and had, or neither");
    }
}
/* It was finished by its holder, or is lost and counted. */
static void check_had_or_retired(void)
{
    check_head(1);
    if ((stage.actors[1].notes[0] != 0) == ended(0, 0)) {
        model_fault("retired and finished, or neither");
    }
}

static void skip_first(void)
{
    struct shmq_ring ring = member(model_self());
    actor_self()->notes[0] = shmq_ring_skip_one(&ring, 0) == SHMQ_OK;
}
static void check_had_or_skipped(void)
{
    if ((stage.actors[1].notes[0] != 0) == had(0, 0)) {
        model_fault("skipped and handed out, or neither");
    }
}

/* ------------------------------------------------------------------ the end of a stream */
static void setup_held_to_the_end(void)
{
    setup_held();
    memory_heed(&the_control()->shut_down);
}
static void setup_one_each_at_the_end(void)
{
    setup_one_each();
    shmq_shut_down(the_control(), 1);
    memory_heed(&the_control()->shut_down);
}
static void end_it(void)
{
    shmq_shut_down(the_control(), 1);
    shmq_wake_always(the_control());
}
/* A member that holds nothing, and is told of the end when all is finished. */
static void wait_for_the_end(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(model_self());
    for (;;) {
        const uint32_t seen = shmq_wait_begin(actor->member);
        if (shmq_is_shut_down(the_control()) != 0 && shmq_ring_drained(&ring, false)) {
            return;
        }
        shmq_wait(actor->member, seen, -1);
    }
}
/* One that holds a message, and is told of the end when all is with such. */
static void hold_to_the_end(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(model_self());
    for (;;) {
        const uint32_t seen = shmq_wait_begin(actor->member);
        shmq_ring_rest(&ring, true);
        if (shmq_ring_drained(&ring, true)) {
            return;
        }
        shmq_wait(actor->member, seen, -1);
    }
}

/* ------------------------------------------------------------------ who is next sees what was done */
/* What is done for a message, as plain memory: whoever works at it next, or is told that it is finished, is behind it. */
static void work_at(uint64_t index)
{
    uint64_t done;
    uint64_t *const at = the_words() + 40 + index;
    shared_read(&done, at, sizeof done);
    done++;
    shared_write(at, &done, sizeof done);
}
/* In a block that is looked through in any case: nothing but the entry itself orders anybody. */
static void setup_held_parked_in_a_due_block(void)
{
    setup_held_parked();
    the_block()->due = 0;
}
static void work_off_with_care(shmq_ring *ring)
{
    shmq_taken taken;
    int64_t next;
    while (shmq_ring_retake(ring, true, 1, &taken, &next) == 1) {
        work_at(taken.index);
        finish(ring, &taken);
    }
}
static void work_and_return(void)
{
    work_at(0);
    return_it();
}
static void work_and_nack(void)
{
    work_at(0);
    nack_it();
}
static void work_and_nack_parked(void)
{
    work_at(0);
    nack_parked();
}
static void work_and_ack(void)
{
    work_at(0);
    ack_it();
}
static void work_and_ack_parked(void)
{
    work_at(0);
    ack_parked();
}
static void take_next_with_care(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(model_self());
    shmq_taken taken;
    if (shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1) {
        work_at(taken.index);
        finish(&ring, &taken);
    }
}
static void look_with_care(void)
{
    struct shmq_ring ring = newcomer(model_self());
    work_off_with_care(&ring);
}
/* As retention does, and a producer that waits for room. */
static void ask_for_the_lowest(void)
{
    struct shmq_ring ring = member(model_self());
    if (shmq_ring_lowest(&ring) >= 1) {
        work_at(0);
    }
}
static void ask_for_the_end(void)
{
    struct shmq_ring ring = member(model_self());
    if (shmq_ring_drained(&ring, false)) {
        work_at(0);
    }
}
static void ask_how_many(void)
{
    struct shmq_ring ring = member(model_self());
    uint64_t head;
    uint64_t lowest;
    if (shmq_ring_unfinished(&ring, 0, 1, &head, &lowest) == 0) {
        work_at(0);
    }
}
/* Message 0 is finished, and stays in the window for want of somebody who moves the head. */
static void park_and_settle(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(0);
    work_at(0);
    shmq_ring_nack(&ring, &taken, 0, 0);
}

/* ------------------------------------------------------------------ two at once, and a third who waits for both */
static void return_mine(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = {.index = model_self(), .word = actor_self()->notes[3], .attempts = 1};
    shmq_ring_return(&ring, &taken);
}
static void wait_for_both(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(model_self());
    for (;;) {
        const uint32_t seen = shmq_wait_begin(actor->member);
        work_off(&ring, false);
        if (had(model_self(), 0) && had(model_self(), 1)) {
            return;
        }
        shmq_wait(actor->member, seen, -1);
    }
}
static void raise_head_to_two(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_ring_raise_head(&ring, 2);
}
static void setup_three(void) { begin(3); }
static void check_head_of_two(void) { check_head(2); }
static void drop_two(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_ring_drop(&ring, 2);
}
static void check_dropped_to(void)
{
    if (the_ring()->dropped_to != 2) {
        model_fault("dropped up to 2, and it says %llu", (unsigned long long)the_ring()->dropped_to);
    }
    check_head(2);
}
static void setup_two_bounded(void)
{
    begin_bounds_with(setup_three);
    memory_heed(&the_ring()->dropped_to);
}

/* ------------------------------------------------------------------ finished, as shut down */
static void setup_held_to_the_finish(void)
{
    setup_held();
    memory_heed(&the_control()->finished);
}
static void finish_the_stream(void)
{
    shmq_set_finished(the_control(), FINISHED);
    shmq_seal(actor_self()->chunk);
    shmq_wake_always(the_control());
}
static void wait_for_the_finish(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(model_self());
    for (;;) {
        const uint32_t seen = shmq_wait_begin(actor->member);
        if (shmq_finished(the_control()) == FINISHED && shmq_ring_drained(&ring, false)) {
            return;
        }
        shmq_wait(actor->member, seen, -1);
    }
}
static void put_or_be_told(void)
{
    actor_put();
    if (actor_self()->puts[0].answer == SHMQ_ROLL && shmq_finished(the_control()) != FINISHED) {
        model_fault("the chunk is sealed, and nobody says that the stream has ended");
    }
}

/* ------------------------------------------------------------------ forwarded: one copy, whoever dies
 * What was put into another queue is a number here. Who knows of no earlier try puts without a look. */
static void forward_taken(shmq_ring *ring, shmq_taken *taken)
{
    bool again = false;
    actor_self()->notes[1] |= UINT64_C(1) << taken->index;
    const int code = shmq_ring_forward(ring, taken, &again);
    if (code != SHMQ_OK) {
        end_with(code, taken->index);
        return;
    }
    if (!again || load_relaxed(&the_words()[0]) == 0) {
        store_relaxed(&the_words()[0], load_relaxed(&the_words()[0]) + 1);
    }
    end_with(shmq_ring_ack(ring, taken), taken->index);
}
static void forward_it(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(0);
    forward_taken(&ring, &taken);
}
static void forward_parked(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(1);
    forward_taken(&ring, &taken);
}
static void forward_it_and_go(void)
{
    forward_it();
    go();
}
static void forward_parked_and_go(void)
{
    forward_parked();
    go();
}
/* It puts, finds no room in the next queue, and gives the message back. */
static void forward_and_fail(uint64_t entry)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(entry);
    bool again = false;
    if (shmq_ring_forward(&ring, &taken, &again) == SHMQ_OK) {
        store_relaxed(&the_words()[0], load_relaxed(&the_words()[0]) + 1);
        if (shmq_ring_nack(&ring, &taken, 0, 0) != SHMQ_OK) {
            model_fault("what is being forwarded cannot be given back");
        }
    }
}
static void forward_it_and_fail(void) { forward_and_fail(0); }
static void forward_parked_and_fail(void) { forward_and_fail(1); }
static void forward_what_comes(shmq_ring *ring)
{
    shmq_taken taken;
    int64_t next;
    while (shmq_ring_retake(ring, false, 1, &taken, &next) == 1) {
        forward_taken(ring, &taken);
    }
}
static void forward_all_after_first(void)
{
    model_until(first_is_gone);
    memory_acquire(0);
    struct shmq_ring ring = newcomer(model_self());
    shmq_ring_join(&ring);
    forward_what_comes(&ring);
}
static void forward_behind_a_lease(void)
{
    struct shmq_ring ring = member_with_lease(model_self());
    forward_what_comes(&ring);
    ring.leases_ns = 0;
    ring.side_seen = UINT64_MAX; /* what is parked is taken by the look behind the one that ends its lease */
    forward_what_comes(&ring);
}
static void forward_all_that_comes(void)
{
    struct shmq_ring ring = newcomer(model_self());
    forward_what_comes(&ring);
}
/* Nothing is put, and it is held as before. */
static void begin_and_keep(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(0);
    bool again = false;
    if (shmq_ring_forward(&ring, &taken, &again) == SHMQ_OK && shmq_ring_unforward(&ring, &taken) != SHMQ_OK) {
        model_fault("what is being forwarded cannot be kept");
    }
    finish(&ring, &taken);
}
static void begin_and_keep_parked(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(1);
    bool again = false;
    if (shmq_ring_forward(&ring, &taken, &again) == SHMQ_OK && shmq_ring_unforward(&ring, &taken) != SHMQ_OK) {
        model_fault("what is being forwarded cannot be kept");
    }
    finish(&ring, &taken);
}
static void check_copies(void)
{
    const uint64_t copies = the_words()[0];
    if (copies > 1 || (copies == 0 && (ended(0, 0) || ended(1, 0)))) {
        model_fault("a message was forwarded, and %llu copies are there", (unsigned long long)copies);
    }
}
static void check_forwarded(void)
{
    check_copies();
    check_once(1);
    check_head(1);
    if (the_words()[0] != 1) {
        model_fault("a message is finished, and %llu copies are there", (unsigned long long)the_words()[0]);
    }
}

/* ------------------------------------------------------------------ two who do the same to one entry, or one seat */
static void advance_head(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_ring_advance(&ring);
}
/* Message 0 lies in entry 1 as far as the commit: whoever finds it there makes it what it was prepared for. */
static void setup_unsettled(void)
{
    begin(1);
    struct shmq_ring ring = member(2);
    side_prepare(&ring, 0, side_then(&ring, 0, 0, 1, SIDE_LIVE), 0, 0, 0);
    *the_word(0) = UINT64_C(1) << RING_COUNT_SHIFT | RING_PARKED;
    the_ring()->tenants[2] = 1;
}
static void settle_entry(void)
{
    struct shmq_ring ring = member(model_self());
    side_settle(&ring, 1);
}
static void settle_and_take(void)
{
    settle_entry();
    struct shmq_ring ring = newcomer(model_self());
    work_off(&ring, true);
    ring_advance(&ring);
}
/* What the dead member 0 had in the table, by the table alone. */
static void reap_table(void)
{
    struct shmq_ring ring = member(model_self());
    side_reap(&ring, stage.members[0].owner);
}
static void reap_table_and_take(void)
{
    reap_table();
    struct shmq_ring ring = newcomer(model_self());
    work_off(&ring, true);
}
static void reap_table_and_prepare(void)
{
    reap_table();
    prepare_one();
}
static void setup_dead_in(uint32_t state)
{
    setup_held_parked();
    kernel_drop(0);
    the_entry(1)->state = (the_entry(1)->state & ~UINT64_C(7)) | state;
}
static void setup_dead_moving(void) { setup_dead_in(SIDE_MOVING); }
static void setup_dead_ending(void)
{
    setup_dead_in(SIDE_ENDING);
    the_entry(2)->state = ring_low(stage.members[2].owner, 0, SIDE_PREPARED); /* no other one is free */
    the_block()->used = 1;
}
static void check_prepared(void)
{
    const uint64_t entry = stage.actors[1].notes[0];
    if (entry != 1 || (the_entry(1)->state & 7) != SIDE_PREPARED) {
        model_fault("an entry was prepared, and it is in state %llu", (unsigned long long)the_entry(1)->state & 7);
    }
}
static void move_parked_if_mine(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(1);
    if (shmq_ring_moving(&ring, &taken) == SHMQ_OK) {
        end_with(shmq_ring_ack(&ring, &taken), 0);
    }
}
static void setup_next_in_seat(void)
{
    begin(1);
    stage.members[0].owner = owner_make(0, 2);
    the_control()->participants[0].generation = 2;
}
static void enter_seat(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_ring_join(&ring);
}
static void check_seat(void)
{
    if (the_ring()->tenants[0] != 2 || the_ring()->tenants[1] != 1) {
        model_fault("a member entered, and the ring does not know it: %llu, %llu",
                    (unsigned long long)the_ring()->tenants[0], (unsigned long long)the_ring()->tenants[1]);
    }
}
/* Both messages in the table, each with its holder, and nothing in it is due. */
static void setup_two_held_parked(void)
{
    begin(2);
    for (uint32_t i = 0; i < 2; i++) {
        struct shmq_ring ring = member(i);
        shmq_taken taken = hand(i, i, &ring);
        int64_t next;
        shmq_ring_nack(&ring, &taken, 0, 0);
        ring.side_seen = UINT64_MAX;
        shmq_ring_retake(&ring, false, 1, &taken, &next);
        stage.actors[i].notes[2] = 0;
        stage.actors[i].notes[3] = taken.word;
    }
    the_block()->due = UINT64_MAX >> SIDE_DUE_SHIFT << SIDE_DUE_SHIFT;
    the_ring()->side_version = 0;
}
static void nack_mine_until(int64_t due_ns, uint64_t behind)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = {.index = model_self(), .word = actor_self()->notes[3], .attempts = 1, .entry = 1 + model_self()};
    if (shmq_ring_nack(&ring, &taken, due_ns, behind) != SHMQ_OK) {
        model_fault("what is mine cannot be given back");
    }
}
static void nack_mine(void) { nack_mine_until(0, 0); }
static void nack_mine_for_long(void) { nack_mine_until(AFTER, 7); }
static void check_due(void)
{
    if (the_entry(2)->due_ns != (uint64_t)AFTER || the_entry(2)->behind != 7) {
        model_fault("an entry says nothing of the time that it was given");
    }
    if (the_block()->due >> SIDE_DUE_SHIFT != 0) {
        model_fault("one is due at once, and its block at %llu", (unsigned long long)the_block()->due >> SIDE_DUE_SHIFT);
    }
}

/* ------------------------------------------------------------------ an entry of another message, a word of another lap */
/* Member 0 holds message 0 in entry 1 and message 1 in the window; no other entry is free. */
static void setup_one_entry(void)
{
    begin(2);
    struct shmq_ring ring = member(0);
    hand_parked(0, &ring);
    struct shmq_ring again = member(0);
    stage.actors[0].notes[0] = hand(0, 1, &again).word;
    stage.actors[0].notes[3] = the_entry(1)->state;
    stage.actors[0].notes[1] = 0;
    the_entry(2)->state = ring_low(stage.members[2].owner, 0, SIDE_PREPARED);
    the_block()->used = 1;
    the_ring()->tenants[2] = 1;
}
static void ack_and_park_the_next(void)
{
    const uint64_t word = actor_self()->notes[0];
    ack_parked();
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = {.index = 1, .word = word, .attempts = 1};
    if (shmq_ring_nack(&ring, &taken, 0, 0) != SHMQ_OK) {
        model_fault("what is mine cannot be given back");
    }
}
static void drop_of_the_table(void)
{
    struct shmq_ring ring = member(model_self());
    side_drop(&ring, 1);
}
/* The same, and message 1 is another's: it is parked if the entry is free by then. */
static void setup_one_entry_of_two(void)
{
    setup_one_entry();
    const uint64_t word = ring_low(stage.members[1].owner, 1, RING_CLAIMED);
    *the_word(1) = word;
    stage.actors[1].notes[3] = word;
}
static void park_if_there_is_room(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_taken taken = mine_in(0);
    actor_self()->notes[0] = shmq_ring_nack(&ring, &taken, 0, 0) == SHMQ_OK;
}
static void check_next_is_there(void)
{
    if (the_entry(1)->index != 2 || (the_entry(1)->state & 7) != SIDE_LIVE) {
        model_fault("what was parked is not there: index %llu, state %llu", (unsigned long long)the_entry(1)->index,
                    (unsigned long long)the_entry(1)->state & 7);
    }
}
static void check_next_if_parked(void)
{
    if (stage.actors[1].notes[0]) {
        check_next_is_there();
    }
}
static void check_next_or_had(void)
{
    if (had(1, 0)) {
        model_fault("what was finished is handed out");
    }
    if (!had(1, 1)) {
        check_next_is_there();
    }
}
/* Padding in one lap of a window of one, a message in the next. */
static void setup_padding_and_lap(void)
{
    setup_padding();
    const uint64_t tag = 1;
    shmq_put(stage.actors[5].chunk, (const char *)&tag, sizeof tag);
    memory_quiet(&the_ring()->edge);
}
static void check_behind_padding(void)
{
    if (ended(0, 1) + ended(1, 1) > 1) {
        model_fault("a message behind padding was finished twice");
    }
    if (ended(0, 1) + ended(1, 1) == 1) {
        check_head(2);
    }
    if ((had(0, 1) || had(1, 1)) && !ended(0, 1) && !ended(1, 1)) {
        model_fault("whoever was handed a message cannot finish it");
    }
}
/* A group many windows behind what is retired. */
static void setup_far(void)
{
    begin(4);
    window = 1;
    the_control()->bounds = 1;
    the_ring()->tenants[2] = 1;
    memory_quiet(&the_ring()->edge);
}
static void retire_three(void)
{
    struct shmq_ring ring = member(model_self());
    actor_self()->notes[0] = (uint64_t)shmq_ring_retire(&ring, 3);
}
static void drop_three(void)
{
    struct shmq_ring ring = member(model_self());
    shmq_ring_drop(&ring, 3);
}
static void take_three(void)
{
    struct actor *const actor = actor_self();
    struct shmq_ring ring = member(model_self());
    shmq_taken taken;
    for (uint32_t i = 0; i < 3 && shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1; i++) {
        finish(&ring, &taken);
    }
}
/* It is stopped before it moves the head. */
static void work_and_finish_the_word(void)
{
    work_at(0);
    store_release(the_word(0), RING_DONE);
}
/* It says that message 0 is finished, and knows it from the word alone. */
static void leap_over_what_is_done(void)
{
    struct shmq_ring ring = member(model_self());
    if (ring_state(&ring, 0, load_relaxed(the_word(0))) == RING_DONE) {
        shmq_ring_retire(&ring, 3);
    }
}
static void check_far(void)
{
    uint64_t finished = 0;
    for (uint64_t i = 0; i < 3; i++) {
        finished += ended(0, i);
    }
    if (the_checkpoint()->head < 3 || finished + stage.actors[1].notes[0] != 3) {
        model_fault("%llu were finished, %llu retired, and the head stands at %llu", (unsigned long long)finished,
                    (unsigned long long)stage.actors[1].notes[0], (unsigned long long)the_checkpoint()->head);
    }
}

static void check_far_dropped(void)
{
    uint64_t finished = 0;
    for (uint64_t i = 0; i < 3; i++) {
        finished += ended(0, i);
    }
    if (the_checkpoint()->head < 3 || finished + the_checkpoint()->dropped != 3) {
        model_fault("%llu were finished, %llu dropped, and the head stands at %llu", (unsigned long long)finished,
                    (unsigned long long)the_checkpoint()->dropped, (unsigned long long)the_checkpoint()->head);
    }
}

/* ------------------------------------------------------------------ the table */
const struct scenario group_scenarios[] = {
    PLAY("ring_returned_work_is_seen", "who is handed what came back sees what was done for it", setup_held, NULL, NULL, 0,
         THREAD("member", work_and_return), THREAD("other", look_with_care)),
    PLAY("side_nacked_work_is_seen", "also out of the table", setup_held, NULL, NULL, 0, THREAD("member", work_and_nack),
         THREAD("other", look_with_care)),
    PLAY("side_parked_work_is_seen", "also when it was there before", setup_held_parked, NULL, NULL, 0,
         THREAD("member", work_and_nack_parked), THREAD("other", look_with_care)),
    PLAY("side_due_work_is_seen", "also when all look through that block", setup_held_parked_in_a_due_block, NULL, NULL, 0,
         THREAD("member", work_and_nack_parked), THREAD("other", look_with_care)),
    LARGE("side_passed_work_is_seen", "also through one who finished it in between", setup_held, NULL, NULL, 0,
          THREAD("member", park_and_settle), THREAD("other", look_with_care), THREAD("asker", ask_for_the_lowest)),
    PLAY("ended_work_is_seen", "who is told that it is finished sees what was done for it", setup_held, NULL, NULL, 0,
         THREAD("member", work_and_ack), THREAD("asker", ask_for_the_lowest)),
    PLAY("ended_work_is_seen_at_the_end", "also at the end of the stream", setup_held, NULL, NULL, 0,
         THREAD("member", work_and_ack), THREAD("asker", ask_for_the_end)),
    PLAY("ended_work_is_seen_when_counted", "also when what is left is counted", setup_held, NULL, NULL, 0,
         THREAD("member", work_and_ack), THREAD("asker", ask_how_many)),
    PLAY("ended_parked_work_is_seen", "also in the table", setup_held_parked, NULL, NULL, 0,
         THREAD("member", work_and_ack_parked), THREAD("asker", ask_for_the_lowest)),
    PLAY("ended_parked_work_is_seen_at_the_end", "also in the table", setup_held_parked, NULL, NULL, 0,
         THREAD("member", work_and_ack_parked), THREAD("asker", ask_for_the_end)),
    PLAY("ended_parked_work_is_seen_when_counted", "also in the table", setup_held_parked, NULL, NULL, 0,
         THREAD("member", work_and_ack_parked), THREAD("asker", ask_how_many)),
    PLAY("ended_work_is_seen_through_another", "also when another one moves the head", setup_held, NULL, NULL, 0,
         THREAD("member", work_and_ack), THREAD("mover", advance_head), THREAD("asker", ask_for_the_lowest)),
    PLAY("ended_work_is_seen_behind_a_leap", "also when another one moves it over many windows", setup_held, NULL, NULL, 0,
         THREAD("member", work_and_finish_the_word), THREAD("mover", leap_over_what_is_done), THREAD("asker", ask_for_the_lowest)),
    PLAY("side_two_settle", "what two make of a prepared entry, one of them has made", setup_unsettled, check_one, NULL, 0,
         THREAD("settler", settle_entry), THREAD("other", settle_and_take)),
    PLAY("side_two_reap_a_move", "also of a move that a dead one had begun", setup_dead_moving, check_one, NULL, 0,
         THREAD("dead", go), THREAD("taker", reap_table_and_take), THREAD("reaper", reap_table)),
    PLAY("side_two_reap_an_end", "also of an entry that a dead one was about to free", setup_dead_ending, check_prepared, NULL,
         0, THREAD("dead", go), THREAD("taker", reap_table_and_prepare), THREAD("reaper", reap_table)),
    PLAY("side_parked_move_races_redelivery", "B10, B14: who moves it away, or who takes over", setup_held_parked,
         check_back_or_taken, NULL, 0, THREAD("zombie", move_parked_if_mine), THREAD("reaper", reap_when_lost),
         THREAD("mishap", lose_first)),
    PLAY("ring_seat_is_entered_while_reaped", "B12: who sits down in a dead one's seat stays in the ring", setup_next_in_seat,
         check_seat, NULL, 0, THREAD("newcomer", enter_seat), THREAD("other", enter_seat)),
    PLAY("side_two_are_due", "of two who give back, the earlier time holds", setup_two_held_parked, check_due, NULL, 0,
         THREAD("member", nack_mine), THREAD("other", nack_mine_for_long)),
    LARGE("side_two_nack", "both are found, also by whoever was about to sleep", setup_two_held_parked, NULL, NULL, 0,
          THREAD("member", nack_mine), THREAD("other", nack_mine), THREAD("third", wait_for_both)),
    PLAY("side_next_is_not_dropped", "A9: who drops what lay in an entry does not drop what lies there now", setup_one_entry,
         check_next_is_there, NULL, 0, THREAD("member", ack_and_park_the_next), THREAD("other", drop_of_the_table)),
    PLAY("side_freed_is_used_by_another", "A9: who frees an entry writes nothing into what is parked there next",
         setup_one_entry_of_two, check_next_if_parked, NULL, 0, THREAD("holder", ack_parked),
         THREAD("parker", park_if_there_is_room)),
    PLAY("side_next_is_handed_out", "A9: nor hands out the one for the other", setup_one_entry, check_next_or_had, NULL, 0,
         THREAD("member", ack_and_park_the_next), THREAD("other", look_once)),
    PLAY("ring_padding_of_an_earlier_lap", "B8: who walks over padding late takes nothing from the next lap",
         setup_padding_and_lap, check_behind_padding, NULL, 0, THREAD("member", take_next), THREAD("other", take_next)),
    LARGE("ring_far_behind_is_retired", "a head that is moved over many windows never falls", setup_far, check_far, NULL, 0,
          THREAD("member", take_three), THREAD("other", retire_three)),
    LARGE("ring_far_behind_is_dropped", "each is finished or dropped, however far the head was behind", setup_far,
          check_far_dropped, NULL, 0, THREAD("member", take_three), THREAD("other", drop_three)),
    PLAY("ended_work_of_all_is_seen", "also when another one moves the head", setup_one_bounded, NULL, NULL, 0,
         THREAD("member", take_next_with_care), THREAD("other", drop_first), THREAD("asker", ask_for_the_lowest)),
    LARGE("ring_two_return", "both are found, also by whoever was about to sleep", setup_one_each, NULL, NULL, 0,
          THREAD("member", return_mine), THREAD("other", return_mine), THREAD("third", wait_for_both)),
    PLAY("ring_two_raise_the_head", "it stands where the farther one put it", setup_three, check_head_of_two, NULL, 0,
         THREAD("member", raise_head_to_one), THREAD("other", raise_head_to_two)),
    PLAY("ring_two_drop", "whoever drops less", setup_two_bounded, check_dropped_to, NULL, 0, THREAD("member", drop_first),
         THREAD("other", drop_two)),
    PLAY("ended_stream_is_finished", "who waits for the end of a finished stream is told of it", setup_held_to_the_finish,
         NULL, NULL, 0, THREAD("member", ack_it), THREAD("other", wait_for_the_finish), THREAD("ender", finish_the_stream)),
    PLAY("ended_stream_takes_no_more", "who finds the end sealed is told why", setup_held_to_the_finish, NULL, NULL, 0,
         THREAD("ender", finish_the_stream), THREAD("producer", put_or_be_told)),
    PLAY("ring_skipped_or_had", "one CAS decides between being handed out and being skipped", setup_one_bounded,
         check_had_or_skipped, NULL, 0, THREAD("member", take_next), THREAD("other", skip_first)),
    PLAY("ended_last_ack", "the last acknowledgement wakes who waits for the end", setup_held_to_the_end, NULL, NULL, 0,
         THREAD("member", ack_it), THREAD("other", wait_for_the_end), THREAD("ender", end_it)),
    PLAY("ended_all_hold", "who hold something and wait do not wait for each other", setup_one_each_at_the_end, NULL, NULL,
         0, THREAD("member", hold_to_the_end), THREAD("other", hold_to_the_end)),
    PLAY("ring_finishing_makes_room", "who waits for room is woken by the group that moves its head", setup_held_bounded,
         NULL, NULL, 0, THREAD("member", ack_it), THREAD("other", wait_for_the_group)),
    PLAY("side_finishing_makes_room", "and by the end of what was put aside", setup_held_parked_bounded, NULL, NULL, 0,
         THREAD("member", ack_parked), THREAD("other", wait_for_the_group)),
    PLAY("ring_dropped_or_had", "one CAS decides between being handed out and being dropped", setup_one_bounded,
         check_had_or_dropped, NULL, 0, THREAD("member", take_next), THREAD("other", drop_first)),
    PLAY("ring_given_back_is_dropped", "who waits to drop is woken by whoever gives it back", setup_held_bounded, NULL, NULL,
         0, THREAD("member", return_it), THREAD("other", wait_and_drop)),
    PLAY("side_given_back_is_dropped", "also when it is put aside", setup_held_bounded, NULL, NULL, 0,
         THREAD("member", nack_it), THREAD("other", wait_and_drop)),
    PLAY("side_parked_back_is_dropped", "also when it was put aside before", setup_held_parked_bounded, NULL, NULL, 0,
         THREAD("member", nack_parked), THREAD("other", wait_and_drop)),
    PLAY("ring_purged_comes_no_more", "what was dropped while somebody had it is not handed out again", setup_held_bounded,
         NULL, NULL, 0, THREAD("member", return_it), THREAD("other", drop_and_look)),
    PLAY("ring_purged_behind_the_window", "nor what lay behind the window", setup_purged_behind_the_window,
         check_both_over, NULL, 0, THREAD("member", ack_it), THREAD("other", walk_over_nothing)),
    LARGE("ring_purged_behind_or_had", "unless somebody had it by then", setup_held_before_another, check_both_over, NULL, 0,
         THREAD("member", ack_it), THREAD("other", drop_two), THREAD("third", walk_to_the_end)),
    PLAY("side_purged_comes_no_more", "also when it is put aside", setup_held_parked_bounded, NULL, NULL, 0,
         THREAD("member", nack_parked), THREAD("other", drop_and_look)),
    PLAY("ring_retired_or_finished", "what was retired under its holder is finished or counted", setup_held_bounded,
         check_had_or_retired, NULL, 0, THREAD("member", ack_it), THREAD("other", retire_first)),
    PLAY("ring_moved_are_counted", "counters lose nothing", setup_counted, check_two_counted, NULL, 0,
         THREAD("member", count_moved), THREAD("other", count_moved)),
    PLAY("ring_unmoved_are_counted", "also of what could not be moved", setup_counted, check_two_counted, NULL, 0,
         THREAD("member", count_unmoved), THREAD("other", count_unmoved)),
    PLAY("side_dropped_or_had", "also of what is put aside", setup_parked_bounded, check_had_or_dropped, NULL, 0,
         THREAD("member", look_once), THREAD("other", drop_first)),
    PLAY("ring_expired_are_counted", "what is too old for two names is counted twice", setup_expired,
         check_both_counted, NULL, 0, THREAD("reader", read_timed), THREAD("other", read_timed)),
    PLAY("ring_attempts_are_told", "a return carries how often it was handed out", setup_held, NULL, NULL, 0,
         THREAD("member", return_it), THREAD("other", again)),
    PLAY("ring_attempts_of_mine", "and so it does for whoever takes it again", setup_held, NULL, NULL, 0,
         THREAD("member", return_and_again), THREAD("other", again)),
    PLAY("ring_laps_do_not_mix", "B8: what a word says of one lap is not said of the next", setup_laps, check_laps, NULL, 0,
         THREAD("member", lap_first), THREAD("other", lap_second)),
    PLAY("ring_head_only_rises", "a raised head and one that moves on", setup_second_held, check_raised, NULL,
         0, THREAD("member", raise_head_to_one), THREAD("other", ack_it)),
    PLAY("ring_last_lap_is_seen", "B8: who sees the head sees what it passed", setup_lap, NULL, NULL, 0,
         THREAD("member", ack_it), THREAD("other", take_in_next_lap)),
    PLAY("ring_edge_wakes", "B8: who sleeps at the edge of the window is woken by whoever moves the head", setup_full,
         check_room, NULL, 0, THREAD("member", ack_it), THREAD("other", take_when_there_is_room)),
    PLAY("ring_edge_wakes_who_may_park", "P7b: who sleeps at the edge is woken when what holds it up may be parked",
         setup_one_of_two_at_edge, check_room, NULL, 0, THREAD("member", ack_behind_head),
         THREAD("other", take_when_there_is_room)),
    PLAY("ring_edge_counts_two", "... each of two who finish", setup_two_wanted_at_edge, check_nobody_sleeps_at_edge, NULL, 0,
         THREAD("member", ack_behind_head), THREAD("other", ack_behind_head)),
    LARGE("ring_edge_counts_who_finish", "... also when several finish at once", setup_two_of_three_at_edge,
         check_room_for_third, NULL, 0, THREAD("member", ack_behind_head), THREAD("other", ack_behind_head),
         THREAD("sleeper", take_when_there_is_room)),
    PLAY("ring_padding_is_passed", "two walk over padding at once", setup_padding, check_padding, NULL, 0,
         THREAD("member", take_next), THREAD("other", take_next)),
    PLAY("ring_unwanted_is_passed", "two walk over what a filter leaves out, and one has what it wants", setup_unwanted,
         check_unwanted, NULL, 0, THREAD("member", take_wanted), THREAD("other", take_wanted)),
    LARGE("ring_unwanted_of_an_earlier_lap", "who passes late takes nothing from the next lap", setup_unwanted_and_lap,
          check_unwanted, NULL, 0, THREAD("member", take_wanted), THREAD("other", take_wanted)),
    PLAY("ring_passer_is_killed", "killed while it passes what a filter leaves out", setup_unwanted, check_unwanted, NULL, 1,
         MORTAL("member", take_all_and_go), THREAD("other", take_all_after_first)),
    PLAY("ring_expired_once", "what is too old is finished and counted once", setup_expired, check_expired, NULL, 0,
         THREAD("member", take_next), THREAD("other", take_next)),
    PLAY("ring_skimmed_come_once", "each comes once, also to whoever goes over what others have had", setup_two, check_all_joined,
         NULL, 0, THREAD("member", take_wanted), THREAD("other", skim_wanted)),
    PLAY("ring_two_skim", "and to two who go over what a third one has", setup_two_of_four_held, check_four, NULL, 0,
         THREAD("member", skim_wanted), THREAD("other", skim_wanted)),
    PLAY("ring_skimmed_of_the_dead", "what one had who was killed comes to whoever has gone over it", setup_first_seat_is_free,
         check_all_joined, NULL, 1, MORTAL("member", take_all_and_go), THREAD("other", skim_all_after_first)),
    PLAY("ring_joiner_is_killed", "P7: killed between entering the group and a claim", setup_first_seat_is_free,
         check_all_joined, NULL, 1, MORTAL("member", take_all_and_go), THREAD("other", take_all_after_first)),
    PLAY("ring_lease_ends_beside_an_ack", "B10: an ack and a lease that ends", setup_held_with_lease, check_lease, NULL,
         0, THREAD("holder", ack_it), THREAD("thief", look_at_leases), THREAD("clock", time_passes)),
    PLAY("ring_lease_is_extended", "B10: what was extended is not taken", setup_held_with_lease, check_extended, NULL, 0,
         THREAD("holder", extend_it), THREAD("thief", look_twice), THREAD("clock", time_passes_twice)),
    PLAY("ring_lease_ends_once", "two who find a lease ended", setup_lease_of_dead, check_redelivered, NULL, 0,
         THREAD("clock", time_passes), THREAD("thief", look_at_leases_then), THREAD("other", look_at_leases_then)),
    PLAY("ring_mover_is_killed", "B14: whoever takes over a move is told", setup_held, check_moved, NULL, 1,
         MORTAL("mover", move_it), THREAD("other", take_all_after_first)),
    LARGE("ring_two_reap", "two who take back what one dead held", setup_two_reap, check_redelivered, NULL, 0,
         THREAD("dead", go), THREAD("reaper", reap_first), THREAD("other", reap_first)),
    PLAY("ring_one_reaps", "what came back is counted", setup_two_reap, check_redelivered, NULL, 0, THREAD("dead", go),
         THREAD("reaper", reap_first)),
    PLAY("side_one_reaps", "also what was parked", setup_two_reap_parked, check_redelivered, NULL, 0, THREAD("dead", go),
         THREAD("reaper", reap_first)),
    LARGE("side_nack_races_redelivery", "B10: one CAS decides between giving back and being taken for dead", setup_held,
         check_back_or_taken, NULL, 0, THREAD("zombie", nack_if_mine), THREAD("reaper", reap_when_lost),
         THREAD("mishap", lose_first)),
    PLAY("side_parked_nack_races_redelivery", "B10: the same, parked", setup_held_parked, check_back_or_taken, NULL, 0,
         THREAD("zombie", nack_parked_if_mine), THREAD("reaper", reap_when_lost), THREAD("mishap", lose_first)),
    PLAY("side_ack_races_redelivery", "B10: and an ack of what is parked", setup_held_parked, check_back_or_taken, NULL,
         0, THREAD("zombie", ack_parked), THREAD("reaper", reap_when_lost), THREAD("mishap", lose_first)),
    PLAY("side_miscounted_block_is_used", "the count of used entries is about", setup_miscounted, NULL, NULL, 0,
         THREAD("member", park_in_miscounted)),
    PLAY("side_two_prepare", "A9: two who look for an entry find two", setup_one_each, check_two_prepared, NULL, 0,
         THREAD("member", prepare_one), THREAD("other", prepare_one)),
    PLAY("side_two_release", "and both are free again", setup_one_each, check_table_empty, NULL, 0,
         THREAD("member", prepare_and_release), THREAD("other", prepare_and_release)),
    PLAY("side_one_takes", "a parked message is handed to one", setup_parked, check_one, NULL, 0,
         THREAD("member", look_once), THREAD("other", look_once)),
    PLAY("side_parked_is_found", "A9: what was given back is found, also by whoever was about to sleep", setup_held,
         check_one_for_second, NULL, 0, THREAD("member", nack_it), THREAD("other", wait_for_it)),
    PLAY("side_nacked_is_found", "A9: also when it was parked before", setup_held_parked, check_one_for_second, NULL, 0,
         THREAD("member", nack_parked), THREAD("other", wait_for_it)),
    LARGE("side_two_park", "A9: two who park at once have an entry each", setup_one_each, check_two_parked, NULL, 0,
         THREAD("member", park_for_an_hour), THREAD("other", park_for_an_hour)),
    LARGE("side_parked_for_its_holder", "B9: parked by another, it is still its holder's", setup_edge, check_edge, NULL,
         0, THREAD("holder", ack_it), THREAD("parker", take_next)),
    LARGE("side_parked_for_its_mover", "P7b: ... also while it moves it to another queue", setup_edge, check_edge, NULL, 0,
          THREAD("mover", move_it_and_stay), THREAD("parker", take_next)),
    PLAY("side_parker_is_killed", "B9: whom a message was parked for was dead, and so is who parked it",
         setup_edge_of_dead, check_edge_of_dead, NULL, 1, THREAD("dead", go), MORTAL("parker", take_next_and_go),
         THREAD("next", take_all_after_second)),
    PLAY("side_lease_ends_beside_an_ack", "B10: an ack and a lease that ends, parked", setup_held_parked_with_lease,
         check_lease, NULL, 0, THREAD("holder", ack_parked), THREAD("thief", look_at_leases),
         THREAD("clock", time_passes)),
    PLAY("side_lease_is_extended", "B10: what was extended is not taken, parked", setup_held_parked_with_lease,
         check_extended, NULL, 0, THREAD("holder", extend_parked), THREAD("thief", look_twice),
         THREAD("clock", time_passes_twice)),
    PLAY("side_mover_is_killed", "B14: whoever takes over a move is told, parked", setup_held_parked, check_killed, NULL,
         1, MORTAL("mover", move_parked), THREAD("other", take_all_after_first)),
    LARGE("side_two_reap", "two who take back what one dead held, parked", setup_two_reap_parked, check_redelivered,
         NULL, 0, THREAD("dead", go), THREAD("reaper", reap_first), THREAD("other", reap_first)),
    PLAY("side_delayed_is_parked_once", "two walk over a message that waits for its time", setup_delayed,
         check_delayed, NULL, 0, THREAD("member", take_next), THREAD("other", take_next)),
    PLAY("side_delayed_comes_once", "and it comes when that is there, to one", setup_delayed_parked, check_delayed, NULL,
         0, THREAD("member", look_until_it_comes), THREAD("other", look_once), THREAD("clock", time_passes)),
    PLAY("side_reaps_what_was_given_back", "killed while giving back what was parked", setup_held_parked, check_killed,
         NULL, 1, MORTAL("member", nack_parked_and_go), THREAD("other", reap_when_first_is_gone)),
    PLAY("forward_is_killed", "schedules 2, 3: who is killed while it forwards has put once, with whoever takes it over",
         setup_held, check_forwarded, NULL, 1, MORTAL("holder", forward_it_and_go), THREAD("next", forward_all_after_first)),
    PLAY("forward_parked_is_killed", "the same, parked", setup_held_parked, check_forwarded, NULL, 1,
         MORTAL("holder", forward_parked_and_go), THREAD("next", forward_all_after_first)),
    PLAY("forward_beside_a_lease", "schedule 8: who has lost it has put nothing; who forwards it does not lose it",
         setup_held_with_lease, check_copies, NULL, 0, THREAD("holder", forward_it), THREAD("thief", forward_behind_a_lease),
         THREAD("clock", time_passes)),
    PLAY("forward_parked_beside_a_lease", "the same, parked", setup_held_parked_with_lease, check_copies, NULL, 0,
         THREAD("holder", forward_parked), THREAD("thief", forward_behind_a_lease), THREAD("clock", time_passes)),
    PLAY("forward_without_room", "what was put before it came back is not put again", setup_held, check_copies, NULL, 0,
         THREAD("holder", forward_it_and_fail), THREAD("next", forward_all_that_comes)),
    PLAY("forward_parked_without_room", "the same, parked", setup_held_parked, check_copies, NULL, 0,
         THREAD("holder", forward_parked_and_fail), THREAD("next", forward_all_that_comes)),
    PLAY("forward_is_kept", "what was begun and not put is held as before", setup_held_with_lease, check_lease, NULL, 0,
         THREAD("holder", begin_and_keep), THREAD("thief", look_at_leases), THREAD("clock", time_passes)),
    PLAY("forward_parked_is_kept", "the same, parked", setup_held_parked_with_lease, check_lease, NULL, 0,
         THREAD("holder", begin_and_keep_parked), THREAD("thief", look_at_leases), THREAD("clock", time_passes)),
    LARGE("forward_parked_for_its_holder", "parked by another, it is still its holder's to forward", setup_edge, check_copies,
          NULL, 0, THREAD("holder", forward_it), THREAD("parker", take_next)),
    LARGE("side_entry_is_used_again", "A9: who looks at an entry while it becomes another's", setup_reuse, check_reuse,
          NULL, 0, THREAD("holder", ack_parked), THREAD("parker", reuse_entry), THREAD("taker", look_once)),
};
const size_t group_scenarios_count = sizeof group_scenarios / sizeof group_scenarios[0];
