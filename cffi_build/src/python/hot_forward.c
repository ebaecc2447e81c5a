/* hot_forward.c - what is put into other queues, and finishes a message by that, as a Python built-in.
 *
 * An Onward (base of Forward) keeps what is put in its block, and at the end of that has all of it put and its message
 * finished, by hot_hand.c. It is plain as long as it has one message, few puts, and only queues that know the message's
 * group from before; whatever else there is, and whatever does not go straight through, goes to Python with what was put so
 * far: `_carry_on` is told it, and from then on the methods _enter, _put and _leave do everything. */
#include "python/hand.h"

#include <string.h>

#include "atomic.h"

enum { OUTPUTS = 4 };
struct output {
    Tail *tail;            /* these are ours */
    PyObject *path;
    PyObject *data;
    struct carried carried; /* its key and its headers, too */
    int64_t index;
};
typedef struct {
    PyObject_HEAD
    Message *message;      /* NULL when everything goes to Python */
    struct source source;
    uint32_t count;
    bool begun;
    bool over;
    bool put;              /* its end has come, and all is there */
    struct output *outputs; /* room for OUTPUTS, with the first put; NULL before */
} Onward;
static PyTypeObject *forward_type; /* the class that builds on this; NULL until it is known */

/* ---------------------------------------------------------------- room for what is put
 * Most of these live for a moment, one after the other. */
#ifndef Py_GIL_DISABLED
static struct output *spare;
#endif
static struct output *room_new(void)
{
#ifndef Py_GIL_DISABLED
    struct output *const room = spare;
    spare = NULL;
    return room != NULL ? room : PyMem_Malloc(OUTPUTS * sizeof *room);
#else
    return PyMem_Malloc(OUTPUTS * sizeof(struct output));
#endif
}
static void room_free(struct output *room)
{
#ifndef Py_GIL_DISABLED
    if (spare == NULL) {
        spare = room;
        return;
    }
#endif
    PyMem_Free(room);
}

