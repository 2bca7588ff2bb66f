// Merges partial results where the blocks end: all blocks of the grid meet, and share out the rows
// of the requests that were split between them.
#pragma once

#include <cutlass/arch/barrier.h>

#include <cmath>
#include <cute/arch/copy_sm90_tma.hpp>

#include "sm90/combine/partial_layout.h"
#include "sm90/combine/split_list.cuh"
#include "sm90/common/barriers.cuh"
#include "sm90/common/elements.cuh"
#include "sm90/common/exp2.cuh"
#include "sm90/common/pipeline.cuh"
#include "sm90/common/special_registers.cuh"
#include "sm90/decode/params.h"

namespace mla::sm90 {

// A sum of weights is 0, NaN, or at least 1.
__device__ __forceinline__ float inverse_of(float sum) { return sum == 0 ? 0 : __fdividef(1, sum); }

// What the sum of a row's weights is with that of its sink. Not of one that is 0.
template <class Params>
__device__ __forceinline__ float with_sink(const Params& params, int r, float peak, float sum) {
  if (params.sink == nullptr || sum == 0) return sum;
  return sum + power_of_2((params.sink[r] - peak) * kLog2E);
}

template <class Params>
__device__ __forceinline__ void store_lse(const Params& params, int request, int r, float peak,
                                          float sum) {
  if (params.lse.data == nullptr) return;
  const Shape& shape = params.shape;
  *params.lse.template at<float>(request, shape.token_of(r), shape.head_of(r)) =
      sum == 0 ? -INFINITY : peak + log2f(sum) * kLn2;
}

// By two warpgroups of every block. A block takes some strips of eight rows at a time, all partial
// results of them, in one round; those of the next round are on their way meanwhile.
template <class Out, class Params>
class Merger {
  static constexpr uint32_t kWarps = 2 * sm90::kWarps;
  static constexpr uint32_t kStages = 2;
  static constexpr uint32_t kStageStrips = 160;
  static constexpr uint32_t kStripBytes = kStripElements * sizeof(float);
  static constexpr uint32_t kMostOfLane = ceil_div(kMostParts, kWarp);
  static_assert(kMostParts <= kStageStrips && kWarps == kPackedRows);

 public:
  struct Scratch {
    float4 strips[kStages * kStageStrips][kWarp];
    float4 sums[kWarps][kWarp];
    float totals[kWarps][kWarp];
    float weights[kMostParts][kPackedRows];  // of partial results
    float peaks[kPackedRows];                // of their log-sum-exps
    FullBarrier full[kStages];
  };

  __device__ Merger(const Params& params, const SplitList& list, Scratch& scratch, uint32_t barrier)
      : params_(params),
        scratch_(scratch),
        barrier_(barrier),
        warp_(own_thread() / kWarp),
        lane_(own_thread() % kWarp),
        rounds_(list) {}

  // When the scratch is free, and best before the blocks meet.
  __device__ __forceinline__ void prepare() {
    if (warp_ == 0 && lane_ == 0) {
      for (auto& full : scratch_.full) full.init(kWarps);
      cutlass::arch::fence_barrier_init();
    }
    found_ = rounds_.next(now_);
  }

  // By those who have done something else since the blocks met.
  __device__ __forceinline__ void prepare_late() {
    prepare();
    sync();
  }

  __device__ __forceinline__ void run() {
    // What other blocks have stored, bulk copies load.
    if (lane_ == 0) asm volatile("fence.proxy.async;" ::: "memory");
    float lse[kMostOfLane];
    if (found_) load(now_, 0, lse);
#pragma unroll 1
    for (uint32_t turn = 0; found_; ++turn) {
      const Place<kStages> place(turn);
      weigh(now_, lse);
      const Round round = now_;
      found_ = rounds_.next(now_);
      if (found_) load(now_, Place<kStages>(turn + 1).slot, lse);
      sync();
      scratch_.full[place.slot].wait(place.phase);
      merge(round, stage(place.slot));
      sync();  // what the next round writes has been read
    }
  }

 private:
  struct Round {
    SplitRequest split;
    uint32_t row;    // the first
    uint32_t strip;  // the first
    uint32_t strips;
  };

  // Those of a block: of every chunk whose number is the block's, or larger by a multiple of them.
  class Rounds {
   public:
    __device__ explicit Rounds(const SplitList& list) : list_(list), chunk_(own_block()) {}

