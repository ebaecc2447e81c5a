/* stage.c - one chunk and the processes around it; what must hold at every step and at the end. */
#include "stage.h"

#include <string.h>

#include "atomic.h"

struct stage stage;
static struct stage kept;
static const uint8_t queue_id[16] = "a model's queue";
static struct actor *const checker = &stage.actors[THREADS];

static const uint8_t *the_chunk(void) { return image + CHUNK_AT; }
static word_t raw_word(uint64_t position)
{
    word_t word;
    memcpy(&word, the_chunk() + position, sizeof word);
    return word;
}

/* ------------------------------------------------------------------ setting up */
static void seat(uint32_t i)
{
    static shmq_lock locks[THREADS + 1][2]; /* descriptors are the model's own: one set serves all scenarios */
    if (locks[i][0].forks == 0) {
        shmq_lock_open(&locks[i][0], kernel_lock_fd(i));
        shmq_lock_open(&locks[i][1], kernel_test_fd(i));
    }
    stage.members[i] = (struct shmq_member){
        .seats = OWNER_SLOTS,
        .left = UINT64_MAX,
        .control = the_control(), .lock = locks[i][0], .test = locks[i][1], .guard = &kernel_guard};
    if (i < THREADS) {
        stage.members[i].slot = i;
        stage.members[i].owner = owner_make(i, 1);
        the_control()->participants[i].generation = 1;
        kernel_hold(i, i);
    }
}

static shmq_chunk *open_chunk(uint32_t i, bool writable)
{
    static shmq_chunk *chunks[THREADS + 1];
    int code;
    shmq_chunk_free(chunks[i]);
    chunks[i] = shmq_chunk_new(image + CHUNK_AT, CAPACITY_MIN, true, writable, true, 0, 0, queue_id,
                               &stage.members[i], &code);
    return chunks[i];
}

/* Words that decide nothing in most scenarios: looking at them is no step there. */
static void quieten(void)
{
    struct control *control = the_control();
    memory_quiet(&control->shut_down);
    memory_quiet(&control->finished);
    memory_quiet(&control->bounds);
    memory_quiet(&control->padded);
    memory_quiet(&control->fenced);
    memory_quiet(&control->members);
    for (uint32_t i = 0; i < OWNER_SLOTS; i++) {
        memory_quiet(&control->participants[i].pid);
        memory_quiet(&control->participants[i].pid_namespace);
        memory_quiet(&control->participants[i].start_time);
        memory_quiet(&control->participants[i].boot_tag);
        memory_quiet(&control->participants[i].since);
    }
}

void stage_setup(void) { stage_setup_spaced(64); }

shmq_chunk *stage_second(void)
{
    static shmq_chunk *second;
    int code;
    shmq_chunk_free(second);
    shmq_chunk_format(image + SECOND_AT, CAPACITY_MIN, queue_id, 2, 1, 9, 9, 64, 0, 0);
    second = shmq_chunk_new(image + SECOND_AT, CAPACITY_MIN, true, true, true, 9, 9, queue_id,
                            &stage.members[0], &code);
    return second;
}

static void set_up(uint32_t spacing, uint32_t grain)
{
    memset(&stage, 0, sizeof stage);
    shmq_chunk_format(image + CHUNK_AT, CAPACITY_MIN, queue_id, 1, 1, 0, 0, spacing, grain, 0);
    quieten();
    for (uint32_t i = 0; i <= THREADS; i++) {
        struct actor *actor = &stage.actors[i];
        seat(i);
        actor->member = &stage.members[i];
        actor->chunk = open_chunk(i, true);
        actor->reader.position = shmq_chunk_first_position(actor->chunk);
    }
}

void stage_setup_spaced(uint32_t spacing) { set_up(spacing, 0); }

