/* hot_fd.c - a descriptor that belongs to an object as soon as it is open.
 *
 * The interpreter runs the handlers of signals behind a call: what they raise there loses what the call returned, and a
 * number that is lost is a descriptor that nobody closes. Here the call is made and its number owned in one step, and
 * the object's end, by whatever way, closes it, without a line of Python. */
#include "python/hot.h"

#include <stdint.h>

#include "atomic.h"
#include "os/named.h"
#include "os/os.h"
#include "shmq.h"

typedef struct {
    PyObject_HEAD
    int fd; /* -1: closed */
} Fd;

static void fd_shut(Fd *self)
{
    const int fd = exchange_relaxed(&self->fd, -1); /* by one thread, though two may shut it */
    if (fd >= 0) {
        PyThreadState *const state = PyEval_SaveThread(); /* the last use of a large file may take its time */
        os->close(fd);
        PyEval_RestoreThread(state);
    }
}

static void fd_dealloc(Fd *self)
{
    PyTypeObject *const type = Py_TYPE((PyObject *)self);
    PyObject *kind;
    PyObject *value;
    PyObject *trace;
    PyErr_Fetch(&kind, &value, &trace);
    fd_shut(self);
    PyErr_Restore(kind, value, trace);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* Fd.of(call, *args, **kwargs): what call(*args, **kwargs) opens. */
static PyObject *fd_of(PyObject *type, PyObject *args, PyObject *kwargs)
{
    const Py_ssize_t given = PyTuple_Size(args);
    if (given < 1) {
        PyErr_SetString(PyExc_TypeError, "what is to be called?");
        return NULL;
    }
    Fd *const self = (Fd *)((allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc))((PyTypeObject *)type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->fd = -1;
    PyObject *const rest = PyTuple_GetSlice(args, 1, given);
    PyObject *const number = rest == NULL ? NULL : PyObject_Call(PyTuple_GetItem(args, 0), rest, kwargs);
    Py_XDECREF(rest);
    if (number != NULL) {
        self->fd = (int)PyLong_AsLong(number);
        Py_DECREF(number);
    }
    if (PyErr_Occurred()) {
        self->fd = -1;
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

/* Fd.renewed(address of a shmq_renewal): the descriptor of the chunk that a used file has become; else what the core said. */
static PyObject *fd_renewed(PyObject *type, PyObject *at)
{
    const shmq_renewal *const renewal = PyLong_AsVoidPtr(at);
    if (renewal == NULL) {
        return NULL;
    }
    Fd *const self = (Fd *)((allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc))((PyTypeObject *)type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->fd = -1;
    PyThreadState *const state = PyEval_SaveThread(); /* to clear a large file may take its time */
    const int code = shmq_chunk_renew(renewal, &self->fd);
    PyEval_RestoreThread(state);
    if (code == SHMQ_OK) {
        return (PyObject *)self;
    }
    Py_DECREF((PyObject *)self);
    return PyLong_FromLong(code);
}

/* plain(directory, name, owner): the bytes of what it has open, if that is a file of ours alone which has that name there and no
 * other; else None. */
static PyObject *fd_plain(Fd *self, PyObject *args)
{
    int directory;
    unsigned int owner;
    PyObject *name; /* bytes */
    if (!PyArg_ParseTuple(args, "iO&I", &directory, PyUnicode_FSConverter, &name, &owner)) {
        return NULL;
    }
    struct os_file found;
    const bool plain = named_plainly(load_relaxed(&self->fd), directory, PyBytes_AsString(name), owner, &found);
    Py_DECREF(name);
    if (!plain) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLongLong(found.bytes);
}

static PyObject *fd_close(Fd *self, PyObject *unused)
{
    (void)unused;
    fd_shut(self);
    Py_RETURN_NONE;
}
static PyObject *fd_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}
static PyObject *fd_exit(Fd *self, PyObject *args)
{
    (void)args;
    fd_shut(self);
    Py_RETURN_NONE;
}
static PyObject *fd_number(Fd *self) { return PyLong_FromLong(load_relaxed(&self->fd)); }
static PyObject *fd_fileno(Fd *self, PyObject *unused)
{
    (void)unused;
    return fd_number(self);
}
static PyObject *fd_str(Fd *self) { return PyUnicode_FromFormat("%d", load_relaxed(&self->fd)); }

static PyMethodDef fd_methods[] = {
    {"of", (PyCFunction)(void (*)(void))fd_of, METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "of(call, *args, **kwargs): the descriptor that call(*args, **kwargs) opens."},
    {"renewed", (PyCFunction)fd_renewed, METH_O | METH_CLASS,
     "renewed(address): the descriptor of the chunk that a used file has become, or what the core said."},
    {"plain", (PyCFunction)fd_plain, METH_VARARGS,
     "plain(directory, name, owner): the bytes of a file of ours alone that has that name there; or None."},
    {"close", (PyCFunction)fd_close, METH_NOARGS, "Close it; a second time this does nothing."},
    {"fileno", (PyCFunction)fd_fileno, METH_NOARGS, "Its number; -1 when it was closed."},
    {"__enter__", (PyCFunction)fd_enter, METH_NOARGS, "Return this object, which the `with` block closes."},
    {"__exit__", (PyCFunction)fd_exit, METH_VARARGS, "Close it."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot fd_slots[] = {
    {Py_tp_dealloc, (void *)fd_dealloc}, {Py_tp_methods, fd_methods}, {Py_nb_index, (void *)fd_number},
    {Py_nb_int, (void *)fd_number}, {Py_tp_str, (void *)fd_str}, {0, NULL},
};
#define FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION)
static PyType_Spec fd_spec = {"shmq._hot.Fd", sizeof(Fd), 0, FLAGS, fd_slots};

int hot_fd_exec(PyObject *module) { return hot_add_type(module, "Fd", &fd_spec); }
