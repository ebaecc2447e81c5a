/* space_scenarios.c - the schedules of bounds, of the index beside the messages, and of a SEAL that adopts. */
#include <string.h>

#include "atomic.h"
#include "chunk/index.h"
#include "stage.h"

#define FAR (UINT64_C(1) << 40)
#define ADOPTION UINT64_C(77)

static void put_before(uint32_t messages)
{
    for (uint64_t i = 0; i < messages; i++) {
        shmq_put(stage.actors[5].chunk, (const char *)&i, sizeof i);
    }
}

/* ------------------------------------------------------------------ bounds: the limit of one handle */
/* A handle that two threads of one process share: it lies in shared memory here, so that the two are seen. */
static shmq_chunk *the_handle(void) { return (shmq_chunk *)(image + WORDS_AT + 1024); }

static void setup_limit(void)
{
    stage_setup();
    put_before(1);
    the_control()->bounds = 2;
    static_assert(sizeof(shmq_chunk) <= 3072, "a handle fits behind the words");
    memcpy(the_handle(), stage.actors[0].chunk, sizeof(shmq_chunk));
    memory_quiet(&the_handle()->populated);
    shmq_limit(the_handle(), 1, 9, FAR); /* of bounds that were: wide */
}
static void take_limit_of_one(void) { shmq_limit(the_handle(), 2, 1, FAR); }
static void take_limit_of_place(void)
{
    shmq_limit(the_handle(), 2, 9, shmq_chunk_first_position(the_handle()));
}
static void put_by_limit(void)
{
    const uint64_t tag = 9;
    const int64_t answer = shmq_put(the_handle(), (const char *)&tag, sizeof tag);
    if (answer != SHMQ_FULL) {
        model_fault("a put that no limit allows answered %lld", (long long)answer);
    }
}
static void take_limit_and_put(void)
{
    const uint64_t tag = 9;
    shmq_limit(the_handle(), 2, 2, FAR);
    if (shmq_put(the_handle(), (const char *)&tag, sizeof tag) != 1) {
        model_fault("a put that the limit allows is refused: %s", shmq_error());
    }
}

/* ------------------------------------------------------------------ bounds: what all see of them */
static void setup_bounds(void)
{
    stage_setup();
    memory_heed(&the_control()->bounds);
    the_control()->bounds = 1;
    the_control()->max_messages = 5;
    the_control()->max_bytes = 500;
    the_checkpoint()->head = 5;
}
static void change_bounds(void) { shmq_bounds_set(the_control(), 1, 64); }
static void look_at_bounds(void)
{
    uint64_t messages;
    uint64_t bytes;
    uint64_t dropped;
    const uint64_t bounds = shmq_bounds(the_control(), &messages, &bytes, &dropped);
    if (bounds == 2 && (messages != 1 || bytes != 64)) {
        model_fault("the new bounds are said to be %llu messages and %llu bytes", (unsigned long long)messages,
                    (unsigned long long)bytes);
    }
}
static void check_bounds(void)
{
    if (the_control()->bounds != 2 || the_control()->max_messages != 1 || the_control()->max_bytes != 64) {
        model_fault("bounds that were set are not there");
    }
}
static void take_head_back(void)
{
    shmq_checkpoint_set_head(the_checkpoint(), 0);
    shmq_bounds_recount(the_control());
}
static void compute_limit(void)
{
    uint64_t messages;
    uint64_t bytes;
    uint64_t dropped;
    const uint64_t bounds = shmq_bounds(the_control(), &messages, &bytes, &dropped);
    const uint64_t head = shmq_checkpoint_head(the_checkpoint());
    if (bounds == 2 && head != 0) {
        model_fault("a limit is taken for good that goes by a head which was taken back");
    }
}
static void begin_bounds(void) { shmq_bounds_begin(the_control()); }
static void check_both_moved(void)
{
    if (the_control()->bounds != 3) {
        model_fault("two moved the bounds, and they stand at %llu", (unsigned long long)the_control()->bounds);
    }
}

/* ------------------------------------------------------------------ bounds: dropping the oldest */
static void setup_drop(void)
{
    stage_setup();
    put_before(1);
    the_control()->bounds = 1;
    memory_quiet(&the_control()->room_waiters);
}
static void drop_to_one(void) { shmq_drop(the_control(), 1); }
static void drop_to_two(void) { shmq_drop(the_control(), 2); }
static void get_first(void)
{
    struct actor *const actor = actor_self();
    actor->reader.checkpoint = the_checkpoint();
    const int64_t answer = shmq_next(actor->chunk, &actor->reader, 0);
    if (answer < 0 && answer != SHMQ_EMPTY) {
        model_fault("the consumer is told %lld", (long long)answer);
    }
    actor->notes[1] = answer >= 0;
}
static void check_drop(void)
{
    if (shmq_checkpoint_dropped(the_checkpoint()) != !stage.actors[1].notes[1]) {
        model_fault("what was passed over is counted %llu times",
                    (unsigned long long)shmq_checkpoint_dropped(the_checkpoint()));
    }
}
static void check_dropped(void)
{
    if (the_control()->dropped != 2) {
        model_fault("dropped up to 2, and it says %llu", (unsigned long long)the_control()->dropped);
    }
}
static void set_dropped(void)
{
    shmq_checkpoint_set_dropped(the_checkpoint(), 3);
    if (shmq_checkpoint_dropped(the_checkpoint()) != 3) {
        model_fault("a count that was set is not there");
    }
}

