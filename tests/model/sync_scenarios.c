/* sync_scenarios.c - the group commit, and waiting for several queues at once.
 *
 * The disk is a height in the chunk (kernel.c): what a sync is asked for is there once it returns. Whoever is told that
 * its message is on the disk is compared with that. Time passes only where nobody can go on without (search.c), and
 * unless somebody died nobody may have to wait for it: that would be a wake-up lost, and 8 ms. */
#include <string.h>

#include "atomic.h"
#include "os/os.h"
#include "stage.h"

#define TICK_NS INT64_C(1000000)
#define LEADER_LOOK_NS INT64_C(8000000) /* sync.c's */

/* ------------------------------------------------------------------ what the disk has */
static uint64_t end_of(uint64_t index)
{
    struct chunk_header *const header = (struct chunk_header *)(image + CHUNK_AT);
    uint64_t at = shmq_chunk_first_position(stage.actors[0].chunk);
    for (uint64_t ordinal = 0;;) {
        word_t word;
        memcpy(&word, (const uint8_t *)header + at, sizeof word);
        if (word == 0 || word_bytes(word) == 0) {
            return UINT64_MAX;
        }
        at += word_bytes(word);
        ordinal += word_count(word);
        if (ordinal > index) {
            return at;
        }
    }
}

static void must_be_on_disk(uint64_t index, const char *who)
{
    if (end_of(index) > kernel_on_disk()) {
        model_fault("%s says that message %llu is on the disk, which is at %llu", who, (unsigned long long)index,
                    (unsigned long long)kernel_on_disk());
    }
}

static uint32_t messages_there(void)
{
    uint32_t count = 0;
    while (end_of(count) != UINT64_MAX) {
        count++;
    }
    return count;
}

/* ------------------------------------------------------------------ SYNC: put, and wait */
static uint64_t *resolved_hint(void) { return &((struct chunk_header *)(image + CHUNK_AT))->resolved_hint; }
static void setup_sync(void)
{
    stage_setup();
    shmq_durable_reset(the_control(), 0, 0);
    kernel_wakes_order();
    kernel_set_patience(LEADER_LOOK_NS);
    memory_quiet(resolved_hint());
}

/* Three messages are there, and none of them is on the disk. */
static void setup_put(void)
{
    setup_sync();
    for (uint64_t tag = 0; tag < 3; tag++) {
        shmq_put(stage.actors[5].chunk, (const char *)&tag, sizeof tag);
    }
}

/* The same, and heed how far it is known to be settled. */
static void setup_hinted(void)
{
    setup_put();
    memory_heed(resolved_hint());
}
static void look_and_sync(void)
{
    struct actor *const actor = actor_self();
    uint64_t position;
    uint64_t index;
    uint32_t owner;
    shmq_resolved(actor->chunk, &position, &index, &owner);
    stage_synced(0, position + sizeof(word_t));
}
static void put_and_look(void)
{
    actor_put();
    look_and_sync();
}
static void check_rising(void)
{
    if (hint_position(*resolved_hint()) != end_of(messages_there() - 1)) {
        model_fault("all is settled up to %llu, and the hint says %llu", (unsigned long long)end_of(messages_there() - 1),
                    (unsigned long long)hint_position(*resolved_hint()));
    }
}

/* As producer.py and durability.py do it; notes[0]: we have said that we sleep, having seen the bell at notes[1]. */
static int until_durable(uint64_t want)
{
    struct actor *const actor = actor_self();
    for (;;) {
        const int code = shmq_sync_put(actor->chunk, want);
        if (code != SHMQ_WAITING) {
            return code;
        }
        if (actor->notes[0] == 0) {
            actor->notes[1] = shmq_wait_begin(actor->member);
            actor->notes[0] = 1;
        } else {
            shmq_wait(actor->member, (uint32_t)actor->notes[1], -1);
            actor->notes[0] = 0;
        }
        actor_forget();
    }
}