/* ---------------------------------------------------------------- references */
static void output_goes(struct output *output)
{
    PyObject *const references[] = {(PyObject *)output->tail, output->path, output->data, output->carried.key,
                                    output->carried.headers};
    output->tail = NULL;
    output->path = output->data = output->carried.key = output->carried.headers = NULL;
    for (size_t i = 0; i < sizeof references / sizeof *references; i++) {
        Py_XDECREF(references[i]);
    }
}
static int onward_traverse(Onward *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT((PyObject *)self->message);
    for (uint32_t i = 0; i < self->count; i++) {
        Py_VISIT((PyObject *)self->outputs[i].tail);
    }
    return 0;
}
static int onward_clear(Onward *self)
{
    PyObject *const message = (PyObject *)self->message;
    struct output *const outputs = self->outputs;
    const uint32_t count = self->count;
    self->message = NULL;
    self->outputs = NULL;
    self->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        output_goes(&outputs[i]);
    }
    if (outputs != NULL) {
        room_free(outputs);
    }
    Py_XDECREF(message);
    return 0;
}
static void onward_dealloc(Onward *self)
{
    PyTypeObject *const type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack((PyObject *)self);
    onward_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* Forward, called as the class, goes to Python. */
static PyObject *onward_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

PyObject *forward_of(Message *message)
{
    struct source source;
    if (forward_type == NULL || !hand_forwards(message, &source)) {
        return NULL;
    }
    Onward *const self = (Onward *)((allocfunc)PyType_GetSlot(forward_type, Py_tp_alloc))(forward_type, 0);
    if (self != NULL) {
        self->message = (Message *)Py_NewRef((PyObject *)message);
        self->source = source;
    }
    return (PyObject *)self;
}

/* ---------------------------------------------------------------- to Python */
static PyObject *or_none(PyObject *object) { return object == NULL ? Py_None : object; }

/* One that was put, as Producer.prepared_again takes it: (producer, data, key, type, time or None, headers, flags, moments). */
static PyObject *told_output(const struct output *output)
{
    const shmq_fields *const fields = &output->carried.fields;
    PyObject *const time = fields->time_ns == INT64_MIN ? Py_NewRef(Py_None) : PyLong_FromLongLong(fields->time_ns);
    const Py_ssize_t moments = ((fields->fixed_flags & 1) + (fields->fixed_flags >> 1 & 1)) * SHMQ_WHEN_BYTES;
    return time == NULL ? NULL
                        : Py_BuildValue("OOOINOIy#", output->tail, output->data, or_none(output->carried.key),
                                        (unsigned int)fields->type, time, or_none(output->carried.headers),
                                        (unsigned int)fields->fixed_flags, output->carried.moments, moments);
}

static PyObject *onward_indexes(Onward *self, void *unused);

/* It is not plain any more: self._carry_on(message, begun, over, what was put so far and is not there yet, indexes). */
static int goes_to_python(Onward *self)
{
    PyObject *const outputs = PyList_New(0);
    PyObject *const indexes = onward_indexes(self, NULL);
    const bool waits = self->count > 0 && self->outputs[0].tail != NULL; /* else the block has ended here */
    for (uint32_t i = 0; outputs != NULL && waits && i < self->count; i++) {
        PyObject *const told = told_output(&self->outputs[i]);
        const int code = told == NULL ? -1 : PyList_Append(outputs, told);
        Py_XDECREF(told);
        if (code < 0) {
            break;
        }
    }
    PyObject *const answer = outputs == NULL || indexes == NULL || PyErr_Occurred()
                                 ? NULL
                                 : PyObject_CallMethod((PyObject *)self, "_carry_on", "OOOOO", (PyObject *)self->message,
                                                       self->begun ? Py_True : Py_False, self->over ? Py_True : Py_False,
                                                       outputs, indexes);
    Py_XDECREF(outputs);
    Py_XDECREF(indexes);
    if (answer == NULL) {
        return -1;
    }
    Py_DECREF(answer);
    onward_clear(self);
    return 0;
}

/* ---------------------------------------------------------------- in the block */
/* __enter__() */
static PyObject *onward_enter(Onward *self, PyObject *unused)
{
    (void)unused;
    struct source source;
    if (self->message != NULL) {
        if (!self->begun && hand_forwards(self->message, &source)) {
            self->begun = true;
            return Py_NewRef((PyObject *)self);
        }
        if (goes_to_python(self) < 0) {
            return NULL;
        }
    }
    return PyObject_CallMethod((PyObject *)self, "_enter", NULL);
}

static PyObject *producer_name; /* interned */

/* Where that puts: a queue that is open here and has been put into, or its producer. A new reference, or NULL, perhaps with an
 * exception. */
static Tail *tail_of(PyObject *queue)
{
    if (is_tail(queue)) {
        return (Tail *)Py_NewRef(queue);
    }
    PyObject *const tail = is_finder(queue) ? PyObject_GetAttr(queue, producer_name) : NULL;
    if (tail != NULL && is_tail(tail)) {
        return (Tail *)tail;
    }
    Py_XDECREF(tail);
    return NULL;
}

/* Two ends of one queue would be two claims, and whoever looks for what was put finds one of them. */
static bool is_second_end(const Onward *self, const struct output *output)
{
    for (uint32_t i = 0; i < self->count; i++) {
        if (self->outputs[i].tail != output->tail && PyUnicode_Compare(self->outputs[i].path, output->path) == 0) {
            return true;
        }
    }
    return false;
}

/* What is put, as it is now: 1, or 0 when Python has to look at it, -1 with an exception. */
static int output_is(const Onward *self, struct output *output, PyObject *payload, PyObject *const *values, PyObject *names)
{
    Tail *const tail = output->tail;
    output->path = hand_target(self->message, tail);
    if (output->path == NULL || load_relaxed(&tail->sync) != NULL || is_second_end(self, output)) {
        return 0;
    }
    output->data = tail->end.codec == NULL ? Py_NewRef(payload) : PyObject_CallFunctionObjArgs(tail->end.codec, payload, NULL);
    if (output->data == NULL) {
        return -1;
    }
    if (!PyBytes_CheckExact(output->data) || PyBytes_Size(output->data) > COPY_WITH_THE_LOCK) {
        return 0;
    }
    const int understood = tail_carry(tail, &output->carried, values, names);
    Py_XINCREF(output->carried.key);
    if (understood != 1) {
        return understood;
    }
    shmq_fields fields = output->carried.fields; /* at most, with what the first one says of whose it is */
    fields.fixed_flags |= 4;
    return shmq_check_fields(&fields, (uint64_t)PyBytes_Size(output->data)) == SHMQ_OK;
}

/* 1 when it is kept here, to be put. */
static int put_here(Onward *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    struct output output = {0};
    if (count != 2 || self->over || self->count == OUTPUTS) {
        return 0;
    }
    output.tail = tail_of(args[0]);
    int answer = output.tail != NULL ? output_is(self, &output, args[1], args + 2, names) : PyErr_Occurred() ? -1 : 0;
    if (answer == 1 && (self->message == NULL || self->over || self->count == OUTPUTS)) {
        answer = 0; /* a codec has done strange things */
    }
    if (answer == 1 && self->outputs == NULL) {
        self->outputs = room_new();
        answer = self->outputs != NULL;
    }
    if (answer == 1) {
        self->outputs[self->count++] = output;
    } else {
        output_goes(&output);
    }
    return answer;
}

/* put(queue, payload, *, key, type, time_ns, ttl, delay, headers, message) */
static PyObject *onward_put(Onward *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    if (self->message != NULL) {
        const int answer = put_here(self, args, count, names);
        if (answer == 1) {
            Py_RETURN_NONE;
        }
        if (answer < 0 || (self->message != NULL && goes_to_python(self) < 0)) {
            return NULL;
        }
    }
    return in_python((PyObject *)self, "_put", NULL, args, count, names);
}

/* ---------------------------------------------------------------- at its end */
/* What goes into one queue, in the order of the puts. */
struct part {
    struct place place;
    uint32_t count;
    struct output *outputs[OUTPUTS];
    shmq_fields fields[OUTPUTS];
    const char *payloads[OUTPUTS];
    uint64_t lengths[OUTPUTS];
};

static void part_takes(struct part *part, struct output *output, const Message *message, const struct source *source)
{
    struct carried *const carried = &output->carried;
    shmq_fields fields = carried->fields;
    fields.fixed = carried->moments;
    if (part->count == 0) { /* the first record says whose all of it is */
        const size_t moments = ((fields.fixed_flags & 1) + (fields.fixed_flags >> 1 & 1)) * SHMQ_WHEN_BYTES;
        shmq_forwarded_field(source->bytes, message->taken.index, carried->moments + moments);
        fields.fixed_flags |= 4;
    }
    part->outputs[part->count] = output;
    part->fields[part->count] = fields;
    part->payloads[part->count] = PyBytes_AsString(output->data);
    part->lengths[part->count] = (uint64_t)PyBytes_Size(output->data);
    part->count++;
}

/* Those parts, by the order of the queues' paths: how many. */
static uint32_t parts_of(Onward *self, struct part *parts)
{
    struct output *order[OUTPUTS];
    for (uint32_t i = 0; i < self->count; i++) {
        uint32_t at = i;
        for (; at > 0 && PyUnicode_Compare(order[at - 1]->path, self->outputs[i].path) > 0; at--) {
            order[at] = order[at - 1];
        }
        order[at] = &self->outputs[i];
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < self->count; i++) {
        if (i == 0 || order[i]->tail != order[i - 1]->tail) {
            parts[count].place = tail_place(order[i]->tail);
            parts[count++].count = 0;
        }
        part_takes(&parts[count - 1], order[i], self->message, &self->source);
    }
    return count;
}

/* Whether all of it could be put here as it was kept: no queue was closed meanwhile, or waits for the disk now. */
static bool are_plain(const struct part *parts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (parts[i].place.chunk == NULL || load_relaxed(&parts[i].outputs[0]->tail->sync) != NULL) {
            return false;
        }
    }
    return true;
}

