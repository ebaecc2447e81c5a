/* scenarios.c - the schedules of the protocol, by name, each as small as it can be and still show its fault.
 *
 * stage.c checks at every step that words move as they may, that hints name ends of regions and that regions add up;
 * check_all, at the end, that every returned put is there once, whole, at its index, and that all readers agree. */
#include <string.h>

#include "atomic.h"
#include "stage.h"

static void setup(void) { stage_setup(); }
static void check(void) { check_all(); }

static void put_one(void) { actor_put(); }
static void put_two(void)
{
    actor_put();
    actor_put();
}
static void put_batch(void) { actor_put_many(2); }
static void put_batch_of_three(void) { actor_put_many(3); }
static void put_batch_of_four(void) { actor_put_many(4); } /* of one size: written, and read, four at a time */
static void read_patiently(void) { actor_read(DELIVERIES, 3); }
static void read_twice(void) { actor_read(DELIVERIES, 2); }
static void read_briefly(void) { actor_read(DELIVERIES, 1); }

static void read_many(void) { actor_read_many(2); }

static void reserve_and_shorten(void)
{
    uint64_t claimed = 0;
    uint64_t record = 0;
    struct put *put = actor_reserve(32, &claimed, &record);
    actor_commit(put, claimed, record);
}

/* The kernel says that the first process is dead, and it is not (rule A1: closed descriptors, a child's unlock). */
static void lose_lock_of_first(void)
{
    model_step(1);
    kernel_drop(0);
}

static const struct put *put_of(uint32_t thread, uint32_t number) { return &stage.actors[thread].puts[number]; }

/* ------------------------------------------------------------------ what returned before is seen */
static void put_and_tell(void)
{
    actor_put();
    store_release(&the_words()[0], 1);
}
static void read_once_told(void)
{
    if (load_acquire(&the_words()[0]) == 1 && actor_read(1, 1) < 0) {
        model_fault("a put returned before, and the reader is told that there is nothing");
    }
}

/* ------------------------------------------------------------------ A1: zombies */
static void check_zombie(void)
{
    check();
    const struct put *put = put_of(0, 0);
    if (put->returned && put->answer < 0 && put->answer != SHMQ_FENCED) {
        model_fault("a zombie's put answered %lld", (long long)put->answer);
    }
}

/* Messages of 48 bytes, two of them in 96, in a chunk of which a walker may look at every 128th byte only. */
static void setup_grain(void) { stage_setup_grained(128); }

/* Readers with read-only mappings pad through a window; both may find the same dead claim. */
static void setup_two_readers(void)
{
    stage_setup();
    stage_read_only(1);
    stage_read_only(2);
}

/* Two threads of one process; its lock seems lost, as when it is asked for through the descriptor that holds it. */
static void setup_one_process(void)
{
    stage_setup();
    stage.members[1].slot = stage.members[0].slot;
    stage.members[1].owner = stage.members[0].owner;
    kernel_drop(0);
}
static void check_one_process(void)
{
    check();
    if (put_of(0, 0)->answer < 0) {
        model_fault("a process has padded its own live claim");
    }
}

/* One who may not write, not even through a window, beside one who may. */
static void setup_powerless_reader(void)
{
    stage_setup();
    stage_read_only(1);
    stage.actors[1].chunk->pads = false;
}

/* ------------------------------------------------------------------ abort beside a reader that pads */
static void reserve_and_abort(void)
{
    uint64_t claimed = 0;
    uint64_t record = 0;
    struct put *put = actor_reserve(8, &claimed, &record);
    put->answer = shmq_abort(actor_self()->chunk, record, claimed);
    put->answer = SHMQ_FENCED; /* aborted or padded: either way it must not be there */
    put->returned = true;
    actor_forget();
}

/* ------------------------------------------------------------------ seal */
static void setup_nearly_full(void)
{
    stage_setup();
    stage_fill_chunk(48); /* one message of 8 bytes */
}

/* The successor's base, as this process would name it: all must agree, and nobody's put may lie behind. */
static void note_base(void)
{
    struct actor *actor = actor_self();
    uint64_t next_index = 0;
    const int code = shmq_sealed(actor->chunk, &next_index);
    actor->notes[1] = code == SHMQ_OK ? next_index : UINT64_MAX;
    actor_forget();
}
static void put_until_sealed(void)
{
    struct actor *actor = actor_self();
    do {
        actor_put();
    } while (actor->puts[actor->puts_count - 1].answer >= 0);
    note_base();
}
static void seal(void)
{
    shmq_seal(actor_self()->chunk);
    note_base();
}
static void check_seal(void)
{
    check();
    for (uint32_t i = 0; i < THREADS; i++) {
        const struct actor *actor = &stage.actors[i];
        const uint64_t base = actor->notes[1];
        const uint64_t count = stage.actors[THREADS].reader.ordinal;
        if (base != 0 && base != UINT64_MAX && base != count) {
            model_fault("%s takes %llu for the successor's base, the sealed chunk holds %llu", model_thread_name(i),
                        (unsigned long long)base, (unsigned long long)count);
        }
        if (actor->notes[1] == UINT64_MAX) {
            model_fault("%s sealed the chunk, or was told so, and does not find it sealed", model_thread_name(i));
        }
    }
}

/* ------------------------------------------------------------------ seeking beside an open batch */
static void seek_to_second(void)
{
    struct actor *actor = actor_self();
    const int code = shmq_reader_seek(actor->chunk, &actor->reader, 1);
    const uint64_t first = stage.actors[THREADS].reader.position;
    if (code == SHMQ_OK && actor->reader.ordinal == 1) { /* only a committed batch has a word there */
        const int64_t answer = shmq_next(actor->chunk, &actor->reader, 0);
        if (answer >= 0 && actor->reader.index != 1) {
            model_fault("a seek to 1 delivers %llu", (unsigned long long)actor->reader.index);
        }
    } else if (code == SHMQ_OK && actor->reader.position != first) {
        model_fault("a seek to 1 stops at position %llu", (unsigned long long)actor->reader.position);
    }
}

