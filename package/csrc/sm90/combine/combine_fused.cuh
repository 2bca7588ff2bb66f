// Combines partial results where the attention kernel ends: the blocks that have split a request
// share out its rows.
#pragma once

#include <cutlass/arch/barrier.h>

#include <cmath>

#include "sm90/combine/fragments.cuh"
#include "sm90/combine/row_results.cuh"
#include "sm90/combine/split_request.cuh"
#include "sm90/common/special_registers.cuh"

namespace mla::sm90 {

// Two warpgroups of a block combine. In a round, a block takes some fragments of eight rows, or
// some rows of a fragment, of all partial results.
template <class Out, uint32_t kFragments, class Params>
class FusedCombine {
  static constexpr uint32_t kWarps = 2 * sm90::kWarps;
  // Partial results of whose eight rows a warp, or a block, loads the LSEs at once.
  static constexpr uint32_t kWarpPartials = kWarp / kFragmentRows;
  static constexpr uint32_t kBlockPartials = kWarps * kWarpPartials;
  static constexpr uint32_t kMostOfLane = ceil_div(kMaxParts, kBlockPartials);
  // Loads that a lane has on their way at once. With few partial results, instructions for many of
  // them take longer than the loads.
  static constexpr uint32_t kFewLoads = 4;
  static constexpr uint32_t kManyLoads = 8;

 public:
  struct SharedStorage {
    float4 sums[kLaneSums / 4][kWarps][kWarp];
    float totals[kWarps][kWarp];
    float weights[kMaxParts][kFragmentRows];  // of partial results
    float warp_max[kWarps][kFragmentRows];    // of the LSEs that a warp loads
    float row_max[kFragmentRows];             // of all LSEs
  };

  // The block's tile of rows begins at `first_row` of the request.
  //
  // @pre The roles no longer use the shared memory.
  __device__ FusedCombine(const Params& params, const SplitRequest& split, int first_row,
                          int tile_rows, SharedStorage& shared, uint32_t barrier)
      : params_(params),
        shared_(shared),
        barrier_(barrier),
        warp_(read_thread_index() / kWarp),
        lane_(read_thread_index() % kWarp),
        first_row_(first_row),
        rows_(split.query_rows),
        query_(split.query),
        first_partial_(split.first_partial),
        splits_(split.splits),
        workers_(split.workers) {
    // The workers take turns with units of fragments, or of rows of one, of which there are as many
    // as workers if possible.
    const uint32_t fragments = ceil_div<uint32_t>(tile_rows, kFragmentRows) * kFragments;
    while (1u << fragments_log2_ < kFragments && fragments >> fragments_log2_ > workers_) {
      ++fragments_log2_;
    }
    while (1u << shares_log2_ < kFragmentRows && fragments << shares_log2_ << 1 <= workers_) {
      ++shares_log2_;
    }
    units_ = fragments >> fragments_log2_ << shares_log2_;
    const uint32_t of_unit = 1u << fragments_log2_;
    warps_of_fragment_ = of_unit < kWarps ? kWarps / of_unit : 1;
    step_ = warps_of_fragment_ << shares_log2_;
  }

  __device__ __forceinline__ void run(uint32_t worker) {
    sync();  // all splits are there
#pragma unroll 1
    for (uint32_t unit = worker; unit < units_; unit += workers_) {
      const uint32_t fragment = unit >> shares_log2_ << fragments_log2_;
      const Round round = {first_row_ + fragment / kFragments * kFragmentRows,
                           fragment % kFragments, unit & ((1u << shares_log2_) - 1)};
      constexpr uint32_t kMost = kFragments / kWarps;  // of a warp
      if (kMost > 1 && 1u << fragments_log2_ == kFragments) {
        combine<kMost, kManyLoads>(round);
      } else if (splits_ <= kFewLoads * step_) {
        combine<1, kFewLoads>(round);
      } else {
        combine<1, kManyLoads>(round);
      }
      sync();  // what the next round overwrites has been read
    }
  }

