// The memory that the tensors of a call take. What a kernel writes must be apart from all else.
#pragma once

#include <cstdint>

#include "launcher/binding.h"
#include "launcher/python/errors.h"

namespace mla::launcher {

// The steps of a tensor through its memory: outer axes, and a contiguous row.
struct Steps {
  int axes = 0;
  int64_t extents[kMaxOuter];  // each above 1
  int64_t strides[kMaxOuter];
  int64_t row;

  void add(int64_t extent, int64_t stride) {
    if (extent <= 1) return;
    extents[axes] = extent;
    strides[axes++] = stride;
  }
};

// Whether no two steps of a tensor reach the same element: each stride passes over all that shorter
// ones reach.
bool are_apart(const Steps& steps);

// Bytes [begin, end) hold all elements of a tensor.
struct Region {
  uintptr_t begin;
  uintptr_t end;
  Argument argument;
  bool written;
  const TensorBinding* binding;  // null: every byte between begin and end is taken
  const int64_t* fields;         // the pointer and the strides, within the problem
  int64_t row;                   // bytes of a row
  int64_t element;               // bytes of an element
};

class Memory {
 public:
  void add(const Region& region) {
    if (region.begin == region.end) return;
    written_ |= uint32_t{region.written} << count_;
    regions_[count_++] = region;
  }

  // Refuses a written tensor that shares an element with another.
  //
  // @param dims The dimensions of the problem.
  bool check(const int64_t* dims) const;

 private:
  bool check_pair(const Region& written, const Region& other, const int64_t* dims) const;

  int count_ = 0;
  uint32_t written_ = 0;                 // a bit for each region
  Region regions_[2 * kMaxTensors + 2];  // every tensor may be a pair; plan and workspace
};

}  // namespace mla::launcher