    __device__ __forceinline__ bool next(Round& round) {
      if (chunk_ >= list_.chunks) return false;
      const uint32_t i = list_.find(chunk_);
      round.split = list_.requests[i];
      const uint32_t chunk_strips = round.split.chunk_strips();
      const uint32_t strip = (chunk_ - round.split.first_chunk) * chunk_strips;
      round.row = strip / kStrips * kPackedRows;
      round.strip = strip % kStrips + done_;
      round.strips = chunk_strips;
      // All at once, where there is nothing else to load meanwhile.
      const bool all =
          list_.chunks <= gridDim.x && round.strips * round.split.count <= kStages * kStageStrips;
      while (!all && round.strips * round.split.count > kStageStrips) round.strips /= 2;
      done_ += round.strips;
      if (done_ == chunk_strips) {
        done_ = 0;
        chunk_ += gridDim.x;
      }
      return true;
    }

   private:
    const SplitList& list_;
    uint32_t chunk_;
    uint32_t done_ = 0;  // strips of the chunk
  };

  __device__ __forceinline__ float4 (*stage(int slot) const)[kWarp] {
    return scratch_.strips + slot * kStageStrips;
  }

  __device__ __forceinline__ void sync() const {
    __syncwarp();
    cutlass::arch::NamedBarrier::sync(kWarps * kWarp, barrier_);
  }

  // Each warp loads every eighth partial result, and the log-sum-exps of a row of its own.
  __device__ __forceinline__ void load(const Round& round, int slot,
                                       float (&lse)[kMostOfLane]) const {
    const uint32_t count = round.split.count;
    if (lane_ == 0) {
      const uint32_t bytes = round.strips * kStripBytes;
      const uint32_t own = count > warp_ ? ceil_div(count - warp_, kWarps) : 0;
      scratch_.full[slot].arrive_and_expect_tx(own * bytes);
#pragma unroll 1
      for (uint32_t i = warp_; i < count; i += kWarps) {
        cute::SM90_BULK_COPY_G2S::copy(
            packed_at(params_.partials, round.split.first + i, round.row, 0) +
                round.strip * kStripElements,
            reinterpret_cast<uint64_t*>(&scratch_.full[slot]), this->stage(slot)[i * round.strips],
            static_cast<int32_t>(bytes));
      }
    }
    __syncwarp();
    const bool exists = round.row + warp_ < static_cast<uint32_t>(params_.shape.rows);
#pragma unroll
    for (uint32_t i = 0; i < kMostOfLane; ++i) {
      const uint32_t state = i * kWarp + lane_;
      lse[i] = -INFINITY;
      if (exists && state < count) {
        lse[i] = __ldcg(at_row(params_.partials.lse, round, state, warp_));
      }
    }
  }

  // Of one of the eight rows.
  template <class T>
  __device__ __forceinline__ T* at_row(T* of_rows, const Round& round, uint32_t state,
                                       uint32_t row) const {
    return of_rows + uint64_t{round.split.first + state} * params_.partials.rows + round.row + row;
  }

