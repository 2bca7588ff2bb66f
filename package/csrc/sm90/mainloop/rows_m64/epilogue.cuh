// Where a work tile ends that is a split: a warpgroup of the output stores its columns of a partial
// result, or combines the two splits of a request.
#pragma once

#include "sm90/combine/fragments.cuh"
#include "sm90/combine/row_results.cuh"
#include "sm90/combine/split_request.cuh"
#include "sm90/common/special_registers.cuh"
#include "sm90/mainloop/rows_m64/store_rows.cuh"

namespace mla::sm90::rows_m64 {

template <class Format, class Out, class Accumulator, class Params>
struct Epilogue {
  static constexpr int kElements = cute::size(Accumulator{});
  // Pairs of neighbours in a row that a thread has, in a half and in all.
  static constexpr int kHalfPairs = kPvColumns / 8;
  static constexpr int kPairs = Format::kHalves * kHalfPairs;
  static constexpr uint32_t kHalfFragments = kHalf / kFragmentColumns;
  static constexpr uint32_t kSideFragments = kPvColumns / kFragmentColumns;
  static_assert(kSideFragments == kChunkFragments);

  using Rows = float[kThreadRows];

  const Params& params;
  SharedStorage<Format>& shared;
  Accumulator (&out)[Format::kHalves];

  // Stores rows of the result.
  __device__ __forceinline__ void store_rows(const WorkTile& work, const Rows& scale) const {
    const int r = request_row();
    store_row<0>(work, r, scale[0]);
    store_row<1>(work, r + 8, scale[1]);
  }

  // Stores a partial result that the blocks combine, in fragments.
  __device__ __forceinline__ void store_partial(const WorkTile& work, const Rows& scale) const {
    const int r = request_row();
    const int rows = query_rows(params, work);
    if (r / 16 * 16 >= rows) return;  // none of the warp's rows exists
    const FragmentLane to = lane_of_half(work.partial, r, 0);
    store_half<0>(to, 0, r, rows, scale);
    if constexpr (Format::kHalves == 2) store_half<1>(to, kHalfFragments, r, rows, scale);
  }

  // Stores what else there is of the rows of a split without tokens. The warpgroup of the logits
  // does so for others, before it publishes P.
  __device__ __forceinline__ void store_empty_rows(const WorkTile& work) const {
    const int thread = read_thread_index();
    const int r = shared.tile_row_of_request() + thread;
    if (thread >= kTileRows || r >= query_rows(params, work)) return;
    store_work_tile_lse(params, work, r, -INFINITY);
    if constexpr (Params::kIsSparse) store_work_tile_max_logit(params, work, r, -INFINITY);
  }

  // Counts a split that both warpgroups have stored.
  __device__ __forceinline__ void count(bool is_first_work_tile) const {
    synchronize();
    count_split(params, shared.split_request, is_first_work_tile, threadIdx.x == 0);
  }

  // Stores rows of a partial result that the combine kernel reads.
  __device__ __forceinline__ void store_partial_rows(const WorkTile& work,
                                                     const Rows& scale) const {
    const int r = request_row();
    store_partial_row<0>(work, r, scale[0]);
    store_partial_row<1>(work, r + 8, scale[1]);
  }

  // Combines the two splits of a request when the other one is there as well. Of a pair of blocks
  // that end together, each combines one half of the columns and gives the other one its sums of
  // the other half; of a single half, the second block gives all to the first.
  __device__ __forceinline__ void combine_two(const WorkTile& work, const Rows& scale) {
    if constexpr (Format::kHalves == 1) {
      synchronize();  // a thread of the other warpgroup has found what the block combines
      if (shared.split_request.is_pair() && work.partial > work.other_partial) {
        store_partial(work, scale);
        return count(true);
      }
      if (threadIdx.x == 0) wait_for_splits(params, shared.split_request, 1);
      synchronize();
      combine_half(work, request_row(), 0, scale);
    } else {
      combine_two_halves(work, scale);
    }
  }