void stage_setup_grained(uint32_t grain)
{
    set_up(64, grain);
    const word_t left = word_make(WORD_PAD, 1, owner_make(0, 1), 5); /* as good a word as any */
    for (uint64_t at = shmq_chunk_first_position(checker->chunk); at < CAPACITY_MIN; at += grain) {
        for (uint64_t offset = GRAIN_ZEROS; offset < grain; offset += sizeof left) {
            memcpy(image + CHUNK_AT + at + offset, &left, sizeof left);
        }
    }
}

void stage_fill_chunk(uint64_t bytes_left)
{
    const uint64_t from = checker->reader.position;
    const uint64_t bytes = CAPACITY_MIN - TAIL_RESERVE - bytes_left - from;
    const word_t pad = word_make(WORD_PAD, 0, owner_make(0, 1), (uint32_t)(bytes / SPAN_UNIT));
    memcpy(image + CHUNK_AT + from, &pad, sizeof pad);
    for (uint32_t i = 0; i <= THREADS; i++) {
        stage.actors[i].reader.position = from + bytes;
    }
    ((struct chunk_header *)(image + CHUNK_AT))->hint = hint_make(from + bytes, 0);
}

void stage_read_only(uint32_t thread) { stage.actors[thread].chunk = open_chunk(thread, false); }

struct shmq_ring stage_ring(uint32_t thread)
{
    uint64_t *const words = (uint64_t *)(image + RING_AT + RING_HEADER_BYTES);
    return (struct shmq_ring){
        .page = (struct ring *)(image + RING_AT),
        .words = words,
        .leases = words + 4,
        .attempts = words + 8,
        .side = (uint8_t *)(words + 12),
        .window = 4,
        .window_shift = 2,
        .slots = RING_SLOTS,
        .skim = UINT32_MAX, /* nobody goes over what others have had, unless a scenario says so */
        .checkpoint = the_checkpoint(),
        .member = &stage.members[thread],
        .reaped_ns = ring_now(),
        .returns_seen = UINT64_MAX,
        .side_seen = UINT64_MAX,
    };
}

struct shmq_ring stage_keyed_ring(uint32_t thread, uint32_t buckets, uint64_t blocks)
{
    struct shmq_ring ring = stage_ring(thread);
    ring.keys = ring.words + 12;
    ring.buckets = (struct ring_bucket *)(void *)(ring.words + 16);
    ring.ready = (uint64_t *)(void *)(ring.buckets + buckets);
    ring.side = (uint8_t *)(ring.ready + 1);
    ring.bucket_count = buckets;
    ring.blocks = blocks;
    return ring;
}

/* What a process keeps for itself in its handle begins anew with each execution, too. */
#define PROVEN_KEPT 512u
struct handle {
    shmq_chunk chunk;
    uint32_t proven[PROVEN_KEPT];
};
static struct handle handles[THREADS + 1];

static size_t proven_bytes(const shmq_chunk *chunk)
{
    const size_t count = (size_t)chunk->index_blocks * INDEX_ENTRIES;
    return chunk->index_proven == NULL ? 0 : (count < PROVEN_KEPT ? count : PROVEN_KEPT) * sizeof(uint32_t);
}

void stage_keep(void)
{
    kept = stage;
    for (uint32_t i = 0; i <= THREADS && stage.actors[i].chunk != NULL; i++) {
        handles[i].chunk = *stage.actors[i].chunk;
        memcpy(handles[i].proven, handles[i].chunk.index_proven, proven_bytes(&handles[i].chunk));
    }
}
void stage_begin(void)
{
    stage = kept;
    for (uint32_t i = 0; i <= THREADS && stage.actors[i].chunk != NULL; i++) {
        *stage.actors[i].chunk = handles[i].chunk;
        memcpy(stage.actors[i].chunk->index_proven, handles[i].proven, proven_bytes(&handles[i].chunk));
    }
}

