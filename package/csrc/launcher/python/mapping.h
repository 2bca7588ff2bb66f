// Arguments that a caller gives by name.
#pragma once

#include "launcher/python/python.h"

namespace mla::launcher {

// Returns a dict that has each name once, as a plain str, and that nobody else changes, so that the
// tensors in it live as long as it does. Returns null with an exception set where a name is no str.
Ref copy_arguments(PyObject* mapping);

}  // namespace mla::launcher
