// A block's shared memory, with the barriers in it, is one struct. KV fills it: in
// exact arithmetic, more than half of Q is in registers to make room.
#pragma once

#include <cute/arch/cluster_sm90.hpp>

#include "sm90/combine/split_request.cuh"
#include "sm90/mainloop/rows_m64/fp8/format.cuh"
#include "sm90/scheduler/work_tile_pipeline.cuh"

namespace mla::sm90::rows_m64 {

inline constexpr int kConsumerWarpgroups = 3;
inline constexpr int kThreads = (kConsumerWarpgroups + 1) * kWarpgroup;

inline constexpr int kPStages = 2;

// Named barriers; 0 is that of the logits' warpgroup. CUTLASS adds 8, so that none is that of
// __syncthreads.
inline constexpr uint32_t kQueryBarrier = 1;    // of the warps that fill the KV pipelines
inline constexpr uint32_t kCombineBarrier = 2;  // of the two warpgroups of the output
inline constexpr uint32_t kFirstPvBarrier = 3;  // of one of them

template <class Format>
struct SharedStorage {
  using Element = typename Format::Element;
  static constexpr int kLatentStages = Format::kLatentStages;
  static constexpr int kRopeStages = Format::kRopeStages;

  alignas(1024) Element latent[kLatentStages][kHalfChunks * kChunkElements];
  // Keys without a chunk of their own have these stages for `present` only.
  static constexpr int kKeyChunkElements =
      Format::kHasKeyChunk && !Format::kMultipliesFp8 ? kChunkElements : 1;
  alignas(1024) Element rope[kRopeStages][kKeyChunkElements];
  static constexpr int kSharedQueryChunks = Format::kChunks - Format::kRegisterChunks;
  alignas(
      1024) Element q[std::max(kSharedQueryChunks, 1)][kSharedQueryChunks > 0 ? kChunkElements : 1];
  alignas(1024) Element p[kPStages][kChunkElements];
  // The bytes from `latent` on that are free when the roles have ended.
  static constexpr size_t kOfTiles = sizeof(latent) + sizeof(rope) + sizeof(q) + sizeof(p);
  float rescale[kPStages][kTileRows];      // the factor of the output before the tile
  float final_scale[kPStages][kTileRows];  // the factor of the output with a work tile's last tile
  int32_t rescales[kPStages][kWarps];      // whether any row of a warp has a factor other than 1
  alignas(8) uint32_t present[kRopeStages][2];  // a bit for each token
  int32_t first_row;                            // of the block's tile in a request
  WorkTile own_work[kWarps];                    // of the logits' warps, which lack registers for it
  WorkTilePipeline work_tiles;
  SplitRequest split_request;
  Barrier query_wanted[kRopeStages];  // by the stage that Q takes
  TransactionBarrier latent_full[kLatentStages];
  TransactionBarrier rope_full[kRopeStages];
  Barrier logits_done[kPStages];
  Barrier p_full[kPStages][kPParts<Format>];
  Barrier rows_finished[kPStages];  // what is stored of rows after their last P
  Barrier latent_empty[kLatentStages];
  Barrier rope_empty[kRopeStages];
  Barrier p_empty[kPStages];
  typename Format::Staging staging;

  // It is read anew each time, or the compiler keeps it and what follows from it in registers.
  __device__ __forceinline__ int tile_row_of_request() const {
    return *static_cast<const volatile int32_t*>(&first_row);
  }

