/* memory.c - a weak memory one can turn over: which stores a load may return, and where a store may land.
 *
 * The model is the operational one of views, for the part of C11 that atomic.h names (C++20's fences and release
 * sequences). Each atomic word has its stores in modification order. Each thread has a view: for each word, the store
 * before which it may not look. A load returns any store from there on; a store lands anywhere behind it, but never
 * between a read-modify-write and what that read; a read-modify-write lands right behind what it reads. A release
 * store carries its thread's view, a relaxed one the view at the last fence; an acquire load joins what it reads
 * carried, a relaxed one keeps it for the next fence. A seq_cst fence joins its view with that of all earlier ones.
 *
 * Views also carry clocks. Each plain access is stamped with its thread's clock, so that a read that is not ordered
 * behind the write of the same bytes, or a write not behind earlier accesses, is a fault, in whichever order the two
 * were run. What the padded leave behind is harmless for the one reason that nobody reads it, and that is checked.
 *
 * Not covered: a load that returns a store which its own thread makes possible later (load buffering: needs promises;
 * compilers and processors may do it only with relaxed loads, and none of the core's decides about data); consume;
 * seq_cst loads and stores, which the core has not; torn words. */
#include <string.h>

#include "explorer.h"

#define LOCATIONS 48u
#define STORES 40u
#define NOBODY 0xffu

struct view {
    uint8_t seen[LOCATIONS]; /* number of a store of that location */
    uint16_t clock[THREADS];
};

struct store {
    uint64_t value;
    struct view view;
    uint64_t hash;  /* 0 = not made yet */
    uint32_t id;    /* whose n-th: the same in every execution that agrees so far; 0 = there from the start */
    uint8_t place;  /* in modification order */
    bool rmw;       /* glued to the one before it */
};

struct location {
    uint8_t *address;
    uint8_t bytes;
    uint8_t count;
    bool quiet;
    bool hashed;
    uint64_t hash;
    uint8_t order[STORES];
    struct store stores[STORES];
};

/* Plain memory, in units of 8 bytes. */
struct granule {
    uint16_t clock;
    uint16_t readers[THREADS];
    uint8_t writer;
    bool plain; /* the last write was no atomic one */
    bool touched;
};
#define GRANULES (IMAGE_BYTES / 8)

struct thread_memory {
    struct view now;     /* what it has seen */
    struct view later;   /* what its relaxed loads have read: seen after the next fence */
    struct view fenced;  /* what its relaxed stores carry: seen before the last fence */
    uint32_t stores;
    bool hashed;
    uint64_t hash;
};

uint8_t image[IMAGE_BYTES] __attribute__((aligned(4096)));
static uint8_t kept[IMAGE_BYTES];
static struct granule granules[GRANULES];
static uint32_t touched[GRANULES];
static uint32_t touched_count;
static bool quiet[IMAGE_BYTES / 4];
static uint8_t location_of[IMAGE_BYTES / 4]; /* 1 + its number */
static struct location locations[LOCATIONS];
static uint32_t locations_count;
static struct thread_memory memories[THREADS];
static struct view fences; /* of all seq_cst fences so far */
static struct view locks[MEMORY_LOCKS];
static struct view futexes;

static size_t offset_of(const void *at) { return (size_t)((const uint8_t *)at - image); }
static bool inside(const void *at) { return (const uint8_t *)at >= image && (const uint8_t *)at < image + IMAGE_BYTES; }

/* ------------------------------------------------------------------ from execution to execution */
void memory_clear(void)
{
    memset(image, 0, sizeof image);
    memset(quiet, 0, sizeof quiet);
    memset(granules, 0, sizeof granules);
    touched_count = 0;
    locations_count = 0;
    memset(location_of, 0, sizeof location_of);
}

void memory_keep(void)
{
    memcpy(kept, image, sizeof kept);
    for (uint32_t i = 0; i < GRANULES; i++) {
        granules[i] = (struct granule){.writer = NOBODY};
    }
    touched_count = 0;
}

void memory_quiet(const void *at) { quiet[offset_of(at) / 4] = true; }
void memory_heed(const void *at) { quiet[offset_of(at) / 4] = false; }

static void touch(size_t offset)
{
    struct granule *granule = &granules[offset / 8];
    if (!granule->touched) {
        granule->touched = true;
        touched[touched_count++] = (uint32_t)(offset / 8);
    }
}

