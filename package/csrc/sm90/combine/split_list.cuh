// The requests that were split between parts, and which block combines what of them.
#pragma once

#include "sm90/common/special_registers.cuh"
#include "sm90/common/warp.cuh"
#include "sm90/params/partials.h"
#include "sm90/scheduler/plan.h"

namespace mla::sm90 {

// A request whose partial results are [first, first + count). A block combines a unit of its
// fragments at a time. The bit fields save memory, of which KV leaves little: there are two partial
// results for a part at most, and a unit for each block, or for each eight rows of a block's tile.
struct SplitRequest {
  int32_t request;
  uint32_t first : 9;
  uint32_t count : 8;
  uint32_t unit_log2 : 3;  // fragments of a unit
  uint32_t first_unit : 12;

  __device__ __forceinline__ uint32_t unit_fragments() const { return 1u << unit_log2; }
};
static_assert(sizeof(SplitRequest) == 8 && 2 * kMaxParts <= 1 << 9 && kMaxParts < 1 << 8);

struct SplitList {
  uint32_t count;
  uint32_t units;     // of all requests
  uint32_t has_twos;  // there are requests of two splits that blocks combine without this list
  uint32_t in_pairs;  // and two blocks share each of them
  SplitRequest requests[kMaxParts];

  // The request that unit `unit` belongs to.
  __device__ __forceinline__ uint32_t find(uint32_t unit) const {
    uint32_t low = 0;
#pragma unroll 1
    for (uint32_t high = count; high - low > 1;) {
      const uint32_t middle = (low + high) / 2;
      (requests[middle].first_unit <= unit ? low : high) = middle;
    }
    return low;
  }
};

// Divides the `fragments` of each request into units, if possible no more in all than there are
// blocks. Units of requests with more partial results have fewer fragments. A warp calls this.
__device__ __forceinline__ void divide_into_units(uint32_t partials, uint32_t fragments,
                                                  SplitList& list) {
  __syncwarp();
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t of_block = ceil_div(partials * fragments, blocks_of_grid());
  uint32_t units = 0;
#pragma unroll 1
  for (uint32_t base = 0; base < list.count; base += kWarp) {
    const uint32_t i = base + lane;
    uint32_t until = 0;  // units of the requests from `base` to this one
    if (i < list.count) {
      SplitRequest& split = list.requests[i];
      // Many units of a request that has more than others would not fill the blocks evenly.
      const bool has_more = split.count * list.count > 2 * partials;
      const uint32_t most = has_more ? ceil_div(of_block, 4u) : of_block;
      uint32_t log2 = 0;
      while (1 << log2 < kFragments && split.count << log2 < most) ++log2;
      split.unit_log2 = log2;
      until = fragments >> log2;
    }
    const uint32_t own = until;
#pragma unroll
    for (uint32_t lanes = 1; lanes < kWarp; lanes *= 2) {
      const uint32_t before = __shfl_up_sync(~0u, until, lanes);
      if (lane >= lanes) until += before;
    }
    if (i < list.count) list.requests[i].first_unit = units + until - own;
    units += __shfl_sync(~0u, until, kWarp - 1);
  }
  if (lane == 0) list.units = units;
}

// Lists the requests that the parts split. Those of two splits are left out if `kCombinesTwos`:
// the blocks that compute them combine them. A warp calls this.
template <bool kCombinesTwos, class Params>
__device__ __forceinline__ void build_split_list(const Params& params, SplitList& list) {
  if (!params.combines) return;
  const auto plan = params.plan();
  const int lane = threadIdx.x % kWarp;
  uint32_t count = 0;
  uint32_t has_twos = 0;
  uint32_t in_pairs = 0;
  uint32_t partials = 0;
#pragma unroll 1
  for (int base = 1; base < params.shape.parts; base += kWarp) {
    Boundary boundary = {};
    if (base + lane < params.shape.parts) boundary = plan.boundary(base + lane);
    uint32_t own = boundary.split == 1 ? plan.partials_of(boundary.request) : 0;
    if (kCombinesTwos && own == 2) {
      has_twos = 1;
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
  has_twos = __any_sync(~0u, has_twos);
  in_pairs = __any_sync(~0u, in_pairs);
  if (lane == 0) {
    list.count = count;
    list.has_twos = has_twos;
    list.in_pairs = in_pairs;
  }
  divide_into_units(partials, ceil_div<uint32_t>(params.shape.rows, kFragmentRows) * kFragments,
                    list);
}

}  // namespace mla::sm90