/* ------------------------------------------------------------------ B12: a slot's next tenant */
static bool first_slot_is_free(void) { return !kernel_locked(0); }

static void take_over(void)
{
    struct actor *actor = actor_self();
    uint64_t since = 0;
    uint32_t generation = 0;
    const int slot = shmq_member_lock(actor->member, &since, &generation);
    if (slot < 0) {
        model_fault("the newcomer finds no slot");
    }
    shmq_bury(actor->chunk, owner_make((uint32_t)slot, generation));
    shmq_member_join(actor->member, 0, 0, 0, 0, 0);
    actor->notes[1] = actor->member->owner;
}
static void take_over_and_put(void)
{
    model_until(first_slot_is_free);
    take_over();
    actor_put();
}
static void put_and_exit(void)
{
    actor_put();
    model_step(1);
    kernel_drop(0);
}
static void setup_takeover(void)
{
    stage_setup();
    for (uint32_t i = 1; i < THREADS; i++) { /* who comes new has no seat yet */
        stage.members[i].owner = 0;
        kernel_drop(i);
    }
    memory_quiet(&the_control()->bell);
    memory_quiet(&the_control()->sleepers);
}
static void check_takeover(void)
{
    check();
    const struct put *put = put_of(1, 0);
    if (put->returned && put->answer < 0) {
        model_fault("the new tenant lives, and its put answered %lld", (long long)put->answer);
    }
    if (put->returned && stage.actors[1].notes[1] != owner_make(0, 2)) {
        model_fault("the new tenant's generation is %u", owner_generation((owner_t)stage.actors[1].notes[1]));
    }
}
static void check_takeover_of_living(void)
{
    check_takeover();
    const struct put *put = put_of(0, 0);
    if (put->returned && put->answer < 0 && put->answer != SHMQ_FENCED) {
        model_fault("a zombie's put answered %lld", (long long)put->answer);
    }
}
/* Two newcomers, one after the other. */
static void take_over_and_exit(void)
{
    model_until(first_slot_is_free);
    take_over();
    model_step(1);
    kernel_drop(actor_self()->member->slot);
}
static void put_as_tenant(void)
{
    take_over_and_put();
    model_step(1);
    kernel_drop(actor_self()->member->slot);
}
static void check_generations(void)
{
    check();
    const uint64_t one = stage.actors[1].notes[1];
    const uint64_t other = stage.actors[2].notes[1];
    if (one != 0 && one == other) {
        model_fault("two tenants of one slot share a generation");
    }
}

/* ------------------------------------------------------------------ counters: nothing is lost between two who count */
static uint64_t open_claims[2];
static uint64_t open_records[2];

static void claim_for(uint32_t i)
{
    const shmq_fields nothing = {.time_ns = INT64_MIN};
    uint64_t payload;
    shmq_reserve(stage.actors[i].chunk, &nothing, 8, &open_claims[i], &open_records[i], &payload);
}
static void setup_two_fenced(void)
{
    stage_setup();
    claim_for(0);
    claim_for(1);
    shmq_bury(stage.actors[2].chunk, stage.members[0].owner);
    shmq_bury(stage.actors[2].chunk, stage.members[1].owner);
    memory_heed(&the_control()->fenced);
}
static void commit_too_late(void)
{
    const uint32_t i = model_self();
    if (shmq_commit(stage.actors[i].chunk, open_records[i], open_claims[i], 8) != SHMQ_FENCED) {
        model_fault("a padded claim is committed");
    }
}
static void check_two_fenced(void)
{
    uint64_t padded = 0;
    uint64_t fenced = 0;
    shmq_counters(the_control(), &padded, &fenced);
    if (fenced != 2) {
        model_fault("two commits came too late, and %llu are counted", (unsigned long long)fenced);
    }
}
static void setup_two_dead(void)
{
    stage_setup();
    claim_for(0);
    claim_for(1);
    memory_heed(&the_control()->padded);
}
static void bury_other(void)
{
    const uint32_t i = model_self();
    shmq_bury(stage.actors[i].chunk, stage.members[1 - i].owner);
}
static void setup_two_join(void)
{
    stage_setup();
    memory_heed(&the_control()->members);
}
static void join_queue(void)
{
    const uint32_t i = model_self();
    shmq_member_join(actor_self()->member, 100 + i, 200 + i, 300 + i, 400 + i, 500 + i);
}
static void check_two_joined(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct participant *seat = &the_control()->participants[i];
        if (seat->pid != 100 + i || seat->pid_namespace != 200 + i || seat->start_time != 300 + i
            || seat->boot_tag != 400 + i || seat->since != 500 + i || seat->generation != 2) {
            model_fault("the witness of slot %u is not what its tenant gave", i);
        }
    }
    if (shmq_members(the_control()) != 2) {
        model_fault("two joined, and watchers are told of %u", shmq_members(the_control()));
    }
}

/* ------------------------------------------------------------------ B1: sleepers and wakers, without a chunk */
static uint64_t *mail(uint32_t i) { return &the_words()[2 * i]; }

static void send(uint32_t i)
{
    store_release(mail(i), 1); /* stands for the commit */
    shmq_wake(actor_self()->member);
}
static void send_first(void) { send(0); }
static void send_second(void) { send(1); }
static void send_both(void)
{
    send(0);
    send(1);
}
static void sleep_for(uint32_t i)
{
    struct actor *actor = actor_self();
    while (load_acquire(mail(i)) == 0) {
        const uint32_t seen = shmq_wait_begin(actor->member);
        if (load_acquire(mail(i)) != 0) {
            return;
        }
        shmq_wait(actor->member, seen, -1);
        actor_forget();
    }
}
static void sleep_for_first(void) { sleep_for(0); }
static void sleep_for_second(void) { sleep_for(1); }
static void sleep_for_both(void)
{
    sleep_for(0);
    actor_self()->notes[1]++;
    actor_forget();
    sleep_for(1);
}

