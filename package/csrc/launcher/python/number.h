// Python's numbers in the words of an error.
#pragma once

#include "launcher/python/python.h"

namespace mla::launcher {

// Returns the number as Python writes it. Python refuses to write an int of thousands of digits,
// and a subclass may refuse anything: those are told by their type.
[[gnu::cold]] PyObject* number_text(PyObject* number);

}  // namespace mla::launcher
