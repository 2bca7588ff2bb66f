// The kernel: of each block, one warpgroup loads tiles of KV, one weighs them, two sum up the
// output.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include <cute/arch/cluster_sm90.hpp>
#include <type_traits>

#include "common/traits.h"
#include "sm90/common/pdl.cuh"
#include "sm90/mainloop/rows_m64/producer_dequantize.cuh"
#include "sm90/mainloop/rows_m64/producer_gather.cuh"
#include "sm90/mainloop/rows_m64/producer_query.cuh"
#include "sm90/mainloop/rows_m64/producer_tma.cuh"
#include "sm90/mainloop/rows_m64/roles.cuh"

namespace mla::sm90 {
namespace decode {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kCluster>
__global__ void __launch_bounds__(kThreads, 1) attend(const __grid_constant__ Params params) {
  using Format = mla::sm90::Format<kQ, kKv>;
  using Out = typename ElementOf<kOut>::Type;
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<SharedMemory<Format>*>(memory);
  // Blocks of a cluster share what they load, unless each gathers its own.
  constexpr bool kGathers = kLoad == Load::gather;
  static_assert(!kGathers || (kCluster == 1 && !Format::kWidens));
  using Loader =
      std::conditional_t<kGathers, GatherLoader<Format, Params>, TmaLoader<Format, kCluster>>;
  // What fills the places that tensor cores read, and the blocks that do so together.
  using Filler = std::conditional_t<Format::kWidens, Widener<Format, kCluster>, Loader>;
  constexpr int kBlocks = Format::kWidens ? 1 : kCluster;
  const int rank = blockIdx.x % params.shape.cluster;
  const int cluster = blockIdx.x / params.shape.cluster;
  const int group = cluster % params.shape.groups;
  const int first_row = (group * params.shape.cluster + rank) * kTileRows;

  const Block<Format, Out, Filler, kBlocks, kGathers, Params> block = {params, shared, first_row};
  if (threadIdx.x == 0) {
    int loaders = Loader::kWarps;
    if constexpr (Format::kWidens) {
      loaders += Filler::kWarps;
      shared.codes.init_barriers(kCluster);
    } else if (!params.query.by_tma) {
      loaders += 1;
    }
    block.init_barriers(loaders);
  }
  if constexpr (kCluster == 1) {
    __syncthreads();
  } else {
    cute::cluster_sync();
  }
  // All blocks run at once, so those of the merge wait for a multiprocessor in any case.
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
    const Walk walk(params, cluster / params.shape.groups);
    if constexpr (Format::kWidens) {
      if (warp == 0) {
        Loader{params, shared, rank, first_row}.run(ItemSource(shared.items, walk));
      } else {
        Filler{params, shared, first_row}.run(warp - 1);
      }
    } else if (warp == 0) {
      if (cute::elect_one_sync()) {
        ItemWriter items(shared.items, walk);
        while (items.write()) continue;
      }
    } else if (warp == 1) {
      if (!params.query.by_tma)
        QueryLoader<Format, Loader, Params>{params, shared, first_row}.run();
    } else if constexpr (kGathers) {
      Loader{params, shared, first_row}.run(warp - 2);
    } else if (warp == 2) {
      Loader{params, shared, rank, first_row}.run(ItemReader(shared.items));
    }
    meet(params, shared.splits);
  }
  // The other block may still write into this one's shared memory.
  if constexpr (kCluster > 1) cute::cluster_sync();
}

}  // namespace decode
}  // namespace mla::sm90
