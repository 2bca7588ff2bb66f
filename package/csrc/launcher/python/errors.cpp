#include "launcher/python/errors.h"

#include <cstring>
#include <iterator>

#include "mla/bindings.h"

namespace mla::launcher {
namespace {

// The classes are null until mla_kernels registers them.
PyObject* status_classes[std::size(kStatuses)];
PyObject* payload_class;

bool raise(Ref exception, Ref cause) {
  if (!exception) return false;
  if (cause) PyException_SetCause(exception.get(), cause.release());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.get())), exception.get());
  return false;
}

Ref call(PyObject* error_class, PyObject* message) {
  return Ref(PyObject_CallFunctionObjArgs(error_class, message, nullptr));
}

}  // namespace

bool set_errors(PyObject* classes) {
  constexpr size_t kCount = std::size(kStatuses);
  Ref found[kCount];
  for (size_t i = MLA_OK + 1; i < kCount; ++i) {
    found[i] = Ref(PyMapping_GetItemString(classes, kStatuses[i]));
    if (!found[i]) return false;
  }
  Ref payload(PyMapping_GetItemString(classes, "payload"));
  if (!payload) return false;
  for (size_t i = MLA_OK + 1; i < kCount; ++i) {
    const Ref replaced(std::exchange(status_classes[i], found[i].release()));
  }
  const Ref replaced(std::exchange(payload_class, payload.release()));
  return true;
}

bool refuse(mla_status status, Argument argument, PyObject* got, PyObject* accepts, Ref cause) {
  const Ref got_text(got), accepts_text(accepts);
  if (!got_text || !accepts_text) return false;
  const Ref name(argument.part < 0 ? PyUnicode_FromString(argument.name)
                                   : PyUnicode_FromFormat("%s[%d]", argument.name, argument.part));
  if (!name) return false;
  const bool known = status > MLA_OK && static_cast<size_t>(status) < std::size(kStatuses);
  PyObject* error_class = status_classes[known ? status : MLA_INTERNAL];
  if (error_class != nullptr) {
    return raise(Ref(PyObject_CallFunctionObjArgs(error_class, name.get(), got, accepts, nullptr)),
                 std::move(cause));
  }
  const Ref text(PyUnicode_FromFormat("%U: got %U; accepts %U", name.get(), got, accepts));
  return text && raise(call(PyExc_ValueError, text.get()), std::move(cause));
}

bool refuse_payload(PyObject* message) {
  const Ref text(message);
  if (!text) return false;
  return raise(call(payload_class != nullptr ? payload_class : PyExc_ImportError, message), Ref());
}

bool refuse_status(mla_status status, const char* last_error) {
  Ref lines[3];
  const char* line = last_error != nullptr ? last_error : "";
  for (int i = 0; i < 3; ++i) {
    const size_t length = i < 2 ? strcspn(line, "\n") : strlen(line);
    lines[i] = Ref(PyUnicode_DecodeUTF8(line, static_cast<Py_ssize_t>(length), "replace"));
    if (!lines[i]) return false;
    line += length + (line[length] == '\n');
  }
  const Ref name(PyUnicode_AsUTF8String(lines[0].get()));
  if (!name) return false;
  return refuse(status, {PyBytes_AsString(name.get())}, lines[1].release(), lines[2].release());
}

Ref take_exception() {
  if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)) {
    return Ref();
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  Py_DecRef(type);
  Py_DecRef(traceback);
  return Ref(value);
}

PyObject* type_text(PyObject* object) {
  return PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__name__");
}

}  // namespace mla::launcher
