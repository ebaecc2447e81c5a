/* hot_map.c - a file's mapping that keeps no descriptor, unless it is told to.
 *
 * Python's own mmap keeps one (up to 3.12) for each thing that is mapped, and a process has few. */
#include "python/hot.h"

#include <errno.h>
#include <string.h>

#include "os/os.h"

typedef struct {
    PyObject_HEAD
    uint8_t *bytes; /* NULL: unmapped */
    Py_ssize_t size;
    Py_ssize_t views; /* buffers that are looked at: so long nobody unmaps it */
    int writable;
    PyObject *kept; /* what lives as long as it is mapped, or NULL */
} FileMap;

/* Unmap it, unless somebody looks at it: whether it is unmapped now. */
static bool map_end(FileMap *self)
{
    uint8_t *bytes;
    PyObject *kept;
    bool looked_at;
    ALONE_WITH(self)
    looked_at = self->views > 0;
    bytes = looked_at ? NULL : self->bytes;
    kept = looked_at ? NULL : self->kept;
    if (!looked_at) {
        self->bytes = NULL;
        self->kept = NULL;
    }
    ALONE_NO_MORE
    if (bytes != NULL) {
        PyThreadState *const state = PyEval_SaveThread(); /* the last use of a large file may take its time */
        os->unmap_file(bytes, (size_t)self->size);
        PyEval_RestoreThread(state);
    }
    Py_XDECREF(kept);
    return !looked_at;
}

static void map_dealloc(FileMap *self)
{
    PyTypeObject *const type = Py_TYPE((PyObject *)self);
    PyObject *kind;
    PyObject *value;
    PyObject *trace;
    PyErr_Fetch(&kind, &value, &trace);
    map_end(self);
    PyErr_Restore(kind, value, trace);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* One that is not mapped yet; *kept* is its own from here on. */
static FileMap *map_new(PyObject *type, Py_ssize_t size, int writable, PyObject *kept)
{
    FileMap *const self = (FileMap *)((allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc))((PyTypeObject *)type, 0);
    if (self == NULL) {
        Py_XDECREF(kept);
        return NULL;
    }
    self->size = size;
    self->writable = writable;
    self->kept = kept;
    return self;
}

/* It, or an exception and none of it. */
static PyObject *map_or_error(FileMap *self, int answer)
{
    if (answer >= 0) {
        return (PyObject *)self;
    }
    Py_DECREF((PyObject *)self);
    errno = -answer;
    return PyErr_SetFromErrno(PyExc_OSError);
}

/* Map fd by an opening of its own, and in kept a byte of fd itself. */
static int map_both(int fd, FileMap *self, FileMap *kept)
{
    const int again = os->open_again(fd);
    if (again < 0) {
        return again;
    }
    const int answer = os->map_file(again, (size_t)self->size, self->writable, false, &self->bytes);
    os->close(again);
    return answer < 0 ? answer : os->map_file(fd, (size_t)kept->size, false, false, &kept->bytes);
}

/* FileMap.held(fd, size, writable). */
static PyObject *map_held(PyObject *type, PyObject *args)
{
    int fd;
    int writable;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "inp", &fd, &size, &writable)) {
        return NULL;
    }
    if (size <= 0) {
        PyErr_SetString(PyExc_ValueError, "an empty file cannot be mapped");
        return NULL;
    }
    FileMap *const kept = map_new(type, 1, 0, NULL);
    FileMap *const self = kept == NULL ? NULL : map_new(type, size, writable, (PyObject *)kept);
    if (self == NULL) {
        return NULL;
    }
    PyThreadState *const state = PyEval_SaveThread();
    const int answer = map_both(fd, self, kept);
    PyEval_RestoreThread(state);
    return map_or_error(self, answer);
}

/* FileMap.of(fd, size, writable, private, kept). */
static PyObject *map_of(PyObject *type, PyObject *args)
{
    int fd;
    int writable;
    int private;
    Py_ssize_t size;
    PyObject *kept;
    if (!PyArg_ParseTuple(args, "inppO", &fd, &size, &writable, &private, &kept)) {
        return NULL;
    }
    if (size <= 0) {
        PyErr_SetString(PyExc_ValueError, "an empty file cannot be mapped");
        return NULL;
    }
    FileMap *const self = map_new(type, size, writable, Py_NewRef(kept));
    if (self == NULL) {
        return NULL;
    }
    PyThreadState *const state = PyEval_SaveThread();
    const int answer = os->map_file(fd, (size_t)size, writable, private, &self->bytes);
    PyEval_RestoreThread(state);
    return map_or_error(self, answer);
}

static int map_is_there(const FileMap *self)
{
    if (self->bytes == NULL) {
        PyErr_SetString(PyExc_ValueError, "it was unmapped");
    }
    return self->bytes != NULL;
}

static int map_getbuffer(FileMap *self, Py_buffer *view, int flags)
{
    int code;
    ALONE_WITH(self)
    code = map_is_there(self) ? PyBuffer_FillInfo(view, (PyObject *)self, self->bytes, self->size, !self->writable, flags) : -1;
    self->views += code == 0;
    ALONE_NO_MORE
    if (code < 0) {
        view->obj = NULL;
    }
    return code;
}
static void map_releasebuffer(FileMap *self, Py_buffer *view)
{
    (void)view;
    ALONE_WITH(self)
    self->views--;
    ALONE_NO_MORE
}

