// The memory that the tensors of a call take. What a kernel writes must be apart from all else.
#pragma once

#include <cstdint>

#include "launcher/binding.h"
#include "launcher/python/errors.h"

namespace mla::launcher {

// Whether no two steps along the axes reach the same element of a tensor, whose innermost `row`
// elements are contiguous: each stride passes over all that shorter ones reach.
bool are_apart(int axes, const int64_t* extents, const int64_t* strides, int64_t row);

// A tensor of a call, as its argument and the problem describe it.
struct Holder {
  const char* name;
  int part;                      // as of Argument
  const TensorBinding* binding;  // null: a buffer without gaps
  const int64_t* fields;         // the pointer and the strides, within the problem
  int64_t row;                   // bytes of a row
  int64_t element;               // bytes of an element
};

// Bytes [begin, end) hold all elements of each tensor.
class Memory {
 public:
  void add(uintptr_t begin, uintptr_t end, bool written, const Holder& holder) {
    written_ |= uint32_t{written} << count_;
    begins_[count_] = begin;
    ends_[count_] = end;
    holders_[count_++] = holder;
  }

  // Refuses a written tensor that shares an element with another.
  //
  // @param dims The dimensions of the problem.
  bool check(const int64_t* dims) const {
    for (uint32_t left = written_; left != 0; left &= left - 1) {
      const int written = __builtin_ctz(left);
      int meets = 0;  // itself among them
      for (int i = 0; i < count_; ++i) meets += meet(written, i);
      if (meets > 1 && !check_one(written, dims)) return false;
    }
    return true;
  }

 private:
  bool meet(int one, int other) const {
    return static_cast<int>(begins_[other] < ends_[one]) &
           static_cast<int>(begins_[one] < ends_[other]);
  }
  bool check_one(int written, const int64_t* dims) const;

  // Every tensor may be a pair; plan and workspace.
  static constexpr int kMost = 2 * kMaxTensors + 2;
  int count_ = 0;
  uint32_t written_ = 0;  // a bit for each tensor
  uintptr_t begins_[kMost];
  uintptr_t ends_[kMost];
  Holder holders_[kMost];
};

}  // namespace mla::launcher
