// The kernel of the schedule `swap_ab`, for few queries and e4m3 caches: of each block, two
// warpgroups compute tiles of KV in turn, and the warps of a third load them and the queries.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "common/traits.h"
#include "sm90/combine/combine_fused.cuh"
#include "sm90/common/pdl.cuh"
#include "sm90/mainloop/swap_ab/mma.cuh"
#include "sm90/mainloop/swap_ab/producer_query.cuh"
#include "sm90/mainloop/swap_ab/producer_tma.cuh"

namespace mla::sm90::decode {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kRows>
__global__ void __launch_bounds__(stream::kThreads, 1)
    attend_stream(const __grid_constant__ Params params) {
  static_assert(kQ == DType::bf16 && kKv == DType::e4m3 && kLoad == Load::tma);
  using Out = typename ElementOf<kOut>::Type;
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<stream::SharedMemory<kRows>*>(memory);
  if (threadIdx.x == 0) {
    shared.init_barriers();
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  // All blocks run at once, so those of the merge wait for a multiprocessor in any case.
  launch_dependents();
  wait_for_prerequisites();

  const int warpgroup = cutlass::canonical_warp_group_idx();
  if (warpgroup < stream::kWorkers) {
    static_assert(stream::kWorkers == 2);
    cutlass::arch::warpgroup_reg_alloc<stream::kWorkerRegisters<kRows>>();
    if (threadIdx.x < kWarp) list_splits<false>(params, shared.splits);
    stream::Worker<Out, kRows>(params, shared, warpgroup).run();
    meet_and_merge<Out, sizeof(shared.tiles)>(params, shared.splits, shared.tiles,
                                              stream::kAllWorkers, false);
  } else {
    cutlass::arch::warpgroup_reg_dealloc<stream::kLoaderRegisters<kRows>>();
    const int warp = threadIdx.x / kWarp - stream::kWorkers * kWarps;
    if (warp == 0) {
      stream::TileLoader<kRows>{params, shared}.run(
          ItemSource(shared.items, Walk(params, static_cast<int>(blockIdx.x))));
    } else {
      stream::QueryLoader<kRows>{params, shared, warp - 1}.run();
    }
    meet(params, shared.splits);
  }
}

}  // namespace mla::sm90::decode
