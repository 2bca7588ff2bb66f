// The kernel of the schedule `swap_ab`, for few query rows over e4m3: KV tokens are the rows of a
// tile. Two warpgroups of a block consume tiles of KV in turn, and the warps of a third produce
// them and the queries.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "common/traits.h"
#include "sm90/combine/combine_fused.cuh"
#include "sm90/common/pdl.cuh"
#include "sm90/mainloop/swap_ab/consumer.cuh"
#include "sm90/mainloop/swap_ab/producer_query.cuh"
#include "sm90/mainloop/swap_ab/producer_tma.cuh"

namespace mla::sm90::swap_ab {

template <class Params, DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kRows>
__global__ void __launch_bounds__(kThreads, 1)
    attention_kernel(const __grid_constant__ Params params) {
  static_assert(kQ == DType::bf16 && kKv == DType::e4m3 && kLoad == Load::tma &&
                kSchedule == Schedule::swap_ab);
  using Out = typename ElementOf<kOut>::Type;
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<SharedStorage<kRows>*>(memory);
  if (threadIdx.x == 0) {
    shared.init_barriers();
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  // All blocks run at once, so those of the next kernel wait for a multiprocessor in any case.
  launch_dependent_grids();
  wait_for_prerequisite_grids();

  const int warpgroup = cutlass::canonical_warp_group_idx();
  if (warpgroup < kConsumers) {
    static_assert(kConsumers == 2);
    cutlass::arch::warpgroup_reg_alloc<kConsumerRegisters<kRows>>();
    if (threadIdx.x < kWarp) build_split_list<false>(params, shared.splits);
    Consumer<Out, kRows, Params>(params, shared, warpgroup).run();
    combine_fused<Out, sizeof(shared.kv)>(params, shared.splits, shared.kv, kAllConsumers, false);
  } else {
    cutlass::arch::warpgroup_reg_dealloc<kProducerRegisters<kRows>>();
    const int warp = threadIdx.x / kWarp - kConsumers * kWarps;
    if (warp == 0) {
      TmaProducer<kRows, Params>{params, shared}.run(WorkTileProducerConsumer(
          shared.work_tiles, TileScheduler<Params>(params, static_cast<int>(blockIdx.x))));
    } else {
      QueryProducer<kRows, Params>{params, shared, warp - 1}.run();
    }
    grid_sync(params, shared.splits);
  }
}

}  // namespace mla::sm90::swap_ab