 private:
  struct Round {
    uint32_t row;       // the first
    uint32_t fragment;  // the first
    uint32_t share;     // which share of the rows of a fragment
  };

  __device__ __forceinline__ void sync() const {
    __syncwarp();
    cutlass::arch::NamedBarrier::sync(kWarps * kWarp, barrier_);
  }

  // The partial result of the i-th LSE that a lane loads, and its row. The eight rows are
  // neighbours in memory.
  __device__ __forceinline__ uint32_t lse_partial(uint32_t i) const {
    return i * kBlockPartials + warp_ * kWarpPartials + lane_ / kFragmentRows;
  }
  __device__ __forceinline__ uint32_t lse_row() const { return lane_ % kFragmentRows; }

  __device__ __forceinline__ void load_lse(const Round& round, float (&lse)[kMostOfLane]) const {
    const bool exists = round.row + lse_row() < rows_;
#pragma unroll
    for (uint32_t i = 0; i < kMostOfLane; ++i) {
      lse[i] = -INFINITY;
      if (exists && lse_partial(i) < splits_) {
        lse[i] = __ldcg(at_row(params_.partials.lse, round.row + lse_row(), lse_partial(i)));
      }
    }
  }

  // Where the number of a row is.
  template <class T>
  __device__ __forceinline__ T* at_row(T* numbers, uint32_t row, uint32_t partial) const {
    return numbers + uint64_t{first_partial_ + partial} * params_.partials.rows + row;
  }

  // Computes the weights of the partial results of all rows.
  __device__ __forceinline__ void compute_weights(const Round& round,
                                                  const float (&lse)[kMostOfLane]) const {
    float row_max = lse[0];
#pragma unroll
    for (uint32_t i = 1; i < kMostOfLane; ++i) row_max = fmaxf(row_max, lse[i]);
#pragma unroll
    for (uint32_t lanes = kFragmentRows; lanes < kWarp; lanes *= 2) {
      row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, lanes));
    }
    if (lane_ < kFragmentRows) shared_.warp_max[warp_][lane_] = row_max;
    sync();
#pragma unroll
    for (uint32_t warp = 0; warp < kWarps; ++warp) {
      row_max = fmaxf(row_max, shared_.warp_max[warp][lse_row()]);
    }
    if (warp_ == 0 && lane_ < kFragmentRows) shared_.row_max[lane_] = row_max;
    const float shift = row_max == -INFINITY ? 0 : row_max;
#pragma unroll
    for (uint32_t i = 0; i < kMostOfLane; ++i) {
      if (lse_partial(i) >= splits_) break;
      shared_.weights[lse_partial(i)][lse_row()] = exp2_approx((lse[i] - shift) * kLog2E);
    }
    sync();
  }

  // What a lane has loaded of some partial results: its part of `kOwn` fragments of each.
  template <uint32_t kOwn, uint32_t kLoads>
  using Loaded = PackedSums[kLoads / kOwn][kOwn];

  // Loads partial results from `first` on, of which a lane has every `step_`-th. `from` is the
  // lane's part of the round's first partial result.
  template <uint32_t kOwn, uint32_t kLoads>
  __device__ __forceinline__ void load(const FragmentLane& from, uint32_t first, uint32_t count,
                                       Loaded<kOwn, kLoads>& loaded) const {
    const uint32_t groups = params_.partials.rows / kFragmentRows;
#pragma unroll
    for (uint32_t i = 0; i < kLoads / kOwn; ++i) {
      const uint32_t partial = first + i * step_;
#pragma unroll
      for (uint32_t k = 0; k < kOwn; ++k) {
        loaded[i][k] = {};
        if (partial < count) loaded[i][k] = from.load(k * kWarps, partial * groups);
      }
    }
  }

  // A warp sums up `kOwn` fragments, every eighth of the round's, or several warps share one, each
  // some of its partial results. If the round has not all rows of a fragment, all warps share one,
  // and lanes share a warp's partial results.
  template <uint32_t kOwn, uint32_t kLoads>
  __device__ __forceinline__ void combine(const Round& round) const {
    constexpr uint32_t kAtOnce = kLoads / kOwn;
    const uint32_t sharing = warps_of_fragment_;
    const uint32_t first = warp_ / sharing;
    const uint32_t rows = kFragmentRows >> shares_log2_;
    const uint32_t row = round.share * rows + (lane_ / 4 & (rows - 1));
    const uint32_t ahead =
        (lane_ << shares_log2_) / kWarp;  // which of the lanes that share the row
    const uint32_t r = round.row + row;
    float lse[kMostOfLane];
    load_lse(round, lse);
    const FragmentLane from(params_.partials, first_partial_, round.row, round.fragment + first,
                            row * 4 + lane_ % 4);
    const uint32_t count = r < rows_ ? splits_ : 0;  // nobody has stored rows that do not exist
    uint32_t partial = (warp_ % sharing << shares_log2_) + ahead;
    Loaded<kOwn, kLoads> loaded;
    load<kOwn, kLoads>(from, partial, count, loaded);
    const Shape& shape = params_.shape;
    auto* const to =
        params_.out.template at<uint16_t>(query_, shape.token_of(r), shape.head_of(r)) +
        fragment_column(round.fragment + first) + lane_ % 2 * 8 + lane_ % 4 / 2 * 4;
    compute_weights(round, lse);
    LaneSums sums[kOwn] = {};
    float total = 0;  // of the weights of a lane's row
#pragma unroll 1
    for (uint32_t done = kAtOnce * step_;; done += kAtOnce * step_) {
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t own = partial + i * step_;
        const float weight = own < splits_ ? shared_.weights[own][row] : 0;
        total += weight;
#pragma unroll
        for (uint32_t k = 0; k < kOwn; ++k) add_sums(sums[k], weight, loaded[i][k]);
      }
      if (done >= splits_) break;
      partial += kAtOnce * step_;
      load<kOwn, kLoads>(from, partial, count, loaded);
    }
    if constexpr (kOwn == 1) {
      if (sharing > 1 && !add_up_warps(sums[0], total)) return;
    }
    const bool exists = r < rows_ && ahead == 0;
    if (round.fragment + first == 0) store_row_results(r, row, exists, total);
    if constexpr (Params::kIsSparse) {
      if (exists) total = with_sink(params_, query_, r, shared_.row_max[row], total);
    }
    const float inverse = inverse_of(total);
