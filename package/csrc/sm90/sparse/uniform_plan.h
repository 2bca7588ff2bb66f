// How equal requests are cut into parts: in closed form, so that nothing has to be planned ahead.
//
// Requests lie one after the other on a line; each takes its blocks of KV and, for its queries and
// its result, as much as kOverhead blocks. The line is cut at every multiple of a length.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sm90/decode/schedule.h"
#include "sm90/sparse/divisor.h"

namespace mla::sm90::sparse {

class UniformPlan {
  static constexpr int64_t kOverhead = 3;
  static constexpr int64_t kAlignedBlocks = 16;  // longer parts are cut between pairs of blocks
  static constexpr int64_t kLonger = 16;         // a part may be longer by one part in so many

 public:
  // Of the line, so that all that lies on it is counted in 32 bits.
  static constexpr int64_t kLongest = int64_t{1} << 30;
  static int64_t line(int64_t requests, int64_t blocks) { return requests * (blocks + kOverhead); }

  UniformPlan() = default;
  // `max_splits` of a request at most; 0: as many as parts touch it.
  UniformPlan(int64_t requests, int64_t blocks, int64_t parts, int64_t max_splits)
      : requests_(static_cast<uint32_t>(requests)),
        parts_(static_cast<uint32_t>(parts)),
        cost_(static_cast<uint32_t>(blocks + kOverhead)) {
    const int64_t cost = cost_.value();
    const int64_t total = line(requests, blocks);
    int64_t length = total > parts ? ceil_div(total, parts) : 1;
    if (max_splits == 1) {
      length = ceil_div(length, cost) * cost;
    } else if (max_splits > 1) {
      // Cuts that lie so far apart part a request at most this often.
      length = std::max(length, ceil_div(cost, max_splits - 1));
    } else {
      // Parts that are a little longer, where fewer requests are split then: whole requests, or
      // whole fractions of one.
      const int64_t longer =
          length > cost ? ceil_div(length, cost) * cost : ceil_div(cost, cost / length);
      if (longer <= length + length / kLonger) length = longer;
    }
    length_ = Divisor(static_cast<uint32_t>(length));
    align_ = length >= kAlignedBlocks ? 2 : 1;
  }

  // Where a part begins.
  MLA_HOST_DEVICE Boundary boundary(uint32_t part) const {
    const uint32_t at = part * length_.value();
    const uint32_t request = cost_.quotient(at);
    if (request >= requests_ || part >= parts_) {
      return {static_cast<int32_t>(requests_), 0, 0, 0};
    }
    const uint32_t inside = cost_.remainder(at, request);
    if (inside < kOverhead + align_) return {static_cast<int32_t>(request), 0, 0, 0};
    return {static_cast<int32_t>(request),
            static_cast<int32_t>((inside - kOverhead) & ~(align_ - 1)),
            static_cast<int32_t>(part - first_cut(request) + 1), 0};
  }

  // The partial results of a request are as many slots from this one on: the part in which it
  // begins, twice, since no two split requests begin in one.
  MLA_HOST_DEVICE int32_t first_partial_of(uint32_t request) const {
    return 2 * (static_cast<int32_t>(first_cut(request)) - 1);
  }
  // 0 if it is not split.
  MLA_HOST_DEVICE int32_t partials_of(uint32_t request) const {
    const uint32_t within = length_.quotient((request + 1) * cost_.value() - 1);
    const uint32_t last = within < parts_ - 1 ? within : parts_ - 1;
    const int32_t cuts = static_cast<int32_t>(last - first_cut(request) + 1);
    return cuts > 0 ? cuts + 1 : 0;
  }

  // Cuts may be anywhere.
  MLA_HOST_DEVICE int32_t split_blocks_of(int64_t) const { return 0; }

  bool splits() const {
    if (length_.value() % cost_.value() == 0) return false;
    for (uint32_t part = 1; part < parts_; ++part) {
      if (boundary(part).split > 0) return true;
    }
    return false;
  }

  static int64_t slots(int64_t parts) { return 2 * parts; }

 private:
  // The first part whose beginning splits a request.
  MLA_HOST_DEVICE uint32_t first_cut(uint32_t request) const {
    return length_.quotient(request * cost_.value() + kOverhead + align_ + length_.value() - 1);
  }

  uint32_t requests_;
  uint32_t parts_;
  Divisor cost_;    // of each, in blocks
  Divisor length_;  // of a part
  uint32_t align_;
};

}  // namespace mla::sm90::sparse