static void wait_durably(uint64_t index)
{
    struct actor *const actor = actor_self();
    const int code = until_durable(index + 1);
    if (code == SHMQ_OK) {
        must_be_on_disk(index, "a put");
    } else if (code != SHMQ_SYNC_FAILED) {
        model_fault("a wait for the disk answered %d", code);
    }
    actor->notes[2] = (uint64_t)code;
    actor_forget();
}

static void put_durably(void)
{
    struct actor *const actor = actor_self();
    actor_put();
    shmq_wake(actor->member);
    const struct put *const put = &actor->puts[actor->puts_count - 1];
    if (put->answer >= 0) {
        wait_durably((uint64_t)put->answer);
    }
}
/* Who has put before; the schedule begins with its wait. */
static void await_first(void) { wait_durably(0); }
static void await_second(void) { wait_durably(1); }
static void await_third(void) { wait_durably(2); }
/* Stands for a second in which a leader did not end: it goes on, and others lead. */
static void overtake(void) { store_relaxed(&the_control()->sync_leader, 0); }
static void setup_stopped(void)
{
    setup_put();
    kernel_set_patience(INT64_MAX);
}
static void check_overtaken(void)
{
    const uint64_t durable = shmq_durable(the_control());
    if (durable > 0) {
        must_be_on_disk(durable - 1, "the control page");
    }
    if (durable < messages_there()) {
        model_fault("everybody was answered, and only %llu of %u are durable", (unsigned long long)durable, messages_there());
    }
}
static void put_durably_twice(void)
{
    put_durably();
    put_durably();
}

static void check_sync(void)
{
    if (shmq_sync_has_failed(the_control())) {
        model_fault("nothing failed, and it says so");
    }
    const uint64_t durable = shmq_durable(the_control());
    if (durable > 0) {
        must_be_on_disk(durable - 1, "the control page");
    }
    if (!model_somebody_died() && durable < messages_there()) {
        model_fault("everybody was answered, and only %llu of %u are durable", (unsigned long long)durable, messages_there());
    }
    if (!model_somebody_died() && the_control()->sync_leader != 0) {
        model_fault("nobody is there any more, and somebody leads");
    }
}

static void check_puts(void)
{
    check_all();
    check_sync();
}

/* ------------------------------------------------------------------ a disk that refuses */
static void setup_refusing(void)
{
    setup_put();
    kernel_refuse_sync(1);
}
static void check_refused(void)
{
    if (shmq_durable(the_control()) != 0 || !shmq_sync_has_failed(the_control())) {
        model_fault("the first sync failed, and something counts as durable");
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        if (model_is_done(i) && (int)stage.actors[i].notes[2] != SHMQ_SYNC_FAILED) {
            model_fault("%s was told %d", model_thread_name(i), (int)stage.actors[i].notes[2]);
        }
    }
}

/* ------------------------------------------------------------------ acknowledgements in the same commit */
#define ACK(i) (&the_words()[(i)])
#define SNAPSHOT (&the_words()[8])

