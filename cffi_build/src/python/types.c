/* types.c - what every file of built-ins does with its types. */
#include "python/hot.h"

int hot_add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *const type = PyType_FromSpec(spec);
    const int answer = type == NULL ? -1 : PyModule_AddObjectRef(module, name, type);
    Py_XDECREF(type);
    return answer;
}
