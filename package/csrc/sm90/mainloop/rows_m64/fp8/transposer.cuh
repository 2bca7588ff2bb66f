// Transposes V of the tiles that TmaProducer stages, into the pipelines of the latent.
#pragma once

#include <cute/arch/copy_sm75.hpp>
#include <cute/arch/copy_sm90.hpp>

#include "sm90/mainloop/rows_m64/shared_storage.cuh"

namespace mla::sm90::rows_m64 {

// `kCluster` blocks stage together; each transposes all of it.
//
// A half is columns by tokens, 64 bytes a row, swizzled. Of every 16 tokens, four bytes that lie
// together are tokens 2j, 2j + 1, 2j + 8 and 2j + 9, for j from 0 to 3: in this order a thread of
// the logits has its P, and `ldmatrix` gives a lane two columns of those tokens.
template <class Format, int kCluster, class Params>
struct Transposer {
  using Element = typename Format::Element;
  static constexpr int kBlocks = 1;
  static constexpr int kWarps = 3;
  // A warp arrives for each chunk.
  static constexpr int kLatentArrivals = kHalfChunks * kWarp;
  static constexpr int kRopeArrivals = 1;  // nobody fills that pipeline
  static constexpr int kRowBytes = kTileTokens;

  const Params& params;
  SharedStorage<Format>& shared;
  const int first_row;

  // `kWarps` warps call this. Chunks go round among them, so that each has two or three of a tile,
  // and at least one of each half: a warp waits for every use of each stage.
  __device__ void run(int warp) {
    static_assert(kWarps <= kHalfChunks);
    uint32_t tile = 0;
    int first = warp;
    WorkTile work;
    for (WorkTileConsumer work_tiles(shared.work_tiles); work_tiles.next(work);) {
      for (int block = work.first_block; block < work.end_block; ++block, ++tile) {
        transpose_tile(tile, first, work.tokens - block * kTileTokens);
        first = first + 1 < kWarps ? first + 1 : 0;
      }
    }
  }

 private:
  static constexpr int kGroup = 16;  // columns, and tokens
  static constexpr int kUnits = kChunk / kGroup * (kTileTokens / kWarp);
  // What a lane has of a chunk: pairs of columns.
  using Pairs = uint32_t[kUnits][4];

  __device__ __forceinline__ void transpose_tile(uint32_t tile, int first, int tokens) {
    using Staging = typename Format::Staging;
    static_assert(Format::kLatentChunks % kWarps == kWarps - 1, "chunks do not go round");
    const PipelineState<Staging::kStages> staged(tile);
    shared.staging.full[staged.stage].wait(staged.phase);
    int written = 0;
#pragma unroll 1
    for (int chunk = first; chunk < Format::kLatentChunks; chunk += kWarps) {
      Pairs pairs;
      load(shared.staging.chunks[staged.stage][chunk], pairs);
      // The chunk before has been stored by the time that these loads take.
      if (chunk != first) publish(written);
      const auto half = latent_state<Format>(tile, chunk / kHalfChunks);
      shared.latent_empty[half.stage].wait(half.phase ^ 1);
      Element* const to = shared.latent[half.stage] + chunk % kHalfChunks * kChunkElements;
      if (tokens >= kTileTokens) {
        store<false>(pairs, to, tokens);
      } else {
        store<true>(pairs, to, tokens);
      }
      written = half.stage;
    }
    publish(written);
    __syncwarp();
    consumer_release<kCluster>(shared.staging.empty[staged.stage]);
  }

  __device__ __forceinline__ void publish(int stage) {
    cutlass::arch::fence_view_async_shared();
    shared.latent_full[stage].arrive();
  }

  // Loads a chunk, 16 columns of 32 tokens at a time.
  static __device__ __forceinline__ void load(Element* from, Pairs& pairs) {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t swizzle = lane / 2 % 4;
    char* const source = reinterpret_cast<char*>(from) + lane * kRowBytes;
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      uint32_t (&to)[4] = pairs[unit];
      cute::SM75_U16x8_LDSM_T::copy(
          *reinterpret_cast<cute::uint128_t*>(source + unit % 2 * kWarp * kRowBytes +
                                              (unit / 2 ^ swizzle) * kGroup),
          to[0], to[1], to[2], to[3]);
    }
  }

  // Stores it transposed. Tokens that do not exist become 0: an unused page may hold NaN, which P
  // of 0 would make NaN of the output.
  template <bool kHasTail>
  static __device__ __forceinline__ void store(const Pairs& pairs, Element* to, int tokens) {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t i = lane % 8;
    const uint32_t matrix = lane / 8;
    // A lane names a column to write. Half of the columns of a matrix are even and half are odd, or
    // the rows that it writes would meet in half of the banks.
    const uint32_t column = i * 2 + ((i / 4 ^ matrix) & 1);
    const uint32_t even_first = lane < kWarp / 2 ? 0x6420 : 0x7531;
    const uint32_t odd_first = lane < kWarp / 2 ? 0x7531 : 0x6420;
    const uint32_t swizzle = matrix / 2 ^ i % 4;
    char* const target = reinterpret_cast<char*>(to) + column * kRowBytes;
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const uint32_t (&own)[4] = pairs[unit];
      uint32_t words[4];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        words[k * 2] = __byte_perm(own[k * 2], own[k * 2 + 1], even_first);
        words[k * 2 + 1] = __byte_perm(own[k * 2], own[k * 2 + 1], odd_first);
        if constexpr (kHasTail) {
          const uint32_t exist = existing(tokens - unit % 2 * kWarp - k * kGroup);
          words[k * 2] &= exist;
          words[k * 2 + 1] &= exist;
        }
      }
      cute::SM90_U32x4_STSM_N::copy(
          words[0], words[1], words[2], words[3],
          *reinterpret_cast<cute::uint128_t*>(target + unit / 2 * kGroup * kRowBytes +
                                              (swizzle ^ unit % 2 * 2) * kGroup));
    }
  }

  // The bytes of a lane's word that are among the first `tokens` of sixteen.
  static __device__ __forceinline__ uint32_t existing(int tokens) {
    uint32_t mask = 0;
#pragma unroll
    for (int byte = 0; byte < 4; ++byte) {
      const int token = threadIdx.x % 4 * 2 + byte % 2 + byte / 2 * 8;
      if (token < tokens) mask |= 0xffu << byte * 8;
    }
    return mask;
  }
};

}  // namespace mla::sm90::rows_m64
