/* any.c - sleep until one of several queues has something to look at.
 *
 * The ladder of wait.c, for many bells at once: who calls has begun to wait at each of them, and has looked once more. The
 * nudge is a word of the caller's own, for several threads that share the work of more bells than one call takes. */
#include <errno.h>
#include <string.h>

#include "atomic.h"
#include "error.h"
#include "os/member.h"
#include "os/os.h"

static_assert(SHMQ_ANY_MAX + 1 == FUTEXES_MAX, "the nudge is one of the words");

void *shmq_bell_of(shmq_member *member) { return &member->control->bell; }
void *shmq_room_bell_of(shmq_member *member) { return &member->control->room_bell; }

uint32_t shmq_moved(void *const *bells, const uint32_t *seen, uint32_t count, uint32_t *moved)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (load_relaxed((const uint32_t *)bells[i]) != seen[i]) { /* whoever looks because of it says in which order */
            moved[found++] = i;
        }
    }
    return found;
}

int shmq_wait_any(void *const *bells, const uint32_t *seen, uint32_t count, uint32_t *nudge, int64_t deadline_ns)
{
    uint32_t *words[FUTEXES_MAX];
    uint32_t values[FUTEXES_MAX];
    if (count > SHMQ_ANY_MAX) {
        return error_set(SHMQ_TOO_MANY, "%u bells; one call takes %d", count, SHMQ_ANY_MAX);
    }
    memcpy(words, bells, count * sizeof *words);
    memcpy(values, seen, count * sizeof *values);
    words[count] = nudge;
    values[count] = 0;
    const int answer = os->futex_wait_any(words, values, count + 1, deadline_ns);
    switch (answer) {
    case 0: return SHMQ_OK;
    case -ETIMEDOUT: return SHMQ_TIMEOUT;
    case -EINTR: return SHMQ_SIGNAL;
    case -ENOSYS: /* an older kernel */
    case -EPERM: return SHMQ_EMPTY; /* a sandbox */
    default: return error_system(answer, "cannot wait for several bells");
    }
}

void shmq_nudge(uint32_t *nudge)
{
    store_relaxed(nudge, 1); /* the word is all there is to see; the futex orders it before who sleeps */
    os->futex_wake_all(nudge);
}
