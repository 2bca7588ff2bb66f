// The values that a kernel takes for a dimension or an integer.
#pragma once

#include <cstdint>

#include "launcher/python/python.h"

namespace mla::launcher {

struct Limits {
  int64_t min = 0;
  int64_t max = INT64_MAX;
  int64_t multiple_of = 1;
  bool of_plan = false;  // whether a plan sets them, and not the kernel

  bool contain(int64_t number) const {
    return number >= min && number <= max && (multiple_of == 1 || number % multiple_of == 0);
  }

  // Returns the limits in the words of an error.
  PyObject* text() const;
};

}  // namespace mla::launcher