/* What durability.py's leader does: which were asked first, then what they are, then the disk. */
static void commit_for_all(void)
{
    struct actor *const actor = actor_self();
    uint64_t asked = 0;
    uint64_t snapshot = 0;
    const bool acks = shmq_acks_begin(actor->member) != 0;
    asked = shmq_acks_asked(the_checkpoint());
    for (uint32_t i = 0; i < 2; i++) {
        snapshot |= load_relaxed(ACK(i)) << i;
    }
    uint64_t position;
    uint64_t index;
    uint32_t owner;
    const int code = shmq_resolved(actor->chunk, &position, &index, &owner);
    if (code == SHMQ_EMPTY && index > shmq_durable(the_control())) {
        os->sync_mapped(actor->chunk->memory, position + sizeof(word_t));
        shmq_sync_publish(actor->member, index, actor->chunk->sequence, position);
    }
    (void)acks;
    store_relaxed(SNAPSHOT, snapshot); /* on the disk: only leaders write it */
    shmq_acks_publish(the_checkpoint(), asked, 1);
}
static void await_acknowledgement(uint32_t i, uint64_t want)
{
    struct actor *const actor = actor_self();
    uint32_t leading = 0;
    for (;;) {
        const int code = shmq_acks_wait(actor->member, the_checkpoint(), want, &leading);
        if (code == SHMQ_OK) {
            break;
        }
        if (code != SHMQ_LEAD) {
            model_fault("a wait for an acknowledgement answered %d", code);
        }
        commit_for_all();
        leading = 0;
        shmq_sync_release(actor->member);
        shmq_acks_answer(actor->member);
    }
    if (!(load_relaxed(SNAPSHOT) >> i & 1)) {
        model_fault("an acknowledgement is said to be on the disk, and is not");
    }
}
static void acknowledge(uint32_t i)
{
    store_relaxed(ACK(i), 1);
    await_acknowledgement(i, shmq_acks_ask(actor_self()->member, the_checkpoint()));
}
static void await_first_acknowledgement(void) { await_acknowledgement(0, 1); }
static void acknowledge_first(void) { acknowledge(0); }
static void acknowledge_second(void) { acknowledge(1); }
/* Whoever leads for something else, and only knows by the mark that acknowledgements wait. */
static void lead_once(void)
{
    uint32_t leading = 0;
    if (shmq_sync_try(actor_self()->member, &leading)) {
        shmq_sync_release(actor_self()->member);
    }
}
static void ask_for_an_acknowledgement(void) { shmq_acks_ask(actor_self()->member, the_checkpoint()); }
static void clear_the_mark(void)
{
    struct actor *const actor = actor_self();
    actor->notes[0] = shmq_acks_begin(actor->member);
    if (actor->notes[0] != 0 && shmq_acks_asked(the_checkpoint()) == 0) {
        model_fault("the mark of one who asked is cleared, and nobody saw what it asked for");
    }
}
static void check_mark(void)
{
    if (stage.actors[1].notes[0] == 0 && the_control()->sync_acks == 0) {
        model_fault("the mark of one who asked is lost");
    }
}

/* One that was overtaken while it led ends beside its successor. */
static void end_first_sync(void)
{
    shmq_sync_publish(actor_self()->member, 1, 1, 64);
    shmq_acks_publish(the_checkpoint(), 1, 0);
    shmq_sync_release(actor_self()->member);
}
static void end_second_sync(void)
{
    shmq_sync_publish(actor_self()->member, 2, 2, 64);
    shmq_acks_publish(the_checkpoint(), 2, 1);
    shmq_sync_release(actor_self()->member);
}
static void setup_overtaken(void)
{
    setup_sync(); /* chunk 0 is the first whose beginning is on the disk */
    memory_quiet(&the_checkpoint()->snapshot_synced);
}
static void check_two_ended(void)
{
    const struct control *const control = the_control();
    const uint64_t synced = shmq_acks_synced(the_checkpoint());
    if (control->durable != 2 || control->durable_chunk != 2 + 1 || synced != 2 || control->sync_bell != 2) {
        model_fault("two syncs have ended: durable %llu, in chunk %llu, acks %llu, bell %u",
                    (unsigned long long)control->durable, (unsigned long long)control->durable_chunk - 1,
                    (unsigned long long)synced, control->sync_bell);
    }
}

/* One that stood still while it led is overtaken, and then gives back what it has not any more. */
static void setup_led(void)
{
    setup_sync();
    the_control()->sync_leader = stage.members[0].owner;
}
static void give_leadership_back(void) { shmq_sync_release(actor_self()->member); }
static void take_over(void)
{
    struct actor *const actor = actor_self();
    actor->notes[0] = cas_acquire(&the_control()->sync_leader, stage.members[0].owner, actor->member->owner);
}
static void check_led(void)
{
    const uint64_t leader = stage.actors[1].notes[0] != 0 ? stage.members[1].owner : 0;
    if (the_control()->sync_leader != leader) {
        model_fault("who was overtaken gave back what was another's: %llx leads", (unsigned long long)the_control()->sync_leader);
    }
}
static void setup_acks(void)
{
    setup_sync();
    memory_quiet(&the_checkpoint()->snapshot_synced);
}

