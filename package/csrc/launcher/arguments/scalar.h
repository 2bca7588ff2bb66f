// Reads scalar arguments.
#pragma once

#include "launcher/arguments/limits.h"
#include "launcher/binding.h"
#include "launcher/python/python.h"

namespace mla::launcher {

// Writes a Python bool, int or float into the problem; refuses other types and what the check, or
// the limits of an integer, exclude.
bool read_scalar(const ScalarBinding& binding, const Limits& limits, PyObject* value,
                 unsigned char* problem);

// Reads a number of at least 0 and at most `max`.
bool read_count(const char* name, PyObject* value, int64_t max, int64_t* number);

// Writes the value that a scalar has in a problem given by name that leaves it out.
void preset_scalar(const ScalarBinding& binding, unsigned char* problem);

}  // namespace mla::launcher
