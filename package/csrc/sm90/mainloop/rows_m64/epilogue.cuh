// Where a work tile ends: a warpgroup of the output stores its columns, of the result or of a
// partial result, or combines the two splits of a request.
#pragma once

#include "sm90/combine/grid_sync.cuh"
#include "sm90/combine/row_results.cuh"
#include "sm90/common/special_registers.cuh"
#include "sm90/mainloop/rows_m64/shared_storage.cuh"

namespace mla::sm90::rows_m64 {

// The columns of each half that a warpgroup computes. The compiler refuses an instruction with more
// sums than the registers that a thread of four warpgroups starts with, so no more than 128.
inline constexpr int kPvColumns = 128;

template <class Format, class Out, class Accumulator, class Params>
struct Epilogue {
  static constexpr int kElements = cute::size(Accumulator{});
  // Pairs of neighbours in a row that a thread has, in both halves and in one.
  static constexpr int kPairs = kHalf / 8;
  static constexpr int kHalfPairs = kPairs / 2;
  static constexpr int kHalfFragments = kHalf / kFragmentColumns;
  static constexpr uint32_t kSideFragments = kPvColumns / kFragmentColumns;

  using Rows = float[kThreadRows];

  const Params& params;
  SharedStorage<Format>& shared;
  const int thread;
  const int side;
  Accumulator (&out)[2];  // of the halves

  // Stores a partial result that the blocks combine, in fragments.
  __device__ __forceinline__ void store_partial(const WorkTile& work, int first_row,
                                                const Rows& scale) const {
    const int r = request_row(first_row);
    if (r / 16 * 16 >= params.shape.rows) return;  // none of the warp's rows exists
    float* const to = fragment_at(params.partials, work.partial, r, thread % 4) +
                      side * (kSideFragments * kFragmentElements);
    store_half<0>(to, scale);
    store_half<1>(to + kHalfFragments * kFragmentElements, scale);
  }

  // Stores rows of the result, or of a partial result that the combine kernel reads.
  __device__ __forceinline__ void store_rows(const WorkTile& work, int first_row,
                                             const Rows& scale) const {
    const int r = request_row(first_row);
    store_row<0>(work, r, scale[0]);
    store_row<1>(work, r + 8, scale[1]);
  }

  // Combines the two splits of a request when the other one is there as well. Of a pair of blocks
  // that end together, each combines one half of the columns and gives the other one its sums of
  // the other half.
  __device__ __forceinline__ void combine_two(const WorkTile& work, int first_row,
                                              const Rows& scale) {
    // One of the warps builds the list of splits, which is complete then.
    cutlass::arch::NamedBarrier::sync(2 * kWarpgroup, kCombineBarrier);
    const bool in_pair = shared.splits.in_pairs;
    int half = in_pair && work.partial > work.other_partial;
    if (in_pair) {
      exchange_partials(work.partial, request_row(first_row), half, scale);
      grid_sync(params, shared.splits);
    } else {
      // The right half waits in the memory of tiles, since there are no registers for both.
      grid_sync(params, shared.splits, [this] {
#pragma unroll
        for (int e = 0; e < kElements; e += 4) {
          *waiting(e) = {out[1](e), out[1](e + 1), out[1](e + 2), out[1](e + 3)};
        }
      });
    }
#pragma unroll 1
    while (true) {
      combine_half(work, request_row(first_row), half, scale);
      if (in_pair || half == 1) return;
      half = 1;
#pragma unroll
      for (int e = 0; e < kElements; e += 4) {
        const float4 sums = *waiting(e);
        out[0](e) = sums.x;
        out[0](e + 1) = sums.y;
        out[0](e + 2) = sums.z;
        out[0](e + 3) = sums.w;
      }
    }
  }

 private:
  // The row of the request that is a thread's first. It is worked out anew each time, or the
  // compiler keeps what follows from it in registers.
  static __device__ __forceinline__ int request_row(int first_row) {
    return accumulator_row(first_row, read_thread_index() % kWarpgroup);
  }

  // The column of the j-th pair of a thread's row, from the column where the thread begins.
  static __device__ __forceinline__ constexpr int offset(int j) {
    return j / kHalfPairs * kHalf + j % kHalfPairs * 8;
  }

