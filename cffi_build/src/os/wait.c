/* wait.c - sleep until there is something to look at, or room to put; wake those who sleep. Two bells, one way.
 *
 *   sleeper                                   waker
 *     seen = bell                               commit
 *     sleepers = 1                              fence
 *     fence                                     if sleepers: sleepers = 0, bell + 1, wake all
 *     look again, and if there is nothing:
 *     futex_wait(bell, seen)
 *
 * Either the sleeper's second look sees the commit, or the waker sees the mark: the two fences leave no third way.
 * Every death wakes all as well (the watchers' business), since a waker may die between clearing the mark and the
 * system call. One that is stopped there, or before it has looked for the mark, makes no sound at all: so a sleep ends
 * by itself after a while, as if woken (os.h), and its sleeper looks again. */
#include <errno.h>

#include "atomic.h"
#include "error.h"
#include "os/member.h"
#include "os/os.h"

static uint32_t wait_begin(const uint32_t *bell, uint32_t *sleepers)
{
    /* Acquire: whoever bumped the bell had cleared the mark before, so that the mark below comes after that. Pairs
     * with the release in ring. */
    const uint32_t seen = load_acquire(bell);
    store_relaxed(sleepers, 1);
    fence_seq_cst(); /* pairs with the fence in wake */
    return seen;
}

uint32_t shmq_wait_begin(shmq_member *member)
{
    return wait_begin(&member->control->bell, &member->control->sleepers);
}
uint32_t shmq_room_begin(shmq_member *member)
{
    return wait_begin(&member->control->room_bell, &member->control->room_waiters);
}

static int wait_on(const shmq_member *member, uint32_t *bell, uint32_t seen, int64_t deadline_ns)
{
    if (member_forked(member)) {
        return error_forked();
    }
    const int answer = os->futex_wait(bell, seen, deadline_ns);
    switch (answer) {
    case 0: return SHMQ_OK;
    case -ETIMEDOUT: return SHMQ_TIMEOUT;
    case -EINTR: return SHMQ_SIGNAL;
    default: return error_system(answer, "cannot wait for the queue's bell");
    }
}

int shmq_wait(shmq_member *member, uint32_t seen, int64_t deadline_ns)
{
    return wait_on(member, &member->control->bell, seen, deadline_ns);
}
int shmq_room_wait(shmq_member *member, uint32_t seen, int64_t deadline_ns)
{
    return wait_on(member, &member->control->room_bell, seen, deadline_ns);
}

static void ring(uint32_t *bell)
{
    /* Release: the cleared mark before it. A sleeper that has seen this bell marks itself anew, and that mark must not
     * be the one we cleared. Pairs with the acquire in wait_begin. */
    add_release(bell, 1);
    os->futex_wake_all(bell);
}

static void wake(uint32_t *bell, uint32_t *sleepers)
{
    fence_seq_cst(); /* pairs with the fence in wait_begin */
    if (load_relaxed(sleepers) != 0 && exchange_relaxed(sleepers, 0) != 0) {
        ring(bell);
    }
}

void shmq_wake(shmq_member *member) { wake(&member->control->bell, &member->control->sleepers); }
void shmq_room(void *control)
{
    wake(&((struct control *)control)->room_bell, &((struct control *)control)->room_waiters);
}

void shmq_room_always(void *control) { ring(&((struct control *)control)->room_bell); }
void shmq_wake_always(void *control) /* the mark may stay: it costs one wake too many */
{
    ring(&((struct control *)control)->bell);
    if (load_relaxed(&((struct control *)control)->bounds) != 0) {
        shmq_room_always(control);
    }
}

int64_t shmq_clock_monotonic_ns(void) { return os->clock_monotonic_ns(); }
int64_t shmq_clock_wall_ns(void) { return os->clock_wall_ns(); }
