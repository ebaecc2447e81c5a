/* figures.h - how a message stands, for whoever only looks. */
#ifndef SHMQ_FIGURES_H
#define SHMQ_FIGURES_H

#include "group/window.h"

/* Is that message of the window finished, or was it dropped and nobody has it? */
bool ring_is_done(const shmq_ring *ring, uint64_t index);

#endif