  template <int kRow>
  __device__ __forceinline__ float2 sums(int j, float scale) const {
    const Accumulator& half = out[j / kHalfPairs];
    const int first = j % kHalfPairs * 4 + kRow * 2;
    // A row without P is 0, whatever its sum is.
    if (scale == 0) return {0, 0};
    return {half(first) * scale, half(first + 1) * scale};
  }

  // Stores both rows of a thread, of one half of the accumulators, in fragments.
  template <int kHalfOfColumns>
  __device__ __forceinline__ void store_half(float* to, const Rows& scale) const {
#pragma unroll
    for (int j = 0; j < kHalfPairs; j += 2) {
      float* const fragment = to + j / 2 * kFragmentElements;
      store_fragment<0>(fragment, kHalfOfColumns * kHalfPairs + j, scale[0]);
      store_fragment<1>(fragment + kFragments * kFragmentElements, kHalfOfColumns * kHalfPairs + j,
                        scale[1]);
    }
  }
  template <int kRow>
  __device__ __forceinline__ void store_fragment(float* to, int j, float scale) const {
    const float2 low = sums<kRow>(j, scale);
    const float2 high = sums<kRow>(j + 1, scale);
    *reinterpret_cast<float4*>(to) = {low.x, low.y, high.x, high.y};
  }

  template <int kRow>
  __device__ __forceinline__ void store_row(const WorkTile& work, int r, float scale) const {
    const bool exists = r < params.shape.rows;
    const int thread = read_thread_index();
    const int column = thread / kWarpgroup * kPvColumns + thread % 2 * 8 + thread % 4 / 2 * 4;
    if (!Params::kIsSparse && work.partial >= 0) {
      // The index is unsigned, or the compiler keeps the upper half of its sign in a register.
      const int64_t at = uint64_t{static_cast<uint32_t>(work.partial)} * params.partials.rows + r;
      float* const to =
          params.partials.out + at * kLatent + thread / kWarpgroup * kPvColumns + thread % 4 * 2;
      if (!exists) return;
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        *reinterpret_cast<float2*>(to + offset(j)) = sums<kRow>(j, scale);
      }
      return;
    }
    const int s = params.shape.token_of(r);
    const int h = params.shape.head_of(r);
    auto* const to = params.out.template at<uint16_t>(work.request, s, h) + column;
#pragma unroll
    for (int j = 0; j < kPairs; j += 2) {
      uint32_t pairs[2] = {rounded<kRow>(j, scale), rounded<kRow>(j + 1, scale)};
      store_four(to + offset(j), pairs, exists);
    }
  }

  template <int kRow>
  __device__ __forceinline__ uint32_t rounded(int j, float scale) const {
    const float2 own = sums<kRow>(j, scale);
    return pack_pair<Out>(own.x, own.y);
  }

