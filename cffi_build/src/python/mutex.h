/* mutex.h - the lock of a handle, as its built-ins see it. */
#ifndef SHMQ_MUTEX_H
#define SHMQ_MUTEX_H

#include "python/hot.h"

typedef struct {
    PyObject_HEAD
    PyThread_type_lock lock;
    unsigned long owner;  /* the thread that has it, while depth is not 0 */
    unsigned long depth;
} Mutex;

#endif
