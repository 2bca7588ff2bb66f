// The items of a part: which blocks of which request's KV a cluster attends to, one after the
// other.
#pragma once

#include "sm90/decode/params.h"

namespace mla::sm90 {

// Blocks of one request's KV that a cluster attends to at a stretch.
struct Item {
  int32_t request;
  int32_t first;    // block
  int32_t end;      // block
  int32_t tokens;   // of the request
  int32_t partial;  // where the result goes, -1: it is the request's
  int32_t other;    // the request's other partial result, if a block finishes both; or -1
};

// Lengths are the current ones, not those of the plan: the last split of a request goes on to its
// end.
template <class Params>
class Walk {
 public:
  __device__ Walk(const Params& params, int part)
      : Walk(params, part, params.schedule().boundary(part)) {}
  // From where another walk over the part has come to.
  __device__ Walk(const Params& params, int part, const Boundary& at)
      : params_(params), part_(part), at_(at) {}

  __device__ const Boundary& at() const { return at_; }

  __device__ bool next(Item& item) {
    const auto plan = params_.schedule();
    const int r = at_.request;
    if (r >= params_.shape.batch) return false;
    int part = part_;
    asm volatile("" : "+r"(part));  // or the compiler keeps its place in registers that it lacks
    const Boundary last = plan.boundary(part + 1);
    const int length = params_.length_of(r);
    const int first_partial = plan.first_partial_of(r);
    const int splits = plan.partials_of(r);
    if (r > last.request || (r == last.request && at_.block >= last.block)) return false;
    item.request = r;
    item.tokens = min(max(length, 0), params_.capacity);
    item.partial = splits > 0 ? first_partial + at_.split : -1;
    // Of two pieces, the first is the last item of its part. In a pair, so is the second.
    const bool finishes = splits == 2 && (at_.split == 0 || plan.boundary(part).in_pair);
    item.other = finishes ? first_partial + 1 - at_.split : -1;
    item.first = at_.block;
    item.end = ceil_div(item.tokens, kTileTokens);
    if (params_.shape.max_splits > 0 && at_.split + 1 < splits) {
      at_.block += plan.split_blocks_of(r);
      at_.split += 1;
      item.end = min(item.end, at_.block);
    } else if (params_.shape.max_splits == 0 && r == last.request) {
      at_.block = last.block;
      item.end = min(item.end, at_.block);
    } else {
      at_ = {r + 1, 0, 0, 0};
    }
    return true;
  }

 private:
  const Params& params_;
  const int part_;
  Boundary at_;
};

}  // namespace mla::sm90
