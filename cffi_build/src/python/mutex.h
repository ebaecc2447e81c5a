/* mutex.h - the lock of a handle, as its built-ins see it. */
#ifndef SHMQ_MUTEX_H
#define SHMQ_MUTEX_H

#include <stdbool.h>

#include "python/hot.h"

typedef struct {
    PyObject_HEAD
    PyThread_type_lock lock;
    unsigned long owner;  /* the thread that has it, while depth is not 0 */
    unsigned long depth;
} Mutex;

/* Take it if nobody has it, this thread included. */
bool mutex_try(Mutex *self);
void mutex_leave(Mutex *self);

#endif
