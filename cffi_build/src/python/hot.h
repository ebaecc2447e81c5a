/* hot.h - what the files of built-ins share. */
#ifndef SHMQ_HOT_H
#define SHMQ_HOT_H

#include <pyconfig.h> /* says whether there is an interpreter's lock */
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030b0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdbool.h>

/* Python keeps functions of a type in void pointers, which ISO C leaves open and POSIX does not. */
#pragma GCC diagnostic ignored "-Wpedantic"

/* ---------------------------------------------------------------- with and without the interpreter's lock
 * With it a built-in is over before another thread runs, unless it lets others run. Without it (Py_GIL_DISABLED) there is no such
 * thing: between ALONE_WITH and ALONE_NO_MORE no other thread is between those of the same object; as with that lock, others
 * may be while this one waits, or calls what may. What an object lends and another thread may have it drop is then held by a
 * reference of one's own: OWN takes it, DISOWN lets it go. Neither pair costs anything where there is the lock. */
#ifdef Py_GIL_DISABLED
#define ALONE_WITH(object) Py_BEGIN_CRITICAL_SECTION((PyObject *)(object));
#define ALONE_NO_MORE Py_END_CRITICAL_SECTION();
#define OWN(object) Py_XNewRef((PyObject *)(object))
#define DISOWN(object) Py_XDECREF((PyObject *)(object))
#else
#define ALONE_WITH(object) {
#define ALONE_NO_MORE }
#define OWN(object) ((PyObject *)(object))
#define DISOWN(object) ((void)(object))
#endif

/* Add a type to the module: 0, or -1 with an exception. In types.c. */
int hot_add_type(PyObject *module, const char *name, PyType_Spec *spec);
/* What each file adds to the module: 0, or -1 with an exception. */
int hot_fd_exec(PyObject *module);
int hot_find_exec(PyObject *module);
int hot_forward_exec(PyObject *module);
int hot_hand_exec(PyObject *module);
int hot_early_exec(PyObject *module);
int hot_map_exec(PyObject *module);
int hot_mutex_exec(PyObject *module);
int hot_message_exec(PyObject *module);
int hot_names_exec(PyObject *module);
int hot_put_exec(PyObject *module);
int hot_take_exec(PyObject *module);
/* Is it an open queue? In hot_find.c. */
bool is_finder(PyObject *object);
/* The module's functions, in hot_strict.c. */
extern PyMethodDef hot_strict_methods[];

/* What type checkers subscribe with the type of the payloads: Consumer[Order]. */
#define OF_PAYLOADS {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL}

#endif