/* ------------------------------------------------------------------ what processes do */
struct actor *actor_self(void) { return &stage.actors[model_self()]; }
void actor_forget(void)
{
    struct actor *const actor = actor_self();
    if (actor->chunk != NULL && model_hashes) {
        const size_t proven = proven_bytes(actor->chunk) / sizeof(uint32_t);
        actor->handle = actor->chunk->index_next;
        for (size_t i = 0; i < proven; i++) {
            actor->handle = mix(actor->handle, actor->chunk->index_proven[i]);
        }
    }
    model_forget(actor, sizeof(struct actor));
}

static struct put *begin_put(uint32_t count)
{
    struct actor *actor = actor_self();
    struct put *put = &actor->puts[actor->puts_count++];
    put->count = count;
    put->tag = (uint64_t)(model_self() + 1) << 16 | actor->puts_count << 8;
    return put;
}

static void end_put(struct put *put, int64_t answer)
{
    if (model_tracing()) {
        model_trace("put of tag %#llx returned %lld", (unsigned long long)put->tag, (long long)answer);
    }
    put->answer = answer;
    put->returned = true;
    actor_forget();
}

void actor_put(void)
{
    struct put *put = begin_put(1);
    end_put(put, shmq_put(actor_self()->chunk, (const char *)&put->tag, sizeof put->tag));
}

void actor_put_many(uint32_t count)
{
    struct put *put = begin_put(count);
    uint64_t tags[4];
    uint32_t lengths[4];
    for (uint32_t i = 0; i < count; i++) {
        tags[i] = put->tag + i;
        lengths[i] = sizeof tags[i];
    }
    end_put(put, shmq_put_many(actor_self()->chunk, count, (const char *)tags, lengths, NULL, NULL, NULL, NULL, NULL,
                               NULL, 0, NULL));
}

struct put *actor_reserve(uint64_t payload_bytes, uint64_t *claimed, uint64_t *record)
{
    struct put *put = begin_put(1);
    const shmq_fields nothing = {.time_ns = INT64_MIN};
    uint64_t payload;
    put->answer = shmq_reserve(actor_self()->chunk, &nothing, payload_bytes, claimed, record, &payload);
    if (put->answer >= 0) {
        uint8_t bytes[64];
        memset(bytes, 0xab, sizeof bytes); /* no free word, if anybody takes it for one */
        memcpy(bytes, &put->tag, sizeof put->tag);
        shared_write(image + CHUNK_AT + payload, bytes, payload_bytes);
    }
    return put;
}

void actor_commit(struct put *put, uint64_t claimed, uint64_t record)
{
    const int code = shmq_commit(actor_self()->chunk, record, claimed, sizeof put->tag);
    end_put(put, code == SHMQ_OK ? put->answer : code);
}

static void deliver(struct actor *actor, int64_t place, uint64_t index)
{
    const uint64_t position = (uint64_t)place >> 30;
    const uint64_t length = (uint64_t)place & ((1u << 30) - 1);
    uint64_t tag = 0;
    if (length != sizeof tag) {
        model_fault("a message of %llu bytes is delivered", (unsigned long long)length);
    }
    if (actor->deliveries_count == DELIVERIES) {
        model_fault("more messages are delivered than there are");
    }
    shared_read(&tag, the_chunk() + position, sizeof tag);
    actor->deliveries[actor->deliveries_count].index = index;
    actor->deliveries[actor->deliveries_count].tag = tag;
    actor->deliveries_count++;
    if (model_tracing()) {
        model_trace("reads tag %#llx at index %llu", (unsigned long long)tag, (unsigned long long)index);
    }
}

int64_t actor_read(uint32_t wanted, uint32_t patience)
{
    struct actor *actor = actor_self();
    int64_t answer = SHMQ_EMPTY;
    while (actor->deliveries_count < wanted && actor->notes[0] < patience) {
        answer = shmq_next(actor->chunk, &actor->reader, 0);
        if (answer >= 0) {
            deliver(actor, answer, actor->reader.index);
        } else if (answer == SHMQ_EMPTY || answer == SHMQ_WAITING) {
            actor->notes[0]++;
        } else if (answer == SHMQ_ROLL) {
            break;
        } else {
            model_fault("the reader is told %lld: %s", (long long)answer, shmq_error());
        }
        actor_forget();
    }
    return answer;
}

