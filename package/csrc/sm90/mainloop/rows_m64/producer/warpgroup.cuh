// What each warp of the producer warpgroup does: schedule work tiles, load Q, load KV, dequantize.
#pragma once

#include "sm90/mainloop/rows_m64/producer/dequantize.cuh"
#include "sm90/mainloop/rows_m64/producer/gather.cuh"
#include "sm90/mainloop/rows_m64/producer/gather_dequantize.cuh"
#include "sm90/mainloop/rows_m64/producer/tma.cuh"
#include "sm90/scheduler/stored_tile_scheduler.cuh"

namespace mla::sm90::rows_m64 {

// What a block is given: a tile of query rows, its rank in the cluster, and the part of the KV that
// the cluster computes.
struct BlockCoordinates {
  int first_row;
  int rank;
  int part;
};

// Where tensor cores read KV as it is: a thread schedules, a warp copies Q if TMA cannot, and the
// others load KV.
template <class Format, class Producer_, int kCluster, class Params>
struct LoadingWarpgroup {
  using Producer = Producer_;

  static __device__ __forceinline__ int work_tile_readers(const Params& params) {
    int readers = Producer::kWarps;
    if (!params.query.by_tma) readers += 1;
    return readers;
  }
  static __device__ __forceinline__ void init_staging(SharedStorage<Format>&) {}

  static __device__ __forceinline__ void run(const Params& params, SharedStorage<Format>& shared,
                                             const BlockCoordinates& block, int warp) {
    if (warp == 0) {
      if (cute::elect_one_sync()) {
        WorkTileProducer work_tiles(shared.work_tiles, TileScheduler<Params>(params, block.part));
        while (work_tiles.produce()) continue;
      }
    } else if (warp == 1) {
      if (!params.query.by_tma) {
        QueryProducer<Format, Producer, Params>{params, shared, block.first_row}.run();
      }
    } else if constexpr (Producer::kWarps == 2) {
      Producer{params, shared, block.first_row}.run(warp - 2);
    } else if (warp == 2) {
      Producer{params, shared, block.first_row, block.rank}.run(
          WorkTileConsumer(shared.work_tiles));
    }
  }
};

// e4m3: one warp schedules and stages chunks by TMA, the others dequantize them.
template <class Format, int kCluster, class Params>
struct DequantizingWarpgroup {
  using Loader = TmaProducer<Format, kCluster, Params>;
  using Producer = Dequantizer<Format, kCluster, Params>;

  static __device__ __forceinline__ int work_tile_readers(const Params&) {
    return Loader::kWarps + Producer::kWarps;
  }
  static __device__ __forceinline__ void init_staging(SharedStorage<Format>& shared) {
    shared.staging.init_barriers(kCluster);
  }

  static __device__ __forceinline__ void run(const Params& params, SharedStorage<Format>& shared,
                                             const BlockCoordinates& block, int warp) {
    if (warp == 0) {
      Loader{params, shared, block.first_row, block.rank}.run(
          WorkTileProducerConsumer(shared.work_tiles, TileScheduler<Params>(params, block.part)));
    } else {
      Producer{params, shared, block.first_row}.run(warp - 1);
    }
  }
};

// fp8_ds_mla: all warps gather rows and dequantize them, and the first one schedules.
template <class Format, int kCluster, class Params>
struct GatherDequantizingWarpgroup {
  using Producer = GatherDequantizer<Format, kCluster, Params>;

  static __device__ __forceinline__ int work_tile_readers(const Params&) {
    return Producer::kWarps;
  }
  static __device__ __forceinline__ void init_staging(SharedStorage<Format>&) {}

  static __device__ __forceinline__ void run(const Params& params, SharedStorage<Format>& shared,
                                             const BlockCoordinates& block, int warp) {
    StoredTileScheduler<Params> scheduler(params, block.part, shared.staging.scheduler);
    if (warp == 0 && threadIdx.x % kWarp == 0) scheduler.begin();
    GatherStaging::Warp& own = shared.staging.warps[warp];
    Producer{params, shared, block.first_row, block.rank, warp, own}.run(
        StoredWorkTileConsumer(shared.work_tiles, scheduler, warp == 0, own.work_tiles));
  }
};

// The producer warpgroup of a cache format and a load.
template <class Format, Load kLoad, int kCluster, class Params>
struct ProducerWarpgroupOf {
  static_assert(kLoad == Load::tma);
  using Type = LoadingWarpgroup<Format, TmaProducer<Format, kCluster, Params>, kCluster, Params>;
};
template <class Format, int kCluster, class Params>
struct ProducerWarpgroupOf<Format, Load::gather, kCluster, Params> {
  static_assert(kCluster == 1);
  using Type = LoadingWarpgroup<Format, GatherProducer<Format, Params>, kCluster, Params>;
};
template <int kCluster, class Params>
struct ProducerWarpgroupOf<Format<DType::bf16, DType::e4m3>, Load::tma, kCluster, Params> {
  using Type = DequantizingWarpgroup<Format<DType::bf16, DType::e4m3>, kCluster, Params>;
};
template <int kCluster, class Params>
struct ProducerWarpgroupOf<Format<DType::bf16, DType::fp8_ds_mla>, Load::gather, kCluster, Params> {
  using Type =
      GatherDequantizingWarpgroup<Format<DType::bf16, DType::fp8_ds_mla>, kCluster, Params>;
};

}  // namespace mla::sm90::rows_m64
