// Merges partial results where the blocks end: all blocks of the grid meet, and share out the rows
// of the requests that were split between them.
#pragma once

#include <cooperative_groups.h>
#include <cutlass/arch/barrier.h>

#include <cmath>

#include "sm90/decode/elements.cuh"
#include "sm90/decode/exponents.cuh"
#include "sm90/decode/params.h"
#include "sm90/decode/ring.cuh"

namespace mla::sm90 {

// A request whose partial results are [first, first + count).
struct SplitRequest {
  int32_t request;
  uint16_t first;
  uint16_t count;
};

// Those of few partial results from the front on, the others from the back on.
struct SplitList {
  int32_t few;
  int32_t many;
  SplitRequest requests[kMostParts];
};
inline constexpr int kFewPartials = 3;

// By a warp, from the parts that begin inside a request.
template <class Params>
__device__ __forceinline__ void list_splits(const Params& params, SplitList& list) {
  const auto plan = params.schedule();
  const int lane = threadIdx.x % kWarp;
  int few = 0;
  int many = 0;
  for (int base = 1; base < params.shape.parts; base += kWarp) {
    Boundary boundary = {};
    if (base + lane < params.shape.parts) boundary = plan.boundary(base + lane);
    int first = 0;
    int count = 0;
    if (boundary.split == 1) {
      first = plan.first_partial_of(boundary.request);
      count = plan.partials_of(boundary.request);
    }
    const bool is_few = count > 0 && count <= kFewPartials;
    const bool is_many = count > kFewPartials;
    const uint32_t all_few = __ballot_sync(~0u, is_few);
    const uint32_t all_many = __ballot_sync(~0u, is_many);
    const uint32_t before = (1u << lane) - 1;
    if (count > 0) {
      const int place = is_few ? few + __popc(all_few & before)
                               : kMostParts - 1 - many - __popc(all_many & before);
      list.requests[place] = {boundary.request, static_cast<uint16_t>(first),
                              static_cast<uint16_t>(count)};
    }
    few += __popc(all_few);
    many += __popc(all_many);
  }
  if (lane == 0) {
    list.few = few;
    list.many = many;
  }
}

// By all threads of a block, when their roles end. Whether there is anything to merge; then what
// all blocks have written can be read.
template <class Params>
__device__ __forceinline__ bool meet(const Params& params, const SplitList& list) {
  if (!params.merges) return false;
  constexpr unsigned kAllThreads = 0;
  __barrier_sync(kAllThreads);
  if (list.few + list.many == 0) return false;
  cooperative_groups::this_grid().sync();
  return true;
}

// Read anew: what follows from it would otherwise be kept in registers while the roles run.
__device__ __forceinline__ int own_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// By two warpgroups of every block.
template <class Out, class Params>
class Merger {
  static constexpr int kWarps = 2 * sm90::kWarps;
  static constexpr int kQuarter = kLatent / 4;  // columns: four of each lane
  static constexpr int kQuarters = 4;
  static constexpr int kRowPieces = kLatent / 4;
  static constexpr int kLoads = 16;      // of a lane, on their way
  static constexpr int kNeighbours = 2;  // rows of few partial results, of a warp
  static constexpr int kAlone = 16;      // partial results that a warp may merge, if rows are many
  static_assert(kAlone <= kWarp && ceil_div(kMostParts, kWarps) <= kWarp);  // a lane for each

 public:
  struct Scratch {
    float4 sums[kWarps][kQuarters][kWarp];
    float2 weights[kWarps];  // peak and sum
  };

  __device__ Merger(const Params& params, Scratch& scratch, uint32_t barrier)
      : params_(params),
        scratch_(scratch),
        barrier_(barrier),
        warp_(own_thread() / kWarp),
        lane_(own_thread() % kWarp) {}

  __device__ __forceinline__ void run(const SplitList& list) const {
    const int rows = params_.shape.rows;
    share_out<kNeighbours>(rows, list.few, [&](int i) { return list.requests[i]; });
    const auto of_many = [&](int i) { return list.requests[kMostParts - 1 - i]; };
    // A row for each block at least.
    const bool busy = list.many * rows >= static_cast<int>(gridDim.x);
    if (busy) share_out<1>(rows, list.many, of_many);
    int turn = 0;  // of blocks
    for (int i = 0; i < list.many; ++i) {
      const SplitRequest split = of_many(i);
      if (busy && split.count <= kAlone) continue;
      if (rows * kQuarters <= 2 * static_cast<int>(gridDim.x)) {
        turn = take_turns(turn, rows * kQuarters, [&](int unit) {
          merge_together<1>(split, unit / kQuarters, unit % kQuarters);
        });
      } else {
        turn = take_turns(turn, rows, [&](int row) { merge_together<kQuarters>(split, row, 0); });
      }
    }
  }