void actor_read_many(uint32_t calls)
{
    struct actor *actor = actor_self();
    while (actor->notes[0]++ < calls) {
        uint64_t places[DELIVERIES];
        uint64_t records[DELIVERIES];
        const int64_t count = shmq_next_many(actor->chunk, &actor->reader, DELIVERIES, places, records);
        for (int64_t i = 0; i < count; i++) {
            struct record record;
            shared_read(&record, the_chunk() + records[i], sizeof record); /* base is 0: the ordinal is the index */
            deliver(actor, (int64_t)places[i], record.ordinal);
        }
        actor_forget();
    }
}

/* ------------------------------------------------------------------ at every step */
enum where { VISITED, INSIDE, BEYOND };

/* Walk the newest words to a position: does the walk stop there, jump over it, or end before it? */
static enum where find(uint64_t position, word_t *region, uint64_t *region_at, uint64_t *ordinal)
{
    uint64_t at = shmq_chunk_first_position(checker->chunk);
    *ordinal = 0;
    while (at < position) {
        const word_t word = raw_word(at);
        if (word == 0 || word_state(word) == WORD_SEAL || word_bytes(word) == 0) {
            return BEYOND;
        }
        *region = word;
        *region_at = at;
        at += word_bytes(word);
        if (at > position) {
            return INSIDE;
        }
        *ordinal += word_state(word) == WORD_META ? 0 : word_count(word);
    }
    return at == position ? VISITED : BEYOND;
}

static void check_claim(uint64_t position, word_t after)
{
    const uint64_t bytes = word_bytes(after);
    if (word_state(after) == WORD_SEAL) {
        return;
    }
    if (word_state(after) == WORD_META && word_count(after) == 0 && position + bytes + TAIL_RESERVE <= CAPACITY_MIN) {
        return; /* an index block */
    }
    if (word_state(after) != WORD_CLAIMED || word_count(after) == 0 || owner_generation(word_owner(after)) == 0
        || word_count(after) * RECORD_HEADER_BYTES > bytes || position + bytes + TAIL_RESERVE > CAPACITY_MIN) {
        model_fault("position %llu turns from free to %#llx", (unsigned long long)position, (unsigned long long)after);
    }
}

/* Rule C2: inside a region that is committed, counts and spans add up to those claimed. */
static void check_commit(uint64_t position, word_t claimed, word_t done)
{
    uint64_t bytes = word_bytes(done);
    uint32_t count = word_count(done);
    while (bytes < word_bytes(claimed)) {
        const word_t inner = raw_word(position + bytes);
        if ((word_state(inner) != WORD_DONE && word_state(inner) != WORD_PAD) || word_span(inner) == 0) {
            model_fault("the region committed at %llu has a word %#llx inside", (unsigned long long)position,
                        (unsigned long long)inner);
        }
        bytes += word_bytes(inner);
        count += word_count(inner);
    }
    if (bytes != word_bytes(claimed) || count != word_count(claimed)) {
        model_fault("the region committed at %llu does not add up", (unsigned long long)position);
    }
}

static void check_word(uint64_t position, word_t before, word_t after)
{
    const word_t padded = word_make(WORD_PAD, word_count(before), word_owner(before), word_span(before));
    if (before == 0) {
        check_claim(position, after);
    } else if (word_state(before) == WORD_CLAIMED && word_state(after) == WORD_DONE
               && word_owner(before) == word_owner(after)) {
        check_commit(position, before, after);
    } else if (word_state(before) != WORD_CLAIMED || after != padded) {
        model_fault("the word at %llu turns from %#llx to %#llx", (unsigned long long)position,
                    (unsigned long long)before, (unsigned long long)after);
    }
}

