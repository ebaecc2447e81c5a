/* message.h - what the built-ins know of a message, and of those that a member of a group holds. */
#ifndef SHMQ_MESSAGE_H
#define SHMQ_MESSAGE_H

#include "python/hot.h"
#include "shmq.h"

#define LENGTH_BITS 30
#define LENGTH_MASK ((UINT64_C(1) << LENGTH_BITS) - 1)

/* A message as it was read. Of `taken`, index, place, record and attempts are known of every message, the rest of those that
 * were handed out by a group. */
typedef struct {
    PyObject_HEAD
    PyObject *chunk;    /* keeps the memory mapped, and says whose it is; NULL until what came back is looked up */
    PyObject *decode;   /* or NULL */
    PyObject *owner;    /* the consumer that finishes it; NULL when there is nothing to finish */
    const char *memory;
    shmq_taken taken;
    uint32_t pid;       /* of the process that it was handed to */
    uint8_t held;       /* a message_held: what its owner's table and its last reference go by */
    bool over;          /* its holder has ended it */
} Message;

/* Whether its owner's table points to it; LOST when its last reference went meanwhile, so that only the table knows it. */
enum message_held { NOT_HELD, HELD, LOST };

/* The messages that one member was handed and has not finished, by their indexes: open addressing, without tombstones. The
 * table does not keep them alive; one whose last reference goes stays in it as bare memory, since its word in the ring
 * says that it is held. It knows no other object, so it is in no cycle. Whoever uses it has the lock of its member. */
typedef struct {
    PyObject_HEAD
    Message **slots;
    size_t mask;        /* slots, less one; 0 = there are none */
    size_t count;
    size_t from;        /* where to begin to look for any of them */
} Held;

static inline const char *message_bytes(const Message *self) { return self->memory + (self->taken.place >> LENGTH_BITS); }
static inline Py_ssize_t message_length(const Message *self) { return (Py_ssize_t)(self->taken.place & LENGTH_MASK); }

/* Room for `more` messages: 0, or -1 with an exception. */
int held_room(Held *self, size_t more);
/* It is held from now on; there is room. One of the same index that was held before is not, any more. */
void held_add(Held *self, Message *message);
void held_drop(Held *self, Message *message);
void held_empty(Held *self);

/* A new one that is no message yet and tracked by nobody, or NULL with an exception. */
Message *message_new(void);
/* It is one now: of that chunk, with its `taken` filled in. Nothing is allocated. */
void message_is(Message *self, PyObject *chunk, const char *memory, PyObject *decode, PyObject *owner);
/* The payload, decoded: a new reference, or NULL with an exception. */
PyObject *message_payload(Message *self);
bool is_message(PyObject *object);
bool message_is_held(const Message *self);
/* Its last reference goes: whether it is nobody's any more, and to be freed. */
bool message_goes(Message *self);
/* Its memory, which nothing points to any more. */
void message_free(Message *self);
/* What is done in Python, by the names of attributes and methods: called with the message, and `first` if it is not NULL. */
PyObject *message_tell(const char *name, PyObject *self, PyObject *first);
extern PyObject *message_told;
extern PyTypeObject *message_type;

#endif
