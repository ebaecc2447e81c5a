/* hot_early.c - a queue's put, for whoever takes it ahead of a loop: put = queue.put.
 *
 * A queue has no producer before the first put, so that whoever only takes pays for none. From then on `queue.put` is the
 * producer's; what was taken earlier goes to that as well, once its own first call has found it. */
#include <stddef.h>

#include "python/tail.h"

typedef struct {
    PyObject_HEAD
    PyObject *queue;
    PyObject *method; /* method(queue, ...) puts, and makes the producer where there is none */
    PyObject *tail;   /* the producer, or NULL before the first put */
} Early;

static int early_traverse(Early *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->queue);
    Py_VISIT(self->method);
    Py_VISIT(self->tail);
    return 0;
}
static int early_clear(Early *self)
{
    Py_CLEAR(self->queue);
    Py_CLEAR(self->method);
    Py_CLEAR(self->tail);
    return 0;
}
static void early_dealloc(Early *self)
{
    PyTypeObject *const type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack((PyObject *)self);
    early_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* Early(queue, method) */
static PyObject *early_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *queue;
    PyObject *method;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "OO", &queue, &method)) {
        return NULL;
    }
    Early *const self = (Early *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self != NULL) {
        self->queue = Py_NewRef(queue);
        self->method = Py_NewRef(method);
    }
    return (PyObject *)self;
}

/* The queue has put: from now on its producer is asked at once. */
static void early_find(Early *self)
{
    PyObject *const found = PyObject_GetAttrString(self->queue, "_producer");
    if (found == NULL || !is_tail(found)) {
        PyErr_Clear(); /* the next call looks again */
        Py_XDECREF(found);
        return;
    }
    PyObject *before;
    ALONE_WITH(self)
    before = self->tail;
    self->tail = found;
    ALONE_NO_MORE
    Py_XDECREF(before);
}

static PyObject *early_put(Early *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *tail;
    ALONE_WITH(self)
    tail = Py_XNewRef(self->tail);
    ALONE_NO_MORE
    if (tail != NULL) {
        PyObject *const answer = tail_put((Tail *)tail, args, count, names);
        Py_DECREF(tail);
        return answer;
    }
    PyObject *const answer = in_python(self->method, "__call__", Py_NewRef(self->queue), args, count, names);
    if (answer != NULL) {
        early_find(self);
    }
    return answer;
}

PyDoc_STRVAR(put_doc, "put($self, payload, *, key=None, type=0, time_ns=None, ttl=None, delay=None, headers=None, dedup=None, "
                      "timeout=None)\n--\n\n"
                      "Append payload and return its index. See Queue.put.");
static PyMethodDef early_methods[] = {
    {"put", FAST(early_put), put_doc},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef early_members[] = { /* what it is made of again in another process */
    {"queue", T_OBJECT_EX, offsetof(Early, queue), READONLY, NULL},
    {"method", T_OBJECT_EX, offsetof(Early, method), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot early_slots[] = {
    {Py_tp_new, (void *)early_new}, {Py_tp_dealloc, (void *)early_dealloc}, {Py_tp_traverse, (void *)early_traverse},
    {Py_tp_clear, (void *)early_clear}, {Py_tp_methods, early_methods}, {Py_tp_members, early_members},
    {0, NULL},
};
static PyType_Spec early_spec = {"shmq._hot.Early", sizeof(Early), 0, END_FLAGS, early_slots};

int hot_early_exec(PyObject *module) { return hot_add_type(module, "Early", &early_spec); }
