// The work tiles of a part: which KV blocks of which request a cluster attends to, one work tile
// after the other.
#pragma once

#include "sm90/common/pdl.cuh"
#include "sm90/common/views.h"
#include "sm90/scheduler/plan.h"

namespace mla::sm90 {

// Blocks of one request's KV that a cluster attends to at a stretch.
struct WorkTile {
  int32_t request;
  int32_t first_block;
  int32_t end_block;
  int32_t tokens;         // of the request
  int32_t partial;        // the partial result that is stored; -1: the request's result is
  int32_t other_partial;  // the request's other partial result, if a block combines the two; or -1
  int32_t query;          // where the request's query tokens are, as QueryTokens has it
  int32_t query_rows;     // of the request
  int32_t visible;        // query token s sees `visible` - q_len + 1 + s tokens, if causal
};

// The query rows of a work tile's request. A sparse one is a token, so that all have as many.
template <class Params>
__device__ __forceinline__ int query_rows(const Params& params, const WorkTile& work) {
  if constexpr (Params::kIsSparse) return params.shape.rows;
  return work.query_rows;
}

// Where the block's part begins, for threads of the producers. They ask before the barriers are
// ready, which takes as long as the answer.
template <class Params>
__device__ __forceinline__ Boundary first_boundary(const Params& params, bool produces) {
  if (!produces) return {};
  wait_for_prerequisite_grids();
  return params.plan().boundary(static_cast<int>(blockIdx.y));
}

// Lengths are the current ones, not those of the plan: the last split of a request goes on to its
// end.
template <class Params>
class TileScheduler {
 public:
  // Continues where another scheduler of the part has come to, or begins.
  __device__ TileScheduler(const Params& params, int part, const Boundary& at)
      : params_(params), part_(part), at_(at) {}

  __device__ const Boundary& at() const { return at_; }

  // Whether there is a next work tile, which may be without tokens: no length is needed for this.
  __device__ bool has_next() const { return has_next(params_.plan().boundary(part_ + 1)); }

  // Finds the next work tile; says whether there is one.
  __device__ bool next(WorkTile& work) {
    const auto plan = params_.plan();
    // All loads come before the first branch: none waits for another.
    const int r = min(at_.request, params_.shape.batch - 1);
    int part = part_;
    asm volatile("" : "+r"(part));  // or the compiler keeps the boundary's address in registers
    const Boundary last = plan.boundary(part + 1);
    const int length = params_.kv_length(r);
    const int first_partial = plan.first_partial_of(r);
    const int splits = plan.partials_of(r);
    if (!has_next(last)) return false;
    work.request = r;
    work.tokens = min(max(length, 0), params_.capacity);
    work.partial = splits > 0 ? first_partial + at_.split : -1;
    // Of two splits, the first is the last work tile of its part. In a pair, so is the second.
    const bool combines_two = splits == 2 && (at_.split == 0 || at_.in_pair);
    work.other_partial = combines_two ? first_partial + 1 - at_.split : -1;
    work.first_block = at_.block;
    work.end_block = ceil_div(work.tokens, kTileTokens);
    if (params_.shape.max_splits > 0 && at_.split + 1 < splits) {
      at_.block += plan.split_blocks_of(r);
      at_.split += 1;
      work.end_block = min(work.end_block, at_.block);
    } else if (params_.shape.max_splits == 0 && r == last.request) {
      at_.block = last.block;
      work.end_block = min(work.end_block, at_.block);
    } else {
      at_ = {r + 1, 0, 0, 0};
    }
    find_queries(r, work);
    return true;
  }

 private:
  // The part ends at `last`.
  __device__ __forceinline__ bool has_next(const Boundary& last) const {
    return at_.request < params_.shape.batch &&
           (at_.request < last.request || (at_.request == last.request && at_.block < last.block));
  }

  // Finds the queries of a request. Of one that has few, some clusters have no row, and no work.
  __device__ __forceinline__ void find_queries(int r, WorkTile& work) const {
    const QueryTokens query = params_.query_tokens(r);
    work.query = query.first;
    work.query_rows = query.count * params_.shape.num_heads;
    work.visible = work.tokens + params_.shape.q_len - query.count;
    if constexpr (Params::kIsSparse) return;
    const int first_row = (blockIdx.x & -params_.shape.cluster) * kTileRows;
    if (work.query_rows <= first_row) work.end_block = work.first_block;
  }

  const Params& params_;
  const int part_;
  Boundary at_;
};

}  // namespace mla::sm90
