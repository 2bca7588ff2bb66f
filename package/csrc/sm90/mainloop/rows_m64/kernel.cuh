// The kernel of the schedule `rows_m64`, for dense and sparse attention: 64 query rows are the rows
// of a tile. One warpgroup of a block produces tiles of Q and KV, one computes logits and P, and
// two sum up the output. What `Params` is decides where KV comes from and what ends a work tile.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include <cute/arch/cluster_sm90.hpp>

#include "common/traits.h"
#include "sm90/combine/combine_fused.cuh"
#include "sm90/common/pdl.cuh"
#include "sm90/mainloop/rows_m64/mma_pv.cuh"
#include "sm90/mainloop/rows_m64/mma_qk_softmax.cuh"
#include "sm90/mainloop/rows_m64/producer/warpgroup.cuh"

namespace mla::sm90::rows_m64 {

// Registers of a thread by its role: 512 for the four warpgroups together.
inline constexpr uint32_t kPvRegisters = 160;
inline constexpr uint32_t kLogitsRegisters = 144;
inline constexpr uint32_t kProducerRegisters = 48;
static_assert(2 * kPvRegisters + kLogitsRegisters + kProducerRegisters == 512);

// The blocks of a cluster have other rows of the same request and share what they load. The groups
// of rows of a request come after each other; the heads of a sparse request, one query token, are
// one.
template <class Params>
__device__ __forceinline__ int first_row_of_block(const Params& params, int rank) {
  const int cluster = blockIdx.x / params.shape.cluster;
  const int group = Params::kIsSparse ? 0 : cluster % params.shape.groups;
  return (group * params.shape.cluster + rank) * kTileRows;
}
template <class Params>
__device__ __forceinline__ int part_of_block(const Params& params) {
  const int cluster = blockIdx.x / params.shape.cluster;
  return Params::kIsSparse ? cluster : cluster / params.shape.groups;
}

template <class Params, DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule,
          int kCluster>
__global__ void __launch_bounds__(kThreads, 1)
    attention_kernel(const __grid_constant__ Params params) {
  static_assert(kSchedule == Schedule::rows_m64 && kCluster <= kMaxCluster<kKv, kLoad>);
  using Format = rows_m64::Format<kQ, kKv>;
  using Out = typename ElementOf<kOut>::Type;
  using ProducerWarpgroup = typename ProducerWarpgroupOf<Format, kLoad, kCluster, Params>::Type;
  using Producer = typename ProducerWarpgroup::Producer;
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<SharedStorage<Format>*>(memory);
  const int rank = blockIdx.x % params.shape.cluster;
  const int first_row = first_row_of_block(params, rank);

  if (threadIdx.x == 0) {
    ProducerWarpgroup::init_staging(shared);
    shared.template init_barriers<Producer>(ProducerWarpgroup::work_tile_readers(params));
    if (Params::kIsSparse && params.query.by_tma) {
      cute::prefetch_tma_descriptor(&params.query.latent_map);
      cute::prefetch_tma_descriptor(&params.query.rope_map);
    }
  }
  if constexpr (kCluster == 1) {
    __syncthreads();
  } else {
    cute::cluster_sync();
  }
  // All blocks run at once, so those of the next kernel wait for a multiprocessor in any case.
  launch_dependent_grids();
  wait_for_prerequisite_grids();

  const int warpgroup = cutlass::canonical_warp_group_idx();
  if (warpgroup < 2) {
    cutlass::arch::warpgroup_reg_alloc<kPvRegisters>();
    if (threadIdx.x < kWarp) build_split_list<true>(params, shared.splits);
    const bool have_met =
        MmaPv<Format, Out, Producer::kBlocks, Params>(params, shared, warpgroup).run(first_row);
    combine_fused<Out, SharedStorage<Format>::kOfTiles>(params, shared.splits, shared.latent,
                                                        kCombineBarrier, have_met);
  } else if (warpgroup == 2) {
    cutlass::arch::warpgroup_reg_alloc<kLogitsRegisters>();
    constexpr bool kThreadsFill = kLoad == Load::gather;
    MmaQkSoftmax<Format, Producer::kBlocks, kThreadsFill, Params>(params, shared, first_row).run();
    grid_sync(params, shared.splits);
  } else {
    cutlass::arch::warpgroup_reg_dealloc<kProducerRegisters>();
    const int warp = warp_uniform(threadIdx.x / kWarp) - kConsumerWarpgroups * kWarps;
    ProducerWarpgroup::run(params, shared, {first_row, rank, part_of_block(params)}, warp);
    grid_sync(params, shared.splits);
  }
  // The other block of a cluster may still write into this one's shared memory.
  if constexpr (kCluster > 1) cute::cluster_sync();
}

}  // namespace mla::sm90::rows_m64