 private:
  __device__ __forceinline__ void combine_two_halves(const WorkTile& work, const Rows& scale) {
    synchronize();  // nobody reads the last tile any more
    const bool in_pair = shared.split_request.is_pair();
    int half = in_pair && work.partial > work.other_partial;
    if (in_pair) {
      exchange_partials(work, request_row(), half, scale);
      count(true);
    } else {
      // The right half waits in the memory of tiles, since there are no registers for both.
#pragma unroll
      for (int e = 0; e < kElements; e += 4) {
        *waiting(e) = {out[1](e), out[1](e + 1), out[1](e + 2), out[1](e + 3)};
      }
    }
    if (threadIdx.x == 0) wait_for_splits(params, shared.split_request, in_pair ? 2 : 1);
    synchronize();
#pragma unroll 1
    while (true) {
      combine_half(work, request_row(), half, scale);
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

  static __device__ __forceinline__ void synchronize() {
    cutlass::arch::NamedBarrier::sync(2 * kWarpgroup, kCombineBarrier);
  }

  // The row of the request that is a thread's first. It is worked out anew each time, or the
  // compiler keeps what follows from it in registers.
  __device__ __forceinline__ int request_row() const {
    return accumulator_row(shared.tile_row_of_request(), read_thread_index() % kWarpgroup);
  }

  // Where a thread's columns begin when it has four neighbours.
  static __device__ __forceinline__ int first_column_of_four() {
    const int thread = read_thread_index();
    return thread / kWarpgroup * kPvColumns + thread % 2 * 8 + thread % 4 / 2 * 4;
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

  // What a lane has of the warpgroup's fragments of a half of a partial result.
  __device__ __forceinline__ FragmentLane lane_of_half(int partial, int r, uint32_t half) const {
    return FragmentLane(params.partials, partial, r,
                        half * kHalfFragments + side_of_thread() * kSideFragments,
                        read_lane_index());
  }

  // Stores both rows of a thread, of one half of the accumulators, in fragments: from `first` on.
  template <int kHalfOfColumns>
  __device__ __forceinline__ void store_half(const FragmentLane& to, uint32_t first, int r,
                                             int rows, const Rows& scale) const {
#pragma unroll
    for (int i = 0; i < static_cast<int>(kSideFragments); ++i) {
#pragma unroll
      for (int row = 0; row < kThreadRows; ++row) {
        // As each row has a condition, the compiler packs one after the other. It has no registers
        // for several at once.
        if (r + row * 8 >= rows) continue;
        LaneSums own;
#pragma unroll
        for (int k = 0; k < static_cast<int>(kLaneSums); ++k) {
          own[k] = out[kHalfOfColumns](element(i, row, k));
        }
        to.store(first + i, row, pack_sums(own, scale[row]));
      }
    }
  }

  // Which of a half's elements a lane has as the k-th of a row of the warpgroup's i-th fragment.
  static __device__ __forceinline__ constexpr int element(int i, int row, int k) {
    return (k / 4 * (kChunk / 8) + i * 2 + k % 4 / 2) * 4 + row * 2 + k % 2;
  }

  template <int kRow>
  __device__ __forceinline__ void store_row(const WorkTile& work, int r, float scale) const {
    const bool exists = r < query_rows(params, work);
    const int own = exists ? r : 0;
    auto* const to = params.out.template at<uint16_t>(work.query, params.shape.token_of(own),
                                                      params.shape.head_of(own)) +
                     first_column_of_four();
#pragma unroll
    for (int j = 0; j < kPairs; j += 2) {
      const float2 low = sums<kRow>(j, scale);
      const float2 high = sums<kRow>(j + 1, scale);
      uint32_t pairs[2] = {pack_pair<Out>(low.x, low.y), pack_pair<Out>(high.x, high.y)};
      store_four(to + offset(j), pairs, exists);
    }
  }

  template <int kRow>
  __device__ __forceinline__ void store_partial_row(const WorkTile& work, int r,
                                                    float scale) const {
    const int thread = read_thread_index();
    float* const to =
        params.partials.row(work.partial, r) + thread / kWarpgroup * kPvColumns + thread % 4 * 2;
    if (r >= query_rows(params, work)) return;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      *reinterpret_cast<float2*>(to + offset(j)) = sums<kRow>(j, scale);
    }
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
  __device__ __forceinline__ void exchange_partials(const WorkTile& work, int r, int kept,
                                                    const Rows& scale) {
    if (kept == 1) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const float sum = out[0](e);
        out[0](e) = out[1](e);
        out[1](e) = sum;
      }
    }
    const int rows = query_rows(params, work);
    if (r / 16 * 16 >= rows) return;
    store_half<1>(lane_of_half(work.partial, r, 1 - kept), 0, r, rows, scale);
  }

  // Combines one half, whose sums are in the first registers; `r` is the first of a thread's rows.
  __device__ __forceinline__ void combine_half(const WorkTile& work, int r, int half,
                                               const Rows& scale) const {
    const int rows = query_rows(params, work);
    if (r / 16 * 16 >= rows) return;
    const int column = half * kHalf + first_column_of_four();
    const FragmentLane from = lane_of_half(work.other_partial, r, half);
    PackedSums others[kThreadRows][kSideFragments];
#pragma unroll
    for (int row = 0; row < kThreadRows; ++row) {
#pragma unroll
      for (uint32_t i = 0; i < kSideFragments; ++i) {
        // Nobody has stored the rows that a request does not have.
        others[row][i] = {};
        if (r + row * 8 < rows) others[row][i] = from.load(i, row);
      }
    }
    combine_row<0>(work, r, column, scale[0], others[0]);
    combine_row<1>(work, r + 8, column, scale[1], others[1]);
  }

  // Combines the columns of a row from `column` on; `others` are the other block's sums.
  template <int kRow>
  __device__ __forceinline__ void combine_row(const WorkTile& work, int r, int column, float scale,
                                              const PackedSums (&others)[kSideFragments]) const {
    const bool exists = r < query_rows(params, work);
    const float own_lse = exists ? of_row(params.partials.lse, work.partial, r) : -INFINITY;
    const float other_lse = exists ? of_row(params.partials.lse, work.other_partial, r) : -INFINITY;
    const float row_max = fmaxf(own_lse, other_lse);
    const float shift = row_max == -INFINITY ? 0 : row_max;
    float own_weight = exp2_approx((own_lse - shift) * kLog2E);
    float other_weight = exp2_approx((other_lse - shift) * kLog2E);
    float total = own_weight + other_weight;
    if (exists && column == 0) {
      store_lse(params, work.query, r, row_max, total);
      if constexpr (Params::kIsSparse) combine_max_logits(work, r);
    }
    if constexpr (Params::kIsSparse) {
      if (exists) total = with_sink(params, work.query, r, row_max, total);
    }
    const float inverse = inverse_of(total);
    own_weight *= inverse;
    other_weight *= inverse;
    auto* const to = params.out.template at<uint16_t>(work.query, params.shape.token_of(r),
                                                      params.shape.head_of(r)) +
                     column;
#pragma unroll
    for (uint32_t i = 0; i < kSideFragments; ++i) {
      LaneSums both;
#pragma unroll
      for (uint32_t k = 0; k < kLaneSums; ++k) {
        const float sum = out[0](element(i, kRow, k)) * scale;
        both[k] = own_weight == 0 ? 0 : sum * own_weight;
      }
      add_sums(both, other_weight, others[i]);
#pragma unroll
      for (uint32_t k = 0; k < kLaneSums; k += 4) {
        uint32_t pairs[2] = {pack_pair<Out>(both[k], both[k + 1]),
                             pack_pair<Out>(both[k + 2], both[k + 3])};
        store_four(to + fragment_column(i) + k / 4 * kChunk, pairs, exists);
      }
    }
  }

  __device__ __forceinline__ float of_row(const float* numbers, int partial, int r) const {
    return __ldcg(numbers + int64_t{partial} * params.partials.rows + r);
  }

  __device__ __forceinline__ void combine_max_logits(const WorkTile& work, int r) const {
    if (params.max_logits.data == nullptr) return;
    store_max_logit(params, work.query, r,
                    fmaxf(of_row(params.partial_max_logits, work.partial, r),
                          of_row(params.partial_max_logits, work.other_partial, r)));
  }
};

}  // namespace mla::sm90::rows_m64