  // By each warp, its row.
  __device__ __forceinline__ void weigh(const Round& round, const float (&lse)[kMostOfLane]) const {
    const uint32_t count = round.split.count;
    float peak = lse[0];
#pragma unroll
    for (uint32_t i = 1; i < kMostOfLane; ++i) peak = fmaxf(peak, lse[i]);
#pragma unroll
    for (uint32_t lanes = 1; lanes < kWarp; lanes *= 2) {
      if (lanes >= count) break;  // lanes from there on have none
      peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, lanes));
    }
    if (lane_ == 0) scratch_.peaks[warp_] = peak;
    const float shift = peak == -INFINITY ? 0 : peak;
#pragma unroll
    for (uint32_t i = 0; i < kMostOfLane; ++i) {
      if (i * kWarp >= count) break;
      const uint32_t state = i * kWarp + lane_;
      if (state < count) scratch_.weights[state][warp_] = power_of_2((lse[i] - shift) * kLog2E);
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

  // A warp has every eighth strip, or several share one, each some of its partial results.
  __device__ __forceinline__ void merge(const Round& round, const float4 (*stage)[kWarp]) const {
    constexpr uint32_t kOwn = kStrips / kWarps;
    const uint32_t sharing = round.strips < kWarps ? kWarps / round.strips : 1;
    const uint32_t first = warp_ / sharing;
    const uint32_t row = lane_ / 4;
    float4 sums[kOwn] = {};
    float total = 0;  // of the weights of a lane's row
#pragma unroll 2
    for (uint32_t i = warp_ % sharing; i < round.split.count; i += sharing) {
      const float weight = scratch_.weights[i][row];
      const auto* const strips = stage + i * round.strips + first;
      total += weight;
#pragma unroll
      for (uint32_t k = 0; k < kOwn; ++k) {
        if (k > 0 && k * kWarps >= round.strips) break;
        add(sums[k], weight, strips[k * kWarps][lane_]);
      }
    }
    if (sharing > 1) {
      scratch_.sums[warp_][lane_] = sums[0];
      scratch_.totals[warp_][lane_] = total;
      sync();
      if (warp_ % sharing > 0) return;
#pragma unroll 1
      for (uint32_t i = 1; i < sharing; ++i) {
        add(sums[0], 1, scratch_.sums[warp_ + i][lane_]);
        total += scratch_.totals[warp_ + i][lane_];
      }
    }
    const uint32_t r = round.row + row;
    const bool exists = r < static_cast<uint32_t>(params_.shape.rows);
    if (round.strip + first == 0) store_beside(round, r, exists, total);
    if constexpr (Params::kSelects) {
      if (exists) total = with_sink(params_, r, scratch_.peaks[row], total);
    }
    const float inverse = inverse_of(total);
    const Shape& shape = params_.shape;
    auto* const to = params_.out.template at<uint16_t>(round.split.request, shape.token_of(r),
                                                       shape.head_of(r)) +
                     (round.strip + first) * kStripColumns + lane_ % 2 * 8 + lane_ % 4 / 2 * 4;
#pragma unroll
    for (uint32_t k = 0; k < kOwn; ++k) {
      if (k > 0 && k * kWarps >= round.strips) break;
      store(to + k * kWarps * kStripColumns, sums[k], inverse, exists);
    }
  }

  // Two lanes exchange pairs, so that each has four neighbours.
  __device__ __forceinline__ void store(uint16_t* to, const float4& sum, float factor,
                                        bool exists) const {
    const uint32_t low = pair_of<Out>(sum.x * factor, sum.y * factor);
    const uint32_t high = pair_of<Out>(sum.z * factor, sum.w * factor);
    const bool upper = lane_ % 2 != 0;
    const uint32_t got = __shfl_xor_sync(~0u, upper ? low : high, 1);
    const uint2 pairs = upper ? uint2{got, high} : uint2{low, got};
    if (!exists) return;
    if (params_.out_in_fours) {
      *reinterpret_cast<uint2*>(to) = pairs;
    } else {
      to[0] = static_cast<uint16_t>(pairs.x);
      to[1] = static_cast<uint16_t>(pairs.x >> 16);
      to[2] = static_cast<uint16_t>(pairs.y);
      to[3] = static_cast<uint16_t>(pairs.y >> 16);
    }
  }

  // What there is beside the output, of a row by four lanes.
  __device__ __forceinline__ void store_beside(const Round& round, uint32_t r, bool exists,
                                               float total) const {
    const bool leads = exists && lane_ % 4 == 0;
    if (leads) store_lse(params_, round.split.request, r, scratch_.peaks[lane_ / 4], total);
    if constexpr (Params::kSelects) {
      if (params_.max_logits.data == nullptr) return;
      float peak = -INFINITY;
      for (uint32_t i = lane_ % 4; exists && i < round.split.count; i += 4) {
        peak = fmaxf(peak, __ldcg(at_row(params_.partial_peaks, round, i, lane_ / 4)));
      }
      peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, 1));
      peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, 2));
      if (!leads) return;
      *params_.max_logits.template at<float>(round.split.request, 0, r) = peak * kLn2;
    }
  }

  const Params& params_;
  Scratch& scratch_;
  const uint32_t barrier_;
  const uint32_t warp_;
  const uint32_t lane_;
  Rounds rounds_;
  Round now_;
  bool found_;
};

// By two warpgroups of every block, in `kBytes` of memory that is free when the roles have ended.
// The blocks may have met.
template <class Out, size_t kBytes, class Params>
__device__ __forceinline__ void meet_and_merge(const Params& params, const SplitList& list,
                                               void* memory, uint32_t barrier, bool have_met) {
  using Scratch = typename Merger<Out, Params>::Scratch;
  static_assert(sizeof(Scratch) <= kBytes);
  Merger<Out, Params> merger(params, list, *static_cast<Scratch*>(memory), barrier);
  if (have_met) {
    if (list.count == 0) return;
    merger.prepare_late();
  } else if (!meet(params, list, [&] { merger.prepare(); })) {
    return;
  }
  merger.run();
}

}  // namespace mla::sm90