static void ring_for_a_death(void) { shmq_wake_always(the_control()); }

/* The watcher of another process: it notices the death of the first. */
static bool first_is_dead(void) { return model_is_dead(0); }
static void wake_after_death(void)
{
    model_until(first_is_dead);
    memory_acquire(0); /* a death is heard of through the kernel, and what the dead did is there by then */
    shmq_wake_always(the_control());
}
static bool nothing_was_sent(void)
{
    return *mail(0) == 0; /* killed before the commit: nobody is owed anything */
}
static bool nobody_has_mail(void) /* of those who sleep: the second for the first letter, the third for the second */
{
    return !(model_is_asleep(1) && *mail(0) != 0) && !(model_is_asleep(2) && *mail(1) != 0);
}

/* The same with a real put and a real read. */
static void read_or_sleep(void)
{
    struct actor *actor = actor_self();
    while (actor->deliveries_count < 1) {
        actor->notes[0] = 0;
        if (actor_read(1, 1) >= 0) {
            return;
        }
        const uint32_t seen = shmq_wait_begin(actor->member);
        actor->notes[0] = 0;
        actor->notes[1] = 1; /* the second look */
        if (actor_read(1, 1) >= 0) {
            return;
        }
        shmq_wait(actor->member, seen, -1);
        actor->notes[0] = 0;
        actor->notes[1] = 0;
        actor_forget();
    }
}

/* ------------------------------------------------------------------ checkpoints: one writer, killed anywhere */
static void save_cursors(void)
{
    shmq_cursor_save(the_checkpoint(), 1, 4096, 7, 7);
    shmq_cursor_save(the_checkpoint(), 2, 8192, 9, 16);
}
static void load_cursor(void)
{
    uint64_t sequence;
    uint64_t position;
    uint64_t ordinal;
    uint64_t index;
    if (!shmq_cursor_load(the_checkpoint(), &sequence, &position, &ordinal, &index)) {
        return;
    }
    const bool first = sequence == 1 && position == 4096 && ordinal == 7 && index == 7;
    const bool second = sequence == 2 && position == 8192 && ordinal == 9 && index == 16;
    if (!first && !second) {
        model_fault("a torn cursor is believed");
    }
}

static void check_cursor(void)
{
    uint64_t sequence = 0;
    uint64_t position;
    uint64_t ordinal;
    uint64_t index;
    const bool whole = shmq_cursor_load(the_checkpoint(), &sequence, &position, &ordinal, &index) && sequence == 2;
    if (!model_is_dead(0) && !whole) {
        model_fault("a cursor was saved and is not there");
    }
}

/* Words that Python moves alone. */
static void move_single_words(void)
{
    shmq_checkpoint_set_head(the_checkpoint(), 5);
    shmq_checkpoint_set_handed(the_checkpoint(), 7);
    shmq_checkpoint_set_holder(the_checkpoint(), 8);
    shmq_member_since(actor_self()->member, 6);
    shmq_shut_down(the_control(), 1);
}
static void put_or_be_refused(void) { actor_put(); }
static void check_single_words(void)
{
    const struct put *put = put_of(1, 0);
    if (the_checkpoint()->head != 5 || the_checkpoint()->handed != 7 || the_checkpoint()->holder != 8
        || the_control()->participants[0].since != 6
        || shmq_is_shut_down(the_control()) != 1) {
        model_fault("a word that was set is not there");
    }
    if (put->answer < 0 && put->answer != SHMQ_SHUT_DOWN) {
        model_fault("a put beside a shut-down answered %lld", (long long)put->answer);
    }
    check();
}
static void setup_single_words(void)
{
    stage_setup();
    memory_heed(&the_control()->shut_down);
}

/* Marks that only rise, whoever raises them, in whichever order. */
static void raise_high(void)
{
    shmq_raise_first_live(the_control(), 2);
    shmq_newest_raise(the_control(), 2, 20);
}
static void raise_low(void)
{
    shmq_raise_first_live(the_control(), 1);
    shmq_newest_raise(the_control(), 1, 10);
}
/* A chunk is sealed, and then another one is made. */
static void seal_and_roll(void)
{
    shmq_chunk *const chunk = actor_self()->chunk;
    shmq_seal(chunk);
    shmq_newest_raise(the_control(), chunk->sequence + 2, chunk->base + 1);
}
static void head_to_one(void) { shmq_checkpoint_raise_head(the_checkpoint(), 1); }
static void head_to_two(void) { shmq_checkpoint_raise_head(the_checkpoint(), 2); }
static void check_heads(void)
{
    if (shmq_checkpoint_head(the_checkpoint()) != 2) {
        model_fault("acknowledged up to 2, and the head is at %llu",
                    (unsigned long long)shmq_checkpoint_head(the_checkpoint()));
    }
}
static void check_raised(void)
{
    if (shmq_first_live(the_control()) != 2 || shmq_newest(the_control()) != 2 || shmq_newest_base(the_control()) != 20) {
        model_fault("raised to 2, 2 and 20, and they are at %llu, %llu and %llu",
                    (unsigned long long)shmq_first_live(the_control()), (unsigned long long)shmq_newest(the_control()),
                    (unsigned long long)shmq_newest_base(the_control()));
    }
}

/* Two threads of one process with one reader: it lies in shared memory here, so that the two are seen. */
static shmq_reader *the_reader(void) { return (shmq_reader *)(image + WORDS_AT); }

