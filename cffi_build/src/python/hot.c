/* hot.c - what programs call millions of times, as Python built-ins, with no Python frame in between.
 *
 * A second door into the core, beside cffi's: a cffi call and the Python around it cost three times what the core
 * itself does (docs/decisions/0003). It holds no protocol and no policy: whatever is not the plain case goes to methods of the
 * classes that build on these. Only shmq/_native/core.py loads this; it lives in the same shared object as shmq._core. */
#include "python/hot.h"

/* ---------------------------------------------------------------- what must not be finalized too early
 * The garbage collector runs the finalizers of a cycle in any order: a handle's, which frees it, before that of whoever
 * gives back through it what it holds. It does not look into a Kept, so it takes what is in there for something in use,
 * and the handle goes when the Kept does, by its count, behind all finalizers. A handle leads to nobody who has a Kept. */
typedef struct {
    PyObject_HEAD
    PyObject *object;
} Kept;

static PyObject *kept_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *object;
    (void)kwargs; /* nobody gives any */
    if (!PyArg_ParseTuple(args, "O", &object)) {
        return NULL;
    }
    Kept *const kept = (Kept *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (kept != NULL) {
        kept->object = Py_NewRef(object);
    }
    return (PyObject *)kept;
}
static void kept_dealloc(Kept *self)
{
    PyTypeObject *const type = Py_TYPE((PyObject *)self);
    Py_XDECREF(self->object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ---------------------------------------------------------------- a `with` block that ends, whatever a handler raises
 * The interpreter runs the handlers of signals at the beginning of every function in Python, also of __enter__ and
 * __exit__: what they raise there leaves the block entered by nobody, or left by nobody. These two are no such functions. */
static PyObject *block_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

/* self._leave(kind, value, trace), and when that raises, self.give_up() */
static PyObject *block_exit(PyObject *self, PyObject *args)
{
    PyObject *const leave = PyObject_GetAttrString(self, "_leave");
    PyObject *const answer = leave == NULL ? NULL : PyObject_Call(leave, args, NULL);
    Py_XDECREF(leave);
    if (answer == NULL) {
        PyObject *kind;
        PyObject *value;
        PyObject *trace;
        PyErr_Fetch(&kind, &value, &trace);
        PyObject *const given_up = PyObject_CallMethod(self, "give_up", NULL);
        Py_XDECREF(given_up);
        PyErr_Restore(kind, value, trace); /* in place of whatever that raised */
    }
    return answer;
}

/* ---------------------------------------------------------------- the module */
static PyMethodDef block_methods[] = {
    {"__enter__", (PyCFunction)block_enter, METH_NOARGS, "Return this object, which the `with` block ends."},
    {"__exit__", (PyCFunction)block_exit, METH_VARARGS, "Commit, or abort when an exception passes."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot kept_slots[] = {{Py_tp_new, (void *)kept_new}, {Py_tp_dealloc, (void *)kept_dealloc}, {0, NULL}};
static PyType_Spec kept_spec = {"shmq._hot.Kept", sizeof(Kept), 0, Py_TPFLAGS_DEFAULT, kept_slots};
static PyType_Slot block_slots[] = {{Py_tp_methods, block_methods}, {0, NULL}};
static PyType_Spec block_spec = {"shmq._hot.Block", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                 block_slots};

/* What the types are told, and what messages are made of, is the process's. */
static PyInterpreterState *home;

static int hot_exec(PyObject *module)
{
    if (home != NULL && home != PyInterpreterState_Get()) {
        PyErr_SetString(PyExc_ImportError, "shmq works in one interpreter of a process, and another one has imported it");
        return -1;
    }
    home = PyInterpreterState_Get();
    int (*const parts[])(PyObject *) = {hot_mutex_exec, hot_message_exec, hot_put_exec, hot_take_exec,
                                        hot_hand_exec,  hot_find_exec,    hot_fd_exec,  hot_map_exec,
                                        hot_forward_exec, hot_names_exec, hot_early_exec};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i](module) < 0) {
            return -1;
        }
    }
    return hot_add_type(module, "Kept", &kept_spec) < 0 ? -1 : hot_add_type(module, "Block", &block_spec);
}
static PyModuleDef_Slot hot_slots[] = {
    {Py_mod_exec, (void *)hot_exec},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* each built-in says, by ALONE_WITH, what it needs instead */
#endif
    {0, NULL},
};
static struct PyModuleDef hot_module = {
    PyModuleDef_HEAD_INIT, "shmq._hot", NULL, 0, hot_strict_methods, hot_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__hot(void);
PyMODINIT_FUNC PyInit__hot(void) { return PyModuleDef_Init(&hot_module); }
