/* kernel.c - the os table of the model: locks on slots that end with their holder, futex sleep, and a clock that a schedule moves.
 *
 * A lock passes on what a kernel's spinlock passes on: who takes it sees what its last holder did. A test of a lock
 * passes nothing on. A sleeper compares and goes to sleep in one step, as the kernel does under its bucket's lock, and
 * sees at least what wakers before it had seen of that word; neither orders anything else. */
#include <errno.h>
#include <string.h>

#include "layout.h"
#include "os.h"
#include "explorer.h"

#define FREE_LOCK 0xffu
#define CLOCK_BEGINS INT64_C(1000)

struct kernel {
    uint8_t holder[MEMORY_LOCKS]; /* thread */
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
    memset(&kernel, FREE_LOCK, sizeof kernel);
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

uint64_t kernel_hash(void)
{
    uint64_t holders;
    static_assert(sizeof holders == sizeof kernel, "one word of locks");
    memcpy(&holders, &kernel, sizeof holders);
    return mix(holders, 3 + (uint64_t)now_ns);
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

static int futex_wait(uint32_t *word, uint32_t seen, int64_t deadline_ns)
{
    (void)deadline_ns; /* no time passes here: whoever is not woken sleeps for ever */
    model_step(1);
    if (memory_futex_look(word) != seen) {
        return 0;
    }
    if (model_tracing()) {
        model_trace("sleeps, having seen %u", seen);
    }
    model_sleep(word);
    return 0;
}

static int futex_wake_all(uint32_t *word)
{
    if (model_direct()) {
        return 0;
    }
    model_step(2);
    if (model_tracing()) {
        model_trace("wakes all");
    }
    memory_futex_wake(word);
    model_wake_all(word);
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
    }
    return kernel_locked(lock);
}

static void *map_window(int fd, uint64_t position, size_t bytes)
{
    (void)bytes;
    return image + (size_t)fd * 4096u + position; /* a chunk's descriptor is its page in the image */
}
static void unmap_window(void *window, uint64_t position, size_t bytes)
{
    (void)window;
    (void)position;
    (void)bytes;
}

static void populate(void *pages, size_t bytes)
{
    (void)pages;
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

static const struct os_calls model_calls = {
    .clock_wall_ns = clock_ns,
    .clock_monotonic_ns = clock_ns,
    .clock_boottime_ns = clock_ns,
    .futex_wait = futex_wait,
    .futex_wake_all = futex_wake_all,
    .lock_byte = lock_byte,
    .share_byte = lock_byte,
    .unlock_byte = unlock_byte,
    .byte_is_locked = byte_is_locked,
    .yield = yield,
    .map_window = map_window,
    .unmap_window = unmap_window,
    .populate = populate,
    .rename_new = rename_new,
    .close = close_fd,
    .guard_new = guard_new,
    .guard_free = guard_free,
    .at_fork_child = at_fork_child,
};
const struct os_calls *os = &model_calls;
