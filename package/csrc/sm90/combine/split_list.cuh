// Which requests were split between parts, and what each block merges of them when all have met.
#pragma once

#include <cooperative_groups.h>

#include "sm90/combine/partial_layout.h"
#include "sm90/common/pipeline.cuh"
#include "sm90/decode/params.h"

namespace mla::sm90 {

// A request whose partial results are [first, first + count). In two words, since KV leaves little
// memory: slots of partial results are two for a part at most, and chunks one for a block, or one
// for each eight rows of a block's tile.
struct SplitRequest {
  int32_t request;
  uint32_t first : 9;
  uint32_t count : 8;
  uint32_t strips_log2 : 3;  // of a chunk, which a block merges together
  uint32_t first_chunk : 12;

  __device__ __forceinline__ uint32_t chunk_strips() const { return 1u << strips_log2; }
};
static_assert(sizeof(SplitRequest) == 8 && 2 * kMostParts <= 1 << 9 && kMostParts < 1 << 8);

struct SplitList {
  uint32_t count;
  uint32_t chunks;  // of all requests
  uint32_t
      of_two;  // there are requests of two pieces, which blocks finish and which are not listed
  uint32_t in_pairs;  // and two blocks share each
  SplitRequest requests[kMostParts];

  // That has chunk `chunk`.
  __device__ __forceinline__ uint32_t find(uint32_t chunk) const {
    uint32_t low = 0;
#pragma unroll 1
    for (uint32_t high = count; high - low > 1;) {
      const uint32_t middle = (low + high) / 2;
      (requests[middle].first_chunk <= chunk ? low : high) = middle;
    }
    return low;
  }
};

// By a warp: the `strips` of each request, into chunks of so many that, if may be, there is no more
// than one for a block. Chunks of requests with more partial results have fewer strips.
__device__ __forceinline__ void deal_out(uint32_t partials, uint32_t strips, SplitList& list) {
  __syncwarp();
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t of_block = ceil_div(partials * strips, gridDim.x);
  uint32_t chunks = 0;
#pragma unroll 1
  for (uint32_t base = 0; base < list.count; base += kWarp) {
    const uint32_t i = base + lane;
    uint32_t until = 0;  // chunks of the requests from `base` to this one
    if (i < list.count) {
      SplitRequest& split = list.requests[i];
      // Many chunks of a request that has more than others would not fill the blocks evenly.
      const bool has_more = split.count * list.count > 2 * partials;
      const uint32_t most = has_more ? ceil_div(of_block, 4u) : of_block;
      uint32_t log2 = 0;
      while (1 << log2 < kStrips && split.count << log2 < most) ++log2;
      split.strips_log2 = log2;
      until = strips >> log2;
    }
    const uint32_t own = until;
#pragma unroll
    for (uint32_t lanes = 1; lanes < kWarp; lanes *= 2) {
      const uint32_t before = __shfl_up_sync(~0u, until, lanes);
      if (lane >= lanes) until += before;
    }
    if (i < list.count) list.requests[i].first_chunk = chunks + until - own;
    chunks += __shfl_sync(~0u, until, kWarp - 1);
  }
  if (lane == 0) list.chunks = chunks;
}

// By a warp, from the parts that begin inside a request. Requests of two pieces are not listed
// where blocks finish them.
template <bool kFinishesTwo, class Params>
__device__ __forceinline__ void list_splits(const Params& params, SplitList& list) {
  if (!params.merges) return;
  const auto plan = params.schedule();
  const int lane = threadIdx.x % kWarp;
  uint32_t count = 0;
  uint32_t of_two = 0;
  uint32_t in_pairs = 0;
  uint32_t partials = 0;
#pragma unroll 1
  for (int base = 1; base < params.shape.parts; base += kWarp) {
    Boundary boundary = {};
    if (base + lane < params.shape.parts) boundary = plan.boundary(base + lane);
    uint32_t own = boundary.split == 1 ? plan.partials_of(boundary.request) : 0;
    if (kFinishesTwo && own == 2) {
      of_two = 1;
      in_pairs = boundary.in_pair;
      own = 0;
    }
    const uint32_t all = __ballot_sync(~0u, own > 0);
    if (own > 0) {
      list.requests[count + __popc(all & ((1u << lane) - 1))] = {
          boundary.request, static_cast<uint32_t>(plan.first_partial_of(boundary.request)), own, 0,
          0};
    }
    partials += __reduce_add_sync(~0u, own);
    count += __popc(all);
  }
  of_two = __any_sync(~0u, of_two);
  in_pairs = __any_sync(~0u, in_pairs);
  if (lane == 0) {
    list.count = count;
    list.of_two = of_two;
    list.in_pairs = in_pairs;
  }
  deal_out(partials, ceil_div<uint32_t>(params.shape.rows, kPackedRows) * kStrips, list);
}

// By all threads of a block, when their roles end. Whether there is anything to merge; then what
// all blocks have written can be read. Until they have, `prepare` is called.
template <class Params, class Prepare>
__device__ __forceinline__ bool meet(const Params& params, const SplitList& list,
                                     Prepare&& prepare) {
  if (!params.merges) return false;
  constexpr unsigned kAllThreads = 0;
  __barrier_sync(kAllThreads);
  if (list.count == 0 && !list.of_two) return false;
  prepare();
  cooperative_groups::this_grid().sync();
  return true;
}
template <class Params>
__device__ __forceinline__ void meet(const Params& params, const SplitList& list) {
  meet(params, list, [] {});
}

}  // namespace mla::sm90
