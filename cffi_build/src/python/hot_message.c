/* hot_message.c - a message as a built-in: its fields come straight from the mapped record, decoded when asked for.
 *
 * Whatever is rare (times as datetimes, headers, what is said to people) is done by functions in Python, which
 * shmq/message.py tells once. What finishes a message is its owner's business: hot_hand.c where that is plain, else methods of
 * the owner's class. */
#include "python/hand.h"

#include "atomic.h"

/* ---------------------------------------------------------------- a message's references */
static int message_traverse(Message *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->chunk);
    Py_VISIT(self->decode);
    Py_VISIT(self->owner);
    return 0;
}
static int message_clear(Message *self)
{
    Py_CLEAR(self->decode);
    Py_CLEAR(self->owner);
    return 0; /* the chunk leads to no message, and what points into it may still be looked at */
}
static void message_dealloc(Message *self)
{
    PyTypeObject *const type = Py_TYPE((PyObject *)self);
    PyObject *const references[] = {self->chunk, self->decode, self->owner};
    PyObject_GC_UnTrack((PyObject *)self);
    if (message_goes(self)) { /* else only its holder's table knows it now, which frees it */
        message_free(self);
    }
    /* Last: the last reference to a consumer closes it, which gives back what is left in its table. */
    for (size_t i = 0; i < sizeof references / sizeof *references; i++) {
        Py_XDECREF(references[i]);
    }
    Py_DECREF(type);
}

/* ---------------------------------------------------------------- what a member holds */
static void held_dealloc(Held *self)
{
    PyTypeObject *const type = Py_TYPE((PyObject *)self);
    held_empty(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}
static Py_ssize_t held_length(Held *self) { return (Py_ssize_t)load_relaxed(&self->count); }

static bool needs_message(PyObject *object)
{
    if (!is_message(object)) {
        PyErr_SetString(PyExc_TypeError, "that is no message");
        return false;
    }
    return true;
}
/* has(message) */
static PyObject *held_has(Held *self, PyObject *object)
{
    (void)self;
    return needs_message(object) ? PyBool_FromLong(message_is_held((Message *)object)) : NULL;
}
/* add(message) */
static PyObject *held_take_in(Held *self, PyObject *object)
{
    if (!needs_message(object) || held_room(self, 1) < 0) {
        return NULL;
    }
    held_add(self, (Message *)object);
    Py_RETURN_NONE;
}
/* drop(message): nothing when it is not held, as one is not whose index was handed out again. */
static PyObject *held_let_go(Held *self, PyObject *object)
{
    if (!needs_message(object)) {
        return NULL;
    }
    held_drop(self, (Message *)object);
    Py_RETURN_NONE;
}
/* first(): where the core's words of one that is held lie, or None; drop_first() lets go of that one. */
static Message *held_any(Held *self)
{
    while (self->count > 0) {
        Message *const message = self->slots[self->from & self->mask];
        if (message != NULL) {
            return message;
        }
        self->from++;
    }
    return NULL;
}
static PyObject *held_first(Held *self, PyObject *unused)
{
    (void)unused;
    Message *const message = held_any(self);
    return message == NULL ? Py_NewRef(Py_None) : PyLong_FromVoidPtr(&message->taken);
}
static PyObject *held_drop_first(Held *self, PyObject *unused)
{
    (void)unused;
    Message *const message = held_any(self);
    if (message != NULL) {
        held_drop(self, message);
    }
    Py_RETURN_NONE;
}
static PyObject *held_clear(Held *self, PyObject *unused)
{
    (void)unused;
    held_empty(self);
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- fields */
static PyObject *message_get_told(Message *self, void *name) { return message_tell(name, (PyObject *)self, NULL); }
static PyObject *message_repr(Message *self) { return message_tell("repr", (PyObject *)self, NULL); }

static PyObject *message_get_payload(Message *self, void *unused)
{
    (void)unused;
    return message_payload(self);
}
static PyObject *message_view(Message *self, void *unused)
{
    (void)unused;
    return PyMemoryView_FromObject((PyObject *)self);
}
static int message_buffer(Message *self, Py_buffer *view, int flags)
{
    return PyBuffer_FillInfo(view, (PyObject *)self, (void *)(uintptr_t)message_bytes(self), message_length(self), 1, flags);
}

static shmq_head head_of_record(const Message *self)
{
    return shmq_head_of(self->memory, self->taken.record, self->taken.place >> LENGTH_BITS);
}
static PyObject *message_key(Message *self, void *unused)
{
    (void)unused;
    const shmq_head head = head_of_record(self);
    if (head.key_length == 0) {
        Py_RETURN_NONE;
    }
    return PyBytes_FromStringAndSize(self->memory + head.key, (Py_ssize_t)head.key_length);
}
static PyObject *message_time_ns(Message *self, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(head_of_record(self).time_ns);
}
static PyObject *message_kind(Message *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(head_of_record(self).type);
}
static PyObject *message_weight(Message *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(shmq_weight_of(self->taken.record, self->taken.place));
}
static PyObject *message_index(Message *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(self->taken.index);
}
static PyObject *message_attempts(Message *self, void *less)
{
    return PyLong_FromLong((long)self->taken.attempts - (less != NULL));
}
/* ---------------------------------------------------------------- verbs */
static PyObject *message_ack(Message *self, PyObject *unused)
{
    (void)unused;
    if (self->owner == NULL || hand_acks(self)) {
        Py_RETURN_NONE;
    }
    return PyObject_CallMethod(self->owner, "_ack_one", "O", self);
}
/* owner.<method>(self, value), with that one argument, which may be left out where the format says so; only members of a
 * group have such methods. */
static PyObject *by_owner(Message *self, PyObject *args, PyObject *kwargs, const char *format, const char *method,
                          const char *name, const char *what)
{
    char *names[] = {(char *)(uintptr_t)name, NULL};
    PyObject *value = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, names, &value)) {
        return NULL;
    }
    if (self->owner == NULL || !is_hand(self->owner)) {
        PyObject *const words = PyUnicode_FromString(what);
        PyObject *const answer = words == NULL ? NULL : message_tell("refuse", (PyObject *)self, words);
        Py_XDECREF(words);
        return answer;
    }
    return value == NULL ? PyObject_CallMethod(self->owner, method, "O", self)
                         : PyObject_CallMethod(self->owner, method, "OO", self, value);
}
static PyObject *message_nack(Message *self, PyObject *args, PyObject *kwargs)
{
    return by_owner(self, args, kwargs, "|O:nack", "_nack_one", "delay", "give back");
}
static PyObject *message_reject(Message *self, PyObject *args, PyObject *kwargs)
{
    return by_owner(self, args, kwargs, "|O:reject", "_reject_one", "reason", "reject");
}
static PyObject *message_extend(Message *self, PyObject *args, PyObject *kwargs)
{
    return by_owner(self, args, kwargs, "O:extend", "_extend_one", "seconds", "extend the lease of");
}

