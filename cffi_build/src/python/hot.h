/* hot.h - what the files of built-ins share. */
#ifndef SHMQ_HOT_H
#define SHMQ_HOT_H

#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030b0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

/* Python keeps functions of a type in void pointers, which ISO C leaves open and POSIX does not. */
#pragma GCC diagnostic ignored "-Wpedantic"

/* Add a type to the module: 0, or -1 with an exception. In types.c. */
int hot_add_type(PyObject *module, const char *name, PyType_Spec *spec);
/* What each file adds to the module: 0, or -1 with an exception. */
int hot_fd_exec(PyObject *module);
int hot_find_exec(PyObject *module);
int hot_hand_exec(PyObject *module);
int hot_map_exec(PyObject *module);
int hot_mutex_exec(PyObject *module);
int hot_message_exec(PyObject *module);
int hot_put_exec(PyObject *module);
int hot_take_exec(PyObject *module);
/* The module's functions, in hot_strict.c. */
extern PyMethodDef hot_strict_methods[];

/* What type checkers subscribe with the type of the payloads: Consumer[Order]. */
#define OF_PAYLOADS {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL}

#endif
