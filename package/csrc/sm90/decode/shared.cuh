// Shared memory of a block and the barriers in it.
//
// KV fills it. More than half of Q is in registers to make room.
#pragma once

#include <cutlass/numeric_conversion.h>
#include <cutlass/numeric_types.h>

#include <cute/tensor.hpp>

#include "common/dtype.h"
#include "sm90/decode/barriers.cuh"
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

// What tensor cores multiply, and how many places KV has: two and a half tiles, whose latent is two
// halves.
template <DType kQ, DType kKv>
struct Format {
  static_assert(kQ == kKv);
  using Element = typename ElementOf<kQ>::Type;
  static constexpr bool kWidens = false;
  static constexpr int kHalfSlots = 5;
  static constexpr int kRopeSlots = 2;
};
// Codes are widened to fp16, which has every e4m3; a tile of codes is on its way meanwhile.
template <>
struct Format<DType::bf16, DType::e4m3> {
  using Element = cute::half_t;
  static constexpr bool kWidens = true;
  static constexpr int kHalfSlots = 4;
  static constexpr int kRopeSlots = 1;
};

inline constexpr int kWeightSlots = 2;
inline constexpr int kItemSlots = 4;

// Chunks of Q that are in registers; the rest is in shared memory.
inline constexpr int kRegisterChunks = 5;

// The chunks of a tile as they are in memory, if they have to be widened.
template <bool kWidens>
struct Codes {};
template <>
struct Codes<true> {
  alignas(1024) uint8_t chunks[kChunks][kChunkElements];
  uint64_t present;  // with the rope columns: a bit for each token
  FullBarrier full[kChunks];
  Barrier empty[kChunks];
};

template <class Format>
struct SharedMemory {
  using Element = typename Format::Element;
  static constexpr int kHalfSlots = Format::kHalfSlots;
  static constexpr int kRopeSlots = Format::kRopeSlots;

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
  Codes<Format::kWidens> codes;
};
static_assert(sizeof(SharedMemory<Format<DType::bf16, DType::bf16>>) <= 227 * 1024);
static_assert(sizeof(SharedMemory<Format<DType::bf16, DType::e4m3>>) <= 227 * 1024);

// Where the `turn`-th user of a ring is.
template <int kSlots>
struct Place {
  int slot;
  uint32_t phase;

  __device__ __forceinline__ explicit Place(uint32_t turn)
      : slot(turn % kSlots), phase(turn / kSlots & 1) {}
};

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

// As if as many threads arrived.
__device__ __forceinline__ void arrive_times(FullBarrier& full, int times) {
  asm volatile(
      "mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(cute::cast_smem_ptr_to_uint(&full)),
      "r"(times)
      : "memory");
}

// One thread tells the others the items, in order. The last has no request.
inline constexpr int kNoRequest = -1;

template <class Format>
class ItemWriter {
 public:
  __device__ ItemWriter(SharedMemory<Format>& shared, Walk walk) : shared_(shared), walk_(walk) {}

  // Whether there was one.
  __device__ __forceinline__ bool write() {
    Item item;
    const bool found = walk_.next(item);
    if (!found) item.request = kNoRequest;
    const Place<kItemSlots> place(count_++);
    shared_.item_empty[place.slot].wait(place.phase ^ 1);
    shared_.items[place.slot] = item;
    shared_.item_full[place.slot].arrive();
    return found;
  }

 private:
  SharedMemory<Format>& shared_;
  Walk walk_;
  uint32_t count_ = 0;
};

template <class Format>
class ItemReader {
 public:
  __device__ explicit ItemReader(SharedMemory<Format>& shared) : shared_(shared) {}

  __device__ __forceinline__ bool next(Item& item) {
    const Place<kItemSlots> place(count_++);
    shared_.item_full[place.slot].wait(place.phase);
    item = shared_.items[place.slot];
    __syncwarp();  // without it, the loader that gathers lacks a register
    // By every lane: racecheck does not count what the others read as read before one arrives.
    shared_.item_empty[place.slot].arrive();
    return item.request != kNoRequest;
  }

 private:
  SharedMemory<Format>& shared_;
  uint32_t count_ = 0;
};

// For the warp that tells the others the items and works on them itself.
template <class Format>
class ItemSource {
 public:
  __device__ ItemSource(SharedMemory<Format>& shared, Walk walk)
      : writer_(shared, walk), reader_(shared) {}

  __device__ __forceinline__ bool next(Item& item) {
    if (threadIdx.x % kWarp == 0) writer_.write();
    __syncwarp();
    return reader_.next(item);
  }

 private:
  ItemWriter<Format> writer_;
  ItemReader<Format> reader_;
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
