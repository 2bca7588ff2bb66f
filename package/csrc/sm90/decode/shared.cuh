// Shared memory of a block and the barriers in it.
//
// KV fills it: two and a half tiles of the latent. Two thirds of Q are in registers to make room.
#pragma once

#include <cutlass/arch/barrier.h>
#include <cutlass/numeric_conversion.h>
#include <cutlass/numeric_types.h>

#include <cute/tensor.hpp>

#include "common/dtype.h"
#include "sm90/decode/tile.h"
#include "sm90/decode/walk.cuh"

namespace mla::sm90 {

template <DType kDType>
struct ElementOf;
template <>
struct ElementOf<DType::fp16> {
  using Type = cute::half_t;
};
template <>
struct ElementOf<DType::bf16> {
  using Type = cute::bfloat16_t;
};

inline constexpr int kWarp = 32;
inline constexpr int kWarpgroup = 128;
inline constexpr int kWarps = kWarpgroup / kWarp;
inline constexpr int kThreads = 4 * kWarpgroup;
inline constexpr int kHalf = kLatent / 2;  // columns of the output that a warpgroup computes
inline constexpr int kHalfChunks = kHalf / kChunk;
inline constexpr int kChunkElements = kTileTokens * kChunk;

using FullBarrier = cutlass::arch::ClusterTransactionBarrier;
using Barrier = cutlass::arch::ClusterBarrier;

// Rings: the latent of a tile is two halves, one for each warpgroup of the output.
inline constexpr int kHalfSlots = 5;
inline constexpr int kRopeSlots = 2;
inline constexpr int kWeightSlots = 2;
inline constexpr int kItemSlots = 4;

// Chunks of Q that are in registers; the rest is in shared memory.
inline constexpr int kRegisterChunks = 5;

template <class Element>
struct SharedMemory {
  alignas(1024) Element latent[kHalfSlots][kHalfChunks * kChunkElements];
  alignas(1024) Element rope[kRopeSlots][kChunkElements];
  alignas(1024) Element q[kChunks - kRegisterChunks][kChunkElements];
  alignas(1024) Element weights[kWeightSlots][kChunkElements];
  float scale[kWeightSlots][kTileRows];   // of what was summed before the tile
  float factor[kWeightSlots][kTileRows];  // of the whole sum, with an item's last tile
  int32_t rescales[kWeightSlots][kWarps];
  alignas(8) uint32_t present[kRopeSlots][2];  // a bit for each token
  Item items[kItemSlots];
  Barrier query_wanted;
  FullBarrier latent_full[kHalfSlots];
  FullBarrier rope_full[kRopeSlots];
  Barrier logits_done[kWeightSlots];
  Barrier weights_full[kWeightSlots];
  Barrier latent_empty[kHalfSlots];
  Barrier rope_empty[kRopeSlots];
  Barrier weights_empty[kWeightSlots];
  Barrier item_full[kItemSlots];
  Barrier item_empty[kItemSlots];
};
static_assert(sizeof(SharedMemory<cute::bfloat16_t>) <= 227 * 1024);

// Where the `turn`-th user of a ring is.
template <int kSlots>
struct Place {
  int slot;
  uint32_t phase;

  __device__ __forceinline__ explicit Place(uint32_t turn)
      : slot(turn % kSlots), phase(turn / kSlots & 1) {}
};

// The latent halves of the `tile`-th tile of a block.
__device__ __forceinline__ Place<kHalfSlots> half_place(uint32_t tile, int half) {
  return Place<kHalfSlots>(2 * tile + half);
}

// Until a tile may be loaded.
template <class Element>
__device__ void wait_until_empty(SharedMemory<Element>& shared, uint32_t tile) {
  for (int half = 0; half < 2; ++half) {
    const Place<kHalfSlots> place = half_place(tile, half);
    shared.latent_empty[place.slot].wait(place.phase ^ 1);
  }
  const Place<kRopeSlots> rope(tile);
  shared.rope_empty[rope.slot].wait(rope.phase ^ 1);
}

// One thread tells the others the items, in order. The last has no request.
inline constexpr int kNoRequest = -1;

template <class Element>
__device__ void write_items(SharedMemory<Element>& shared, Walk walk) {
  Item item;
  uint32_t count = 0;
  do {
    if (!walk.next(item)) item.request = kNoRequest;
    const Place<kItemSlots> place(count++);
    shared.item_empty[place.slot].wait(place.phase ^ 1);
    shared.items[place.slot] = item;
    shared.item_full[place.slot].arrive();
  } while (item.request != kNoRequest);
}

template <class Element>
class ItemReader {
 public:
  __device__ explicit ItemReader(SharedMemory<Element>& shared) : shared_(shared) {}

  __device__ __forceinline__ bool next(Item& item) {
    const Place<kItemSlots> place(count_++);
    shared_.item_full[place.slot].wait(place.phase);
    item = shared_.items[place.slot];
    __syncwarp();
    if (threadIdx.x % kWarp == 0) shared_.item_empty[place.slot].arrive();
    return item.request != kNoRequest;
  }

 private:
  SharedMemory<Element>& shared_;
  uint32_t count_ = 0;
};

// Chunks of 64 rows by 64 columns, 128 bytes a row, swizzled.
template <class Element>
using ChunkLayout = decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<Element>{},
                                                 cute::Shape<cute::Int<64>, cute::Int<kChunk>>{}));
// Columns of a tile's latent as V^T: columns by 64 tokens.
template <class Element, int kColumns>
using ValueLayout = decltype(cute::composition(
    cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<Element>{},
                        cute::Shape<cute::Int<kTileTokens>, cute::Int<kColumns>>{}),
    cute::Layout<cute::Shape<cute::Int<kColumns>, cute::Int<kTileTokens>>,
                 cute::Stride<cute::Int<kTileTokens>, cute::_1>>{}));

template <class Element>
__device__ __forceinline__ auto chunk_tensor(Element* chunk) {
  return cute::make_tensor(cute::make_smem_ptr(chunk), ChunkLayout<Element>{});
}

// Two neighbours of a row, rounded.
template <class Element>
__device__ __forceinline__ uint32_t pair_of(float low, float high) {
  const cutlass::NumericArrayConverter<Element, float, 2> convert;
  const auto pair = convert(cutlass::Array<float, 2>{low, high});
  return reinterpret_cast<const uint32_t&>(pair);
}

// The row of a tile that is a thread's i-th in an accumulator; a thread has two.
inline constexpr int kThreadRows = 2;
__device__ __forceinline__ int tile_row(int i) {
  const int thread = threadIdx.x % kWarpgroup;
  return thread / kWarp * 16 + thread % kWarp / 4 + i * 8;
}

}  // namespace mla::sm90