  // One thread calls this. `Producer` fills the KV pipelines, in Producer::kBlocks blocks together,
  // and `producers` warps of its warpgroup read the work tiles.
  template <class Producer>
  __device__ __forceinline__ void init_barriers(int producers) {
    for (auto& barrier : query_wanted) barrier.init(1);
    for (auto& barrier : latent_full) barrier.init(Producer::kLatentArrivals);
    for (auto& barrier : rope_full) barrier.init(Producer::kRopeArrivals);
    for (auto& barrier : logits_done) barrier.init(kWarps);
    for (auto& parts : p_full) {
      for (auto& barrier : parts) barrier.init(kWarpgroup / 4);
    }
    for (auto& barrier : rows_finished) barrier.init(kWarpgroup / 4);
    for (auto& barrier : latent_empty) barrier.init(2 * Producer::kBlocks * kWarps);
    for (auto& barrier : rope_empty) barrier.init(Producer::kBlocks * kWarps);
    for (auto& barrier : p_empty) barrier.init(2 * kWarpgroup);
    work_tiles.init_barriers(kConsumerWarpgroups * kWarps + producers);
    cutlass::arch::fence_barrier_init();
  }
};

// Return the states of the KV pipelines for the halves of the latent and the rope columns of a
// block's `tile`-th tile.
template <class Format>
__device__ __forceinline__ PipelineState<Format::kLatentStages> latent_state(uint32_t tile,
                                                                             int half) {
  return PipelineState<Format::kLatentStages>(Format::kHalves * tile + half);
}
template <class Format>
__device__ __forceinline__ PipelineState<Format::kRopeStages> rope_state(uint32_t tile) {
  return PipelineState<Format::kRopeStages>(tile);
}

// Whether a work tile's Q is asked for before the work tile is known.
template <class Format, class Params>
__device__ __forceinline__ bool is_query_early(const Params& params, bool is_first) {
  if constexpr (Params::kIsSparse || Format::kDequantizes) return false;
  return is_first && params.query.first_is_early;
}

// Whether a work tile of so many blocks of KV has Q: one without KV needs none, but an early one
// comes all the same.
template <class Format, class Params>
__device__ __forceinline__ bool has_query(const Params& params, bool is_first, int blocks) {
  return blocks > 0 || is_query_early<Format>(params, is_first);
}

// Waits until the stages of a tile are empty. In the first round, they are in the phase before.
template <class Format>
__device__ void producer_acquire(SharedStorage<Format>& shared, uint32_t tile) {
  for (int half = 0; half < Format::kHalves; ++half) {
    const auto latent = latent_state<Format>(tile, half);
    shared.latent_empty[latent.stage].wait(latent.phase ^ 1);
  }
  const auto rope = rope_state<Format>(tile);
  shared.rope_empty[rope.stage].wait(rope.phase ^ 1);
}

// A warp arrives `kTimes` at each of the `kBlocks` blocks that fill their stages together.
template <int kBlocks, int kTimes = 1>
__device__ __forceinline__ void consumer_release(Barrier& empty, int lane = threadIdx.x % kWarp) {
  if (lane >= kBlocks * kTimes) return;
  if constexpr (kBlocks == 1) {
    empty.arrive();
  } else {
    empty.arrive(lane / kTimes);
  }
}

// Does the same, with the first lane arriving at its own block.
template <int kBlocks>
__device__ __forceinline__ void consumer_release_own_first(Barrier& empty) {
  const int lane = threadIdx.x % kWarp;
  if constexpr (kBlocks == 1) {
    consumer_release<1>(empty);
  } else if (lane < kBlocks) {
    empty.arrive(lane ^ cute::block_rank_in_cluster());
  }
}

// Waits until all `uses` of a pipeline's stages have been released. In a cluster, consumers of both
// blocks release: those of the other block have arrived here for the last time then, and those of
// this block have read all that was written into it, so that the block may end.
//
// @pre The use of each stage before its last one is known to have been released.
template <int kStages>
__device__ __forceinline__ void producer_tail(Barrier (&empty)[kStages], uint32_t uses) {
#pragma unroll 1
  for (uint32_t i = 0; i < kStages; ++i) {
    const PipelineState<kStages> next(uses + i);
    empty[next.stage].wait(next.phase ^ 1);
  }
}

// Does so for the KV pipelines, after `tiles` tiles.
template <class Format>
__device__ __forceinline__ void producer_tail(SharedStorage<Format>& shared, uint32_t tiles) {
  producer_tail(shared.latent_empty, Format::kHalves * tiles);
  producer_tail(shared.rope_empty, tiles);
}

}  // namespace mla::sm90::rows_m64
