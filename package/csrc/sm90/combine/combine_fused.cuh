// Combines partial results where the attention kernel ends: all blocks of the grid synchronize, and
// share out the rows of the requests that were split between them.
#pragma once

#include <cutlass/arch/barrier.h>

#include <cmath>
#include <cute/arch/copy_sm90_tma.hpp>

#include "sm90/combine/grid_sync.cuh"
#include "sm90/combine/row_results.cuh"
#include "sm90/common/elements.cuh"
#include "sm90/common/pipeline.cuh"
#include "sm90/common/special_registers.cuh"

namespace mla::sm90 {

// Two warpgroups of every block combine. In a round, a block takes some fragments of eight rows, of
// all partial results; those of the next round are loaded meanwhile.
template <class Out, class Params>
class FusedCombine {
  static constexpr uint32_t kWarps = 2 * sm90::kWarps;
  static constexpr uint32_t kStages = 2;
  static constexpr uint32_t kStageFragments = 160;
  static constexpr uint32_t kFragmentBytes = kFragmentElements * sizeof(float);
  static constexpr uint32_t kMostOfLane = ceil_div(kMaxParts, kWarp);
  static_assert(kMaxParts <= kStageFragments && kWarps == kFragmentRows);

 public:
  struct SharedStorage {
    float4 fragments[kStages * kStageFragments][kWarp];
    float4 sums[kWarps][kWarp];
    float totals[kWarps][kWarp];
    float weights[kMaxParts][kFragmentRows];  // of partial results
    float row_max[kFragmentRows];             // of their LSEs
    TransactionBarrier full[kStages];
  };

  __device__ FusedCombine(const Params& params, const SplitList& list, SharedStorage& shared,
                          uint32_t barrier)
      : params_(params),
        shared_(shared),
        barrier_(barrier),
        warp_(read_thread_index() / kWarp),
        lane_(read_thread_index() % kWarp),
        rounds_(list) {}

  // Initializes barriers and finds the first round, best before the blocks synchronize.
  //
  // @pre The roles no longer use the shared memory.
  __device__ __forceinline__ void prepare() {
    if (warp_ == 0 && lane_ == 0) {
      for (auto& full : shared_.full) full.init(kWarps);
      cutlass::arch::fence_barrier_init();
    }
    found_ = rounds_.next(now_);
  }

  // The same for blocks that have already synchronized.
  __device__ __forceinline__ void prepare_late() {
    prepare();
    sync();
  }

  __device__ __forceinline__ void run() {
    // Bulk copies load what the threads of other blocks have stored.
    if (lane_ == 0) asm volatile("fence.proxy.async;" ::: "memory");
    float lse[kMostOfLane];
    if (found_) load(now_, 0, lse);
#pragma unroll 1
    for (uint32_t count = 0; found_; ++count) {
      const PipelineState<kStages> state(count);
      compute_weights(now_, lse);
      const Round round = now_;
      found_ = rounds_.next(now_);
      if (found_) load(now_, PipelineState<kStages>(count + 1).stage, lse);
      sync();
      shared_.full[state.stage].wait(state.phase);
      combine(round, stage(state.stage));
      sync();  // what the next round overwrites has been read
    }
  }

 private:
  struct Round {
    SplitRequest split;
    uint32_t row;       // the first
    uint32_t fragment;  // the first
    uint32_t fragments;
  };

  // The rounds of a block. Its units are those whose number is the block's, or larger by a multiple
  // of the number of blocks.
  class Rounds {
   public:
    __device__ explicit Rounds(const SplitList& list) : list_(list), unit_(read_block_index()) {}

    __device__ __forceinline__ bool next(Round& round) {
      if (unit_ >= list_.units) return false;
      const uint32_t i = list_.find(unit_);
      round.split = list_.requests[i];
      const uint32_t unit_fragments = round.split.unit_fragments();
      const uint32_t fragment = (unit_ - round.split.first_unit) * unit_fragments;
      round.row = fragment / kFragments * kFragmentRows;
      round.fragment = fragment % kFragments + done_;
      round.fragments = unit_fragments;
      // A block with one unit loads it at once: there is nothing else to load meanwhile.
      const bool all = list_.units <= gridDim.x &&
                       round.fragments * round.split.count <= kStages * kStageFragments;
      while (!all && round.fragments * round.split.count > kStageFragments) round.fragments /= 2;
      done_ += round.fragments;
      if (done_ == unit_fragments) {
        done_ = 0;
        unit_ += gridDim.x;
      }
      return true;
    }