static void setup_one_reader(void)
{
    stage_setup();
    stage.members[1].slot = stage.members[0].slot;
    stage.members[1].owner = stage.members[0].owner;
    memcpy(the_reader(), &stage.actors[0].reader, sizeof(shmq_reader));
    for (uint64_t tag = 0; tag < 2; tag++) {
        shmq_put(stage.actors[2].chunk, (const char *)&tag, sizeof tag);
    }
}
static void read_from_one_reader(void)
{
    struct actor *actor = actor_self();
    uint64_t place = 0;
    uint64_t record = 0;
    const int64_t count = shmq_next_many(actor->chunk, the_reader(), 1, &place, &record);
    actor->notes[1] = count == 1 ? record : 0;
    if (count != 1 && count != SHMQ_CONTENDED) {
        model_fault("two messages, two threads, and one of them is told %lld", (long long)count);
    }
}
static void read_one_by_call(void)
{
    struct actor *actor = actor_self();
    const int64_t place = shmq_next(actor->chunk, the_reader(), 0);
    if (place < 0 && place != SHMQ_CONTENDED) {
        model_fault("two messages, two threads, and one of them is told %lld", (long long)place);
    }
    actor->notes[1] = place >= 0 ? ((uint64_t)place >> 30) - RECORD_HEADER_BYTES : 0;
}
static void check_one_reader(void)
{
    const uint64_t one = stage.actors[0].notes[1];
    const uint64_t other = stage.actors[1].notes[1];
    if (one == other) { /* both contended is as bad: one of them was first */
        model_fault("two threads of one reader both get position %llu", (unsigned long long)one);
    }
    if (shmq_next(stage.actors[0].chunk, the_reader(), 0) == SHMQ_CONTENDED) {
        model_fault("nobody reads any more, and the reader is taken");
    }
}

/* A name with a filter tells how far it has passed, before it says that there is nothing. */
static void setup_unwanted(void)
{
    static const uint16_t types[] = {1};
    static shmq_filter *filter; /* for ever: each execution asks the same */
    if (filter == NULL) {
        filter = shmq_filter_new("", 0, types, 1, "", 0);
    }
    stage_setup();
    const uint64_t tag = 0;
    shmq_put(stage.actors[2].chunk, (const char *)&tag, sizeof tag);
    stage.actors[0].reader.checkpoint = the_checkpoint();
    stage.actors[0].reader.filter = filter;
}
static void pass_unwanted(void)
{
    struct actor *const actor = actor_self();
    const int64_t code = shmq_next(actor->chunk, &actor->reader, 0);
    if (code != SHMQ_EMPTY && code != SHMQ_WAITING) {
        model_fault("nothing is wanted, and the name is told %lld", (long long)code);
    }
}
static void check_unwanted(void)
{
    const uint64_t head = the_checkpoint()->head;
    if (head != the_checkpoint()->handed || head < 1 || head > 2) {
        model_fault("the name has passed one message at least, and stands at %llu, handed %llu", (unsigned long long)head,
                    (unsigned long long)the_checkpoint()->handed);
    }
}

/* At most once: the head is published before a message is handed out, and its next holder, who has taken the lock of
 * the name, begins there. */
#define NAME_LOCK 7u
static bool name_is_free(void) { return !kernel_locked(NAME_LOCK); }

static void setup_consumers(void)
{
    stage_setup();
    kernel_hold(NAME_LOCK, 0);
    const uint64_t tag = 7;
    shmq_put(stage.actors[2].chunk, (const char *)&tag, sizeof tag);
    shmq_put(stage.actors[2].chunk, (const char *)&tag, sizeof tag);
}
static void take_messages(void)
{
    struct actor *actor = actor_self();
    actor->reader.checkpoint = the_checkpoint();
    actor_read(2, 1);
}
static void consume(void)
{
    take_messages();
    model_step(1);
    kernel_drop(NAME_LOCK);
}
static void consume_after(void)
{
    struct actor *actor = actor_self();
    model_until(name_is_free);
    if (shmq_lock_try(&actor->member->lock, LOCK_BASE + NAME_LOCK) == 1
        && shmq_reader_seek(actor->chunk, &actor->reader, shmq_checkpoint_head(the_checkpoint())) == SHMQ_OK) {
        take_messages();
    }
}
static void check_at_most_once(void)
{
    const struct actor *one = &stage.actors[0];
    const struct actor *other = &stage.actors[1];
    for (uint32_t i = 0; i < one->deliveries_count; i++) {
        for (uint32_t k = 0; k < other->deliveries_count; k++) {
            if (one->deliveries[i].index == other->deliveries[k].index) {
                model_fault("index %llu is delivered twice", (unsigned long long)one->deliveries[i].index);
            }
        }
    }
    if (the_checkpoint()->handed < one->deliveries_count + other->deliveries_count) {
        model_fault("more messages were handed out than the checkpoint says");
    }
}

/* The same with a cursor, which may stand inside a batch: a word there was stored before the commit, and relaxed. Who
 * begins at it knows that the batch is whole only through the lock. */
static void setup_cursor_in_batch(void)
{
    stage_setup();
    kernel_hold(NAME_LOCK, 0);
}
static void take_one_and_save(void)
{
    struct actor *actor = actor_self();
    actor_read(1, 2);
    shmq_cursor_save(the_checkpoint(), 0, actor->reader.position, actor->reader.ordinal, actor->reader.ordinal);
    model_step(1);
    kernel_drop(NAME_LOCK);
}
static void go_on_at_cursor(void)
{
    struct actor *actor = actor_self();
    uint64_t sequence;
    uint64_t index;
    model_until(name_is_free);
    if (shmq_lock_try(&actor->member->lock, LOCK_BASE + NAME_LOCK) == 1
        && shmq_cursor_load(the_checkpoint(), &sequence, &actor->reader.position, &actor->reader.ordinal, &index)) {
        actor_read(2, 1);
    }
}
static void check_cursor_in_batch(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct actor *actor = &stage.actors[i];
        for (uint32_t k = 0; k < actor->deliveries_count; k++) {
            if (actor->deliveries[k].tag != put_of(2, 0)->tag + actor->deliveries[k].index) {
                model_fault("index %llu is not what was put there", (unsigned long long)actor->deliveries[k].index);
            }
        }
    }
    if (!model_is_dead(0) && stage.actors[0].deliveries_count == 1 && stage.actors[1].deliveries_count == 0) {
        model_fault("the next holder does not find the rest of the batch");
    }
}

