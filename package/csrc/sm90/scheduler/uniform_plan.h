// The plan of equal requests, in closed form: nothing has to be planned ahead.
#pragma once

#include <cstdint>

#include "sm90/scheduler/plan.h"
#include "sm90/scheduler/split_heuristic.h"

namespace mla::sm90 {

class UniformPlan {
 public:
  // The longest line of requests on which every position still fits 32 bits.
  static constexpr int64_t kLongest = int64_t{1} << 30;
  static int64_t line(int64_t requests, int64_t blocks) {
    return requests * (blocks + SplitHeuristic::kOverhead);
  }

  UniformPlan() = default;
  // Each request has `rows` query rows and is split `max_splits` times at most; 0: as often as it
  // has parts.
  UniformPlan(int64_t requests, int64_t blocks, int64_t parts, int64_t max_splits, int64_t rows)
      : requests_(static_cast<uint32_t>(requests)), parts_(static_cast<uint32_t>(parts)) {
    const SplitHeuristic heuristic =
        SplitHeuristic::of_equal(requests, blocks, parts, max_splits, rows);
    cost_ = Divisor(static_cast<uint32_t>(heuristic.cost(blocks)));
    length_ = Divisor(static_cast<uint32_t>(heuristic.length));
    overhead_ = static_cast<uint32_t>(heuristic.overhead);
    in_pairs_ = heuristic.in_pairs(blocks);
  }

  // Where a part begins.
  MLA_HOST_DEVICE Boundary boundary(uint32_t part) const {
    const uint32_t at = part * length_.value();
    const uint32_t request = cost_.quotient(at);
    if (request >= requests_ || part >= parts_) {
      return {static_cast<int32_t>(requests_), 0, 0, 0};
    }
    const uint32_t inside = cost_.remainder(at, request);
    if (inside <= overhead_) return {static_cast<int32_t>(request), 0, 0, in_pairs_};
    return {static_cast<int32_t>(request), static_cast<int32_t>(inside - overhead_),
            static_cast<int32_t>(part - first_cut(request) + 1), in_pairs_};
  }

  // The partial results of a request have consecutive indices from this one on: twice the part in
  // which it begins, since no two split requests begin in one part.
  MLA_HOST_DEVICE int32_t first_partial_of(uint32_t request) const {
    return 2 * (static_cast<int32_t>(first_cut(request)) - 1);
  }
  // The number of a request's partial results; 0 if it is not split.
  MLA_HOST_DEVICE int32_t partials_of(uint32_t request) const {
    const uint32_t within = length_.quotient((request + 1) * cost_.value() - 1);
    const uint32_t last = within < parts_ - 1 ? within : parts_ - 1;
    const int32_t cuts = static_cast<int32_t>(last - first_cut(request) + 1);
    return cuts > 0 ? cuts + 1 : 0;
  }

  // Requests may be cut anywhere: splits have no length of their own.
  MLA_HOST_DEVICE int32_t split_blocks_of(int64_t) const { return 0; }

  // Whether any request is split.
  bool splits() const {
    if (length_.value() % cost_.value() == 0) return false;
    for (uint32_t part = 1; part < parts_; ++part) {
      if (boundary(part).split > 0) return true;
    }
    return false;
  }

  // Indices of partial results are below this number.
  static int64_t max_partials(int64_t parts) { return 2 * parts; }

 private:
  // The first part whose beginning splits a request.
  MLA_HOST_DEVICE uint32_t first_cut(uint32_t request) const {
    return length_.quotient(request * cost_.value() + overhead_ + length_.value());
  }

  uint32_t requests_;
  uint32_t parts_;
  Divisor cost_;       // of each, in blocks
  Divisor length_;     // of a part
  uint32_t overhead_;  // of a request
  int32_t in_pairs_;
};

}  // namespace mla::sm90