static void claim_is(struct claimed *claim, const struct part *part)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < part->count; i++) {
        bytes += shmq_record_bytes(&part->fields[i], part->lengths[i]);
    }
    *claim = (struct claimed){part->place.chunk, part->count, bytes, part->fields, part->payloads, part->lengths, -1};
}

static bool leaves_here(Onward *self)
{
    struct part parts[OUTPUTS];
    struct claimed claims[OUTPUTS];
    const uint32_t count = parts_of(self, parts);
    bool done = count > 0 && are_plain(parts, count);
    for (uint32_t i = 0; done && i < count; i++) {
        claim_is(&claims[i], &parts[i]);
    }
    done = done && hand_puts(self->message, &self->source, count, claims);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; done && j < parts[i].count; j++) {
            parts[i].outputs[j]->index = claims[i].first + j;
        }
        DISOWN(parts[i].place.keep);
    }
    return done;
}

/* __exit__(kind, problem, trace) */
static PyObject *onward_exit(Onward *self, PyObject *const *args, Py_ssize_t count)
{
    if (self->message != NULL) {
        if (count == 3 && self->begun && !self->over) {
            self->over = true;
            self->put = args[0] == Py_None && leaves_here(self);
            if (self->put || args[0] != Py_None) {
                for (uint32_t i = 0; i < self->count; i++) {
                    output_goes(&self->outputs[i]);
                }
                Py_RETURN_NONE;
            }
        }
        if (goes_to_python(self) < 0) {
            return NULL;
        }
    }
    return in_python((PyObject *)self, "_leave", NULL, args, count, NULL);
}

