// The kernel of the schedule `rows_m64`, for dense and sparse attention: 64 query rows are the rows
// of a tile. One warpgroup of a block produces tiles of Q and KV, one computes logits and P, and
// two sum up the output. What `Params` is decides where KV comes from and what ends a work tile.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include <cute/arch/cluster_sm90.hpp>

#include "common/traits.h"
#include "sm90/combine/combine_fused.cuh"
#include "sm90/common/pdl.cuh"
#include "sm90/mainloop/rows_m64/format_byte_rows.cuh"
#include "sm90/mainloop/rows_m64/fp8/mma_qk_softmax.cuh"
#include "sm90/mainloop/rows_m64/mma_pv.cuh"
#include "sm90/mainloop/rows_m64/mma_qk_softmax.cuh"
#include "sm90/mainloop/rows_m64/producer/producers.cuh"
#include "sm90/scheduler/stored_tile_scheduler.cuh"

namespace mla::sm90::rows_m64 {

// A thread has registers by its role; the four warpgroups have 512 together. In fp8 arithmetic, Q
// takes none of the logits', but products and P take some of the output's.
template <class Format>
struct Registers {
  static constexpr uint32_t kPv = Format::kMultipliesFp8 ? 168 : 160;
  static constexpr uint32_t kLogits = Format::kMultipliesFp8 ? 112 : 144;
  static constexpr uint32_t kProducer = Format::kMultipliesFp8 ? 64 : 48;
  static_assert(2 * kPv + kLogits + kProducer == 512);
};

// A warpgroup starts with 128.
template <uint32_t kRegisters>
__device__ __forceinline__ void set_registers() {
  if constexpr (kRegisters >= 512 / 4) {
    cutlass::arch::warpgroup_reg_alloc<kRegisters>();
  } else {
    cutlass::arch::warpgroup_reg_dealloc<kRegisters>();
  }
}

// What the two warpgroups of the output do.
template <class Format, class Out, int kBlocks, class Params>
__device__ __forceinline__ void sum_output(const Params& params, SharedStorage<Format>& shared,
                                           int warpgroup) {
  set_registers<Registers<Format>::kPv>();
  prepare_combine(params, shared.split_request);
  if (MmaPv<Format, Out, kBlocks, Params>(params, shared, warpgroup).run()) return;
  combine_fused<Out, Format::kHalves * kHalf, SharedStorage<Format>::kOfTiles>(
      params, shared.split_request, shared.tile_row_of_request(), shared.latent, kCombineBarrier);
}

// What the warpgroup of the logits does.
template <class Format, int kBlocks, int kCluster, bool kThreadsFill, class Params>
__device__ __forceinline__ void compute_logits(const Params& params, SharedStorage<Format>& shared,
                                               int first_row) {
  set_registers<Registers<Format>::kLogits>();
  if constexpr (Format::kMultipliesFp8) {
    MmaQkSoftmaxFp8<Format, kCluster, Params>(params, shared, first_row).run();
  } else {
    MmaQkSoftmax<Format, kBlocks, kThreadsFill, Params>(params, shared, first_row).run();
  }
}

template <class Params, DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule,
          ExtraKv kExtraKv, int kCluster, int kDQk, int kDV, ComputeDType kCompute>
__global__ void __launch_bounds__(kThreads, 1)
    attention_kernel(const __grid_constant__ Params params) {
  using Format = FormatOf<kQ, kKv, kDQk, kDV, kExtraKv, kCompute, kLoad, kCluster>;
  static_assert(kSchedule == Schedule::rows_m64 && kCluster <= Format::template kMaxCluster<kLoad>);
  static_assert(sizeof(SharedStorage<Format>) <= 227 * 1024);
  using Out = typename ElementOf<kOut>::Type;
  using Producers = ProducersOf<Format, kLoad, kCluster, Params>;
  using Producer = typename Producers::Producer;
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<SharedStorage<Format>*>(memory);
  // The blocks of a part have other rows of the same requests, and those of a cluster share what
  // they load.
  const int first_row = blockIdx.x * kTileRows;
  const int part = blockIdx.y;

  if (threadIdx.x == 0) {
    int readers = Producers::kWorkTileReaders;
    if constexpr (Producers::kStages) {
      shared.staging.init_barriers(kCluster);
    } else if constexpr (!Format::kDequantizes) {
      if (!params.query.by_tma) readers += 1;
    }
    shared.template init_barriers<Producer>(readers);
    shared.first_row = first_row;
  } else if (threadIdx.x == kWarp) {
    if (params.query.by_tma) {
      cute::prefetch_tma_descriptor(&params.query.latent_map);
      if constexpr (Format::kQueryHasRope) {
        cute::prefetch_tma_descriptor(&params.query.rope_map);
      }
    }
    if constexpr (!Params::kIsSparse && kLoad == Load::tma) {
      cute::prefetch_tma_descriptor(&params.latent_map);
      if constexpr (Format::kHasKeyChunk) cute::prefetch_tma_descriptor(&params.rope_map);
    }
  }
  constexpr int kFirstProducer = kConsumerWarpgroups * kWarpgroup;
  Boundary first = {};
  if constexpr (Producers::kGathersBytes) {
    if (threadIdx.x == kFirstProducer) {
      wait_for_prerequisite_grids();
      StoredTileScheduler<Params>(params, part, shared.staging.scheduler).begin(shared.work_tiles);
    }
  } else {
    first = first_boundary(params, threadIdx.x >= kFirstProducer);
  }
  // The barriers' fence is of the whole cluster; one more would take as long as an access to global
  // memory.
  if constexpr (kCluster > 1) cute::cluster_arrive_relaxed();
  __syncthreads();
  if constexpr (kCluster > 1) cute::cluster_wait();
  // All blocks run at once, so those of the next kernel wait for a multiprocessor in any case.
  launch_dependent_grids();
  wait_for_prerequisite_grids();

  const int warpgroup = cutlass::canonical_warp_group_idx();
  if (warpgroup < 2) {
    sum_output<Format, Out, Producer::kBlocks>(params, shared, warpgroup);
  } else if (warpgroup == 2) {
    compute_logits<Format, Producer::kBlocks, kCluster, kLoad == Load::gather>(params, shared,
                                                                               first_row);
  } else {
    set_registers<Registers<Format>::kProducer>();
    const int warp = warp_uniform(threadIdx.x / kWarp) - kConsumerWarpgroups * kWarps;
    const int rank = blockIdx.x % kCluster;
    if constexpr (Producers::kGathersBytes) {
      const StoredTileScheduler<Params> scheduler(params, part, shared.staging.scheduler);
      typename Format::Staging::Warp& own = shared.staging.warps[warp];
      Producer{params, shared, first_row, rank, warp, own}.run(
          StoredWorkTileConsumer(shared.work_tiles, scheduler, warp == 0, own.work_tiles));
    } else {
      const TileScheduler<Params> scheduler(params, part, first);
      if constexpr (Producers::kStages) {
        if (warp == 0) {
          TmaProducer<Format, kCluster, Params>{params, shared, first_row, rank}.run(
              WorkTileProducerConsumer(shared.work_tiles, scheduler), scheduler);
        } else {
          Producer{params, shared, first_row}.run(warp - 1);
        }
      } else if (warp == 0) {
        if (cute::elect_one_sync()) {
          WorkTileProducer work_tiles(shared.work_tiles, scheduler);
          while (work_tiles.produce()) continue;
        }
      } else if (warp == 1) {
        QueryProducer<Format, Producer, Params>{params, shared, first_row}.run(scheduler);
      } else if constexpr (kLoad == Load::gather) {
        Producer{params, shared, first_row}.run(warp - 2);
      } else if (warp == 2) {
        Producer{params, shared, first_row, rank}.run(WorkTileConsumer(shared.work_tiles),
                                                      scheduler);
      }
    }
  }
}

}  // namespace mla::sm90::rows_m64
