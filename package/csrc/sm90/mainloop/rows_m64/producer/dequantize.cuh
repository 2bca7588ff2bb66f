// Dequantizes the chunks of e4m3 that TmaProducer stages into the KV pipelines.
#pragma once

#include "sm90/mainloop/rows_m64/producer/query.cuh"

namespace mla::sm90::rows_m64 {

// `kCluster` blocks stage together; each dequantizes all of it.
template <class Format, int kCluster, class Params>
struct Dequantizer {
  using Element = typename Format::Element;
  static constexpr int kBlocks = 1;
  static constexpr int kWarps = 3;
  static constexpr int kQueryWaiters = kWarps;
  // A warp arrives for each chunk.
  static constexpr int kLatentArrivals = kHalfChunks * kWarp;
  static constexpr int kRopeArrivals = kWarp;

  const Params& params;
  SharedStorage<Format>& shared;
  const int first_row;

  // `kWarps` warps call this, of which each dequantizes every third chunk.
  __device__ void run(int warp) {
    uint32_t tile = 0;   // of the KV pipelines
    uint32_t phase = 0;  // of the staging, which Q does not pass through
    WorkTile work;
    for (WorkTileConsumer work_tiles(shared.work_tiles); work_tiles.next(work);) {
      const int blocks = work.end_block - work.first_block;
      if (blocks <= 0) continue;
      QueryProducer<Format, Dequantizer, Params>{params, shared, first_row}.begin(tile, work, warp);
      ++tile;
#pragma unroll 1
      for (const uint32_t end = tile + blocks; tile != end; ++tile, phase ^= 1) {
        dequantize_tile(tile, phase, warp);
      }
    }
  }

 private:
  // A warp has chunks of each half, and so waits for every use of their stages. Only one warp has
  // the last chunk and says which tokens exist; the others wait for the stage of that with Q alone,
  // and cannot mistake one use for another then, because the tile whose use was before the last
  // has left the pipelines.
  static_assert(2 * Format::kRopeStages * Format::kHalves >= Format::kLatentStages);
  __device__ void dequantize_tile(uint32_t tile, uint32_t phase, int warp) {
    const bool leads = threadIdx.x % kWarp == 0;
#pragma unroll 1
    for (int chunk = warp; chunk < Format::kChunks; chunk += kWarps) {
      const bool is_rope = Format::kHasKeyChunk && chunk == Format::kKeyChunk;
      // Or the compiler keeps what follows from `tile` in registers that the warp lacks.
      if constexpr (Format::kHalves == 1) asm volatile("" : "+r"(tile));
      const auto rope = rope_state<Format>(tile);
      const auto half = latent_state<Format>(tile, chunk / kHalfChunks);
      Barrier& empty = is_rope ? shared.rope_empty[rope.stage] : shared.latent_empty[half.stage];
      TransactionBarrier& full =
          is_rope ? shared.rope_full[rope.stage] : shared.latent_full[half.stage];
      empty.wait((is_rope ? rope.phase : half.phase) ^ 1);
      shared.staging.full[chunk].wait(phase);
      dequantize(chunk,
                 is_rope ? shared.rope[rope.stage]
                         : shared.latent[half.stage] + chunk % kHalfChunks * kAtomElements,
                 is_rope ? 1 : kHalfChunks);
      if (chunk + 1 == Format::kChunks) {
        if constexpr (!Format::kHasKeyChunk) shared.rope_empty[rope.stage].wait(rope.phase ^ 1);
        if (leads) {
          reinterpret_cast<uint64_t&>(shared.present[rope.stage]) = shared.staging.present;
        }
        if constexpr (!Format::kHasKeyChunk) shared.rope_full[rope.stage].arrive();
      }
      cutlass::arch::fence_view_async_shared();
      full.arrive();
      __syncwarp();
      consumer_release<kCluster>(shared.staging.empty[chunk]);
    }
  }

  // Dequantizes a staged chunk into one of `together` chunks that lie together.
  __device__ __forceinline__ void dequantize(int chunk, Element* rows, int together) {
    constexpr int kAtOnce = sizeof(uint4);    // elements of a lane
    constexpr int kLanes = kChunk / kAtOnce;  // of a token
    constexpr int kTokens = kWarp / kLanes;   // at once
    constexpr int kVectors = kChunk * sizeof(Element) / sizeof(uint4);
    constexpr int kRounds = kTileTokens / kTokens;
    const int lane = threadIdx.x % kWarp;
    const auto* const from = reinterpret_cast<const uint4*>(shared.staging.chunks[chunk]) + lane;
    auto* const vectors = reinterpret_cast<uint4*>(rows) + lane / kLanes * kVectors;
    const int vector = lane % kLanes * 2 ^ lane / kLanes;
    static_assert(kTokens == kSwizzleRows);  // so that the swizzle of a lane's tokens is the same
    // Two reads are ahead of their use.
    uint4 fp8 = from[0];
    uint4 next = from[kWarp];
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const uint4 after = i + 2 < kRounds ? from[(i + 2) * kWarp] : next;
      uint4* const to = vectors + i * together * (kTokens * kVectors);
      to[vector] = to_fp16(fp8.x, fp8.y);
      to[vector ^ 1] = to_fp16(fp8.z, fp8.w);
      fp8 = next;
      next = after;
    }
  }

  static __device__ __forceinline__ uint4 to_fp16(uint32_t low, uint32_t high) {
    uint4 pairs;
    e4m3_to_fp16(low, pairs.x, pairs.y);
    e4m3_to_fp16(high, pairs.z, pairs.w);
    return pairs;
  }
};

}  // namespace mla::sm90::rows_m64