 private:
  // Every warp of the grid its rows, `kRowsOfWarp` neighbours at a time.
  template <int kRowsOfWarp, class Of>
  __device__ __forceinline__ void share_out(int rows, int count, Of&& of) const {
    const int units = ceil_div(rows, kRowsOfWarp);
    const int warps = static_cast<int>(gridDim.x) * kWarps;
#pragma unroll 1
    for (int unit = static_cast<int>(blockIdx.x) + warp_ * static_cast<int>(gridDim.x);
         unit < units * count; unit += warps) {
      const SplitRequest split = of(unit / units);
      if (split.count <= kAlone) merge_alone<kRowsOfWarp>(split, unit % units * kRowsOfWarp);
    }
  }

  // Every block its units, from block `turn` on; whose turn is next.
  template <class Merge>
  __device__ __forceinline__ int take_turns(int turn, int units, Merge&& merge) const {
    const int blocks = static_cast<int>(gridDim.x);
    const int ahead = static_cast<int>(blockIdx.x) - turn;
#pragma unroll 1
    for (int unit = ahead < 0 ? ahead + blocks : ahead; unit < units; unit += blocks) merge(unit);
    return (turn + units) % blocks;
  }

  // What partial results of a row weigh: of lane i the i-th that is merged.
  struct Weights {
    float of_lane;
    float peak;  // of their log-sum-exps
    float sum;
  };

  // Of every `step`-th one, from the first on.
  __device__ __forceinline__ Weights weigh(const SplitRequest& split, int r, int first,
                                           int step) const {
    const int own = first + lane_ * step;
    const float lse = own < split.count ? __ldcg(lse_at(split.first + own, r)) : -INFINITY;
    float peak = lse;
#pragma unroll
    for (int lanes = 1; lanes < kWarp; lanes *= 2) {
      peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, lanes));
    }
    const float weight = power_of_2((lse - (peak == -INFINITY ? 0 : peak)) * kLog2E);
    float sum = weight;
#pragma unroll
    for (int lanes = 1; lanes < kWarp; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    return {weight, peak, sum};
  }

  __device__ __forceinline__ const float* lse_at(int partial, int r) const {
    return params_.partials.lse + int64_t{partial} * params_.partials.rows + r;
  }
  __device__ __forceinline__ const float4* sums_at(int partial, int r, int quarter) const {
    const float* const row =
        params_.partials.out + (int64_t{partial} * params_.partials.rows + r) * kLatent;
    return reinterpret_cast<const float4*>(row + quarter * kQuarter) + lane_;
  }

  template <int kCount>
  static __device__ __forceinline__ void load(const float4* from, float4 (&partial)[kCount]) {
#pragma unroll
    for (int q = 0; q < kCount; ++q) partial[q] = __ldcg(from + q * kWarp);
  }

  // A partial result without weight adds nothing, whatever it holds.
  template <int kCount>
  static __device__ __forceinline__ void add(float4 (&sums)[kCount], float weight,
                                             const float4 (&partial)[kCount]) {
    if (weight == 0) return;
#pragma unroll
    for (int q = 0; q < kCount; ++q) {
      sums[q].x += weight * partial[q].x;
      sums[q].y += weight * partial[q].y;
      sums[q].z += weight * partial[q].z;
      sums[q].w += weight * partial[q].w;
    }
  }

