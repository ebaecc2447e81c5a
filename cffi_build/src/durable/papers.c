/* papers.c - who writes what is kept beside the chunks: the watermark, and the snapshots of names.
 *
 * Whoever leads the group commit may be overtaken (sync.c), and goes on later without knowing it. What it syncs of the
 * chunks, and says of them, is true whenever it says so; a slot of a file is written by one at a time. So whoever leads
 * writes these only under a lock that nobody waits for: held by one process, and there by one thread. */
#include "atomic.h"
#include "error.h"
#include "layout.h"
#include "os/owner.h"

int shmq_papers_take(shmq_member *member, uint32_t *held)
{
    *held = 0;
    if (member_forked(member) || !cas_acquire(&member->papers, 0, 1)) {
        return 0;
    }
    shmq_lock *const lock = papers_lock(member);
    const int answer = lock == NULL ? SHMQ_SYSTEM : shmq_lock_try(lock, LOCK_PAPERS);
    if (answer == 1) {
        *held = 1;
    } else {
        shmq_lock_close(&member->papers_lock);
        store_release(&member->papers, 0);
    }
    return answer;
}

void shmq_papers_give(shmq_member *member, uint32_t *held)
{
    if (*held != 0 && !member_forked(member)) {
        if (member->lock.kept == NULL) {
            shmq_lock_give_back(&member->lock, LOCK_PAPERS);
        }
        shmq_lock_close(&member->papers_lock);
        store_release(&member->papers, 0);
    }
    *held = 0;
}