void memory_begin(void)
{
    for (uint32_t i = 0; i < touched_count; i++) {
        memcpy(image + touched[i] * 8, kept + touched[i] * 8, 8);
        granules[touched[i]] = (struct granule){.writer = NOBODY};
    }
    touched_count = 0;
    for (uint32_t i = 0; i < locations_count; i++) {
        location_of[offset_of(locations[i].address) / 4] = 0;
    }
    locations_count = 0;
    memset(memories, 0, sizeof memories);
    memset(&fences, 0, sizeof fences);
    memset(locks, 0, sizeof locks);
    memset(&futexes, 0, sizeof futexes);
}

void memory_begin_thread(uint32_t thread) { memories[thread].now.clock[thread] = 1; }

/* ------------------------------------------------------------------ views */
static void join(struct view *mine, const struct view *other)
{
    for (uint32_t i = 0; i < locations_count; i++) {
        const struct store *stores = locations[i].stores;
        if (stores[other->seen[i]].place > stores[mine->seen[i]].place) {
            mine->seen[i] = other->seen[i];
        }
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        if (other->clock[i] > mine->clock[i]) {
            mine->clock[i] = other->clock[i];
        }
    }
}

static uint64_t view_hash(const struct view *view)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < locations_count; i++) {
        if (view->seen[i] != 0) { /* a sum, since locations are numbered in the order of their first use */
            hash += mix(offset_of(locations[i].address), locations[i].stores[view->seen[i]].id);
        }
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        hash += mix(UINT64_C(1) << 40 | i, view->clock[i]);
    }
    return hash;
}

static struct thread_memory *mine(void) { return &memories[model_self()]; }

/* Hashes are made when a state is looked up, not at each step: most steps repeat what was explored. */
static void changed(struct thread_memory *memory) { memory->hashed = false; }

/* What was done so far is passed on; what comes now is not. */
static void tick(void)
{
    const uint32_t self = model_self();
    memories[self].now.clock[self]++;
}

uint64_t memory_thread_hash(uint32_t thread)
{
    struct thread_memory *memory = &memories[thread];
    if (!memory->hashed) {
        memory->hash = mix(mix(view_hash(&memory->now), view_hash(&memory->later)),
                           mix(view_hash(&memory->fenced), memory->stores));
        memory->hashed = true;
    }
    return memory->hash;
}

static uint64_t store_hash(struct store *store)
{
    if (store->hash == 0) { /* it never changes, and neither does what it carries */
        store->hash = mix(mix(store->id, store->value), view_hash(&store->view) + store->rmw);
    }
    return store->hash;
}

static uint64_t location_hash(struct location *location)
{
    if (!location->hashed) {
        location->hash = offset_of(location->address);
        for (uint32_t place = 0; place < location->count; place++) {
            location->hash = mix(location->hash, store_hash(&location->stores[location->order[place]]));
        }
        location->hashed = true;
    }
    return location->hash;
}

uint64_t memory_hash(void)
{
    uint64_t hash = mix(view_hash(&fences), view_hash(&futexes));
    for (uint32_t i = 0; i < locations_count; i++) {
        hash += location_hash(&locations[i]);
    }
    for (uint32_t i = 0; i < MEMORY_LOCKS; i++) {
        hash += mix(i + 1, view_hash(&locks[i]));
    }
    return hash;
}

/* What was stored half a second ago is there to see, though nothing orders anybody behind it. */
void memory_ages(uint32_t thread)
{
    for (uint32_t i = 0; i < locations_count; i++) {
        memories[thread].now.seen[i] = locations[i].order[locations[i].count - 1u];
    }
    changed(&memories[thread]);
}

/* ------------------------------------------------------------------ locations */
static uint64_t peek(const void *at, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, at, bytes);
    return value;
}

static void poke(void *at, size_t bytes, uint64_t value)
{
    if (inside(at)) {
        touch(offset_of(at));
    }
    memcpy(at, &value, bytes);
}

static struct store *at_place(struct location *location, uint32_t place)
{
    return &location->stores[location->order[place]];
}

