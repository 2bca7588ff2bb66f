// Python's stable ABI as of 3.10, and a reference that cannot leak.
#pragma once

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000
#endif
#include <Python.h>

#include <utility>

namespace mla::launcher {

// A wheel has the same bytes whichever Python builds it. Therefore the launcher calls Py_IncRef and
// Py_DecRef, and none of the macros that other headers of the same stable ABI write in another way.

// Returns a new reference to None.
inline PyObject* none() {
  Py_IncRef(Py_None);
  return Py_None;
}

// Tells whether an object is of a type or of one derived from it.
inline bool is_instance(PyObject* object, PyTypeObject& type) {
  PyTypeObject* const own = Py_TYPE(object);
  return own == &type || PyType_IsSubtype(own, &type) != 0;
}

class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(other.release()) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_DecRef(object_); }

  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  PyObject* release() {
    PyObject* object = object_;
    object_ = nullptr;
    return object;
  }

 private:
  PyObject* object_ = nullptr;
};

}  // namespace mla::launcher
