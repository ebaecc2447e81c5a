/* hand.h - what a message asks of the group's member that handed it out. */
#ifndef SHMQ_HAND_H
#define SHMQ_HAND_H

#include "python/message.h"

/* Acknowledge it in the plain case; false when Python has to try (again). */
bool hand_acks(Message *message);
bool is_hand(PyObject *object);

#endif
