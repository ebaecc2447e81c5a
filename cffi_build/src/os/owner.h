/* owner.h - who holds a claim, and is it alive. */
#ifndef SHMQ_OWNER_H
#define SHMQ_OWNER_H

#include "os/member.h"

/* Around a change of what is padding and of its count: whoever is killed between the two leaves a mark, and it is counted
 * anew. */
void pads_begin(const shmq_member *member);
void pads_end(const shmq_member *member);

/* Is the owner of a claim alive? Decided by the kernel's lock on its slot, never by time. */
bool owner_alive(shmq_member *member, owner_t owner);

/* The lock for LOCK_PAPERS: the seat's own, where that has a descriptor, or another one, to be closed by shmq_lock_close.
 * NULL: the kernel refused, and the error is told. */
shmq_lock *papers_lock(shmq_member *member);

#endif