/* ---------------------------------------------------------------- behind the block */
static PyObject *onward_indexes(Onward *self, void *unused)
{
    (void)unused;
    if (self->message == NULL) {
        return PyObject_GetAttrString((PyObject *)self, "_indexes");
    }
    PyObject *const indexes = PyList_New(0);
    for (uint32_t i = 0; indexes != NULL && self->put && i < self->count; i++) {
        PyObject *const index = PyLong_FromLongLong(self->outputs[i].index);
        const int code = index == NULL ? -1 : PyList_Append(indexes, index);
        Py_XDECREF(index);
        if (code < 0) {
            Py_DECREF(indexes);
            return NULL;
        }
    }
    return indexes;
}
/* _plainly: (index of the message, how many puts, whether it is over), or None where Python knows it. */
static PyObject *onward_plainly(Onward *self, void *unused)
{
    (void)unused;
    if (self->message == NULL) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("KIO", (unsigned long long)self->message->taken.index, (unsigned int)self->count,
                         self->over ? Py_True : Py_False);
}

/* makes(class): what Message.forward makes. */
static PyObject *module_makes(PyObject *module, PyObject *type)
{
    (void)module;
    PyTypeObject *const before = forward_type;
    forward_type = (PyTypeObject *)Py_NewRef(type);
    Py_XDECREF((PyObject *)before);
    Py_RETURN_NONE;
}
/* leads(message, source, tail, path): see hand_leads. */
static PyObject *module_leads(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *message;
    const char *source;
    Py_ssize_t length;
    PyObject *tail;
    PyObject *path;
    if (!PyArg_ParseTuple(args, "Oy#OU", &message, &source, &length, &tail, &path)) {
        return NULL;
    }
    if (!is_message(message) || length != SOURCE_BYTES || !is_tail(tail)
        || !hand_leads((const Message *)message, source, (Tail *)tail, path)) {
        PyErr_SetString(PyExc_TypeError, "that is no message of a group, no source, or no end of a queue");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- the type */
PyDoc_STRVAR(put_doc, "put($self, queue, payload, *, key=None, type=0, time_ns=None, ttl=None, delay=None, headers=None, "
    "message=None)\n--\n\n"
    "Have this put into that queue when the block ends. It is encoded now, so the payload may change afterwards.\n\n"
    "Args:\n"
    "    queue: one that is open in this process; also the one that the message is from.\n"
    "    message: of several that are forwarded: the one that this comes of. It is put again, or not, with that.\n"
    "    payload, key, type, time_ns, ttl, delay, headers: as `Queue.put`.\n\n"
    "Raises:\n"
    "    TooLarge, TooMany: no claim can have it.\n"
    "    TypeError, ValueError: as `Queue.put`; or *message* is missing, or is none of them.");
static PyMethodDef onward_methods[] = {
    {"put", FAST(onward_put), put_doc},
    {"__enter__", (PyCFunction)onward_enter, METH_NOARGS, "What is put in the block is put at its end."},
    {"__exit__", (PyCFunction)(void (*)(void))onward_exit, METH_FASTCALL,
     "Put all of it, and finish the messages; nothing after an exception."},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef forward_functions[] = {
    {"makes", (PyCFunction)module_makes, METH_O, NULL},
    {"leads", (PyCFunction)module_leads, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef onward_fields[] = {
    {"indexes", (getter)onward_indexes, NULL, "Behind the block, of each put in their order: the index that it has there.", NULL},
    {"_plainly", (getter)onward_plainly, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot onward_slots[] = {
    {Py_tp_new, (void *)onward_new}, {Py_tp_dealloc, (void *)onward_dealloc}, {Py_tp_traverse, (void *)onward_traverse},
    {Py_tp_clear, (void *)onward_clear}, {Py_tp_methods, onward_methods}, {Py_tp_getset, onward_fields}, {0, NULL},
};
static PyType_Spec onward_spec = {"shmq._hot.Onward", sizeof(Onward), 0, END_FLAGS, onward_slots};

int hot_forward_exec(PyObject *module)
{
    producer_name = producer_name != NULL ? producer_name : PyUnicode_InternFromString("_producer");
    if (producer_name == NULL || PyModule_AddFunctions(module, forward_functions) < 0) {
        return -1;
    }
    return hot_add_type(module, "Onward", &onward_spec);
}