#pragma unroll
    for (uint32_t k = 0; k < kOwn; ++k) {
#pragma unroll
      for (uint32_t i = 0; i < kLaneSums / 4; ++i) {
        store(to + k * fragment_column(kWarps) + i * kChunk, four_of(sums[k], i), inverse, exists);
      }
    }
  }

  // Adds up what the warps and the lanes have that share a fragment; the first warp has the result.
  // Says whether that is this one.
  __device__ __forceinline__ bool add_up_warps(LaneSums& sums, float& total) const {
#pragma unroll
    for (uint32_t k = 0; k < kLaneSums / 4; ++k) shared_.sums[k][warp_][lane_] = four_of(sums, k);
    shared_.totals[warp_][lane_] = total;
    sync();
    if (warp_ % warps_of_fragment_ > 0) return false;
#pragma unroll 1
    for (uint32_t i = 1; i < warps_of_fragment_; ++i) {
#pragma unroll
      for (uint32_t k = 0; k < kLaneSums / 4; ++k) {
        const float4 more = shared_.sums[k][warp_ + i][lane_];
        sums[4 * k] += more.x;
        sums[4 * k + 1] += more.y;
        sums[4 * k + 2] += more.z;
        sums[4 * k + 3] += more.w;
      }
      total += shared_.totals[warp_ + i][lane_];
    }
#pragma unroll 1
    for (uint32_t lanes = kWarp >> shares_log2_; lanes < kWarp; lanes *= 2) {
#pragma unroll
      for (float& sum : sums) sum += __shfl_xor_sync(~0u, sum, lanes);
      total += __shfl_xor_sync(~0u, total, lanes);
    }
    return true;
  }

  static __device__ __forceinline__ float4 four_of(const LaneSums& sums, uint32_t i) {
    return {sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]};
  }

  // Two lanes exchange pairs, so that each stores four neighbours.
  __device__ __forceinline__ void store(uint16_t* to, const float4& sum, float factor,
                                        bool exists) const {
    const uint32_t low = pack_pair<Out>(sum.x * factor, sum.y * factor);
    const uint32_t high = pack_pair<Out>(sum.z * factor, sum.w * factor);
    const bool upper = lane_ % 2 != 0;
    const uint32_t got = __shfl_xor_sync(~0u, upper ? low : high, 1);
    const uint2 pairs = {upper ? got : low, upper ? high : got};
    if (!exists) return;
    if (params_.out_is_aligned_to_4) {
      *reinterpret_cast<uint2*>(to) = pairs;
    } else {
      to[0] = static_cast<uint16_t>(pairs.x);
      to[1] = static_cast<uint16_t>(pairs.x >> 16);
      to[2] = static_cast<uint16_t>(pairs.y);
      to[3] = static_cast<uint16_t>(pairs.y >> 16);
    }
  }

  // Four lanes share a row.
  __device__ __forceinline__ void store_row_results(uint32_t r, uint32_t row, bool exists,
                                                    float total) const {
    const bool leads = exists && lane_ % 4 == 0;
    if (leads) store_lse(params_, query_, r, shared_.row_max[row], total);
    if constexpr (Params::kIsSparse) {
      if (params_.max_logits.data == nullptr) return;
      float max_logit = -INFINITY;
      for (uint32_t i = lane_ % 4; exists && i < splits_; i += 4) {
        max_logit = fmaxf(max_logit, __ldcg(at_row(params_.partial_max_logits, r, i)));
      }
      max_logit = fmaxf(max_logit, __shfl_xor_sync(~0u, max_logit, 1));
      max_logit = fmaxf(max_logit, __shfl_xor_sync(~0u, max_logit, 2));
      if (leads) store_max_logit(params_, query_, r, max_logit);
    }
  }

  const Params& params_;
  SharedStorage& shared_;
  const uint32_t barrier_;
  const uint32_t warp_;
  const uint32_t lane_;
  const uint32_t first_row_;
  const uint32_t rows_;  // of the request
  const int32_t query_;
  const uint32_t first_partial_;
  const uint32_t splits_;
  const uint32_t workers_;
  uint32_t fragments_log2_ = 0;  // of a unit
  uint32_t shares_log2_ = 0;     // of the rows of a fragment, of which a unit has one
  uint32_t units_;
  uint32_t warps_of_fragment_;
  uint32_t step_;  // from a partial result of a lane to its next one
};

// Combines the block's share of the request that it ends with, if that is split. Two warpgroups of
// a block call this.
//
// @pre The roles no longer use the `kBytes` of `memory`, and the block has counted its splits.
template <class Out, int kDV, size_t kBytes, class Params>
__device__ __forceinline__ void combine_fused(const Params& params, const SplitRequest& split,
                                              int first_row, void* memory, uint32_t barrier) {
  using Combine = FusedCombine<Out, kDV / kFragmentColumns, Params>;
  using SharedStorage = typename Combine::SharedStorage;
  static_assert(sizeof(SharedStorage) <= kBytes);
  if (!params.combines) return;
  cutlass::arch::NamedBarrier::sync(2 * kWarpgroup, barrier);
  // The last tiles of a cluster may have no row.
  if (split.splits == 0) return;
  if (first_row >= split.query_rows) return;
  const int tile_rows = min(split.query_rows - first_row, kTileRows);
  Combine combine(params, split, first_row, tile_rows, *static_cast<SharedStorage*>(memory),
                  barrier);
  if (threadIdx.x == 0) wait_for_splits(params, split, split.splits);
  combine.run(split.worker);
}

}  // namespace mla::sm90
