// What the types of Q and of the cache decide: how tiles of KV lie in shared memory, and what the
// tensor cores multiply.
#pragma once

#include "common/dtype.h"
#include "sm90/common/elements.cuh"
#include "sm90/common/pipeline.cuh"
#include "sm90/common/warp.cuh"
#include "sm90/mainloop/tile_layouts.cuh"

namespace mla::sm90::swap_ab {

// The operands that the tensor cores read from shared memory have chunks of 64 columns or tokens,
// 128 bytes a row, swizzled.
template <class Element, int kRows>
using RowsLayout = decltype(cute::tile_to_shape(cute::GMMA::Layout_K_SW128_Atom<Element>{},
                                                cute::Shape<cute::Int<kRows>, cute::_64>{}));

template <int kRows, class Element>
__device__ __forceinline__ auto rows_tensor(Element* rows) {
  return cute::make_tensor(cute::make_smem_ptr(rows), RowsLayout<Element, kRows>{});
}

// The chunks of 576 columns, of which 512 are the value.
struct UsualChunks {
  static constexpr int kCodeChunks = kLatentChunks;  // of V
  static constexpr int kQueryChunks = kChunks;
  static constexpr bool kHasRope = true;
  static constexpr int kQueryRopeChunk = kRopeChunk;
  static constexpr bool kConvertsRope = true;
  static constexpr int kScales = 0;
  static constexpr int kScaleChunks = kLatentChunks;
  static constexpr int kWeights = 1;  // as which P is there
  static constexpr bool kIsSparse = false;
  static constexpr int kKvWarps = 1;
};

// Tensor cores read a 16-bit cache as it is. A stage is half of a tile's latent or its rope
// columns, since three tiles do not fit. Rows that are selected are gathered.
template <DType kQ, DType kKv, Load kLoad, int kDQk = kHeadDim>
struct Format : UsualChunks {
  static_assert(kQ == kKv && (kDQk == kHeadDim || kLoad == Load::gather));
  using Element = typename ElementOf<kQ>::Type;
  using QueryElement = Element;
  static constexpr bool kReadsToRegisters = false;
  static constexpr bool kConvertsQuery = false;
  static constexpr bool kIsSparse = kLoad == Load::gather;
  static constexpr bool kHasRope = kDQk > kLatent;
  static constexpr int kQueryChunks = kDQk / kChunk;
  static constexpr int kKvWarps = kIsSparse ? 2 : 1;
  static constexpr int kLatentStages = 5;
  static constexpr int kRopeStages = 2;

  struct Kv {
    alignas(1024) Element latent[kLatentStages][kHalfChunks * kChunkElements];
    alignas(1024) Element rope[kRopeStages][kHasRope ? kChunkElements : 1];
  };

  struct KvPipelines {
    alignas(8) uint32_t present[kRopeStages][kTileTokens / kWarp];  // a bit for each token
    TransactionBarrier latent_full[kLatentStages];
    TransactionBarrier rope_full[kRopeStages];
    Barrier latent_empty[kLatentStages];
    Barrier rope_empty[kRopeStages];

    // TMA arrives once; a lane that gathers when its copies are done, and where the rope columns
    // would be when it has said which tokens exist.
    __device__ void init_barriers() {
      constexpr int kArrivingLanes = kKvWarps * kWarp;
      for (auto& barrier : latent_full) barrier.init(kIsSparse ? kArrivingLanes : 1);
      for (auto& barrier : rope_full) barrier.init(kIsSparse ? (1 + kHasRope) * kArrivingLanes : 1);
      for (auto& barrier : latent_empty) barrier.init(kWarps);
      for (auto& barrier : rope_empty) barrier.init(kWarpgroup);
    }
  };

  static __device__ __forceinline__ PipelineState<kLatentStages> latent_state(uint32_t tile,
                                                                              int half) {
    return PipelineState<kLatentStages>(2 * tile + half);
  }
  static __device__ __forceinline__ PipelineState<kRopeStages> rope_state(uint32_t tile) {
    return PipelineState<kRopeStages>(tile);
  }
};

// What formats of e4m3 share: its vectors of 16 bytes, which threads read to registers.
struct Fp8Vectors {
  static constexpr bool kReadsToRegisters = true;
  static constexpr int kChunkBytes = kTileTokens * kChunk;
  static constexpr int kVectorBytes = 16;
  static constexpr int kVectors = kChunk / kVectorBytes;
};

// e4m3 becomes fp16 in registers, and so does Q. A stage is a tile as it is in memory; a token of a
// chunk takes 64 bytes, swizzled in vectors of 16.
template <>
struct Format<DType::bf16, DType::e4m3, Load::tma, kHeadDim> : Fp8Vectors, UsualChunks {
  using Element = cute::half_t;
  using QueryElement = Element;
  static constexpr bool kConvertsQuery = true;
  static constexpr int kStages = 5;

  struct Kv {
    alignas(1024) uint8_t tiles[kStages][kChunks][kChunkBytes];
  };
  static constexpr size_t kTileBytes = sizeof(Kv::tiles[0]);
  static __device__ __forceinline__ uint8_t* tile(Kv& kv, int stage) { return kv.tiles[stage][0]; }

  struct KvPipelines {
    uint64_t present[kStages];  // a bit for each token
    TransactionBarrier full[kStages];
    Barrier empty[kStages];

    __device__ void init_barriers() {
      for (auto& barrier : full) barrier.init(1);
      for (auto& barrier : empty) barrier.init(kWarpgroup);
    }
  };

  static __device__ __forceinline__ PipelineState<kStages> state(uint32_t tile) {
    return PipelineState<kStages>(tile);
  }

  // Where a vector of a token of a chunk is in its tile, in bytes.
  static __device__ __forceinline__ int vector_offset(int chunk, int token, int vector) {
    return chunk * kChunkBytes + token * kChunk + (vector ^ token / 2 % kVectors) * kVectorBytes;
  }
  // Converts four e4m3 of V to two pairs.
  static __device__ __forceinline__ void convert_values(uint32_t four, uint32_t& low,
                                                        uint32_t& high) {
    e4m3_to_fp16(four, low, high);
  }
};

}  // namespace mla::sm90::swap_ab
