// The kernel of sparse attention: of each block, one warpgroup loads the rows that a token selects,
// one weighs them, two sum up the output.
#pragma once

#include <cute/arch/cluster_sm90.hpp>
#include <type_traits>

#include "common/traits.h"
#include "sm90/common/pdl.cuh"
#include "sm90/mainloop/rows_m64/producer_gather.cuh"
#include "sm90/mainloop/rows_m64/producer_gather_dequantize.cuh"
#include "sm90/mainloop/rows_m64/roles.cuh"
#include "sm90/scheduler/stored_tile_scheduler.cuh"

namespace mla::sm90::sparse {

// Blocks of a cluster have other heads of the same tokens, and widen their rows together.
template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kCluster>
__global__ void __launch_bounds__(kThreads, 1)
    attend_selected(const __grid_constant__ SelectedParams params) {
  static_assert(kLoad == Load::gather && kSchedule == Schedule::rows_m64);
  using Format = mla::sm90::Format<kQ, kKv>;
  static_assert(kCluster == 1 || Format::kWidens);
  using Out = typename ElementOf<kOut>::Type;
  using Rows = GatherLoader<Format, SelectedParams>;
  using Filler = std::conditional_t<Format::kWidens, RowWidener<kCluster>, Rows>;
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<SharedMemory<Format>*>(memory);
  const int rank = blockIdx.x % params.shape.cluster;
  const int part = blockIdx.x / params.shape.cluster;
  const int first_row = rank * kTileRows;

  // Tensor cores read what threads have stored.
  constexpr bool kGathers = true;
  const Block<Format, Out, Filler, kCluster, kGathers, SelectedParams> block = {params, shared,
                                                                                first_row};
  if (threadIdx.x == 0) {
    int loaders = Filler::kWarps;
    if constexpr (!Format::kWidens) {
      if (!params.query.by_tma) loaders += 1;
    }
    block.init_barriers(loaders);
    if (params.query.by_tma) {
      cute::prefetch_tma_descriptor(&params.query.latent_map);
      cute::prefetch_tma_descriptor(&params.query.rope_map);
    }
  }
  if constexpr (kCluster == 1) {
    __syncthreads();
  } else {
    cute::cluster_sync();
  }
  launch_dependents();
  wait_for_prerequisites();

  const int warpgroup = cutlass::canonical_warp_group_idx();
  if (warpgroup < 2) {
    block.accumulate(warpgroup);
  } else if (warpgroup == 2) {
    block.weigh();
  } else {
    cutlass::arch::warpgroup_reg_dealloc<block.kFillerRegisters>();
    // From one lane, so that the compiler knows that it is the same for a warp.
    const int warp = __shfl_sync(~0u, threadIdx.x / kWarp, 0) - block.kComputeWarpgroups * kWarps;
    if constexpr (Format::kWidens) {
      StoredWalk walk(params, part, shared.codes.walk);
      if (warp == 0 && threadIdx.x % kWarp == 0) walk.begin();
      RowBuffers::Own& own = shared.codes.of_warp[warp];
      Filler{params, shared, first_row, rank, warp, own}.run(
          SharedItems(shared.items, walk, warp == 0, own.turn));
    } else if (warp == 0) {
      if (cute::elect_one_sync()) {
        ItemWriter items(shared.items, Walk<SelectedParams>(params, part));
        while (items.write()) continue;
      }
    } else if (warp == 1) {
      if (!params.query.by_tma) {
        QueryLoader<Format, Filler, SelectedParams>{params, shared, first_row}.run();
      }
    } else {
      Filler{params, shared, first_row}.run(warp - 2);
    }
    meet(params, shared.splits);
  }
  // The other block may still write into this one's shared memory.
  if constexpr (kCluster > 1) cute::cluster_sync();
}

}  // namespace mla::sm90::sparse
