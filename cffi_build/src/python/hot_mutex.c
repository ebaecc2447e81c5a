/* hot_mutex.c - the lock of a handle: reentrant, between the threads of one process, and known to its built-ins.
 *
 * Taking it is one step of the interpreter, so what a signal's handler raises finds it taken by a `with` that will let go, or
 * not taken. A built-in that sees it taken goes the long way, which waits for it; one that sees it open is over before
 * anybody else of this process runs. */
#include "python/mutex.h"

#include "atomic.h"

static PyObject *lock_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args;
    (void)kwargs;
    Mutex *const self = (Mutex *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self != NULL && (self->lock = PyThread_allocate_lock()) == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}
static void lock_dealloc(Mutex *self)
{
    PyTypeObject *const type = Py_TYPE((PyObject *)self);
    if (self->lock != NULL) {
        PyThread_free_lock(self->lock);
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

bool mutex_is_taken(const Mutex *self) { return load_relaxed(&self->depth) > 0; }

static void taken_by(Mutex *self, unsigned long me)
{
    store_relaxed(&self->owner, me);
    store_relaxed(&self->depth, 1);
}
bool mutex_try(Mutex *self)
{
    if (mutex_is_taken(self) || !PyThread_acquire_lock(self->lock, NOWAIT_LOCK)) {
        return false;
    }
    taken_by(self, PyThread_get_thread_ident());
    return true;
}

void mutex_leave(Mutex *self)
{
    store_relaxed(&self->depth, 0);
    store_relaxed(&self->owner, 0);
    PyThread_release_lock(self->lock);
}
static bool is_mine(const Mutex *self, unsigned long me) { return mutex_is_taken(self) && load_relaxed(&self->owner) == me; }

static PyObject *lock_enter(Mutex *self, PyObject *unused)
{
    (void)unused;
    const unsigned long me = PyThread_get_thread_ident();
    if (is_mine(self, me)) {
        store_relaxed(&self->depth, self->depth + 1);
        return Py_NewRef(Py_True);
    }
    if (mutex_try(self)) {
        return Py_NewRef(Py_True);
    }
    PyLockStatus status;
    do {
        PyThreadState *const state = PyEval_SaveThread();
        status = PyThread_acquire_lock_timed(self->lock, -1, 1);
        PyEval_RestoreThread(state);
        if (status == PY_LOCK_INTR && PyErr_CheckSignals() < 0) {
            return NULL;
        }
    } while (status != PY_LOCK_ACQUIRED);
    taken_by(self, me);
    return Py_NewRef(Py_True);
}

static PyObject *lock_exit(Mutex *self, PyObject *unused)
{
    (void)unused;
    if (!is_mine(self, PyThread_get_thread_ident())) {
        PyErr_SetString(PyExc_RuntimeError, "cannot let go of a lock that this thread has not taken");
        return NULL;
    }
    if (self->depth > 1) {
        store_relaxed(&self->depth, self->depth - 1);
    } else {
        mutex_leave(self);
    }
    Py_RETURN_NONE;
}

/* _renew(): in a forked child. Whoever had it is no more, but for the thread that forked, which goes on. */
static PyObject *lock_renew(Mutex *self, PyObject *unused)
{
    (void)unused;
    if (!is_mine(self, PyThread_get_thread_ident())) {
        PyThread_type_lock const fresh = PyThread_allocate_lock();
        if (fresh == NULL) {
            return PyErr_NoMemory();
        }
        self->lock = fresh; /* the old one is nobody's to free: a thread that is gone may have been inside */
        self->depth = 0;
    }
    Py_RETURN_NONE;
}

static PyMethodDef lock_methods[] = {
    {"__enter__", (PyCFunction)lock_enter, METH_NOARGS, "Take it; wait as long as it takes."},
    {"__exit__", (PyCFunction)lock_exit, METH_VARARGS, "Let go of it."},
    {"acquire", (PyCFunction)lock_enter, METH_NOARGS, "As `with` does."},
    {"release", (PyCFunction)lock_exit, METH_NOARGS, "Let go of it."},
    {"_renew", (PyCFunction)lock_renew, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot lock_slots[] = {
    {Py_tp_new, (void *)lock_new}, {Py_tp_dealloc, (void *)lock_dealloc}, {Py_tp_methods, lock_methods}, {0, NULL},
};
static PyType_Spec lock_spec = {"shmq._hot.Mutex", sizeof(Mutex), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, lock_slots};

int hot_mutex_exec(PyObject *module) { return hot_add_type(module, "Mutex", &lock_spec); }