/* ------------------------------------------------------------------ a group's ring */
#define MESSAGES_PUT 2u

/* Two messages; both members are in the group. */
static void setup_group(void)
{
    stage_setup();
    for (uint64_t i = 0; i < MESSAGES_PUT; i++) {
        shmq_put(stage.actors[5].chunk, (const char *)&i, sizeof i);
    }
    struct ring *const page = (struct ring *)(image + RING_AT);
    page->tenants[0] = page->tenants[1] = 1;
    memory_quiet(&page->redelivered);
    memory_quiet(&the_checkpoint()->handed);
}

/* What a member has had, in its notes: bit i of [1], message i was handed to it; of [2], its ack of it returned OK. */
static bool had(uint32_t thread, uint64_t index) { return stage.actors[thread].notes[1] >> index & 1; }
static bool acked(uint32_t thread, uint64_t index) { return stage.actors[thread].notes[2] >> index & 1; }

static void finish_taken(shmq_ring *ring, shmq_taken *taken)
{
    struct actor *actor = actor_self();
    actor->notes[1] |= UINT64_C(1) << taken->index;
    if (shmq_ring_ack(ring, taken) == SHMQ_OK) {
        actor->notes[2] |= UINT64_C(1) << taken->index;
    }
}
static void take_and_ack_all(void)
{
    struct actor *actor = actor_self();
    struct shmq_ring ring = stage_ring(model_self());
    shmq_taken taken;
    while (shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1) {
        finish_taken(&ring, &taken);
    }
}
static void check_head_at_the_end(void)
{
    if (the_checkpoint()->head != MESSAGES_PUT) {
        model_fault("everything is finished, and the head stands at %llu",
                    (unsigned long long)the_checkpoint()->head);
    }
}
static void check_shared(void)
{
    for (uint64_t i = 0; i < MESSAGES_PUT; i++) {
        if (had(0, i) == had(1, i)) {
            model_fault("message %llu was handed to %s", (unsigned long long)i, had(0, i) ? "both" : "nobody");
        }
        if (!acked(had(0, i) ? 0 : 1, i)) {
            model_fault("the ack of message %llu was refused", (unsigned long long)i);
        }
    }
    check_head_at_the_end();
}

/* Member 0 has message 0, member 1 message 1; their notes [3] keep the words. */
static void setup_one_each(void)
{
    setup_group();
    for (uint32_t i = 0; i < 2; i++) {
        struct shmq_ring ring = stage_ring(i);
        shmq_taken taken;
        shmq_ring_take(&ring, stage.actors[i].chunk, &stage.actors[i].reader, 1, 0, &taken);
        stage.actors[i].notes[3] = taken.word;
    }
}
static shmq_taken taken_in_setup(void)
{
    return (shmq_taken){.index = model_self(), .word = actor_self()->notes[3], .attempts = 1};
}
static void ack_mine(void)
{
    struct shmq_ring ring = stage_ring(model_self());
    shmq_taken taken = taken_in_setup();
    finish_taken(&ring, &taken);
}
static void return_mine(void)
{
    struct shmq_ring ring = stage_ring(model_self());
    shmq_taken taken = taken_in_setup();
    if (shmq_ring_return(&ring, &taken) != SHMQ_OK) {
        model_fault("what is mine cannot be given back");
    }
}
/* Work off what comes back, asleep until there is something. */
static void ack_mine_and_what_comes_back(void)
{
    struct actor *actor = actor_self();
    struct shmq_ring ring = stage_ring(model_self());
    shmq_taken taken = taken_in_setup();
    int64_t next;
    finish_taken(&ring, &taken);
    while (!had(1, 0)) {
        if (shmq_ring_retake(&ring, false, 1, &taken, &next) == 1) {
            finish_taken(&ring, &taken);
            break;
        }
        const uint32_t seen = shmq_wait_begin(actor->member);
        if (shmq_ring_retake(&ring, false, 1, &taken, &next) == 1) {
            finish_taken(&ring, &taken);
            break;
        }
        shmq_wait(actor->member, seen, -1);
    }
}
static void check_came_back(void)
{
    if (!acked(1, 0)) {
        model_fault("the message that was given back is finished by nobody");
    }
    check_head_at_the_end();
}

/* Death, or what looks like it: member 0's lock goes at any moment; member 1 takes over what it holds. */
static void reap_and_ack(void)
{
    struct shmq_ring ring = stage_ring(model_self());
    shmq_taken taken = taken_in_setup();
    int64_t next;
    finish_taken(&ring, &taken);
    model_until(first_slot_is_free);
    shmq_ring_join(&ring);
    while (shmq_ring_retake(&ring, false, 1, &taken, &next) == 1) {
        finish_taken(&ring, &taken);
    }
}
static void check_reaped(void)
{
    if (acked(0, 0) && acked(1, 0)) {
        model_fault("two acks of one message were both accepted");
    }
    if (had(1, 0) && !acked(1, 0)) {
        model_fault("the ack of whom it was given to was refused");
    }
    check_head_at_the_end();
}
static void ack_and_exit(void)
{
    ack_mine();
    model_step(1);
    kernel_drop(0);
}

/* Who asks about the lock of a dead member sees all that it did: the kernel asks under the lock of the list, which the
 * dead one's exit gave up (and the list is never empty, since who asks has a seat itself). Elsewhere in this model a
 * test orders nothing; here it does, by memory_acquire.
 *
 * Killed while taking, or while taking back what a dead one held: whoever comes next finds all of it. */