   private:
    const SplitList& list_;
    uint32_t unit_;
    uint32_t done_ = 0;  // fragments of the unit
  };

  __device__ __forceinline__ float4 (*stage(int stage) const)[kWarp] {
    return shared_.fragments + stage * kStageFragments;
  }

  __device__ __forceinline__ void sync() const {
    __syncwarp();
    cutlass::arch::NamedBarrier::sync(kWarps * kWarp, barrier_);
  }

  // Each warp loads every eighth partial result, and the LSEs of one of the eight rows.
  __device__ __forceinline__ void load(const Round& round, int stage,
                                       float (&lse)[kMostOfLane]) const {
    const uint32_t count = round.split.count;
    if (lane_ == 0) {
      const uint32_t bytes = round.fragments * kFragmentBytes;
      const uint32_t own = count > warp_ ? ceil_div(count - warp_, kWarps) : 0;
      shared_.full[stage].arrive_and_expect_tx(own * bytes);
#pragma unroll 1
      for (uint32_t i = warp_; i < count; i += kWarps) {
        cute::SM90_BULK_COPY_G2S::copy(
            fragment_at(params_.partials, round.split.first + i, round.row, 0) +
                round.fragment * kFragmentElements,
            reinterpret_cast<uint64_t*>(&shared_.full[stage]),
            this->stage(stage)[i * round.fragments], static_cast<int32_t>(bytes));
      }
    }
    __syncwarp();
    const bool exists = round.row + warp_ < static_cast<uint32_t>(params_.shape.rows);
#pragma unroll
    for (uint32_t i = 0; i < kMostOfLane; ++i) {
      const uint32_t partial = i * kWarp + lane_;
      lse[i] = -INFINITY;
      if (exists && partial < count) {
        lse[i] = __ldcg(at_row(params_.partials.lse, round, partial, warp_));
      }
    }
  }

  // Where the number of one of the eight rows is.
  template <class T>
  __device__ __forceinline__ T* at_row(T* numbers, const Round& round, uint32_t partial,
                                       uint32_t row) const {
    return numbers + uint64_t{round.split.first + partial} * params_.partials.rows + round.row +
           row;
  }

