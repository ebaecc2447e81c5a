/* wait.c - sleep until there is something to look at; wake those who sleep.
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
 * system call. */
#include <errno.h>

#include "atomic.h"
#include "error.h"
#include "os.h"
#include "owner.h"

uint32_t shmq_wait_begin(shmq_member *member)
{
    struct control *control = member->control;
    /* Acquire: whoever bumped the bell had cleared the mark before, so that the mark below comes after that. Pairs
     * with the release in ring. */
    const uint32_t seen = load_acquire(&control->bell);
    store_relaxed(&control->sleepers, 1);
    fence_seq_cst(); /* pairs with the fence in shmq_wake */
    return seen;
}

int shmq_wait(shmq_member *member, uint32_t seen, int64_t deadline_ns)
{
    if (member_forked(member)) {
        return error_set(SHMQ_FORKED, "this handle belongs to the parent process");
    }
    switch (os->futex_wait(&member->control->bell, seen, deadline_ns)) {
    case 0: return SHMQ_OK;
    case -ETIMEDOUT: return SHMQ_TIMEOUT;
    case -EINTR: return SHMQ_SIGNAL;
    default: return error_set(SHMQ_SYSTEM, "cannot wait for the queue's bell");
    }
}

static void ring(struct control *control)
{
    /* Release: the cleared mark before it. A sleeper that has seen this bell marks itself anew, and that mark must not
     * be the one we cleared. Pairs with the acquire in shmq_wait_begin. */
    add_release(&control->bell, 1);
    os->futex_wake_all(&control->bell);
}

void shmq_wake(shmq_member *member)
{
    struct control *control = member->control;
    fence_seq_cst(); /* pairs with the fence in shmq_wait_begin */
    if (load_relaxed(&control->sleepers) != 0 && exchange_relaxed(&control->sleepers, 0) != 0) {
        ring(control);
    }
}

void shmq_wake_always(void *control) { ring(control); } /* the mark may stay: it costs one wake too many */

int64_t shmq_clock_monotonic_ns(void) { return os->clock_monotonic_ns(); }
int64_t shmq_clock_wall_ns(void) { return os->clock_wall_ns(); }
