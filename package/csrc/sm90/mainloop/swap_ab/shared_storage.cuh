// Shared memory of a block of the schedule `swap_ab`, and the barriers in it.
//
// Codes fill it, as they are in memory. Threads read them from there and widen them in registers.
#pragma once

#include <cute/tensor.hpp>

#include "sm90/combine/split_list.cuh"
#include "sm90/common/elements.cuh"
#include "sm90/common/pipeline.cuh"
#include "sm90/common/tile.h"
#include "sm90/scheduler/work_tile_pipeline.cuh"

namespace mla::sm90::stream {

using Element = cute::half_t;

inline constexpr int kWorkers = 2;  // warpgroups that have whole tiles, each every second one
inline constexpr int kQueryWarps = 3;
inline constexpr int kThreads = (kWorkers + 1) * kWarpgroup;

// Of a thread: 504 in all, of which a worker's sums take four for each row.
template <int kRows>
inline constexpr uint32_t kWorkerRegisters = kRows == 16 ? 216 : 224;
template <int kRows>
inline constexpr uint32_t kLoaderRegisters = 504 - kWorkers * kWorkerRegisters<kRows>;

// A token of a chunk takes 64 bytes, swizzled in pieces of 16.
inline constexpr int kChunkBytes = kTileTokens * kChunk;
inline constexpr int kPiece = 16;
inline constexpr int kPieces = kChunk / kPiece;

// `kRows` rows of queries.
template <int kRows>
struct SharedMemory {
  static constexpr int kTileSlots = 5;
  static constexpr int kQuerySlots = kRows == 16 ? 2 : 1;
  // One more: scales are needed until the item's result is stored.
  static constexpr int kScaleSlots = kQuerySlots + 1;

  alignas(1024) uint8_t tiles[kTileSlots][kChunks][kChunkBytes];
  alignas(1024) Element q[kQuerySlots][kChunks][kRows * kChunk];
  alignas(1024) Element weights[kWorkers][kRows * kTileTokens];
  float logit_scale[kScaleSlots][kRows];
  float of_warps[kWorkers][kWarps][kRows];  // maxima of a tile, then sums of an item
  float peak[kWorkers][kRows];              // of an item
  uint64_t present[kTileSlots];             // a bit for each token
  ItemRing items;
  SplitList splits;
  FullBarrier tile_full[kTileSlots];
  Barrier tile_empty[kTileSlots];
  Barrier query_full[kQuerySlots];
  Barrier query_empty[kQuerySlots];

  // By one thread.
  __device__ void init_barriers() {
    constexpr int kReaders = kWorkers * kWarps + kQueryWarps + 1;
    for (auto& barrier : items.full) barrier.init(1);
    for (auto& barrier : items.empty) barrier.init(kReaders * kWarp);
    for (auto& barrier : tile_full) barrier.init(1);
    for (auto& barrier : tile_empty) barrier.init(kWarpgroup);
    for (auto& barrier : query_full) barrier.init(kQueryWarps * kWarp);
    for (auto& barrier : query_empty) barrier.init(kWorkers * kWarpgroup);
  }
};
static_assert(sizeof(SharedMemory<16>) <= 227 * 1024);
static_assert(sizeof(SharedMemory<32>) <= 227 * 1024);

// Rows by 64 columns or tokens, 128 bytes a row, swizzled.
template <int kRows>
using RowsLayout = decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<Element>{},
                                                cute::Shape<cute::Int<kRows>, cute::_64>{}));

template <int kRows>
__device__ __forceinline__ auto rows_tensor(Element* rows) {
  return cute::make_tensor(cute::make_smem_ptr(rows), RowsLayout<kRows>{});
}

// Where a piece of a token of a chunk is, in bytes.
__device__ __forceinline__ int piece_offset(int token, int piece) {
  return token * kChunk + (piece ^ token / 2 % kPieces) * kPiece;
}

// The workers' barriers, of one and of all.
enum NamedBarrier : uint32_t { kAllWorkers = 1, kFirstWorker = 2 };

}  // namespace mla::sm90::stream