/* ------------------------------------------------------------------ the index */
/* An entry for each message, four to a block. */
static void setup_index(void)
{
    stage_setup_spaced(1);
}
static void put_tagged(uint32_t i)
{
    struct put *const put = &stage.actors[5].puts[stage.actors[5].puts_count++];
    *put = (struct put){.count = 1, .returned = true, .tag = 0xff000 + i * 256};
    put->answer = shmq_put(stage.actors[5].chunk, (const char *)&put->tag, sizeof put->tag);
}
/* The next message makes the first block. */
static void setup_index_of_one(void)
{
    setup_index();
    put_tagged(1);
}
/* And the second one makes none. */
static void setup_index_beside(void)
{
    setup_index_of_one();
    stage.actors[1].chunk->index_next = UINT64_MAX;
}
static void setup_index_with_block(void)
{
    setup_index_of_one();
    put_tagged(2);
}
/* Four messages, and an entry for each second one: two more lie between two entries. */
static void setup_index_of_two(void)
{
    stage_setup_spaced(2);
    for (uint32_t i = 1; i <= 4; i++) {
        put_tagged(i);
    }
}
static void put_two(void) { actor_put_many(2); }
/* What is found is what is there: the record of that ordinal, by whatever way. */
static void find_ordinal(uint64_t ordinal)
{
    uint64_t at = 0;
    const int64_t place = shmq_find(actor_self()->chunk, ordinal, &at);
    if (place < 0) {
        if (place != SHMQ_EMPTY && place != SHMQ_WAITING && place != SHMQ_PADDED) {
            model_fault("looking for ordinal %llu ends with %lld: %s", (unsigned long long)ordinal, (long long)place,
                        shmq_error());
        }
        return;
    }
    struct record record;
    shared_read(&record, image + CHUNK_AT + at, sizeof record);
    if (record.ordinal != ordinal) {
        model_fault("ordinal %u is found for %llu", record.ordinal, (unsigned long long)ordinal);
    }
}
static void find_first(void) { find_ordinal(1); }
static void find_later(void)
{
    find_ordinal(1);
    find_ordinal(2);
}
/* Every entry that is there proves itself, and so does every block; what is found by computing where it lies is what a walk
 * finds, which is how messages without checksums are found. */
static void check_index(void)
{
    check_all();
    shmq_chunk *const chunk = stage.actors[THREADS].chunk;
    uint64_t end = 0;
    shmq_sealed(chunk, &end);
    for (uint64_t ordinal = 0; ordinal < end; ordinal++) {
        uint64_t at;
        const int64_t place = shmq_find(chunk, ordinal, &at);
        if (place < 0 && place != SHMQ_PADDED) {
            model_fault("ordinal %llu is not found: %lld", (unsigned long long)ordinal, (long long)place);
        }
        chunk->checksum = false;
        const int64_t walked = shmq_find(chunk, ordinal, &at);
        chunk->checksum = true;
        if (walked != place) {
            model_fault("ordinal %llu is found at %lld, and walked to at %lld", (unsigned long long)ordinal,
                        (long long)place, (long long)walked);
        }
    }
}

/* ------------------------------------------------------------------ a SEAL that adopts */
static void adopt_here(void)
{
    struct actor *const actor = actor_self();
    actor->notes[1] = shmq_seal_adopt(actor->chunk, ADOPTION) == SHMQ_OK;
}
static void seal_here(void) { shmq_seal(actor_self()->chunk); }
static void adopt_another(void)
{
    struct actor *const actor = actor_self();
    actor->notes[1] = shmq_seal_adopt(actor->chunk, ADOPTION + 1) == SHMQ_OK;
}
static void put_once(void) { actor_put(); }
static void check_adopted(void)
{
    check_all();
    shmq_chunk *const chunk = stage.actors[THREADS].chunk;
    const uint64_t id = shmq_adoption(chunk);
    for (uint32_t i = 0; i < 2; i++) {
        if (stage.actors[i].notes[1] != (id == ADOPTION + i) && !model_is_dead(i)) {
            model_fault("the SEAL adopts %llu, and %s was told %llu", (unsigned long long)id, model_thread_name(i),
                        (unsigned long long)stage.actors[i].notes[1]);
        }
    }
}