static void check_inner(uint64_t position, word_t region, uint64_t region_at, word_t after)
{
    const bool open = word_state(region) == WORD_CLAIMED || word_state(region) == WORD_PAD;
    const bool fit = position + word_bytes(after) <= region_at + word_bytes(region);
    if (!open || !fit || word_owner(after) != word_owner(region)
        || (word_state(after) != WORD_DONE && word_state(after) != WORD_PAD)) {
        model_fault("a word %#llx is written at %llu, inside the region %#llx", (unsigned long long)after,
                    (unsigned long long)position, (unsigned long long)region);
    }
}

/* Rule B6: a hint names the end of a claimed region, with its ordinal, and it only rises. */
static void check_hint(uint64_t before, uint64_t after)
{
    word_t region = 0;
    uint64_t region_at = 0;
    uint64_t ordinal = 0;
    if (find(hint_position(after), &region, &region_at, &ordinal) != VISITED || ordinal != hint_ordinal(after)) {
        model_fault("the hint names position %llu with ordinal %llu", (unsigned long long)hint_position(after),
                    (unsigned long long)hint_ordinal(after));
    }
    if (after <= before) {
        model_fault("the hint falls from %#llx to %#llx", (unsigned long long)before, (unsigned long long)after);
    }
}

void stage_watch(const void *at, uint64_t before, uint64_t after)
{
    const size_t offset = (size_t)((const uint8_t *)at - image);
    if (stage.head_rises && at == &the_checkpoint()->head && after < before) {
        model_fault("the head falls from %llu to %llu", (unsigned long long)before, (unsigned long long)after);
    }
    if (offset < CHUNK_AT || offset >= WORDS_AT) {
        if (stage.watch != NULL) {
            stage.watch(at, before, after);
        }
        return;
    }
    const uint64_t position = offset - CHUNK_AT;
    if (position == offsetof(struct chunk_header, hint)) {
        check_hint(before, after);
        return;
    }
    if (position < shmq_chunk_first_position(checker->chunk)) {
        return; /* where blocks are, and other hints */
    }
    word_t region = 0;
    uint64_t region_at = 0;
    uint64_t ordinal = 0;
    switch (find(position, &region, &region_at, &ordinal)) {
    case VISITED: check_word(position, before, after); break;
    case INSIDE:
        if (word_state(region) != WORD_META) { /* an entry is a hint, too */
            check_inner(position, region, region_at, after);
        }
        break;
    case BEYOND: model_fault("a word is written at %llu, behind the end", (unsigned long long)position);
    }
}

void stage_synced(uint64_t begin, uint64_t end)
{
    uint64_t at = shmq_chunk_first_position(checker->chunk);
    while (at + sizeof(word_t) < end) { /* the word at the very end may still be anything */
        const word_t word = raw_word(at);
        if (word == 0 || word_state(word) == WORD_CLAIMED) {
            model_fault("what is open at %llu goes to the disk as settled", (unsigned long long)at);
        }
        if (word_state(word) == WORD_DONE && at >= begin) {
            uint8_t bytes[256];
            shared_read(bytes, the_chunk() + at + sizeof word, word_bytes(word) - sizeof word); /* all of it is there */
        }
        at += word_bytes(word);
    }
}

/* ------------------------------------------------------------------ at the end */
uint32_t final_count(void) { return checker->deliveries_count; }

/* Read all there is, as a process that comes later does: it pads what the dead have left. */
static void read_all(void)
{
    for (;;) {
        const int64_t answer = shmq_next(checker->chunk, &checker->reader, 0);
        if (answer == SHMQ_EMPTY || answer == SHMQ_ROLL) {
            return;
        }
        if (answer < 0) {
            model_fault("who reads at the end is told %lld: %s", (long long)answer, shmq_error());
        }
        deliver(checker, answer, checker->reader.index);
    }
}

static uint32_t found(uint64_t tag, uint64_t *index)
{
    uint32_t times = 0;
    for (uint32_t i = 0; i < checker->deliveries_count; i++) {
        if (checker->deliveries[i].tag == tag) {
            *index = checker->deliveries[i].index;
            times++;
        }
    }
    return times;
}

