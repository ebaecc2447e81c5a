/* edge.h - the window's edge. */
#ifndef SHMQ_EDGE_H
#define SHMQ_EDGE_H

#include "group/window.h"

static inline bool reaches(const shmq_ring *ring, uint64_t end) { return end <= head_of(ring) + ring->window; }

/* Is the window full, and its head where it was some time ago? If not, *park_ns says when it will have been. */
bool ring_stuck(shmq_ring *ring, uint64_t head);
/* The window does not reach from `index` to `end`: messages that are held for long hold its head back. OK, also when it still
 * does not reach; or GROW. */
int at_edge(shmq_ring *ring, uint64_t index, uint64_t end);

#endif
