#include "launcher/python/number.h"

#include "launcher/python/errors.h"

namespace mla::launcher {

PyObject* number_text(PyObject* number) {
  PyObject* text = PyObject_Repr(number);
  if (text != nullptr || !take_exception()) return text;
  const Ref name(type_text(number));
  return name ? PyUnicode_FromFormat("a number of type %U", name.get()) : nullptr;
}

}  // namespace mla::launcher
