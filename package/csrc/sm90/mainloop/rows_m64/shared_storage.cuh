// Shared memory of a block and the barriers in it.
//
// KV fills it. More than half of Q is in registers to make room.
#pragma once

#include <cute/tensor.hpp>

#include "common/dtype.h"
#include "sm90/combine/split_list.cuh"
#include "sm90/common/elements.cuh"
#include "sm90/common/pipeline.cuh"
#include "sm90/common/tile.h"
#include "sm90/scheduler/work_tile_pipeline.cuh"

namespace mla::sm90 {

inline constexpr int kThreads = 4 * kWarpgroup;
inline constexpr int kHalf = kLatent / 2;  // columns of the output that a warpgroup computes
inline constexpr int kHalfChunks = kHalf / kChunk;
inline constexpr int kChunkElements = kTileTokens * kChunk;
inline constexpr int kAtomElements = kGroup * kChunk;

struct NoCodes {};
// The chunks of a tile as they are in memory.
struct CodeChunks {
  alignas(1024) uint8_t chunks[kChunks][kChunkElements];
  uint64_t present;  // with the rope columns: a bit for each token
  FullBarrier full[kChunks];
  Barrier empty[kChunks];

  // Of `blocks` that load together.
  __device__ void init_barriers(int blocks) {
    for (auto& barrier : full) barrier.init(1);
    for (auto& barrier : empty) barrier.init(blocks);
  }
};

// What tensor cores multiply, and how many places KV has: two and a half tiles, whose latent is two
// halves.
template <DType kQ, DType kKv>
struct Format {
  static_assert(kQ == kKv);
  using Element = typename ElementOf<kQ>::Type;
  using Codes = NoCodes;  // that are widened on their way to the tensor cores
  static constexpr bool kWidens = false;
  static constexpr bool kNarrowsQuery = false;
  static constexpr int kHalfSlots = 5;
  static constexpr int kRopeSlots = 2;
};
// Codes are widened to fp16, which has every e4m3; a tile of codes is on its way meanwhile.
template <>
struct Format<DType::bf16, DType::e4m3> {
  using Element = cute::half_t;
  using Codes = CodeChunks;
  static constexpr bool kWidens = true;
  static constexpr bool kNarrowsQuery = true;
  static constexpr int kHalfSlots = 4;
  static constexpr int kRopeSlots = 1;
};

inline constexpr int kWeightSlots = 2;

inline constexpr uint32_t kMergeBarrier = 2;  // of the two warpgroups of the output

// Chunks of Q that are in registers; the rest is in shared memory.
inline constexpr int kRegisterChunks = 5;

template <class Format>
struct SharedMemory {
  using Element = typename Format::Element;
  static constexpr int kHalfSlots = Format::kHalfSlots;
  static constexpr int kRopeSlots = Format::kRopeSlots;