  // Each warp computes the weights of the partial results of its row.
  __device__ __forceinline__ void compute_weights(const Round& round,
                                                  const float (&lse)[kMostOfLane]) const {
    const uint32_t count = round.split.count;
    float row_max = lse[0];
#pragma unroll
    for (uint32_t i = 1; i < kMostOfLane; ++i) row_max = fmaxf(row_max, lse[i]);
#pragma unroll
    for (uint32_t lanes = 1; lanes < kWarp; lanes *= 2) {
      if (lanes >= count) break;  // lanes from there on have no partial result
      row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, lanes));
    }
    if (lane_ == 0) shared_.row_max[warp_] = row_max;
    const float shift = row_max == -INFINITY ? 0 : row_max;
#pragma unroll
    for (uint32_t i = 0; i < kMostOfLane; ++i) {
      if (i * kWarp >= count) break;
      const uint32_t partial = i * kWarp + lane_;
      if (partial < count) shared_.weights[partial][warp_] = exp2_approx((lse[i] - shift) * kLog2E);
    }
  }

  // A partial result without weight adds nothing, whatever it holds.
  static __device__ __forceinline__ void add(float4& sum, float weight, const float4& partial) {
    if (weight == 0) return;
    sum.x += weight * partial.x;
    sum.y += weight * partial.y;
    sum.z += weight * partial.z;
    sum.w += weight * partial.w;
  }

  // A warp sums up every eighth fragment, or several warps share one, each some of its partial
  // results.
  __device__ __forceinline__ void combine(const Round& round, const float4 (*stage)[kWarp]) const {
    constexpr uint32_t kOwn = kFragments / kWarps;
    const uint32_t sharing = round.fragments < kWarps ? kWarps / round.fragments : 1;
    const uint32_t first = warp_ / sharing;
    const uint32_t row = lane_ / 4;
    float4 sums[kOwn] = {};
    float total = 0;  // of the weights of a lane's row
#pragma unroll 2
    for (uint32_t i = warp_ % sharing; i < round.split.count; i += sharing) {
      const float weight = shared_.weights[i][row];
      const auto* const fragments = stage + i * round.fragments + first;
      total += weight;
#pragma unroll
      for (uint32_t k = 0; k < kOwn; ++k) {
        if (k > 0 && k * kWarps >= round.fragments) break;
        add(sums[k], weight, fragments[k * kWarps][lane_]);
      }
    }
    if (sharing > 1) {
      shared_.sums[warp_][lane_] = sums[0];
      shared_.totals[warp_][lane_] = total;
      sync();
      if (warp_ % sharing > 0) return;
#pragma unroll 1
      for (uint32_t i = 1; i < sharing; ++i) {
        add(sums[0], 1, shared_.sums[warp_ + i][lane_]);
        total += shared_.totals[warp_ + i][lane_];
      }
    }
    const uint32_t r = round.row + row;
    const bool exists = r < static_cast<uint32_t>(params_.shape.rows);
    if (round.fragment + first == 0) store_row_results(round, r, exists, total);
    if constexpr (Params::kIsSparse) {
      if (exists) total = with_sink(params_, r, shared_.row_max[row], total);
    }
    const float inverse = inverse_of(total);
    const Shape& shape = params_.shape;
    auto* const to = params_.out.template at<uint16_t>(round.split.request, shape.token_of(r),
                                                       shape.head_of(r)) +
                     (round.fragment + first) * kFragmentColumns + lane_ % 2 * 8 +
                     lane_ % 4 / 2 * 4;
#pragma unroll
    for (uint32_t k = 0; k < kOwn; ++k) {
      if (k > 0 && k * kWarps >= round.fragments) break;
      store(to + k * kWarps * kFragmentColumns, sums[k], inverse, exists);
    }
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
  __device__ __forceinline__ void store_row_results(const Round& round, uint32_t r, bool exists,
                                                    float total) const {
    const bool leads = exists && lane_ % 4 == 0;
    if (leads) store_lse(params_, round.split.request, r, shared_.row_max[lane_ / 4], total);
    if constexpr (Params::kIsSparse) {
      if (params_.max_logits.data == nullptr) return;
      float max_logit = -INFINITY;
      for (uint32_t i = lane_ % 4; exists && i < round.split.count; i += 4) {
        max_logit =
            fmaxf(max_logit, __ldcg(at_row(params_.partial_max_logits, round, i, lane_ / 4)));
      }
      max_logit = fmaxf(max_logit, __shfl_xor_sync(~0u, max_logit, 1));
      max_logit = fmaxf(max_logit, __shfl_xor_sync(~0u, max_logit, 2));
      if (leads) store_max_logit(params_, round.split.request, r, max_logit);
    }
  }

  const Params& params_;
  SharedStorage& shared_;
  const uint32_t barrier_;
  const uint32_t warp_;
  const uint32_t lane_;
  Rounds rounds_;
  Round now_;
  bool found_;
};

// Synchronizes the blocks, unless they have been, and combines what they have split. Two warpgroups
// of every block call this; the others call grid_sync().
//
// @pre The roles no longer use the `kBytes` of `memory`.
template <class Out, size_t kBytes, class Params>
__device__ __forceinline__ void combine_fused(const Params& params, const SplitList& list,
                                              void* memory, uint32_t barrier,
                                              bool is_synchronized) {
  using SharedStorage = typename FusedCombine<Out, Params>::SharedStorage;
  static_assert(sizeof(SharedStorage) <= kBytes);
  FusedCombine<Out, Params> combine(params, list, *static_cast<SharedStorage*>(memory), barrier);
  if (is_synchronized) {
    if (list.count == 0) return;
    combine.prepare_late();
  } else if (!grid_sync(params, list, [&] { combine.prepare(); })) {
    return;
  }
  combine.run();
}

}  // namespace mla::sm90