static PyObject *message_forward(Message *self, PyObject *args, PyObject *kwargs)
{
    if (kwargs == NULL && PyTuple_Size(args) == 0) {
        PyObject *const plain = forward_of(self);
        if (plain != NULL || PyErr_Occurred()) {
            return plain;
        }
    }
    return by_owner(self, args, kwargs, "|O:forward", "_forward_one", "timeout", "forward");
}

static PyObject *message_reduce(Message *self, PyObject *unused)
{
    (void)unused;
    return message_tell("pickle", (PyObject *)self, NULL); /* which refuses, and says where the message is */
}

/* ---------------------------------------------------------------- for whoever makes one in Python */
/* What the rest of the library knows of a message; no attributes, for they are nobody else's concern. */
static Message *given_message(PyObject *object) { return needs_message(object) ? (Message *)object : NULL; }

/* parts(message): (chunk, record, place, flags, owner or None, pid) */
static PyObject *module_parts(PyObject *module, PyObject *object)
{
    (void)module;
    Message *const self = given_message(object);
    return self == NULL ? NULL
                        : Py_BuildValue("OKKHOI", self->chunk == NULL ? Py_None : self->chunk,
                                        (unsigned long long)self->taken.record, (unsigned long long)self->taken.place,
                                        head_of_record(self).flags, self->owner == NULL ? Py_None : self->owner, self->pid);
}
/* taken(message): where the core's words of it lie, for as long as it lives. */
static PyObject *module_taken(PyObject *module, PyObject *object)
{
    (void)module;
    Message *const self = given_message(object);
    return self == NULL ? NULL : PyLong_FromVoidPtr(&self->taken);
}
/* is_over(message), and over(message, whether): whether its holder has ended it. */
static PyObject *module_is_over(PyObject *module, PyObject *object)
{
    (void)module;
    Message *const self = given_message(object);
    return self == NULL ? NULL : PyBool_FromLong(load_relaxed(&self->over));
}
static PyObject *module_over(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *object;
    int over;
    if (!PyArg_ParseTuple(args, "Op", &object, &over) || !needs_message(object)) {
        return NULL;
    }
    store_relaxed(&((Message *)object)->over, over != 0);
    Py_RETURN_NONE;
}
/* stands(message, known): one that came back is where the other was found. */
static PyObject *module_stands(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *object;
    PyObject *other;
    if (!PyArg_ParseTuple(args, "OO", &object, &other) || !needs_message(object) || !needs_message(other)) {
        return NULL;
    }
    Message *const self = (Message *)object;
    const Message *const known = (Message *)other;
    PyObject *const before = self->chunk;
    self->taken.record = known->taken.record;
    self->taken.place = known->taken.place;
    self->memory = known->memory;
    self->chunk = Py_XNewRef(known->chunk);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}