static void take_and_exit(void)
{
    take_and_ack_all();
    model_step(1);
    kernel_drop(model_self());
}
static void take_what_is_left(void)
{
    struct actor *actor = actor_self();
    struct shmq_ring ring = stage_ring(model_self());
    shmq_taken taken;
    int64_t next;
    shmq_ring_join(&ring);
    while (shmq_ring_retake(&ring, false, 1, &taken, &next) == 1
           || shmq_ring_take(&ring, actor->chunk, &actor->reader, 1, 0, &taken) == 1) {
        finish_taken(&ring, &taken);
    }
}
static void take_after_the_first(void)
{
    model_until(first_slot_is_free);
    memory_acquire(0);
    take_what_is_left();
}
static void setup_first_is_dead(void)
{
    setup_one_each();
    kernel_drop(0);
}
static void reap_and_exit(void)
{
    take_what_is_left();
    model_step(1);
    kernel_drop(1);
}
static void nothing(void) {}
static bool second_slot_is_free(void) { return !kernel_locked(1); }
static void take_after_the_second(void)
{
    model_until(second_slot_is_free);
    memory_acquire(1);
    take_what_is_left();
}
static void check_all_finished_once(void)
{
    for (uint64_t i = 0; i < MESSAGES_PUT; i++) {
        if (acked(0, i) + acked(1, i) + acked(2, i) > 1) {
            model_fault("message %llu was finished twice", (unsigned long long)i);
        }
    }
    check_head_at_the_end();
}

