// A block whose last warpgroup fills the rings, in whatever way: its barriers, and the warpgroups
// that compute.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "sm90/combine/combine_fused.cuh"
#include "sm90/mainloop/rows_m64/mma_pv.cuh"
#include "sm90/mainloop/rows_m64/mma_qk_softmax.cuh"

namespace mla::sm90 {

// `Filler` fills the places that tensor cores read; `kBlocks` do so together.
template <class Format, class Out, class Filler, int kBlocks, bool kGathers, class Params>
struct Block {
  static constexpr int kComputeWarpgroups = 3;
  static constexpr int kFillerRegisters = 48;

  const Params& params;
  SharedMemory<Format>& shared;
  const int first_row;

  // By one thread. `loaders` warps of the last warpgroup read the items.
  __device__ __forceinline__ void init_barriers(int loaders) const {
    shared.query_wanted.init(1);
    for (auto& barrier : shared.latent_full) barrier.init(Filler::kLatentArrivals);
    for (auto& barrier : shared.rope_full) barrier.init(Filler::kRopeArrivals);
    for (auto& barrier : shared.logits_done) barrier.init(kWarps);
    for (auto& barrier : shared.weights_full) barrier.init(kWarpgroup / 4);
    for (auto& barrier : shared.latent_empty) barrier.init(2 * kBlocks * kWarps);
    for (auto& barrier : shared.rope_empty) barrier.init(kBlocks * kWarps);
    for (auto& barrier : shared.weights_empty) barrier.init(2 * kWarpgroup);
    for (auto& barrier : shared.items.full) barrier.init(1);
    const int readers = kComputeWarpgroups * kWarps + loaders;
    for (auto& barrier : shared.items.empty) barrier.init(readers * kWarp);
    cutlass::arch::fence_barrier_init();
  }

  // By the first two warpgroups.
  __device__ __forceinline__ void accumulate(int warpgroup) const {
    cutlass::arch::warpgroup_reg_alloc<160>();
    if (threadIdx.x < kWarp) list_splits<true>(params, shared.splits);
    const bool have_met =
        Accumulator<Format, Out, kBlocks, Params>(params, shared, warpgroup).run(first_row);
    meet_and_merge<Out, SharedMemory<Format>::kOfTiles>(params, shared.splits, shared.latent,
                                                        kMergeBarrier, have_met);
  }

  // By the third.
  __device__ __forceinline__ void weigh() const {
    cutlass::arch::warpgroup_reg_alloc<144>();
    Weigher<Format, kBlocks, kGathers, Params>(params, shared, first_row).run();
    meet(params, shared.splits);
  }
};

}  // namespace mla::sm90
