// The shared memory of a block of the schedule `swap_ab`, and the barriers in it. e4m3 fills it, as
// it is in memory; threads read it from there and convert it in registers.
#pragma once

#include <cute/tensor.hpp>

#include "sm90/combine/split_list.cuh"
#include "sm90/common/elements.cuh"
#include "sm90/common/pipeline.cuh"
#include "sm90/common/tile.h"
#include "sm90/scheduler/work_tile_pipeline.cuh"

namespace mla::sm90::swap_ab {

using Element = cute::half_t;

inline constexpr int kConsumers = 2;  // warpgroups, each of which has every second tile
inline constexpr int kQueryWarps = 3;
inline constexpr int kThreads = (kConsumers + 1) * kWarpgroup;

// A thread has registers by its role; the three warpgroups have 504 together. The sums of a
// consumer take four for each row.
template <int kRows>
inline constexpr uint32_t kConsumerRegisters = kRows == 16 ? 216 : 224;
template <int kRows>
inline constexpr uint32_t kProducerRegisters = 504 - kConsumers * kConsumerRegisters<kRows>;

// A token of a chunk takes 64 bytes, swizzled in vectors of 16.
inline constexpr int kChunkBytes = kTileTokens * kChunk;
inline constexpr int kVectorBytes = 16;
inline constexpr int kVectors = kChunk / kVectorBytes;

// All consumers have a named barrier, and each has one of its own.
enum NamedBarrier : uint32_t { kAllConsumers = 1, kFirstConsumer = 2 };

// `kRows` is the number of query rows.
template <int kRows>
struct SharedStorage {
  static constexpr int kKvStages = 5;
  static constexpr int kQueryStages = kRows == 16 ? 2 : 1;
  // There is one more than of Q: scales are needed until the work tile's result is stored.
  static constexpr int kScaleStages = kQueryStages + 1;

  alignas(1024) uint8_t kv[kKvStages][kChunks][kChunkBytes];
  alignas(1024) Element q[kQueryStages][kChunks][kRows * kChunk];
  alignas(1024) Element p[kConsumers][kRows * kTileTokens];
  float logit_scale[kScaleStages][kRows];
  float of_warps[kConsumers][kWarps][kRows];  // maxima of a tile, then sums of a work tile
  float row_max[kConsumers][kRows];           // of a work tile
  uint64_t present[kKvStages];                // a bit for each token
  WorkTilePipeline work_tiles;
  SplitList splits;
  TransactionBarrier kv_full[kKvStages];
  Barrier kv_empty[kKvStages];
  Barrier query_full[kQueryStages];
  Barrier query_empty[kQueryStages];

  // One thread calls this.
  __device__ void init_barriers() {
    work_tiles.init_barriers(kConsumers * kWarps + kQueryWarps + 1);
    for (auto& barrier : kv_full) barrier.init(1);
    for (auto& barrier : kv_empty) barrier.init(kWarpgroup);
    for (auto& barrier : query_full) barrier.init(kQueryWarps * kWarp);
    for (auto& barrier : query_empty) barrier.init(kConsumers * kWarpgroup);
  }
};
static_assert(sizeof(SharedStorage<16>) <= 227 * 1024);
static_assert(sizeof(SharedStorage<kSwapAbRows>) <= 227 * 1024);

// A chunk is rows by 64 columns or tokens, 128 bytes a row, swizzled.
template <int kRows>
using RowsLayout = decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<Element>{},
                                                cute::Shape<cute::Int<kRows>, cute::_64>{}));

template <int kRows>
__device__ __forceinline__ auto rows_tensor(Element* rows) {
  return cute::make_tensor(cute::make_smem_ptr(rows), RowsLayout<kRows>{});
}

// Where a vector of a token of a chunk is, in bytes.
__device__ __forceinline__ int vector_offset(int token, int vector) {
  return token * kChunk + (vector ^ token / 2 % kVectors) * kVectorBytes;
}

}  // namespace mla::sm90::swap_ab