/* How many of a put's messages are there, each once, behind each other from *first on? */
static uint32_t found_of(const struct put *put, uint64_t *first)
{
    uint32_t there = 0;
    for (uint32_t i = 0; i < put->count; i++) {
        uint64_t index = 0;
        const uint32_t times = found(put->tag + i, &index);
        if (times > 1) {
            model_fault("tag %#llx is delivered twice", (unsigned long long)put->tag);
        }
        if (times == 1 && i == 0) {
            *first = index;
        }
        if (times == 1 && index != *first + i) {
            model_fault("tag %#llx is not in its place in its batch", (unsigned long long)(put->tag + i));
        }
        there += times;
    }
    return there;
}

static void check_put(const struct put *put)
{
    uint64_t first = 0;
    const uint32_t there = found_of(put, &first);
    if (!put->returned && there != 0 && there != put->count) {
        model_fault("%u of %u messages of the killed are there", there, put->count);
    }
    if (put->returned && put->answer >= 0 && (there != put->count || first != (uint64_t)put->answer)) {
        model_fault("tag %#llx was put at index %lld and is %s", (unsigned long long)put->tag, (long long)put->answer,
                    there == 0 ? "lost" : "elsewhere, or not whole");
    }
    if (put->returned && put->answer < 0 && there != 0) {
        model_fault("tag %#llx is delivered though its put answered %lld", (unsigned long long)put->tag,
                    (long long)put->answer);
    }
}

/* Whoever has read, before commits or after, has read the same messages under the same indexes. */
static void check_reader(uint32_t thread)
{
    const struct actor *actor = &stage.actors[thread];
    for (uint32_t i = 0; i < actor->deliveries_count; i++) {
        if (i >= checker->deliveries_count || actor->deliveries[i].tag != checker->deliveries[i].tag
            || actor->deliveries[i].index != checker->deliveries[i].index) {
            model_fault("%s read tag %#llx at index %llu, and who comes later does not", model_thread_name(thread),
                        (unsigned long long)actor->deliveries[i].tag, (unsigned long long)actor->deliveries[i].index);
        }
    }
}

static void check_tail(void)
{
    uint64_t next_index = 0;
    uint64_t position = 0;
    shmq_tail(checker->chunk, &next_index, &position);
    if (position != checker->reader.position || next_index != checker->reader.ordinal) {
        model_fault("the walk from the hint ends at %llu with %llu, the one from the start at %llu with %llu",
                    (unsigned long long)position, (unsigned long long)next_index,
                    (unsigned long long)checker->reader.position, (unsigned long long)checker->reader.ordinal);
    }
}

static void check_counters(void)
{
    uint64_t padded = 0;
    uint64_t fenced = 0;
    shmq_counters(the_control(), &padded, &fenced);
    if (padded != (stage.uncounted ? 0 : checker->reader.padded)) {
        model_fault("%llu ordinals are padded, and %llu are counted", (unsigned long long)checker->reader.padded,
                    (unsigned long long)padded);
    }
}

void check_all(void)
{
    read_all();
    uint32_t known = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
        const struct actor *actor = &stage.actors[i];
        for (uint32_t k = 0; k < actor->puts_count; k++) {
            uint64_t first = 0;
            check_put(&actor->puts[k]);
            known += found_of(&actor->puts[k], &first);
        }
    }
    if (known != checker->deliveries_count) {
        model_fault("messages are delivered that nobody put");
    }
    for (uint32_t i = 1; i < checker->deliveries_count; i++) {
        if (checker->deliveries[i].index <= checker->deliveries[i - 1].index) {
            model_fault("indexes do not ascend");
        }
    }
    for (uint32_t i = 0; i < THREADS && stage.actors[i].chunk != NULL; i++) {
        check_reader(i);
    }
    check_tail();
    check_counters();
}
