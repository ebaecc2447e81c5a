/* head.h - moving it, and finishing what it moves over. */
#ifndef SHMQ_HEAD_H
#define SHMQ_HEAD_H

#include "group/window.h"

/* The head moves over everything finished. */
void ring_advance(shmq_ring *ring);
/* So many of the window are finished, or parked: who waits at the edge for no more than that looks again. Behind a fence. */
void ring_nearer(shmq_ring *ring, uint64_t count);
/* The head moves, and `count` words of the window were finished, or parked, just now. */
static inline void ring_settled(shmq_ring *ring, uint64_t count)
{
    ring_advance(ring); /* begins with a fence: whoever is about to wait sees what was finished, or we see that it waits */
    ring_nearer(ring, count);
}
/* Finish one of the window that was dropped and that nobody has, and count it: whether we did. */
bool ring_drop(shmq_ring *ring, uint64_t index);
/* Finish one of the window, unless somebody has it, or *by_force*: whether we did. */
bool ring_drop_word(shmq_ring *ring, uint64_t index, bool by_force);

#endif
