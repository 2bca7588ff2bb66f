// The kernel of the schedule `swap_ab`, for few query rows: KV tokens are the rows of a tile. Two
// warpgroups of a block consume tiles of KV in turn. Of a third, one warp produces tiles, or two
// that gather them, and two produce queries.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "common/traits.h"
#include "sm90/combine/combine_fused.cuh"
#include "sm90/common/pdl.cuh"
#include "sm90/mainloop/swap_ab/consumer.cuh"
#include "sm90/mainloop/swap_ab/producer_gather.cuh"
#include "sm90/mainloop/swap_ab/producer_gather_bytes.cuh"
#include "sm90/mainloop/swap_ab/producer_query.cuh"
#include "sm90/mainloop/swap_ab/producer_tma.cuh"

namespace mla::sm90::swap_ab {

template <class Params, DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kRows,
          int kDQk>
__global__ void __launch_bounds__(kThreads, 1)
    attention_kernel(const __grid_constant__ Params params) {
  using Format = swap_ab::Format<kQ, kKv, kLoad, kDQk>;
  using Shared = SharedStorage<Format, kRows>;
  static_assert(kSchedule == Schedule::swap_ab && Params::kIsSparse == Format::kIsSparse);
  static_assert(sizeof(Shared) <= 227 * 1024);
  using Out = typename ElementOf<kOut>::Type;
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    shared.init_barriers();
    cutlass::arch::fence_barrier_init();
    if constexpr (kLoad == Load::tma) {
      cute::prefetch_tma_descriptor(&params.latent_map);
      cute::prefetch_tma_descriptor(&params.rope_map);
    }
  }
  const Boundary first = first_boundary(params, threadIdx.x >= kConsumers * kWarpgroup);
  __syncthreads();
  // All blocks run at once, so those of the next kernel wait for a multiprocessor in any case.
  launch_dependent_grids();
  wait_for_prerequisite_grids();

  const int warpgroup = cutlass::canonical_warp_group_idx();
  if (warpgroup < kConsumers) {
    static_assert(kConsumers == 2);
    cutlass::arch::warpgroup_reg_alloc<kConsumerRegisters<kRows>>();
    prepare_combine(params, shared.split_request);
    Consumer<Format, Out, kRows, Params>(params, shared, warpgroup).run();
    combine_fused<Out, kLatent, sizeof(shared.kv)>(params, shared.split_request, 0, &shared.kv,
                                                   kCombineBarrier);
  } else {
    cutlass::arch::warpgroup_reg_dealloc<kProducerRegisters<kRows>>();
    const int warp = threadIdx.x / kWarp - kConsumers * kWarps;
    const auto work_tiles = [&] {
      return WorkTileProducerConsumer(shared.work_tiles,
                                      TileScheduler<Params>(params, blockIdx.y, first));
    };
    if (warp > 0 && warp <= kQueryWarps) {
      QueryProducer<Format, kRows, Params>{params, shared, warp - 1}.run(first.request);
    } else if constexpr (kLoad == Load::gather) {
      using Producer =
          std::conditional_t<Format::kReadsToRegisters, GatherBytesProducer<Format, kRows, Params>,
                             GatherProducer<Format, kRows, Params>>;
      if (warp == 0) {
        Producer{params, shared, 0}.run(work_tiles());
      } else {
        Producer{params, shared, 1}.run(WorkTileConsumer(shared.work_tiles));
      }
    } else if (warp == 0) {
      TmaProducer<Format, kRows, Params>{params, shared}.run(work_tiles());
    }
  }
}

}  // namespace mla::sm90::swap_ab