  // Neighbouring rows, by a warp; the last one again in place of those beyond it.
  template <int kRowsOfWarp>
  __device__ __forceinline__ void merge_alone(const SplitRequest& split, int first_row) const {
    constexpr int kAtOnce = kLoads / kQuarters / kRowsOfWarp;
    const int rows = params_.shape.rows;
    float4 sums[kRowsOfWarp][kQuarters] = {};
    Weights weights[kRowsOfWarp];
#pragma unroll 1
    for (int first = 0; first < split.count; first += kAtOnce) {
      float4 partial[kAtOnce][kRowsOfWarp][kQuarters];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        // Beyond the last, the last one again: loads without conditions overlap.
        const int state = min(first + i, split.count - 1);
        const float4* const from = sums_at(split.first + state, first_row, 0);
#pragma unroll
        for (int k = 0; k < kRowsOfWarp; ++k) {
          load(from + (first_row + k < rows ? k * kRowPieces : 0), partial[i][k]);
        }
      }
      if (first == 0) {
#pragma unroll
        for (int k = 0; k < kRowsOfWarp; ++k) {
          weights[k] = weigh(split, min(first_row + k, rows - 1), 0, 1);
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int k = 0; k < kRowsOfWarp; ++k) {
          add(sums[k], __shfl_sync(~0u, weights[k].of_lane, first + i), partial[i][k]);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kRowsOfWarp; ++k) {
      if (first_row + k >= rows) continue;
      if (lane_ == 0) store_lse(split.request, first_row + k, weights[k].peak, weights[k].sum);
      if constexpr (Params::kSelects) {
        store_peak(split, first_row + k);
        weights[k].sum = with_sink(first_row + k, weights[k].peak, weights[k].sum);
      }
      const float inverse = inverse_of(weights[k].sum);
#pragma unroll
      for (int q = 0; q < kQuarters; ++q) {
        store(split.request, first_row + k, q, sums[k][q], inverse);
      }
    }
  }

  // A row of many partial results, by all warps, each every eighth of them; `kCount` quarters of
  // the columns.
  template <int kCount>
  __device__ __forceinline__ void merge_together(const SplitRequest& split, int r,
                                                 int first_quarter) const {
    constexpr int kAtOnce = kLoads / kCount;
    float4 sums[kCount] = {};
    Weights weights = {0, -INFINITY, 0};
#pragma unroll 1
    for (int first = 0; warp_ + first * kWarps < split.count; first += kAtOnce) {
      float4 partial[kAtOnce][kCount];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int state = min(warp_ + (first + i) * kWarps, split.count - 1);
        load(sums_at(split.first + state, r, first_quarter), partial[i]);
      }
      if (first == 0) weights = weigh(split, r, warp_, kWarps);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        add(sums, __shfl_sync(~0u, weights.of_lane, first + i), partial[i]);
      }
    }
    if (lane_ == 0) scratch_.weights[warp_] = {weights.peak, weights.sum};
#pragma unroll
    for (int q = 0; q < kCount; ++q) scratch_.sums[warp_][q][lane_] = sums[q];
    cutlass::arch::NamedBarrier::sync(kWarps * kWarp, barrier_);
    if (warp_ < kCount) finish(split.request, r, first_quarter);
    if constexpr (Params::kSelects) {
      if (warp_ + first_quarter == 0) store_peak(split, r);
    }
    cutlass::arch::NamedBarrier::sync(kWarps * kWarp, barrier_);
  }

  // By a warp a quarter: what the warps have summed.
  __device__ __forceinline__ void finish(int request, int r, int first_quarter) const {
    float peak = -INFINITY;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) peak = fmaxf(peak, scratch_.weights[warp].x);
    float total = 0;
    float4 sum[1] = {};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      const float2 weights = scratch_.weights[warp];
      const float factor = weights.y == 0 ? 0 : power_of_2((weights.x - peak) * kLog2E);
      total += factor * weights.y;
      add(sum, factor, {scratch_.sums[warp][warp_][lane_]});
    }
    if (lane_ == 0 && warp_ + first_quarter == 0) store_lse(request, r, peak, total);
    if constexpr (Params::kSelects) total = with_sink(r, peak, total);
    store(request, r, first_quarter + warp_, sum[0], inverse_of(total));
  }

  // A sum of weights is 0, NaN, or at least 1.
  static __device__ __forceinline__ float inverse_of(float sum) {
    return sum == 0 ? 0 : __fdividef(1, sum);
  }

  // What the sum of a row's weights is with that of its sink. Not of one that is 0.
  __device__ __forceinline__ float with_sink(int r, float peak, float sum) const {
    if (params_.sink == nullptr || sum == 0) return sum;
    return sum + power_of_2((params_.sink[r] - peak) * kLog2E);
  }

  __device__ __forceinline__ void store_lse(int request, int r, float peak, float sum) const {
    if (params_.lse.data == nullptr) return;
    const int heads = params_.shape.num_heads;
    *params_.lse.template at<float>(request, r / heads, r % heads) =
        sum == 0 ? -INFINITY : peak + log2f(sum) * kLn2;
  }

  // The greatest logit of a row; by a warp.
  __device__ __forceinline__ void store_peak(const SplitRequest& split, int r) const {
    if (params_.max_logits.data == nullptr) return;
    float peak = -INFINITY;
    for (int i = lane_; i < split.count; i += kWarp) {
      const int64_t at = int64_t{split.first + i} * params_.partials.rows + r;
      peak = fmaxf(peak, __ldcg(params_.partial_peaks + at));
    }
#pragma unroll
    for (int lanes = 1; lanes < kWarp; lanes *= 2) {
      peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, lanes));
    }
    if (lane_ == 0) *params_.max_logits.template at<float>(split.request, 0, r) = peak * kLn2;
  }

  __device__ __forceinline__ void store(int request, int r, int quarter, const float4& sum,
                                        float factor) const {
    const int heads = params_.shape.num_heads;
    auto* const to = params_.out.template at<uint16_t>(request, r / heads, r % heads) +
                     quarter * kQuarter + lane_ * 4;
    const uint2 pairs = {pair_of<Out>(sum.x * factor, sum.y * factor),
                         pair_of<Out>(sum.z * factor, sum.w * factor)};
    if (params_.out_in_fours) {
      *reinterpret_cast<uint2*>(to) = pairs;
    } else {
      to[0] = static_cast<uint16_t>(pairs.x);
      to[1] = static_cast<uint16_t>(pairs.x >> 16);
      to[2] = static_cast<uint16_t>(pairs.y);
      to[3] = static_cast<uint16_t>(pairs.y >> 16);
    }
  }

  const Params& params_;
  Scratch& scratch_;
  const uint32_t barrier_;
  const int warp_;
  const int lane_;
};

}  // namespace mla::sm90