/* Several sets by one SEAL: a staged chunk gets its id anew, as plain memory, and then the chain's end is sealed. */
static shmq_chunk *staged;
static void setup_staged(void)
{
    stage_setup();
    staged = stage_second();
    shmq_seal(staged);
}
static void seal_again_and_adopt(void)
{
    if (shmq_seal_again(staged, ADOPTION) != SHMQ_OK || shmq_seal_adopt(actor_self()->chunk, ADOPTION) != SHMQ_OK) {
        model_fault("nobody else seals, and it cannot");
    }
}
static void follow_the_seal(void)
{
    if (shmq_adoption(actor_self()->chunk) == ADOPTION && shmq_adoption(staged) != ADOPTION) {
        model_fault("the adopted chunk does not say by what");
    }
}

/* ------------------------------------------------------------------ the table */
const struct scenario space_scenarios[] = {
    PLAY("bound_limit_is_whole", "B: two threads of one handle; the bounds it is of say that its numbers are there",
         setup_limit, NULL, NULL, 0, THREAD("thread", take_limit_of_one), THREAD("other", put_by_limit)),
    PLAY("bound_limit_of_bytes_is_whole", "B: the same by bytes", setup_limit, NULL, NULL, 0,
         THREAD("thread", take_limit_of_place), THREAD("other", put_by_limit)),
    PLAY("bound_limit_is_taken_up", "B: what it allows is put", setup_limit, NULL, NULL, 0,
         THREAD("thread", take_limit_and_put)),
    PLAY("bound_change_is_seen_whole", "B: who sees that bounds were moved sees the new ones", setup_bounds,
         check_bounds, NULL, 0, THREAD("operator", change_bounds), THREAD("producer", look_at_bounds)),
    PLAY("bound_head_goes_back", "B: nor goes by a head that was taken back before", setup_bounds, NULL, NULL, 0,
         THREAD("consumer", take_head_back), THREAD("producer", compute_limit)),
    PLAY("bound_movers_both_count", "B: two who move them move them twice", setup_bounds, check_both_moved, NULL, 0,
         THREAD("consumer", take_head_back), THREAD("operator", begin_bounds)),
    PLAY("bound_drop_beside_a_take", "B: what is passed over is counted, and what is handed out is not", setup_drop,
         check_drop, NULL, 0, THREAD("producer", drop_to_one), THREAD("consumer", get_first)),
    PLAY("bound_dropped_only_rises", "B: whoever drops less", setup_drop, check_dropped, NULL, 0,
         THREAD("producer", drop_to_one), THREAD("other", drop_to_two)),
    PLAY("bound_dropped_is_set", "B: a count that Python sets", setup_drop, NULL, NULL, 0,
         THREAD("consumer", set_dropped)),
    PLAY("index_grows_beside_a_reader", "an entry is a hint that proves itself", setup_index_of_one, check_index, NULL,
         0, THREAD("producer", put_once), THREAD("reader", find_first)),
    PLAY("index_is_used_beside_a_producer", "also where its block is there", setup_index_with_block, check_index, NULL, 0,
         THREAD("producer", put_once), THREAD("reader", find_later)),
    PLAY("index_block_beside_a_claim", "a block takes its room as a message does", setup_index_beside, check_index, NULL,
         0, THREAD("producer", put_once), THREAD("other", put_once)),
    PLAY("index_between_two_entries", "what lies where it is computed to lie counts once it was committed",
         setup_index_of_two, check_index, NULL, 1, MORTAL("producer", put_two), THREAD("other", put_once)),
    LARGE("index_maker_is_killed", "a block without its number is a block", setup_index_of_one, check_index, NULL, 1,
         MORTAL("producer", put_once), THREAD("other", put_once)),
    LARGE("index_two_make_a_block", "one is used, the other is skipped", setup_index_of_one, check_index, NULL, 0,
          THREAD("producer", put_once), THREAD("other", put_once), THREAD("reader", find_first)),
    PLAY("seal_adopts_once", "A4: two adoptions at one end, and a producer", setup_index, check_adopted, NULL, 0,
         THREAD("adopter", adopt_here), THREAD("other", adopt_another), THREAD("producer", put_once)),
    PLAY("seal_adopts_or_is_plain", "A4: an adoption beside a plain SEAL", setup_index, check_adopted, NULL, 1,
         MORTAL("adopter", adopt_here), THREAD("sealer", seal_here), THREAD("producer", put_once)),
    PLAY("seal_shows_what_it_adopts", "A4: who sees the SEAL sees what was written into the set before", setup_staged,
         NULL, NULL, 0, THREAD("adopter", seal_again_and_adopt), THREAD("reader", follow_the_seal)),
};
const size_t space_scenarios_count = sizeof space_scenarios / sizeof space_scenarios[0];
