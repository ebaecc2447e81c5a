/* kernel.c - the os table of the model: locks on slots that end with their holder, futex sleep, a clock that a schedule
 * moves, and a disk under the chunk.
 *
 * A lock passes on what a kernel's spinlock passes on: who takes it sees what its last holder did. A test of a lock
 * passes nothing on. A sleeper compares and goes to sleep in one step, as the kernel does under its bucket's lock, and
 * sees at least what wakers before it had seen of that word; neither orders anything else. */
#include <errno.h>
#include <string.h>

#include "layout.h"
#include "os/os.h"
#include "explorer.h"
#include "stage.h"

#define FREE_LOCK 0xffu
#define WAKES (MEMORY_LOCKS - 2) /* no lock: what wakers pass on to whom they wake */
#define CLOCK_BEGINS INT64_C(1000)

struct kernel {
    uint8_t holder[MEMORY_LOCKS]; /* thread */
    uint64_t on_disk;             /* the chunk, up to there */
    uint64_t refuse;              /* the number of syncs until one fails; 0 = none does */
    int64_t patience_ns;          /* while all live, nobody sleeps as long as that */
    uint64_t tests_order;         /* who finds a lock free sees what its last holder did */
    uint64_t wakes_order;         /* who is woken sees what the waker did */
};
static int64_t now_ns;
static struct kernel kernel;
static struct kernel kept;

const uint8_t kernel_guard = 1;

int kernel_lock_fd(uint32_t thread) { return (int)(2 * thread + 10); }
int kernel_test_fd(uint32_t thread) { return (int)(2 * thread + 11); }
static uint32_t thread_of(int fd) { return (uint32_t)(fd - 10) / 2; }

void kernel_clear(void)
{
    memset(&kernel, 0, sizeof kernel);
    memset(kernel.holder, FREE_LOCK, sizeof kernel.holder);
    kernel.patience_ns = INT64_MAX;
    now_ns = CLOCK_BEGINS;
}
void kernel_keep(void) { kept = kernel; }
void kernel_begin(void)
{
    kernel = kept;
    now_ns = CLOCK_BEGINS;
}
void kernel_set_clock(int64_t ns) { now_ns = ns; }
int64_t kernel_clock(void) { return now_ns; }
uint64_t kernel_on_disk(void) { return kernel.on_disk; }
void kernel_tests_order(void) { kernel.tests_order = 1; }
void kernel_wakes_order(void) { kernel.wakes_order = 1; }
void kernel_set_patience(int64_t ns) { kernel.patience_ns = ns; }
void kernel_refuse_sync(uint32_t which) { kernel.refuse = which; }

uint64_t kernel_hash(void)
{
    uint64_t holders;
    static_assert(sizeof holders == sizeof kernel.holder, "one word of locks");
    memcpy(&holders, kernel.holder, sizeof holders);
    return mix(mix(holders, 3 + (uint64_t)now_ns), mix(kernel.on_disk, kernel.refuse));
}

bool kernel_locked(uint32_t slot) { return kernel.holder[slot] != FREE_LOCK; }
void kernel_hold(uint32_t slot, uint32_t thread) { kernel.holder[slot] = (uint8_t)thread; }

void kernel_drop(uint32_t slot)
{
    if (!model_direct() && kernel_locked(slot)) {
        memory_release(slot, kernel.holder[slot]);
    }
    kernel.holder[slot] = FREE_LOCK;
}

void kernel_death(uint32_t thread)
{
    for (uint32_t slot = 0; slot < MEMORY_LOCKS; slot++) {
        if (kernel.holder[slot] == thread) {
            kernel_drop(slot);
        }
    }
}

/* ------------------------------------------------------------------ the table */
/* Asking is no step: it commutes with whatever else its thread does between two of them. */
static int64_t clock_ns(void)
{
    if (!model_direct()) {
        model_remember((uint64_t)now_ns);
    }
    return now_ns;
}

static int sleep_on(uint32_t *const *words, const uint32_t *seen, uint32_t count, uint32_t bits, int64_t deadline_ns)
{
    model_step(1);
    for (uint32_t i = 0; i < count; i++) {
        if (memory_futex_look(words[i]) != seen[i]) {
            return 0;
        }
    }
    if (model_tracing()) {
        model_trace("sleeps under bits %#x, having seen %u", bits, seen[0]);
    }
    const bool late = model_sleep((const void *const *)words, count, bits, deadline_ns < 0 ? NO_DEADLINE : deadline_ns);
    model_remember(late);
    if (late && model_somebody_is_stopped() && now_ns < deadline_ns) {
        now_ns = deadline_ns; /* for whoever measures how long that lasts */
    }
    if (!late && kernel.wakes_order) {
        memory_acquire(WAKES);
    }
    if (late && model_tracing()) {
        model_trace("is woken by the clock");
    }
    if (late && deadline_ns - now_ns >= kernel.patience_ns && !model_somebody_died()) {
        model_fault("all live, and somebody sleeps until the clock wakes it: the wake-up was lost");
    }
    return late ? -ETIMEDOUT : 0;
}
static int futex_wait(uint32_t *word, uint32_t seen, int64_t deadline_ns)
{
    return sleep_on(&word, &seen, 1, UINT32_MAX, deadline_ns);
}
static int futex_wait_bits(uint32_t *word, uint32_t seen, int64_t deadline_ns, uint32_t bits)
{
    return sleep_on(&word, &seen, 1, bits, deadline_ns);
}
static int futex_wait_any(uint32_t *const *words, const uint32_t *seen, uint32_t count, int64_t deadline_ns)
{
    return sleep_on(words, seen, count, UINT32_MAX, deadline_ns);
}