  alignas(1024) Element latent[kHalfSlots][kHalfChunks * kChunkElements];
  alignas(1024) Element rope[kRopeSlots][kChunkElements];
  alignas(1024) Element q[kChunks - kRegisterChunks][kChunkElements];
  alignas(1024) Element weights[kWeightSlots][kChunkElements];
  // Free where the roles have ended.
  static constexpr size_t kOfTiles = sizeof(latent) + sizeof(rope) + sizeof(q) + sizeof(weights);
  float scale[kWeightSlots][kTileRows];   // of what was summed before the tile
  float factor[kWeightSlots][kTileRows];  // of the whole sum, with an item's last tile
  int32_t rescales[kWeightSlots][kWarps];
  alignas(8) uint32_t present[kRopeSlots][2];  // a bit for each token
  ItemRing items;
  SplitList splits;
  Barrier query_wanted;
  FullBarrier latent_full[kHalfSlots];
  FullBarrier rope_full[kRopeSlots];
  Barrier logits_done[kWeightSlots];
  Barrier weights_full[kWeightSlots];
  Barrier latent_empty[kHalfSlots];
  Barrier rope_empty[kRopeSlots];
  Barrier weights_empty[kWeightSlots];
  typename Format::Codes codes;
};
static_assert(sizeof(SharedMemory<Format<DType::bf16, DType::bf16>>) <= 227 * 1024);
static_assert(sizeof(SharedMemory<Format<DType::bf16, DType::e4m3>>) <= 227 * 1024);

// Where the latent halves and the rope columns of a block's `tile`-th tile are.
template <class Format>
__device__ __forceinline__ Place<Format::kHalfSlots> half_place(uint32_t tile, int half) {
  return Place<Format::kHalfSlots>(2 * tile + half);
}
template <class Format>
__device__ __forceinline__ Place<Format::kRopeSlots> rope_place(uint32_t tile) {
  return Place<Format::kRopeSlots>(tile);
}

// Until a tile may be loaded.
template <class Format>
__device__ void wait_until_empty(SharedMemory<Format>& shared, uint32_t tile) {
  for (int half = 0; half < 2; ++half) {
    const auto place = half_place<Format>(tile, half);
    shared.latent_empty[place.slot].wait(place.phase ^ 1);
  }
  const auto rope = rope_place<Format>(tile);
  shared.rope_empty[rope.slot].wait(rope.phase ^ 1);
}

// By a warp, `kTimes` for each of `kBlocks`, which fill their places together.
template <int kBlocks, int kTimes = 1>
__device__ __forceinline__ void release(Barrier& empty) {
  const int lane = threadIdx.x % kWarp;
  if (lane >= kBlocks * kTimes) return;
  if constexpr (kBlocks == 1) {
    empty.arrive();
  } else {
    empty.arrive(lane / kTimes);
  }
}

// The same, the first lane for its own block.
template <int kBlocks>
__device__ __forceinline__ void release_own_first(Barrier& empty) {
  const int lane = threadIdx.x % kWarp;
  if constexpr (kBlocks == 1) {
    release<1>(empty);
  } else if (lane < kBlocks) {
    empty.arrive(lane ^ cute::block_rank_in_cluster());
  }
}

// Chunks of 64 rows by 64 columns, 128 bytes a row, swizzled.
template <class Element>
using ChunkLayout = decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<Element>{},
                                                 cute::Shape<cute::Int<64>, cute::Int<kChunk>>{}));
// A half of a tile's latent: of every eight tokens the chunks one after the other, so that what the
// accelerator loads of a page, however few tokens that has, lies together.
template <class Element>
using HalfLayout = decltype(cute::tile_to_shape(
    cute::GMMA::Layout_K_SW128_Atom<Element>{},
    cute::Shape<cute::Int<kTileTokens>, cute::Int<kHalf>>{}, cute::Step<cute::_2, cute::_1>{}));
// A chunk of it: tokens by columns.
template <class Element>
using KeyLayout = decltype(cute::composition(
    HalfLayout<Element>{}, cute::Layout<cute::Shape<cute::Int<kTileTokens>, cute::Int<kChunk>>>{}));
// Some chunks of it as V^T: columns by tokens.
template <class Element, int kColumns>
using ValueLayout = decltype(cute::composition(
    HalfLayout<Element>{}, cute::Layout<cute::Shape<cute::Int<kColumns>, cute::Int<kTileTokens>>,
                                        cute::Stride<cute::Int<kTileTokens>, cute::_1>>{}));

template <class Element>
__device__ __forceinline__ auto chunk_tensor(Element* chunk) {
  return cute::make_tensor(cute::make_smem_ptr(chunk), ChunkLayout<Element>{});
}

// The row of a tile that is a thread's i-th in an accumulator; a thread has two.
inline constexpr int kThreadRows = 2;
__device__ __forceinline__ int tile_row(int i) {
  const int thread = threadIdx.x % kWarpgroup;
  return thread / kWarp * 16 + thread % kWarp / 4 + i * 8;
}

}  // namespace mla::sm90
