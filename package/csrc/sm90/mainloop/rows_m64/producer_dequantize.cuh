// Widens KV: from codes into the rings that tensor cores read.
#pragma once

#include "sm90/mainloop/rows_m64/producer_query.cuh"
#include "sm90/mainloop/rows_m64/shared_storage.cuh"

namespace mla::sm90 {

// `kCluster` blocks load codes together; each widens all of them.
template <class Format, int kCluster>
struct Widener {
  using Element = typename Format::Element;
  static constexpr int kWarps = 3;
  static constexpr int kQueryWaiters = kWarps;
  // Of a warp, for each chunk.
  static constexpr int kLatentArrivals = kHalfChunks * kWarp;
  static constexpr int kRopeArrivals = kWarp;

  const Params& params;
  SharedMemory<Format>& shared;
  const int first_row;

  // By `kWarps` warps, each of which widens every third chunk; `warp` is one of them.
  __device__ void run(int warp) {
    uint32_t tile = 0;   // of the rings
    uint32_t phase = 0;  // of the codes, in whose places Q never is
    Item item;
    for (ItemReader items(shared.items); items.next(item);) {
      const int blocks = item.end - item.first;
      if (blocks <= 0) continue;
      QueryLoader<Format, Widener, Params>{params, shared, first_row}.begin(tile, item.request,
                                                                            warp);
      ++tile;
#pragma unroll 1
      for (const uint32_t end = tile + blocks; tile != end; ++tile, phase ^= 1) {
        widen_tile(tile, phase, warp);
      }
    }
  }

 private:
  // A warp has chunks of both halves, and so waits for every use of their places. The place of the
  // rope columns concerns one warp alone; the others wait for it with Q only, and cannot mistake
  // one use for another then: the tile before the last has left the rings.
  __device__ void widen_tile(uint32_t tile, uint32_t phase, int warp) {
    const bool leads = threadIdx.x % kWarp == 0;
    const auto rope = rope_place<Format>(tile);
#pragma unroll 1
    for (int chunk = warp; chunk < kChunks; chunk += kWarps) {
      const bool is_rope = chunk == kRopeChunk;
      const auto half = half_place<Format>(tile, chunk / kHalfChunks);
      Barrier& empty = is_rope ? shared.rope_empty[rope.slot] : shared.latent_empty[half.slot];
      FullBarrier& full = is_rope ? shared.rope_full[rope.slot] : shared.latent_full[half.slot];
      empty.wait((is_rope ? rope.phase : half.phase) ^ 1);
      shared.codes.full[chunk].wait(phase);
      widen(chunk,
            is_rope ? shared.rope[rope.slot]
                    : shared.latent[half.slot] + chunk % kHalfChunks * kAtomElements,
            is_rope ? 1 : kHalfChunks);
      if (is_rope && leads) {
        reinterpret_cast<uint64_t&>(shared.present[rope.slot]) = shared.codes.present;
      }
      cutlass::arch::fence_view_async_shared();
      full.arrive();
      __syncwarp();
      release<kCluster>(shared.codes.empty[chunk]);
    }
  }

  // Into one of `together` chunks.
  __device__ __forceinline__ void widen(int chunk, Element* rows, int together) {
    constexpr int kCodes = sizeof(uint4);    // that a lane takes at once
    constexpr int kLanes = kChunk / kCodes;  // of a token
    constexpr int kTokens = kWarp / kLanes;  // at once
    constexpr int kPieces = kChunk * sizeof(Element) / sizeof(uint4);
    constexpr int kRounds = kTileTokens / kTokens;
    const int lane = threadIdx.x % kWarp;
    const auto* const from = reinterpret_cast<const uint4*>(shared.codes.chunks[chunk]) + lane;
    auto* const pieces = reinterpret_cast<uint4*>(rows) + lane / kLanes * kPieces;
    const int piece = lane % kLanes * 2 ^ lane / kLanes;
    static_assert(kTokens == kGroup);  // so that the swizzle of a lane's tokens is the same
    // The next ones are on their way.
    uint4 codes = from[0];
    uint4 next = from[kWarp];
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const uint4 after = i + 2 < kRounds ? from[(i + 2) * kWarp] : next;
      uint4* const to = pieces + i * together * (kTokens * kPieces);
      to[piece] = widened(codes.x, codes.y);
      to[piece ^ 1] = widened(codes.z, codes.w);
      codes = next;
      next = after;
    }
  }

  static __device__ __forceinline__ uint4 widened(uint32_t low, uint32_t high) {
    uint4 pairs;
    sm90::widen(low, pairs.x, pairs.y);
    sm90::widen(high, pairs.z, pairs.w);
    return pairs;
  }
};

}  // namespace mla::sm90