static int futex_wake_bits(uint32_t *word, int most, uint32_t bits)
{
    if (model_direct()) {
        return 0;
    }
    model_step(2);
    if (model_tracing()) {
        model_trace("wakes %d under bits %#x", most, bits);
    }
    memory_futex_wake(word);
    if (kernel.wakes_order) {
        memory_release(WAKES, model_self());
    }
    model_wake(word, (uint32_t)most, bits);
    return 0;
}
static int futex_wake_all(uint32_t *word) { return futex_wake_bits(word, INT32_MAX, UINT32_MAX); }

/* What is there when it begins goes to the disk; it is known to be there when it returns. */
static int sync_mapped(uint8_t *begin, size_t bytes)
{
    const uint64_t from = (uint64_t)(begin - (image + CHUNK_AT));
    model_step(5);
    stage_synced(from, from + bytes);
    model_step(6);
    const bool refused = kernel.refuse == 1;
    kernel.refuse -= kernel.refuse > 0;
    model_remember(refused);
    if (model_tracing()) {
        model_trace("%s the disk have %llu to %llu", refused ? "cannot let" : "lets", (unsigned long long)from,
                    (unsigned long long)(from + bytes));
    }
    if (refused) {
        return -EIO;
    }
    if (from <= kernel.on_disk && from + bytes > kernel.on_disk) {
        kernel.on_disk = from + bytes;
    }
    return 0;
}

static uint32_t lock_of(uint64_t byte)
{
    if (byte < LOCK_BASE || byte >= LOCK_BASE + MEMORY_LOCKS) {
        model_fault("byte %llu is locked, and the model has %u locks", (unsigned long long)byte, MEMORY_LOCKS);
    }
    return (uint32_t)(byte - LOCK_BASE);
}

static int lock_byte(int fd, uint64_t byte)
{
    const uint32_t lock = lock_of(byte);
    if (!model_direct()) {
        model_step(3);
    }
    const bool taken = kernel_locked(lock) && kernel.holder[lock] != thread_of(fd);
    if (!model_direct()) {
        model_remember(taken);
    }
    if (taken) {
        return -EAGAIN;
    }
    kernel.holder[lock] = (uint8_t)thread_of(fd);
    if (!model_direct()) {
        memory_acquire(lock);
    }
    return 0;
}

static int unlock_byte(int fd, uint64_t byte)
{
    (void)fd;
    kernel_drop(lock_of(byte));
    return 0;
}

static int unlock_all(int fd)
{
    (void)fd; /* no scenario frees a lock while another looks */
    return 0;
}
static int open_again(int fd) { return fd; }

static int byte_is_locked(int fd, uint64_t byte)
{
    (void)fd; /* a descriptor of its own: it sees its own process's lock as well */
    const uint32_t lock = lock_of(byte);
    if (!model_direct()) {
        model_step(4);
        model_remember(kernel_locked(lock));
        if (model_tracing()) {
            model_trace("asks whether slot %u is locked: %d", lock, kernel_locked(lock));
        }
        if (kernel.tests_order && !kernel_locked(lock)) {
            memory_acquire(lock);
        }
    }
    return kernel_locked(lock);
}

static uint8_t *map_window(const uint8_t *begin, size_t bytes)
{
    (void)bytes;
    return image + (begin - image);
}
static void unmap_window(uint8_t *window, size_t bytes)
{
    (void)window;
    (void)bytes;
}

static void populate(void *pages, size_t bytes)
{
    (void)pages;
    (void)bytes;
}
static uint8_t *map_again(uint8_t *begin, size_t bytes)
{
    (void)bytes;
    return begin;
}
static int make_private(uint8_t *again, size_t bytes)
{
    (void)again;
    (void)bytes;
    return 0;
}
static void unmap_again(uint8_t *again, size_t bytes)
{
    (void)again;
    (void)bytes;
}
static int rename_new(int directory, const char *from, const char *to)
{
    (void)directory;
    (void)from;
    (void)to;
    return -ENOSYS; /* no scenario has names */
}

static void yield(void) {}
static int sync_directory(int fd)
{
    (void)fd;
    return 0;
}
static int start_writing(int fd)
{
    (void)fd;
    return 0;
}

static int close_fd(int fd)
{
    (void)fd;
    return 0;
}
static const uint8_t *guard_new(void) { return &kernel_guard; }
static void guard_free(const uint8_t *guard) { (void)guard; }
static int at_fork_child(void (*child)(void))
{
    (void)child;
    return 0;
}
static void fork_gate(int shut) { (void)shut; }

static const struct os_calls model_calls = {
    .clock_wall_ns = clock_ns,
    .clock_monotonic_ns = clock_ns,
    .clock_boottime_ns = clock_ns,
    .futex_wait = futex_wait,
    .futex_wake_all = futex_wake_all,
    .futex_wait_bits = futex_wait_bits,
    .futex_wake_bits = futex_wake_bits,
    .futex_wait_any = futex_wait_any,
    .sync_mapped = sync_mapped,
    .sync_directory = sync_directory,
    .start_writing = start_writing,
    .lock_byte = lock_byte,
    .share_byte = lock_byte,
    .unlock_byte = unlock_byte,
    .unlock_all = unlock_all,
    .open_again = open_again,
    .byte_is_locked = byte_is_locked,
    .yield = yield,
    .map_window = map_window,
    .unmap_window = unmap_window,
    .map_again = map_again,
    .make_private = make_private,
    .unmap_again = unmap_again,
    .populate = populate,
    .rename_new = rename_new,
    .close = close_fd,
    .guard_new = guard_new,
    .guard_free = guard_free,
    .at_fork_child = at_fork_child,
    .fork_gate = fork_gate,
};
const struct os_calls *os = &model_calls;
