/* ended.h - who waits for the end of a stream. */
#ifndef SHMQ_ENDED_H
#define SHMQ_ENDED_H

#include "group/window.h"

/* Something was finished: have those look who wait for the end of the stream, if it is ending. Behind a fence. */
void ring_finished(const shmq_ring *ring);

#endif