static struct location *locate(const void *at, size_t bytes)
{
    uint8_t *number = &location_of[offset_of(at) / 4];
    if (*number == 0) {
        if (locations_count == LOCATIONS) {
            model_fault("the model has room for %u words only", LOCATIONS);
        }
        struct location *location = &locations[locations_count++];
        location->address = image + offset_of(at);
        location->bytes = (uint8_t)bytes;
        location->quiet = quiet[offset_of(at) / 4];
        location->count = 1;
        location->order[0] = 0;
        memset(&location->stores[0], 0, sizeof location->stores[0]);
        location->stores[0].value = peek(at, bytes);
        location->hashed = false;
        *number = (uint8_t)locations_count;
    }
    struct location *location = &locations[*number - 1];
    if (location->bytes != bytes) {
        model_fault("offset %zu is used as a word of %zu bytes and of %u", offset_of(at), bytes, location->bytes);
    }
    return location;
}

static uint32_t number_of(const struct location *location) { return (uint32_t)(location - locations); }

static uint32_t first_visible(const struct location *location)
{
    return location->stores[mine()->now.seen[number_of(location)]].place;
}

static bool is_newest(const struct location *location, uint32_t place) { return place + 1u == location->count; }

/* May a read-modify-write read this store: is nothing glued to it yet? */
static bool may_follow(struct location *location, uint32_t place)
{
    return is_newest(location, place) || !at_place(location, place + 1)->rmw;
}

/* ------------------------------------------------------------------ order of plain accesses */
static bool ordered_after(uint32_t thread, uint16_t clock) { return mine()->now.clock[thread] >= clock; }

static void check_behind_write(const struct granule *granule, size_t offset, const char *what)
{
    const bool others = granule->writer != NOBODY && granule->writer != model_self();
    if (others && !ordered_after(granule->writer, granule->clock)) {
        model_fault("%s %s bytes at offset %zu that %s wrote, and nothing orders the two",
                    model_thread_name(model_self()), what, offset, model_thread_name(granule->writer));
    }
}

static void check_behind_reads(const struct granule *granule, size_t offset)
{
    for (uint32_t reader = 0; reader < THREADS; reader++) {
        if (reader != model_self() && !ordered_after(reader, granule->readers[reader])) {
            model_fault("%s writes bytes at offset %zu that %s reads, and nothing orders the two",
                        model_thread_name(model_self()), offset, model_thread_name(reader));
        }
    }
}

static void stamp_write(size_t offset, bool plain)
{
    const uint32_t self = model_self();
    struct granule *granule = &granules[offset / 8];
    touch(offset);
    granule->writer = (uint8_t)self;
    granule->clock = memories[self].now.clock[self];
    granule->plain = plain;
}

void shared_write(void *to, const void *from, size_t bytes)
{
    if (bytes > 0 && inside(to)) {
        for (size_t offset = offset_of(to) & ~(size_t)7; offset < offset_of(to) + bytes; offset += 8) {
            if (model_direct()) {
                touch(offset);
                continue;
            }
            check_behind_write(&granules[offset / 8], offset, "writes");
            check_behind_reads(&granules[offset / 8], offset);
            stamp_write(offset, true);
        }
    }
    memcpy(to, from, bytes);
}

const void *shared_span(const void *from, size_t bytes)
{
    if (bytes > 0 && inside(from) && !model_direct()) {
        const uint32_t self = model_self();
        for (size_t offset = offset_of(from) & ~(size_t)7; offset < offset_of(from) + bytes; offset += 8) {
            check_behind_write(&granules[offset / 8], offset, "reads");
            touch(offset);
            granules[offset / 8].readers[self] = memories[self].now.clock[self];
        }
    }
    return from;
}

void shared_read(void *to, const void *from, size_t bytes) { memcpy(to, shared_span(from, bytes), bytes); }

/* An atomic access to bytes that were last written plainly needs an order as well. */
static void check_atomic(const struct location *location)
{
    const size_t offset = offset_of(location->address);
    if (granules[offset / 8].plain) {
        check_behind_write(&granules[offset / 8], offset, "takes for a word");
    }
}

/* ------------------------------------------------------------------ loads and stores */
static void learn(const struct location *location, const struct store *store, bool acquire)
{
    struct thread_memory *memory = mine();
    memory->now.seen[number_of(location)] = (uint8_t)(store - location->stores);
    join(acquire ? &memory->now : &memory->later, &store->view);
    changed(mine());
    model_remember(store->value);
}

