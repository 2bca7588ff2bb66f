// Reads what a kernel accepts from what Python knows of its variant.
#pragma once

#include "launcher/arguments/problem.h"

namespace mla::launcher {

// Fills a spec whose op is set from the traits of a variant, the limits of its dimensions and
// integers, and the kind of its device. Returns false with a Python exception set.
bool read_spec(PyObject* traits, PyObject* limits, const char* device, Spec* spec);

}  // namespace mla::launcher
