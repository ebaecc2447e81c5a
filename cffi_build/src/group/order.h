/* order.h - messages of one key, one after the other. */
#ifndef SHMQ_ORDER_H
#define SHMQ_ORDER_H

#include "group/window.h"

/* A walker meets a message that nobody has: OK to claim it, EMPTY when it waits for its key (or its time), or GROW. */
int keyed_enter(shmq_ring *ring, uint64_t index, uint64_t word, int64_t due_ns, bool delayed, shmq_taken *taken);
/* Hand out the lowest of each bucket that is ready: how many, or GROW. */
int64_t keyed_take(shmq_ring *ring, bool idle, uint32_t limit, shmq_taken *taken);
/* Would it hand out any: as ring_worth, 0 or GROW. A bucket that was ready and has none to be had is so no more. */
int64_t keyed_glance(shmq_ring *ring);
/* The window is full: park what waits for its key, if the head does not move. GROW, or OK. */
int keyed_park(shmq_ring *ring);

#endif
