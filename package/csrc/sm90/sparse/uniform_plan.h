// How equal requests are cut into parts: in closed form, so that nothing has to be planned ahead.
//
// Requests lie one after the other on a line; each takes its blocks of KV and, for its queries and
// its result, as much as kOverhead blocks. The line is cut at every multiple of a length.
#pragma once

#include <cstdint>

#include "sm90/decode/schedule.h"

namespace mla::sm90::sparse {

class UniformPlan {
  static constexpr int64_t kOverhead = 3;
  static constexpr int64_t kAlignedBlocks = 16;  // longer parts are cut between pairs of blocks
  static constexpr int64_t kLonger = 16;         // a part may be longer by one part in so many

 public:
  UniformPlan() = default;
  // `max_splits` of a request at most; 0: as many as parts touch it.
  UniformPlan(int64_t requests, int64_t blocks, int64_t parts, int64_t max_splits)
      : requests_(requests), cost_(blocks + kOverhead), parts_(parts) {
    const int64_t total = requests_ * cost_;
    length_ = total > parts ? ceil_div(total, parts) : 1;
    if (max_splits == 1) {
      length_ = ceil_div(length_, cost_) * cost_;
    } else if (max_splits > 1) {
      // Cuts that lie so far apart part a request at most this often.
      const int64_t least = ceil_div(cost_, max_splits - 1);
      if (length_ < least) length_ = least;
    } else {
      // Parts that are a little longer, where fewer requests are split then: whole requests, or
      // whole fractions of one.
      const int64_t longer =
          length_ > cost_ ? ceil_div(length_, cost_) * cost_ : ceil_div(cost_, cost_ / length_);
      if (longer <= length_ + length_ / kLonger) length_ = longer;
    }
    align_ = length_ >= kAlignedBlocks ? 2 : 1;
  }

  // Where a part begins.
  MLA_HOST_DEVICE Boundary boundary(int64_t part) const {
    const int64_t at = part * length_;
    const int64_t request = at / cost_;
    if (request >= requests_ || part >= parts_) {
      return {static_cast<int32_t>(requests_), 0, 0, 0};
    }
    const int64_t inside = at - request * cost_;
    if (inside < kOverhead + align_) return {static_cast<int32_t>(request), 0, 0, 0};
    return {static_cast<int32_t>(request),
            static_cast<int32_t>((inside - kOverhead) / align_ * align_),
            static_cast<int32_t>(part - first_cut(request) + 1), 0};
  }

  // The partial results of a request are as many slots from this one on: the part in which it
  // begins, twice, since no two split requests begin in one.
  MLA_HOST_DEVICE int32_t first_partial_of(int64_t request) const {
    return static_cast<int32_t>(2 * (first_cut(request) - 1));
  }
  // 0 if it is not split.
  MLA_HOST_DEVICE int32_t partials_of(int64_t request) const {
    const int64_t within = ((request + 1) * cost_ - 1) / length_;
    const int64_t last = within < parts_ - 1 ? within : parts_ - 1;
    const int64_t cuts = last - first_cut(request) + 1;
    return cuts > 0 ? static_cast<int32_t>(cuts + 1) : 0;
  }

  // Cuts may be anywhere.
  MLA_HOST_DEVICE int32_t split_blocks_of(int64_t) const { return 0; }

  bool splits() const {
    for (int64_t part = 1; part < parts_; ++part) {
      if (boundary(part).split > 0) return true;
    }
    return false;
  }

  static int64_t slots(int64_t parts) { return 2 * parts; }

 private:
  // The first part whose beginning splits a request.
  MLA_HOST_DEVICE int64_t first_cut(int64_t request) const {
    return ceil_div(request * cost_ + kOverhead + align_, length_);
  }

  int64_t requests_;
  int64_t cost_;  // of each, in blocks
  int64_t parts_;
  int64_t length_;  // of a part
  int64_t align_;
};

}  // namespace mla::sm90::sparse