/* Put a store behind the one at `place`; it carries what its thread passes on, and what it read if it read. */
static void land(struct location *location, uint32_t place, uint64_t value, bool release, const struct store *read)
{
    struct thread_memory *memory = mine();
    if (location->count == STORES) {
        model_fault("the model has room for %u stores to a word only", STORES);
    }
    const uint8_t number = location->count++;
    memmove(&location->order[place + 2], &location->order[place + 1], number - place - 1u);
    location->order[place + 1] = number;
    for (uint32_t i = place + 1; i < location->count; i++) {
        at_place(location, i)->place = (uint8_t)i;
    }
    struct store *store = &location->stores[number];
    store->value = value;
    store->rmw = read != NULL;
    store->id = (model_self() + 1) << 16 | ++memory->stores;
    memory->now.seen[number_of(location)] = number;
    store->view = release ? memory->now : memory->fenced;
    if (read != NULL) {
        join(&store->view, &read->view);
    }
    store->hash = 0;
    location->hashed = false;
    stamp_write(offset_of(location->address), false);
    poke(location->address, location->bytes, at_place(location, location->count - 1u)->value);
    if (release) {
        tick();
    }
    changed(mine());
    stage_watch(location->address, at_place(location, place)->value, value);
}

static bool weak(const struct model_site *site) { return site->weakness == MODEL_ONE_STEP; }
static bool releases(const struct model_site *site) { return site->order == MODEL_RELEASE && !weak(site); }
static bool acquires(const struct model_site *site) { return site->order == MODEL_ACQUIRE && !weak(site); }

static void trace(const struct model_site *site, const char *what, const void *at, uint64_t value)
{
    if (model_tracing()) {
        const char *slash = strrchr(site->file, '/');
        model_trace("%s:%d %s offset %zu: %#llx", slash == NULL ? site->file : slash + 1, site->line, what,
                    offset_of(at), (unsigned long long)value);
    }
}

/* Everything an operation does before it looks: give way, unless nobody cares. */
static struct location *approach(const struct model_site *site, const void *at, size_t bytes)
{
    if (!quiet[offset_of(at) / 4]) {
        model_step(mix((uintptr_t)site, offset_of(at)));
    }
    struct location *location = locate(at, bytes);
    check_atomic(location);
    return location;
}

static uint64_t load_from(struct location *location, bool acquire)
{
    /* The newest first: a depth-first search then begins with what a strong machine does. */
    const uint32_t oldest = location->quiet ? location->count - 1u : first_visible(location);
    const uint32_t back = model_choose(location->count - oldest);
    const struct store *store = at_place(location, location->count - 1u - back);
    learn(location, store, acquire);
    return store->value;
}

static void store_to(struct location *location, uint64_t value, bool release)
{
    uint8_t places[STORES];
    uint32_t count = 0;
    for (uint32_t place = location->count; place-- > first_visible(location);) {
        if (may_follow(location, place)) {
            places[count++] = (uint8_t)place;
        }
    }
    const uint32_t choice = location->quiet ? 0 : model_choose(count);
    land(location, places[choice], value, release, NULL);
}

/* Setup and checks, and words of one process that no other can see: plain memory. */
static bool is_plain(const void *at) { return model_direct() || !inside(at); }

uint64_t model_load(struct model_site *site, const void *at, size_t bytes)
{
    if (is_plain(at)) {
        return peek(at, bytes);
    }
    site->reached = true;
    const uint64_t value = load_from(approach(site, at, bytes), acquires(site));
    trace(site, "load", at, value);
    return value;
}

void model_store(struct model_site *site, void *at, size_t bytes, uint64_t value)
{
    if (is_plain(at)) {
        poke(at, bytes, value);
        return;
    }
    site->reached = true;
    if (site->weakness == MODEL_SKIP) {
        return;
    }
    struct location *location = approach(site, at, bytes);
    trace(site, "store", at, value);
    store_to(location, value, releases(site));
}

/* ------------------------------------------------------------------ read-modify-writes */
static uint64_t change(const struct model_site *site, uint64_t old, uint64_t operand)
{
    return site->operation == MODEL_ADD ? old + operand : operand;
}