/* tried(message, attempts): it counts as handed out so often. */
static PyObject *module_tried(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *object;
    unsigned int attempts;
    if (!PyArg_ParseTuple(args, "OI", &object, &attempts) || !needs_message(object)) {
        return NULL;
    }
    ((Message *)object)->taken.attempts = attempts;
    Py_RETURN_NONE;
}

static PyObject *none_is_null(PyObject *object) { return object == Py_None ? NULL : object; }

/* message(chunk, chunk address, index, record, place, decode, owner, attempts): of a record that was checked when it was
 * read. */
static PyObject *module_message(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *chunk;
    PyObject *decode;
    PyObject *owner;
    unsigned long long address;
    shmq_taken taken = {0};
    unsigned long long index;
    unsigned long long record;
    unsigned long long place;
    unsigned int attempts;
    if (!PyArg_ParseTuple(args, "OKKKKOOI", &chunk, &address, &index, &record, &place, &decode, &owner, &attempts)) {
        return NULL;
    }
    const shmq_chunk *const mapped = (const shmq_chunk *)(uintptr_t)address;
    if (!shmq_chunk_holds(mapped, record, place)) { /* its fields are read without another look */
        PyErr_SetString(PyExc_SystemError, "there is no such message in that chunk");
        return NULL;
    }
    Message *const self = message_new();
    if (self == NULL) {
        return NULL;
    }
    taken.index = index;
    taken.record = record;
    taken.place = place;
    taken.attempts = attempts;
    self->taken = taken;
    message_is(self, chunk, shmq_chunk_memory(mapped), none_is_null(decode),
               none_is_null(owner));
    return (PyObject *)self;
}

/* handed(list, address of a shmq_taken, owner, pid, decode, chunk or None, chunk address): a message of what was claimed
 * there, appended to the list; then there is nothing there any more. One step, so that what a signal's handler raises finds
 * it in the one place or in the other. */
