/* mutex.h - the lock of a handle, as its built-ins see it. */
#ifndef SHMQ_MUTEX_H
#define SHMQ_MUTEX_H

#include <stdbool.h>

#include "python/hot.h"

typedef struct {
    PyObject_HEAD
    PyThread_type_lock lock;
    unsigned long owner;  /* the thread that has it, or 0; it alone writes this and the next, and no other has its number */
    unsigned long depth;  /* how often it has it */
} Mutex;

/* Whether some thread has it, as seen in passing. */
bool mutex_is_taken(const Mutex *self);

/* Take it if nobody has it, this thread included. */
bool mutex_try(Mutex *self);
void mutex_leave(Mutex *self);

#endif