/* ------------------------------------------------------------------ the table */
const struct scenario scenarios[] = {
    /* the cheap ones first: a weakened site is then soon caught */
    PLAY("a_returned_put_is_seen",
         "P1: what returned before is there, for whoever knows that it returned", setup, check, NULL, 0,
         THREAD("producer", put_and_tell), THREAD("reader", read_once_told)),
    PLAY("passing_a_claim_needs_pad",
         "A1: a living owner that lost its lock is padded or commits, never both", setup, check_zombie, NULL, 0,
         THREAD("zombie", put_one), THREAD("reader", read_twice), THREAD("mishap", lose_lock_of_first)),
    PLAY("zombie_batch_is_fenced",
         "A1: a zombie scribbles inside its padding only, and is told so", setup, check_zombie, NULL, 0,
         THREAD("zombie", put_batch), THREAD("reader", read_twice), THREAD("mishap", lose_lock_of_first)),
    PLAY("zombie_shortens_too_late",
         "A1, C2: so does a zombie that writes a filler", setup, check_zombie, NULL, 0,
         THREAD("zombie", reserve_and_shorten), THREAD("reader", read_twice), THREAD("mishap", lose_lock_of_first)),
    PLAY("two_readers_pad_at_once",
         "D: one of them counts, both go on, through windows as well", setup_two_readers, check, NULL, 1,
         MORTAL("producer", put_one), THREAD("reader", read_briefly), THREAD("other", read_briefly)),
    PLAY("my_own_claim_is_alive", "A7: an owner equal to me is alive by definition, whatever its lock says",
         setup_one_process, check_one_process, NULL, 0, THREAD("producer", put_one), THREAD("reader", read_twice)),
    PLAY("who_may_not_write_waits", "A1: who cannot pad a dead claim does not pass it", setup_powerless_reader, check,
         NULL, 1, MORTAL("producer", put_one), THREAD("powerless", read_twice), THREAD("reader", read_briefly)),
    PLAY("abort_beside_a_padding_reader",
         "A1: a claim ends once", setup, check, NULL, 0,
         THREAD("zombie", reserve_and_abort), THREAD("reader", read_twice), THREAD("mishap", lose_lock_of_first)),
    PLAY("seal_races_late_producers",
         "D: nobody claims behind a SEAL; all agree on the successor's base", setup_nearly_full, check_seal, NULL, 0,
         THREAD("producer", put_until_sealed), THREAD("other", put_until_sealed)),
    PLAY("seal_beside_a_producer",
         "D: sealed at any moment, the count is final", setup_nearly_full, check_seal, NULL, 0,
         THREAD("sealer", seal), THREAD("producer", put_until_sealed)),
    PLAY("hint_names_region_ends",
         "B6: whatever is claimed, shortened or killed", setup, check, NULL, 1,
         MORTAL("batch", put_batch), THREAD("shorter", reserve_and_shorten)),
    PLAY("seek_never_lands_inside_a_claim",
         "A6: nothing names the inside of an open region", setup, check, NULL, 1,
         MORTAL("batch", put_batch), THREAD("seeker", seek_to_second)),
    PLAY("takeover_buries_then_counts_on",
         "B12: lock, bury, generation + 1, use; the new tenant is nobody's dead one",
         setup_takeover, check_takeover, NULL, 1,
         MORTAL("tenant", put_and_exit), THREAD("newcomer", take_over_and_put), THREAD("reader", read_twice)),
    PLAY("tenants_never_share_a_generation",
         "B12: each tenant of a slot counts on from the last", setup_takeover, check_generations, NULL, 1,
         MORTAL("tenant", put_and_exit), MORTAL("newcomer", take_over_and_exit), THREAD("next", take_over_and_exit)),
    PLAY("fenced_are_counted",
         "counters lose nothing between two who count at once", setup_two_fenced, check_two_fenced, NULL, 0,
         THREAD("zombie", commit_too_late), THREAD("other", commit_too_late)),
    PLAY("padded_are_counted",
         "counters lose nothing between two who count at once", setup_two_dead, check, NULL, 0,
         THREAD("burier", bury_other), THREAD("other", bury_other)),
    PLAY("joining_is_counted",
         "B1: watchers see each who joins", setup_two_join, check_two_joined, NULL, 0,
         THREAD("newcomer", join_queue), THREAD("other", join_queue)),
    PLAY("sleeper_and_waker",
         "B1: mark, fence, look again; commit, fence, look for the mark", stage_setup, NULL, NULL, 0,
         THREAD("waker", send_first), THREAD("sleeper", sleep_for_first)),
    PLAY("waker_killed_before_the_call",
         "B1: death makes no sound, so every death wakes all", stage_setup, NULL, nothing_was_sent, 1,
         MORTAL("waker", send_first), THREAD("sleeper", sleep_for_first), THREAD("watcher", wake_after_death)),
    PLAY("waker_stops_before_the_call",
         "P6: one that is stopped at any step of a wake keeps nobody asleep who has mail", stage_setup, NULL,
         nobody_has_mail, 1, STOPS("waker", send_first), THREAD("sleeper", sleep_for_first),
         THREAD("other", send_second)),
    PLAY("reader_sleeps_until_a_put",
         "B1: the same with a real put and a real read", stage_setup, check, NULL, 0,
         THREAD("producer", put_one), THREAD("reader", read_or_sleep)),
    PLAY("cursor_torn_by_a_kill",
         "a cursor is believed only when its check agrees", stage_setup, check_cursor, NULL, 1,
         MORTAL("consumer", save_cursors), THREAD("other", load_cursor)),
    PLAY("single_words_are_stored", "words that Python moves: a head, a shut-down beside a put", setup_single_words,
         check_single_words, NULL, 0, THREAD("owner", move_single_words), THREAD("producer", put_or_be_refused)),
    PLAY("zombie_whose_slot_is_taken", "A1, B12: the old tenant lives on without its lock", setup_takeover,
         check_takeover_of_living, NULL, 0, THREAD("zombie", put_one), THREAD("newcomer", take_over_and_put),
         THREAD("mishap", lose_lock_of_first)),
    PLAY("head_passes_on_with_the_lock",
         "at most once: the next holder of a name begins at its head", setup_consumers, check_at_most_once, NULL, 1,
         MORTAL("consumer", consume), THREAD("next", consume_after)),
    PLAY("cursor_inside_a_batch", "A6: a cursor names the inside of a region only once that is committed",
         setup_cursor_in_batch, check_cursor_in_batch, NULL, 1, MORTAL("consumer", take_one_and_save),
         THREAD("next", go_on_at_cursor), THREAD("batch", put_batch)),
    PLAY("many_are_read_as_one_by_one", "A1, A6: a call for many stops where a call for one would wait", setup,
         check_zombie, NULL, 0, THREAD("zombie", put_batch), THREAD("reader", read_many),
         THREAD("mishap", lose_lock_of_first)),
    PLAY("four_are_read_as_one_by_one", "A1, A6: of four that are summed up side by side all are seen, or none", setup,
         check_zombie, NULL, 1, MORTAL("zombie", put_batch_of_four), THREAD("reader", read_many),
         THREAD("mishap", lose_lock_of_first)),
    PLAY("four_beside_what_was_left", "likewise in a chunk with a grain", setup_grain, check, NULL, 1,
         MORTAL("batch", put_batch_of_four), THREAD("reader", read_many)),
    PLAY("marks_only_rise", "A2: first_live rises before anything is unlinked, and never falls", stage_setup,
         check_raised, NULL, 0, THREAD("first", raise_high), THREAD("other", raise_low)),
    PLAY("marks_of_who_rolls", "A2: who sees that there is a later chunk sees that this one is sealed", setup, check, NULL, 0,
         THREAD("roller", seal_and_roll), THREAD("reader", read_twice)),
    PLAY("marks_of_a_head", "two threads of one handle acknowledge: the head stands where the farther one put it",
         stage_setup, check_heads, NULL, 0, THREAD("thread", head_to_one), THREAD("other", head_to_two)),
    PLAY("marks_of_what_is_passed", "what a filter leaves out is passed before the name says that there is nothing",
         setup_unwanted, check_unwanted, NULL, 0, THREAD("consumer", pass_unwanted), THREAD("producer", actor_put)),
    PLAY("two_threads_of_one_reader", "one of them goes first, or is told that it did not", setup_one_reader,
         check_one_reader, NULL, 0, THREAD("thread", read_from_one_reader), THREAD("other", read_one_by_call)),
    PLAY("two_seal_at_once",
         "D: a second SEAL is the first", setup, check_seal, NULL, 0,
         THREAD("sealer", seal), THREAD("other", seal), THREAD("producer", put_one)),
    PLAY("killed_sleeper_leaves_its_mark",
         "B1: a mark that stays costs one wake too many, and no wake-up", stage_setup, NULL, NULL, 1,
         MORTAL("sleeper", sleep_for_first), THREAD("waker", send_first), THREAD("other", sleep_for_first)),
    PLAY("two_wakers_lose_no_bell",
         "B1: two who ring at once ring twice", stage_setup, NULL, NULL, 0,
         THREAD("waker", send_first), THREAD("other", send_second), THREAD("sleeper", sleep_for_both)),
    PLAY("filler_before_commit",
         "C2: no walker falls on a free word inside a shortened region", setup, check, NULL, 0,
         THREAD("shorter", reserve_and_shorten), THREAD("producer", put_one), THREAD("reader", read_twice)),
    PLAY("batch_beside_put_and_reader",
         "A6: the words inside a batch are never seen before its commit", setup, check, NULL, 0,
         THREAD("batch", put_batch), THREAD("producer", put_one), THREAD("reader", read_twice)),
    PLAY("grain_hides_what_was_left", "regions of a chunk with a grain end at one: nobody looks between the words",
         setup_grain, check, NULL, 1,
         MORTAL("batch", put_batch), THREAD("producer", put_one), THREAD("reader", read_twice)),
    PLAY("grain_behind_a_shorter_one", "what a reservation leaves ends at a grain, too", setup_grain, check, NULL, 1,
         MORTAL("shorter", reserve_and_shorten), THREAD("producer", put_one), THREAD("reader", read_twice)),
    PLAY("two_producers_beside_a_reader",
         "D: one CAS claims, one commits", setup, check, NULL, 0,
         THREAD("producer", put_one), THREAD("other", put_one), THREAD("reader", read_patiently)),
    PLAY("killed_producer_is_padded",
         "P1: killed at any step, it holds nobody back and costs nobody else's message", setup, check, NULL, 1,
         MORTAL("producer", put_one), THREAD("other", put_one), THREAD("reader", read_twice)),
    PLAY("ringing_takes_no_bell_back",
         "B1: who rings for a death takes back nobody else's bell", stage_setup, NULL, NULL, 0,
         THREAD("watcher", ring_for_a_death), THREAD("waker", send_both), THREAD("sleeper", sleep_for_both)),
    PLAY("killed_while_shortening",
         "C2: nor when the one who shortens is killed", setup, check, NULL, 1,
         MORTAL("shorter", reserve_and_shorten), THREAD("producer", put_one), THREAD("reader", read_twice)),
    PLAY("killed_batch_is_all_or_nothing",
         "A5, A6: killed at any step, all of a batch is there or none of it", setup, check, NULL, 1,
         MORTAL("batch", put_batch), THREAD("producer", put_one), THREAD("reader", read_twice)),
    PLAY("second_sleeper_is_woken",
         "B1: a bell that was seen had its mark cleared before: acquire and release of `bell`",
         stage_setup, NULL, NULL, 0,
         THREAD("waker", send_both), THREAD("sleeper", sleep_for_first), THREAD("other", sleep_for_second)),
    PLAY("group_members_share", "each message is handed to one member, and the head comes to the end", setup_group,
         check_shared, NULL, 0, THREAD("member", take_and_ack_all), THREAD("other", take_and_ack_all)),
    PLAY("group_acks_bring_the_head_on", "whoever acks last sees the other's, and moves the head over both",
         setup_one_each, check_head_at_the_end, NULL, 0, THREAD("member", ack_mine), THREAD("other", ack_mine)),
    PLAY("group_finds_what_came_back", "B7: a return is found, also by whoever was about to sleep", setup_one_each,
         check_came_back, NULL, 0, THREAD("member", return_mine), THREAD("other", ack_mine_and_what_comes_back)),
    PLAY("group_ack_races_redelivery", "B10: one CAS decides between a late ack and who takes over", setup_one_each,
         check_reaped, NULL, 0, THREAD("zombie", ack_mine), THREAD("other", reap_and_ack),
         THREAD("mishap", lose_lock_of_first)),
    PLAY("group_member_is_killed", "P7: killed at any step of an ack, the message is finished once or comes again",
         setup_one_each, check_reaped, NULL, 1, MORTAL("member", ack_and_exit), THREAD("other", reap_and_ack)),
    PLAY("group_taker_is_killed", "P7: killed at any step of a claim, the message comes to another", setup_group,
         check_all_finished_once, NULL, 1, MORTAL("member", take_and_exit), THREAD("other", take_after_the_first)),
    PLAY("group_reaper_is_killed", "P7: who takes back what the dead held may die at it; the next one does it again",
         setup_first_is_dead, check_all_finished_once, NULL, 1, THREAD("dead", nothing),
         MORTAL("reaper", reap_and_exit), THREAD("next", take_after_the_second)),
    /* ---- larger: drawn at random in the short share, as far as time allows in the long one */
    LARGE("zombie_batch_beside_a_producer",
         "A1: and the next message is where all readers look for it", setup, check_zombie, NULL, 0,
         THREAD("zombie", put_batch), THREAD("reader", read_twice), THREAD("mishap", lose_lock_of_first),
         THREAD("producer", put_one)),
    LARGE("hints_of_three",
         "B6, with three who claim", setup, check, NULL, 1,
         MORTAL("batch", put_batch), THREAD("shorter", reserve_and_shorten), THREAD("producer", put_one)),
    LARGE("two_puts_each",
         "D, with two messages each", setup, check, NULL, 0,
         THREAD("producer", put_two), THREAD("other", put_two), THREAD("reader", read_patiently)),
    LARGE("three_producers_one_killed",
         "D, P1: three producers, one of them killed at any step", setup, check, NULL, 1,
         MORTAL("producer", put_one), MORTAL("other", put_one), THREAD("third", put_one), THREAD("reader", read_twice)),
    LARGE("batches_killed_beside_a_zombie",
         "A1, A6: batches, one killed, one fenced", setup, check, NULL, 1,
         THREAD("zombie", put_batch_of_three), MORTAL("batch", put_batch), THREAD("reader", read_patiently),
         THREAD("mishap", lose_lock_of_first)),
    LARGE("killed_sleeper_and_two_mails",
         "B1: a mark that stays, two messages", stage_setup, NULL, NULL, 1,
         MORTAL("sleeper", sleep_for_first), THREAD("waker", send_both), THREAD("other", sleep_for_second)),
    LARGE("waker_stops_before_two_sleepers",
         "P6: likewise, and one of two is woken by somebody else", stage_setup, NULL, nobody_has_mail, 1,
         STOPS("waker", send_first), THREAD("sleeper", sleep_for_first), THREAD("second", sleep_for_second),
         THREAD("other", send_second)),
    LARGE("three_tenants",
         "B12: tenants that put, killed or leaving", setup_takeover, check_generations, NULL, 1,
         MORTAL("tenant", put_and_exit), MORTAL("newcomer", put_as_tenant), THREAD("next", put_as_tenant)),
    LARGE("seal_race_of_three",
         "D: three producers at the end of a chunk, one killed", setup_nearly_full, check_seal, NULL, 1,
         MORTAL("producer", put_until_sealed), THREAD("other", put_until_sealed), THREAD("third", put_until_sealed),
         THREAD("reader", read_twice)),
    LARGE("sleepers_wakers_and_a_death",
         "B1: two of each, one waker killed, and the watcher", stage_setup, NULL, NULL, 1,
         MORTAL("waker", send_first), THREAD("other", send_second), THREAD("sleeper", sleep_for_second),
         THREAD("second", sleep_for_second), THREAD("watcher", wake_after_death)),
};
const size_t scenarios_count = sizeof scenarios / sizeof scenarios[0];
