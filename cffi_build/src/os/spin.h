/* spin.h - a moment of looking again, before whoever has found nothing falls asleep. */
#ifndef SHMQ_SPIN_H
#define SHMQ_SPIN_H

#include <stdbool.h>

#include "atomic.h"
#include "os/os.h"

#define PAUSE_MAX 64
#define PAUSE_YIELDS 8

/* Let some time pass before the next look; false when the patience is used up. The pauses grow, from 1: whoever looks at a
 * word all the time takes its cache line from the producer who is about to write it. And whoever has looked a few times, with
 * 15 pauses in between, gives way: the producer may be waiting for this very processor. */
static inline bool spin_on(uint32_t *spins, uint32_t *pause)
{
    if (*spins == 0) {
        return false;
    }
    *spins -= *spins < *pause ? *spins : *pause;
    for (uint32_t i = 0; i < *pause; i++) {
        spin_pause();
    }
    if (*pause >= PAUSE_YIELDS) {
        os->yield();
    }
    *pause = *pause < PAUSE_MAX ? *pause * 2 : PAUSE_MAX;
    return true;
}

#endif
