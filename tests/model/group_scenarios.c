/* group_scenarios.c - the schedules of a group: its window, its side table, its leases, and who dies in the middle.
 *
 * What a member has had is in its notes: bit i of [1], message i was handed to it; of [2], its end of it was accepted;
 * [3] is the word of what it was handed in setup. The window is as many messages
 * as there are, up to four; the side table has two entries. */
#include <string.h>

#include "atomic.h"
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
    if (shmq_ring_nack(&ring, &taken, NEVER, 0) != SHMQ_OK) {
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
static void setup_first_seat_is_free(void)
{
    begin(2);
    the_ring()->tenants[0] = 0;
}
static void setup_counted(void)
{
    begin(0);
    memory_heed(&the_ring()->moved);
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
        if (the_entry(i)->due_ns != (uint64_t)NEVER) {
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
static void check_room(void)
{
    if (!ended(1, 4)) {
        model_fault("there was room, and nobody used it");
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
    if (the_ring()->moved != 2) {
        model_fault("two were moved, and %llu are counted", (unsigned long long)the_ring()->moved);
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
static void check_padding(void) { check_head(1); }
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
/* The kernel says that the first is dead, and he is not. */
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

/* ------------------------------------------------------------------ the table */
const struct scenario group_scenarios[] = {
    PLAY("ring_moved_are_counted", "counters lose nothing", setup_counted, check_two_counted, NULL, 0,
         THREAD("member", count_moved), THREAD("other", count_moved)),
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
    PLAY("ring_edge_wakes", "B8: who sleeps at the edge of the window is woken by who moves the head", setup_full,
         check_room, NULL, 0, THREAD("member", ack_it), THREAD("other", take_when_there_is_room)),
    PLAY("ring_padding_is_passed", "two walk over padding at once", setup_padding, check_padding, NULL, 0,
         THREAD("member", take_next), THREAD("other", take_next)),
    PLAY("ring_expired_once", "what is too old is finished and counted once", setup_expired, check_expired, NULL, 0,
         THREAD("member", take_next), THREAD("other", take_next)),
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
    PLAY("side_parked_is_found", "A9: what was given back is found, also by who was about to sleep", setup_held,
         check_one_for_second, NULL, 0, THREAD("member", nack_it), THREAD("other", wait_for_it)),
    PLAY("side_nacked_is_found", "A9: also when it was parked before", setup_held_parked, check_one_for_second, NULL, 0,
         THREAD("member", nack_parked), THREAD("other", wait_for_it)),
    LARGE("side_two_park", "A9: two who park at once have an entry each", setup_one_each, check_two_parked, NULL, 0,
         THREAD("member", park_for_an_hour), THREAD("other", park_for_an_hour)),
    LARGE("side_parked_for_its_holder", "B9: parked by another, it is still its holder's", setup_edge, check_edge, NULL,
         0, THREAD("holder", ack_it), THREAD("parker", take_next)),
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
    LARGE("side_entry_is_used_again", "A9: who looks at an entry while it becomes another's", setup_reuse, check_reuse,
          NULL, 0, THREAD("holder", ack_parked), THREAD("parker", reuse_entry), THREAD("taker", look_once)),
};
const size_t group_scenarios_count = sizeof group_scenarios / sizeof group_scenarios[0];
