/* hot_strict.c - an encoder that refuses what would come back as something else, with no Python frame in between.
 *
 * JSON has no word for NaN, bytes and sets, and msgspec writes null, base64 and a list in their place; msgpack has none
 * for sets and for times without a zone. A payload is looked through before it is encoded: what is not plain raises, and
 * nothing is put. Tuples are the one exception: they come back as lists, as everywhere in JSON. */
#include "python/hot.h"

#include <math.h>

typedef struct {
    PyObject *name;     /* the codec's, for people */
    PyObject *datetime; /* the type, where times with a zone can be held; else None */
    int binary;         /* bytes, NaN and keys that are no text can be held */
} Rules;

static int look(PyObject *value, const Rules *rules);

static int refuse(PyObject *value, const Rules *rules)
{
    PyErr_Format(PyExc_TypeError,
        rules->binary
            ? "codec %R cannot hold %.100R (%R): it would come back as something else; it takes None, bool, int, float, "
              "str, bytes, datetimes with a zone, and lists, tuples and dicts of these; tuples come back as lists"
            : "codec %R cannot hold %.100R (%R): it would come back as something else; it takes None, bool, int, float, "
              "str, and lists, tuples and dicts of these, with keys that are str; tuples come back as lists",
        rules->name, value, (PyObject *)Py_TYPE(value));
    return -1;
}

static int look_at_items(PyObject *dict, const Rules *rules)
{
    PyObject *key;
    PyObject *value;
    Py_ssize_t at = 0;
    int code = 0;
    ALONE_WITH(dict)
    while (code == 0 && PyDict_Next(dict, &at, &key, &value)) {
        key = OWN(key);
        value = OWN(value);
        if (!PyUnicode_Check(key)) {
            code = rules->binary ? look(key, rules) : refuse(dict, rules);
        }
        code = code < 0 ? code : look(value, rules);
        DISOWN(key);
        DISOWN(value);
    }
    ALONE_NO_MORE
    return code;
}

/* What a list has there, held on to while it is looked at; NULL when it has become shorter meanwhile. */
static PyObject *item_at(PyObject *list, Py_ssize_t at)
{
#ifdef Py_GIL_DISABLED
    PyObject *const item = PyList_GetItemRef(list, at);
    PyErr_Clear();
    return item;
#else
    return PyList_GetItem(list, at);
#endif
}

static int look_at_all(PyObject *value, const Rules *rules)
{
    int answer = Py_EnterRecursiveCall(" while a payload is looked through");
    if (answer != 0) {
        return -1;
    }
    if (PyDict_Check(value)) {
        answer = look_at_items(value, rules);
    } else if (PyList_Check(value)) {
        PyObject *item;
        for (Py_ssize_t at = 0; answer == 0 && at < PyList_Size(value) && (item = item_at(value, at)) != NULL; at++) {
            answer = look(item, rules);
            DISOWN(item);
        }
    } else {
        for (Py_ssize_t at = 0; answer == 0 && at < PyTuple_Size(value); at++) {
            answer = look(PyTuple_GetItem(value, at), rules);
        }
    }
    Py_LeaveRecursiveCall();
    return answer;
}

static int look_at_time(PyObject *value, const Rules *rules)
{
    PyObject *const zone = PyObject_GetAttrString(value, "tzinfo");
    if (zone == NULL) {
        return -1;
    }
    Py_DECREF(zone);
    return zone == Py_None ? refuse(value, rules) : 0;
}

static int look(PyObject *value, const Rules *rules)
{
    if (value == Py_None || PyUnicode_Check(value) || PyLong_Check(value)) { /* a bool is an int */
        return 0;
    }
    if (PyFloat_Check(value)) {
        if (rules->binary || isfinite(PyFloat_AsDouble(value))) {
            return 0;
        }
        PyErr_Format(PyExc_ValueError, "codec %R cannot hold %R: it has no word for it, and null would come back",
            rules->name, value);
        return -1;
    }
    if (PyDict_Check(value) || PyList_Check(value) || PyTuple_Check(value)) {
        return look_at_all(value, rules);
    }
    if (rules->binary && (PyBytes_Check(value) || PyByteArray_Check(value) || Py_IS_TYPE(value, &PyMemoryView_Type))) {
        return 0;
    }
    if ((PyObject *)Py_TYPE(value) == rules->datetime) {
        return look_at_time(value, rules);
    }
    return refuse(value, rules);
}

static PyObject *strict_call(PyObject *self, PyObject *value)
{
    const Rules rules = {PyTuple_GetItem(self, 1), PyTuple_GetItem(self, 2), PyTuple_GetItem(self, 2) != Py_None};
    return look(value, &rules) < 0 ? NULL : PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, 0), value, NULL);
}
static PyMethodDef strict_def = {"encode", strict_call, METH_O, "The payload's bytes; TypeError or ValueError for what "
                                                                "would come back as something else."};

/* strict(encode, name of the codec, datetime.datetime or None for JSON): encode, but for what is not plain. */
static PyObject *strict(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *encode;
    PyObject *name;
    PyObject *datetime;
    if (!PyArg_ParseTuple(args, "OUO", &encode, &name, &datetime)) {
        return NULL;
    }
    return PyCFunction_NewEx(&strict_def, args, NULL);
}
PyMethodDef hot_strict_methods[] = {
    {"strict", strict, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