static void setup_acks_asked(void)
{
    setup_acks();
    *ACK(0) = 1;
    shmq_acks_ask(&stage.members[0], the_checkpoint());
}

/* ------------------------------------------------------------------ interval: one thread keeps, a put goes its way */
static shmq_keeper *the_keeper(void) { return (shmq_keeper *)(void *)&the_words()[20]; }
static void keep(void)
{
    const int code = shmq_sync_keep(actor_self()->chunk, TICK_NS, INT64_MAX, the_keeper());
    if (code != SHMQ_OK) {
        model_fault("the keeper is told %d", code);
    }
    if (load_relaxed(&the_keeper()->nudge) == 0 && shmq_durable(the_control()) > 0) {
        must_be_on_disk(shmq_durable(the_control()) - 1, "the keeper");
    }
}
static void nudge_keeper(void) { shmq_nudge(&the_keeper()->nudge); }
static void put_only(void) { actor_put(); }

/* ------------------------------------------------------------------ several bells at once */
static uint64_t *letter(uint32_t i) { return &the_words()[10 + i]; }
static uint32_t *call(void) { return (uint32_t *)(void *)&the_words()[12]; }

static void sleep_for_any(void)
{
    struct actor *const actor = actor_self();
    void *const bells[2] = {shmq_bell_of(actor->member), &the_control()->room_bell};
    for (;;) {
        const uint32_t seen[2] = {shmq_wait_begin(actor->member), shmq_room_begin(actor->member)};
        if (load_acquire(letter(0)) != 0 || load_acquire(letter(1)) != 0 || load_relaxed(call()) != 0) {
            return;
        }
        if (shmq_wait_any(bells, seen, 2, call(), -1) != SHMQ_OK) {
            model_fault("a wait for several bells did not end as one");
        }
        actor_forget();
    }
}
static void ring_first(void)
{
    store_release(letter(0), 1);
    shmq_wake(actor_self()->member);
}
static void ring_second(void)
{
    store_release(letter(1), 1);
    shmq_room(the_control());
}
static void call_out(void) { shmq_nudge(call()); }