static PyObject *module_handed(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *list;
    PyObject *owner;
    PyObject *decode;
    PyObject *chunk;
    unsigned long long from;
    unsigned long long address;
    unsigned int pid;
    if (!PyArg_ParseTuple(args, "O!KOIOOK", &PyList_Type, &list, &from, &owner, &pid, &decode, &chunk, &address)) {
        return NULL;
    }
    Message *const self = message_new();
    if (self == NULL) {
        return NULL;
    }
    shmq_taken *const taken = (shmq_taken *)(uintptr_t)from;
    message_is(self, chunk, address == 0 ? self->memory : shmq_chunk_memory((const shmq_chunk *)(uintptr_t)address),
               none_is_null(decode), owner);
    self->pid = pid;
    if (PyList_Append(list, (PyObject *)self) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    self->taken = *taken;
    taken->word = 0;
    return (PyObject *)self;
}

/* tell(dict): what is done in Python, by the names of attributes and methods. */
static PyObject *module_tell(PyObject *module, PyObject *dict)
{
    (void)module;
    PyObject *const before = message_told;
    message_told = Py_NewRef(dict);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- the types */
PyDoc_STRVAR(message_doc,
    "One message.\n\n"
    "What `Consumer.get`, a reader or `Queue[index]` return; nobody makes one. Its fields are read from the mapped queue each\n"
    "time they are asked for, and the chunk stays mapped as long as the message is held. It supports the buffer protocol.\n\n"
    "Attributes:\n"
    "    index: its place in the queue; ascending, never reused.\n"
    "    attempts: how often it was handed out, this time included: by a group in all processes; by a consumer of its own\n"
    "        exact within a process, and at least 2 after a crash.");
PyDoc_STRVAR(payload_doc,
    "The payload, decoded; each time a copy of its own of what is there now.\n\n"
    "Its checksum was looked at when the message was handed out. Who may write the file can change it behind that;\n"
    "what `Consumer.take` returns is the copy that was checked.\n\n"
    "Raises:\n    Corrupt: the queue's codec cannot read it; `view` has its bytes.");
PyDoc_STRVAR(view_doc,
    "The payload's bytes where they are, read-only, without a copy. The chunk stays mapped while it is held.");
PyDoc_STRVAR(ack_doc, "ack($self)\n--\n\n"
    "Say that this message is finished: it will not come again.\n\n"
    "What its holder has ended already (by `ack`, `nack` or `reject`) stays as it is, and this does nothing: so a\n"
    "verb that was interrupted can be repeated.\n\n"
    "Raises:\n"
    "    LeaseLost: it was handed out again meanwhile, to whomever; nothing was changed.\n"
    "    Closed: its consumer was closed; the message is handed out again.\n"
    "    Forked: it was handed to the parent process.");
PyDoc_STRVAR(forward_doc, "forward($self, timeout=None)\n--\n\n"
    "Put into other queues and finish this message, as one.\n\n"
    "    with message.forward() as f:\n"
    "        f.put(invoices, invoice)\n"
    "        f.put(audit, line)\n\n"
    "At the end of the block all of it is put, and this message is finished. After any kill either that is so, or the message\n"
    "comes again, and what an earlier try has put is not put twice. An exception in the block puts nothing.\n\n"
    "Args:\n    timeout: seconds to wait for room where a queue has none; None for as long as it takes.\n\n"
    "Raises, at the end of the block:\n"
    "    LeaseLost: it was given to somebody else meanwhile; nothing was put.\n"
    "    Full, DiskFull: a queue had no room in time. The message comes again, and what was put is not put twice.");
PyDoc_STRVAR(nack_doc, "nack($self, delay=0.0)\n--\n\n"
    "Give it back: it comes again behind what is in the queue now, to whoever comes first, *delay* seconds from now.\n\n"
    "What its holder has ended already stays as it is, as with `ack`: a nack behind an ack brings nothing back.\n\n"
    "Raises:\n"
    "    Mismatch: it was not handed out by a group, or its group acknowledges what it hands out (ack=\"auto\").\n"
    "    LeaseLost, Closed, Forked: as `ack`.");
PyDoc_STRVAR(reject_doc, "reject($self, reason='')\n--\n\n"
    "Move it to the dead letters, with *reason* (words, or an exception), and finish it here.\n\n"
    "The traceback of the exception that is being handled goes with it. It never waits for room there, but up to ten\n"
    "seconds for the disk. What its holder has ended already stays as it is, as with `ack`. Where a signal's handler\n"
    "raises, that comes out; the letter is put soon, unless the message is still held: then nothing has happened.\n\n"
    "Raises:\n"
    "    Full: the queue of dead letters has no room (DiskFull: nor has its disk). The message is still held, as\n"
    "        before: reject it again later, or `nack` or `ack` it.\n"
    "    SyncPending, SyncFailed: the letter is there, at `index` of that queue, and it is not known whether it is on\n"
    "        the disk: somebody there is stopped, or the disk refuses. The message is still held: reject it again,\n"
    "        which puts no second letter. Whoever acknowledges it instead leaves the letter where it is. Where\n"
    "        `index` is None, nothing was put, since that disk refused before.\n"
    "    Mismatch: as `nack`.\n"
    "    LeaseLost, Closed, Forked: as `ack`.\n"
    "    Otherwise whatever hinders opening that queue, or putting into it; the message is still held then, too.");
PyDoc_STRVAR(extend_doc, "extend($self, seconds)\n--\n\n"
    "Keep it for *seconds* from now on. Needed only where the group has a lease. What its holder has ended already\n"
    "stays as it is, as with `ack`: this keeps nothing then.\n\n"
    "Raises:\n    Mismatch: as `nack`.\n    LeaseLost, Closed, Forked: as `ack`.");

#define WITH_KEYWORDS(name) (PyCFunction)(void (*)(void))(name), METH_VARARGS | METH_KEYWORDS
static PyMethodDef message_methods[] = {
    {"ack", (PyCFunction)message_ack, METH_NOARGS, ack_doc},
    {"nack", WITH_KEYWORDS(message_nack), nack_doc},
    {"reject", WITH_KEYWORDS(message_reject), reject_doc},
    {"extend", WITH_KEYWORDS(message_extend), extend_doc},
    {"forward", WITH_KEYWORDS(message_forward), forward_doc},
    {"__reduce__", (PyCFunction)message_reduce, METH_NOARGS, NULL},
    OF_PAYLOADS,
    {NULL, NULL, 0, NULL},
};
#define READ(name, get, doc) {name, (getter)(get), NULL, doc, NULL}
#define TOLD(name, doc) {name, (getter)message_get_told, NULL, doc, (void *)(uintptr_t)(name)}
static PyGetSetDef message_fields[] = {
    READ("index", message_index, "Its place in the queue; ascending, never reused."),
    READ("attempts", message_attempts, "How often it was handed out, this time included."),
    {"errors", (getter)message_attempts, NULL, "How often it was handed out before, and not finished.", (void *)1},
    READ("payload", message_get_payload, payload_doc),
    READ("view", message_view, view_doc),
    READ("key", message_key, "The key; None when it was put without one (or with an empty one)."),
    READ("type", message_kind, "The user's type, 0 to 65535."),
    READ("time_ns", message_time_ns, "When it was put (or what its producer gave as time), in ns since 1970."),
    READ("weight", message_weight, "About how many bytes its key, headers and payload have."),
    TOLD("time", "The same as `time_ns` as a datetime, UTC, to the microsecond."),
    TOLD("array", "What was put as an array, as a numpy array: read-only, and without a copy. It keeps the file that it lies in\n"
                  "mapped for as long as it lives; copy what is to be kept for long.\n\n"
                  "Raises:\n"
                  "    Mismatch: it was not put as an array.\n"
                  "    Corrupt: its headers do not fit its bytes."),
    TOLD("headers", "The headers; empty when it was put without any.\n\n"
                    "Raises:\n    Corrupt: they are no mapping that msgpack can read."),
    TOLD("raw_headers", "The headers as they lie there, msgpack; None when it was put without any."),
    TOLD("expires", "When it expires, UTC, as the wall clock is now; None when it never does."),
    TOLD("expired", "Whether its time to live has passed."),
    TOLD("due_ns", "Not before this moment, in ns since 1970, as the wall clock is now; 0 when it was put to come at once."),
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef held_methods[] = {
    {"has", (PyCFunction)held_has, METH_O, NULL},
    {"add", (PyCFunction)held_take_in, METH_O, NULL},
    {"drop", (PyCFunction)held_let_go, METH_O, NULL},
    {"first", (PyCFunction)held_first, METH_NOARGS, NULL},
    {"drop_first", (PyCFunction)held_drop_first, METH_NOARGS, NULL},
    {"clear", (PyCFunction)held_clear, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot message_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)message_doc},
    {Py_tp_dealloc, (void *)message_dealloc}, {Py_tp_traverse, (void *)message_traverse},
    {Py_tp_clear, (void *)message_clear}, {Py_tp_methods, message_methods}, {Py_tp_getset, message_fields},
    {Py_tp_repr, (void *)message_repr}, {Py_bf_getbuffer, (void *)message_buffer}, {0, NULL},
};
static PyType_Slot held_slots[] = {
    {Py_tp_dealloc, (void *)held_dealloc}, {Py_tp_methods, held_methods}, {Py_mp_length, (void *)held_length}, {0, NULL},
};
static PyType_Spec message_spec = {
    "shmq.Message", sizeof(Message), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    message_slots};
static PyType_Spec held_spec = {"shmq._hot.Held", sizeof(Held), 0, Py_TPFLAGS_DEFAULT, held_slots};

static PyMethodDef functions[] = {
    {"message", module_message, METH_VARARGS, NULL},
    {"handed", module_handed, METH_VARARGS, NULL},
    {"is_over", module_is_over, METH_O, NULL},
    {"over", module_over, METH_VARARGS, NULL},
    {"parts", module_parts, METH_O, NULL},
    {"stands", module_stands, METH_VARARGS, NULL},
    {"taken", module_taken, METH_O, NULL},
    {"tell", module_tell, METH_O, NULL},
    {"tried", module_tried, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int hot_message_exec(PyObject *module)
{
    PyObject *const type = PyType_FromSpec(&message_spec);
    if (type == NULL || PyModule_AddObjectRef(module, "Message", type) < 0) {
        Py_XDECREF(type);
        return -1;
    }
    message_type = (PyTypeObject *)type; /* one reference is ours, for the freed are made anew of it */
    return hot_add_type(module, "Held", &held_spec) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