  // A lane has two neighbours of every eight columns. Two lanes exchange theirs of sixteen, so that
  // each has four neighbours. FusedCombine has lines of its own for this: one function for both
  // changes the machine code of one of them.
  static __device__ __forceinline__ void exchange_pairs(uint32_t (&pairs)[2]) {
    const bool upper = threadIdx.x % 2 != 0;
    const uint32_t got = __shfl_xor_sync(~0u, upper ? pairs[0] : pairs[1], 1);
    pairs[0] = upper ? got : pairs[0];
    pairs[1] = upper ? pairs[1] : got;
  }
  __device__ __forceinline__ void store_four(uint16_t* to, uint32_t (&pairs)[2],
                                             bool exists) const {
    exchange_pairs(pairs);
    // The compiler must read this anew: it would make two loops and keep what they share in
    // registers.
    const int32_t is_aligned = *static_cast<const volatile int32_t*>(&params.out_is_aligned_to_4);
    if (exists && is_aligned) {
      *reinterpret_cast<uint2*>(to) = {pairs[0], pairs[1]};
    } else if (exists) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = static_cast<uint16_t>(pairs[i / 2] >> i % 2 * 16);
    }
  }

  // What this thread lets wait in the memory of tiles.
  __device__ __forceinline__ float4* waiting(int e) const {
    static_assert(sizeof(shared.latent) >= kElements * sizeof(float) * 2 * kWarpgroup);
    return reinterpret_cast<float4*>(shared.latent) + e / 4 * 2 * kWarpgroup + read_thread_index();
  }

  // Gives the other block of a pair the half that this one does not keep, and moves what it keeps
  // to the first registers.
  __device__ __forceinline__ void exchange_partials(int partial, int r, int kept,
                                                    const Rows& scale) {
    if (kept == 1) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const float sum = out[0](e);
        out[0](e) = out[1](e);
        out[1](e) = sum;
      }
    }
    if (r / 16 * 16 >= params.shape.rows) return;
    store_half<1>(half_of(partial, r, 1 - kept), scale);
  }

  // The warpgroup's columns of a half of a partial result.
  __device__ __forceinline__ float* half_of(int partial, int r, int half) const {
    const int thread = read_thread_index();
    const int fragment = half * kHalfFragments + thread / kWarpgroup * kSideFragments;
    return fragment_at(params.partials, partial, r, thread % 4) + fragment * kFragmentElements;
  }

  // Combines one half, whose sums are in the first registers; `r` is the first of a thread's rows.
  __device__ __forceinline__ void combine_half(const WorkTile& work, int r, int half,
                                               const Rows& scale) const {
    if (r / 16 * 16 >= params.shape.rows) return;
    const int thread = read_thread_index();
    const int column =
        half * kHalf + thread / kWarpgroup * kPvColumns + thread % 2 * 8 + thread % 4 / 2 * 4;
    const float* const from = half_of(work.other_partial, r, half);
    combine_row<0>(work, r, column, scale[0], from);
    combine_row<1>(work, r + 8, column, scale[1], from + kFragments * kFragmentElements);
  }

  // Combines the columns of a row from `column` on; `from` are the other block's sums.
  template <int kRow>
  __device__ __forceinline__ void combine_row(const WorkTile& work, int r, int column, float scale,
                                              const float* from) const {
    float4 sums_of_other[kHalfPairs / 2];
#pragma unroll
    for (int i = 0; i < kHalfPairs / 2; ++i) {
      sums_of_other[i] = __ldcg(reinterpret_cast<const float4*>(from + i * kFragmentElements));
    }
    const bool exists = r < params.shape.rows;
    const float own_lse = exists ? of_row(params.partials.lse, work.partial, r) : -INFINITY;
    const float other_lse = exists ? of_row(params.partials.lse, work.other_partial, r) : -INFINITY;
    const float row_max = fmaxf(own_lse, other_lse);
    const float shift = row_max == -INFINITY ? 0 : row_max;
    float own_weight = exp2_approx((own_lse - shift) * kLog2E);
    float other_weight = exp2_approx((other_lse - shift) * kLog2E);
    float total = own_weight + other_weight;
    if (exists && column == 0) {
      store_lse(params, work.request, r, row_max, total);
      if constexpr (Params::kIsSparse) combine_max_logits(work, r);
    }
    if constexpr (Params::kIsSparse) {
      if (exists) total = with_sink(params, r, row_max, total);
    }
    const float inverse = inverse_of(total);
    own_weight *= inverse;
    other_weight *= inverse;
    auto* const to = params.out.template at<uint16_t>(work.request, params.shape.token_of(r),
                                                      params.shape.head_of(r)) +
                     column;
#pragma unroll
    for (int j = 0; j < kHalfPairs; j += 2) {
      const float4 add = sums_of_other[j / 2];
      const float2 low = sums<kRow>(j, scale);
      const float2 high = sums<kRow>(j + 1, scale);
      uint32_t pairs[2] = {
          pack_pair<Out>(scaled(low.x, own_weight) + scaled(add.x, other_weight),
                         scaled(low.y, own_weight) + scaled(add.y, other_weight)),
          pack_pair<Out>(scaled(high.x, own_weight) + scaled(add.z, other_weight),
                         scaled(high.y, own_weight) + scaled(add.w, other_weight))};
      store_four(to + offset(j), pairs, exists);
    }
  }

  // A sum of weight 0 adds nothing, whatever it holds.
  static __device__ __forceinline__ float scaled(float sum, float weight) {
    return weight == 0 ? 0 : sum * weight;
  }

  __device__ __forceinline__ float of_row(const float* numbers, int partial, int r) const {
    return __ldcg(numbers + int64_t{partial} * params.partials.rows + r);
  }

  __device__ __forceinline__ void combine_max_logits(const WorkTile& work, int r) const {
    if (params.max_logits.data == nullptr) return;
    store_max_logit(params, work.request, r,
                    fmaxf(of_row(params.partial_max_logits, work.partial, r),
                          of_row(params.partial_max_logits, work.other_partial, r)));
  }
};

}  // namespace mla::sm90::rows_m64