/* ------------------------------------------------------------------ the table */
const struct scenario sync_scenarios[] = {
    PLAY("sync_answers_two", "A9: one syncs for both, or each; both are on the disk when told so", setup_put, check_sync,
         NULL, 0, THREAD("one", await_first), THREAD("other", await_second)),
    LARGE("sync_answers_three", "A9: nobody is forgotten", setup_put, check_sync, NULL, 0, THREAD("one", await_first),
         THREAD("other", await_second), THREAD("third", await_third)),
    PLAY("sync_hint_only_rises", "A9: whoever says how far all is settled has seen it", setup_hinted, check_rising, NULL, 0,
         THREAD("one", look_and_sync), THREAD("producer", put_and_look), THREAD("other", look_and_sync)),
    PLAY("sync_leader_is_killed", "A9: who waits for it finds out, and leads", setup_put, check_sync, NULL, 1,
         MORTAL("one", await_first), THREAD("other", await_second)),
    LARGE("sync_one_of_three_is_killed", "A9: likewise, and wakes the other", setup_put, check_sync, NULL, 1,
         MORTAL("one", await_first), THREAD("other", await_second), THREAD("third", await_third)),
    PLAY("sync_leader_is_overtaken", "P6: one that takes long goes on beside the next, and what either says is true",
         setup_put, check_overtaken, NULL, 0, THREAD("one", await_first), THREAD("other", await_third),
         THREAD("time", overtake)),
    PLAY("sync_leader_is_stopped", "P6: wherever that is, the other leads in the end", setup_stopped, NULL, NULL, 1,
         STOPS("one", await_first), THREAD("other", await_third)),
    PLAY("sync_beside_a_put", "A9: a put that the sync does not answer leads the next", setup_put, check_sync, NULL, 0,
         THREAD("one", await_third), THREAD("producer", put_durably)),
    PLAY("sync_pads_the_dead", "B4: before it waits for the living", setup_put, check_sync, NULL, 1,
         THREAD("one", await_third), MORTAL("producer", put_durably)),
    PLAY("sync_is_refused", "B15: a failed sync answers all, and nothing counts as durable", setup_refusing,
         check_refused, NULL, 0, THREAD("one", await_first), THREAD("other", await_second)),
    LARGE("sync_refuses_three", "B15: likewise", setup_refusing, check_refused, NULL, 0, THREAD("one", await_first),
          THREAD("other", await_second), THREAD("third", await_third)),
    LARGE("sync_two_put", "A9: two puts", setup_sync, check_puts, NULL, 1, MORTAL("producer", put_durably),
          THREAD("other", put_durably)),
    LARGE("sync_hands_over", "A9: three, of whom one is not answered by the first sync and leads next", setup_sync,
          check_puts, NULL, 1, MORTAL("producer", put_durably), THREAD("other", put_durably),
          THREAD("third", put_durably)),
    LARGE("sync_goes_on", "A9: and again", setup_sync, check_puts, NULL, 1, MORTAL("producer", put_durably_twice),
          THREAD("other", put_durably_twice), THREAD("third", put_durably)),
    PLAY("sync_acks_of_two", "B6: who has acknowledged is answered by a snapshot that has it", setup_acks, NULL, NULL, 0,
         THREAD("worker", acknowledge_first), THREAD("other", acknowledge_second)),
    PLAY("sync_acks_beside_puts", "B6: both wait for the same commit", setup_acks, check_sync, NULL, 0,
         THREAD("worker", acknowledge_first), THREAD("producer", put_durably)),
    PLAY("sync_mark_says_what_was_asked", "B6: whoever clears a mark has seen what was asked", setup_acks, check_mark, NULL, 0,
         THREAD("worker", ask_for_an_acknowledgement), THREAD("leader", clear_the_mark)),
    PLAY("sync_overtaken_ends_late", "P6: what it says then takes nothing back", setup_overtaken, check_two_ended, NULL, 0,
         THREAD("overtaken", end_first_sync), THREAD("leader", end_second_sync)),
    PLAY("sync_overtaken_gives_nothing_back", "P6: one that was stopped while it led is overtaken", setup_led, check_led, NULL,
         0, THREAD("leader", give_leadership_back), THREAD("other", take_over)),
    LARGE("sync_acks_mark_is_kept", "B6: whoever clears the mark of others has seen what they asked", setup_acks_asked,
          check_sync,
         NULL, 0, THREAD("worker", await_first_acknowledgement), THREAD("other", acknowledge_second), THREAD("leader", lead_once)),
    LARGE("sync_acks_and_a_death", "B6: either may lead, and be killed", setup_acks, check_sync, NULL, 1,
          MORTAL("worker", acknowledge_first), MORTAL("producer", put_durably), THREAD("other", acknowledge_second)),
    PLAY("sync_keeper_is_nudged", "interval: it ends when told to, and says nothing that is not so", setup_sync, NULL,
         NULL, 0, THREAD("keeper", keep), THREAD("producer", put_only), THREAD("closer", nudge_keeper)),
    PLAY("any_hears_either", "B1: whichever bell rings", setup_sync, NULL, NULL, 0, THREAD("sleeper", sleep_for_any),
         THREAD("first", ring_first), THREAD("second", ring_second)),
    PLAY("any_hears_the_first", "B1: one of them only", setup_sync, NULL, NULL, 0, THREAD("sleeper", sleep_for_any),
         THREAD("first", ring_first)),
    PLAY("any_hears_the_second", "B1: or the other", setup_sync, NULL, NULL, 0, THREAD("sleeper", sleep_for_any),
         THREAD("second", ring_second)),
    PLAY("any_hears_a_nudge", "B1: or whoever shares the work", setup_sync, NULL, NULL, 0,
         THREAD("sleeper", sleep_for_any), THREAD("thread", call_out)),
};
const size_t sync_scenarios_count = sizeof sync_scenarios / sizeof sync_scenarios[0];
