#include "launcher/python/mapping.h"

namespace mla::launcher {
namespace {

// Adds an argument under a plain str, because a subclass of str may say that it equals none.
bool add_argument(PyObject* arguments, PyObject* name, PyObject* value) {
  if (!PyUnicode_Check(name)) {
    PyErr_Format(PyExc_TypeError, "the name of an argument is a str, not %R", name);
    return false;
  }
  const Ref plain(PyUnicode_FromObject(name));
  if (!plain) return false;
  if (PyDict_Contains(arguments, plain.get()) != 0) {
    PyErr_Format(PyExc_TypeError, "argument %R is given twice", plain.get());
    return false;
  }
  return PyDict_SetItem(arguments, plain.get(), value) == 0;
}

}  // namespace

Ref copy_arguments(PyObject* mapping) {
  const Ref given(PyDict_New());
  Ref copy(PyDict_New());
  if (!given || !copy || PyDict_Update(given.get(), mapping) != 0) return Ref();
  PyObject *name, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(given.get(), &position, &name, &value)) {
    if (!add_argument(copy.get(), name, value)) return Ref();
  }
  return copy;
}

}  // namespace mla::launcher