static Py_ssize_t map_length(FileMap *self)
{
    Py_ssize_t length;
    ALONE_WITH(self)
    length = map_is_there(self) ? self->size : -1;
    ALONE_NO_MORE
    return length;
}

/* Which bytes are meant, from *begin on: how many; -1 with an exception. */
static Py_ssize_t map_range(FileMap *self, PyObject *where, Py_ssize_t *begin, int *one)
{
    if (!map_is_there(self)) {
        return -1;
    }
    *one = PyIndex_Check(where);
    if (*one) {
        *begin = PyNumber_AsSsize_t(where, PyExc_IndexError);
        if (*begin == -1 && PyErr_Occurred()) {
            return -1;
        }
        *begin += *begin < 0 ? self->size : 0;
        if (*begin < 0 || *begin >= self->size) {
            PyErr_SetString(PyExc_IndexError, "it has no such byte");
            return -1;
        }
        return 1;
    }
    if (!PyObject_TypeCheck(where, &PySlice_Type)) {
        PyErr_SetString(PyExc_TypeError, "a place, or a slice, is wanted");
        return -1;
    }
    Py_ssize_t end;
    Py_ssize_t step;
    if (PySlice_Unpack(where, begin, &end, &step) < 0) {
        return -1;
    }
    if (step != 1) {
        PyErr_SetString(PyExc_ValueError, "bytes are taken one after the other");
        return -1;
    }
    return PySlice_AdjustIndices(self->size, begin, &end, step);
}

static PyObject *map_get(FileMap *self, PyObject *where)
{
    Py_ssize_t begin;
    int one;
    PyObject *answer = NULL;
    ALONE_WITH(self)
    const Py_ssize_t count = map_range(self, where, &begin, &one);
    if (count >= 0 && map_is_there(self)) { /* a place that is asked for may be any object, and have closed it */
        answer = one ? PyLong_FromLong(self->bytes[begin])
                     : PyBytes_FromStringAndSize((const char *)self->bytes + begin, count);
    }
    ALONE_NO_MORE
    return answer;
}

static int map_set_alone(FileMap *self, PyObject *where, PyObject *what)
{
    Py_ssize_t begin;
    int one;
    const Py_ssize_t count = map_range(self, where, &begin, &one);
    if (count < 0) {
        return -1;
    }
    if (!self->writable || what == NULL) {
        PyErr_SetString(PyExc_TypeError, what == NULL ? "no byte of it can be deleted" : "it is mapped to be read");
        return -1;
    }
    if (one) {
        const long value = PyLong_AsLong(what);
        if (value < 0 || value > UINT8_MAX) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "that is no byte");
            }
            return -1;
        }
        self->bytes[begin] = (uint8_t)value;
        return 0;
    }
    Py_buffer content;
    if (PyObject_GetBuffer(what, &content, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    const int there = map_is_there(self); /* asking for a buffer may run anything */
    const int fits = there && content.len == count;
    if (fits) {
        memcpy(self->bytes + begin, content.buf, (size_t)count);
    } else if (there) {
        PyErr_SetString(PyExc_ValueError, "so many bytes have no room there");
    }
    PyBuffer_Release(&content);
    return fits ? 0 : -1;
}

static int map_set(FileMap *self, PyObject *where, PyObject *what)
{
    int code;
    ALONE_WITH(self)
    code = map_set_alone(self, where, what);
    ALONE_NO_MORE
    return code;
}

static PyObject *map_close(FileMap *self, PyObject *unused)
{
    (void)unused;
    if (!map_end(self)) {
        PyErr_SetString(PyExc_BufferError, "somebody looks at it");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *map_keep(FileMap *self, PyObject *kept)
{
    PyObject *const before = self->kept;
    self->kept = kept == Py_None ? NULL : Py_NewRef(kept);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyMethodDef map_methods[] = {
    {"of", (PyCFunction)map_of, METH_VARARGS | METH_CLASS, "of(fd, size, writable, private, kept): that file, mapped; kept lives as long."},
    {"held", (PyCFunction)map_held, METH_VARARGS | METH_CLASS,
     "held(fd, size, writable): that file, mapped by an opening of its own; a mapping that keeps that of fd lives as long."},
    {"keep", (PyCFunction)map_keep, METH_O, "keep(kept): that lives as long as this is mapped, in place of what did."},
    {"close", (PyCFunction)map_close, METH_NOARGS, "Unmap it; a second time this does nothing."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot map_slots[] = {
    {Py_tp_dealloc, (void *)map_dealloc},      {Py_tp_methods, map_methods},
    {Py_bf_getbuffer, (void *)map_getbuffer},  {Py_bf_releasebuffer, (void *)map_releasebuffer},
    {Py_mp_length, (void *)map_length},        {Py_mp_subscript, (void *)map_get},
    {Py_mp_ass_subscript, (void *)map_set},    {0, NULL},
};
#define FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION)
static PyType_Spec map_spec = {"shmq._hot.FileMap", sizeof(FileMap), 0, FLAGS, map_slots};

int hot_map_exec(PyObject *module) { return hot_add_type(module, "FileMap", &map_spec); }