static uint64_t swap(struct model_site *site, void *at, size_t bytes, uint64_t operand)
{
    if (is_plain(at)) {
        const uint64_t old = peek(at, bytes);
        poke(at, bytes, change(site, old, operand));
        return old;
    }
    site->reached = true;
    if (site->weakness == MODEL_SKIP) {
        return load_from(approach(site, at, bytes), false);
    }
    if (site->weakness == MODEL_SPLIT) {
        const uint64_t old = load_from(approach(site, at, bytes), acquires(site));
        store_to(approach(site, at, bytes), change(site, old, operand), releases(site));
        trace(site, "load and store", at, old);
        return old;
    }
    struct location *location = approach(site, at, bytes);
    uint8_t places[STORES];
    uint32_t count = 0;
    for (uint32_t place = location->count; place-- > first_visible(location);) {
        if (may_follow(location, place)) {
            places[count++] = (uint8_t)place;
        }
    }
    const uint32_t place = places[location->quiet ? 0 : model_choose(count)];
    const struct store *read = at_place(location, place);
    const uint64_t old = read->value;
    learn(location, read, acquires(site));
    land(location, place, change(site, old, operand), releases(site), read);
    trace(site, site->operation == MODEL_ADD ? "add to" : "exchange", at, old);
    return old;
}

uint64_t model_exchange(struct model_site *site, void *at, size_t bytes, uint64_t value)
{
    return swap(site, at, bytes, value);
}
uint64_t model_add(struct model_site *site, void *at, size_t bytes, uint64_t value)
{
    return swap(site, at, bytes, value);
}

static bool cas_broken(const struct model_site *site, uint64_t *at, uint64_t expected, uint64_t desired)
{
    const uint64_t seen = site->weakness == MODEL_SPLIT ? load_from(approach(site, at, sizeof *at), false) : expected;
    if (seen == expected) {
        struct location *location = approach(site, at, sizeof *at);
        trace(site, "store instead of cas", at, desired);
        store_to(location, desired, releases(site));
    }
    return seen == expected;
}

bool model_cas(struct model_site *site, uint64_t *at, uint64_t expected, uint64_t desired)
{
    if (is_plain(at)) {
        const bool same = *at == expected;
        if (same) {
            poke(at, sizeof *at, desired);
        }
        return same;
    }
    site->reached = true;
    if (site->weakness == MODEL_SPLIT || site->weakness == MODEL_BLIND) {
        return cas_broken(site, at, expected, desired);
    }
    struct location *location = approach(site, at, sizeof *at);
    uint8_t places[STORES];
    uint32_t count = 0;
    for (uint32_t place = location->count; place-- > first_visible(location);) {
        if (at_place(location, place)->value != expected || may_follow(location, place)) {
            places[count++] = (uint8_t)place;
        }
    }
    const uint32_t place = places[model_choose(count)];
    const struct store *read = at_place(location, place);
    const bool same = read->value == expected;
    learn(location, read, same && acquires(site));
    if (same) {
        land(location, place, desired, releases(site), read);
    }
    trace(site, same ? "cas to" : "cas fails on", at, same ? desired : read->value);
    return same;
}

void model_fence(struct model_site *site)
{
    if (model_direct()) {
        return;
    }
    site->reached = true;
    if (weak(site)) {
        return;
    }
    model_step((uintptr_t)site);
    struct thread_memory *memory = mine();
    join(&memory->now, &memory->later);
    join(&memory->now, &fences);
    fences = memory->now;
    memory->fenced = memory->now;
    tick();
    changed(mine());
    trace(site, "fence", image, 0);
}

/* ------------------------------------------------------------------ the kernel's part */
void memory_release(uint32_t lock, uint32_t thread)
{
    join(&locks[lock], &memories[thread].now);
    memories[thread].now.clock[thread]++;
    changed(&memories[thread]);
}

void memory_acquire(uint32_t lock)
{
    join(&mine()->now, &locks[lock]);
    changed(mine());
}

uint32_t memory_futex_look(const uint32_t *word)
{
    struct location *location = locate(word, sizeof *word);
    const uint32_t number = number_of(location);
    if (location->stores[futexes.seen[number]].place > location->stores[mine()->now.seen[number]].place) {
        mine()->now.seen[number] = futexes.seen[number];
    }
    return (uint32_t)load_from(location, false);
}

void memory_futex_wake(const uint32_t *word)
{
    const uint32_t number = number_of(locate(word, sizeof *word));
    const struct store *stores = locations[number].stores;
    if (stores[mine()->now.seen[number]].place > stores[futexes.seen[number]].place) {
        futexes.seen[number] = mine()->now.seen[number];
    }
}
