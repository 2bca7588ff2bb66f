// What the types of Q and of the cache decide: how tiles of KV lie in shared memory, and what the
// tensor cores multiply.
#pragma once

#include <cuda_fp16.h>

#include "common/dtype.h"
#include "mla/formats.h"
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

// Tensor cores read a 16-bit cache as it is. A stage is half of a tile's latent or its rope
// columns, since three tiles do not fit.
template <DType kQ, DType kKv>
struct Format {
  static_assert(kQ == kKv);
  using Element = typename ElementOf<kQ>::Type;
  using QueryElement = Element;
  static constexpr bool kIsSparse = false;
  static constexpr bool kReadsToRegisters = false;
  static constexpr bool kConvertsQuery = false;
  static constexpr int kScales = 0;
  static constexpr int kKvWarps = 1;
  static constexpr int kLatentStages = 5;
  static constexpr int kRopeStages = 2;

  struct Kv {
    alignas(1024) Element latent[kLatentStages][kHalfChunks * kChunkElements];
    alignas(1024) Element rope[kRopeStages][kChunkElements];
  };

  struct KvPipelines {
    uint64_t present[kRopeStages];  // a bit for each token
    TransactionBarrier latent_full[kLatentStages];
    TransactionBarrier rope_full[kRopeStages];
    Barrier latent_empty[kLatentStages];
    Barrier rope_empty[kRopeStages];

    __device__ void init_barriers() {
      for (auto& barrier : latent_full) barrier.init(1);
      for (auto& barrier : rope_full) barrier.init(1);
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
struct Format<DType::bf16, DType::e4m3> : Fp8Vectors {
  using Element = cute::half_t;
  using QueryElement = Element;
  static constexpr bool kIsSparse = false;
  static constexpr bool kConvertsQuery = true;
  static constexpr bool kKeepsRope = false;
  static constexpr int kScales = 0;
  static constexpr int kKvWarps = 1;
  static constexpr int kStages = 5;

  struct Kv {
    alignas(1024) uint8_t tiles[kStages][kChunks][kChunkBytes];
  };

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

// Rows of bytes: e4m3, a scale for every 128 columns of a token, and rope columns of bf16. e4m3 is
// multiplied without its scale; logits and P are multiplied by that. As K it becomes fp16 in
// registers, as Q does, and as V bf16, as P times a scale may be larger or smaller than fp16 holds.
// A stage has the tokens of a tile as they were gathered, 512 bytes each, swizzled in vectors
// of 16.
template <>
struct Format<DType::bf16, DType::fp8_ds_mla> : Fp8Vectors {
  using Element = cute::bfloat16_t;
  using QueryElement = cute::half_t;  // but that of rope columns
  static constexpr bool kIsSparse = true;
  static constexpr CacheFormat kRow = kCacheFormat<DType::fp8_ds_mla, kHeadDim, kLatent>;
  static constexpr bool kConvertsQuery = true;
  static constexpr bool kKeepsRope = true;                    // rope columns are bf16 in Q too
  static constexpr int kScales = kLatent / kRow.scale_group;  // of a token
  static constexpr int kKvWarps = 2;
  static constexpr int kStages = 4;
  static_assert(kRow.scale_type == DType::fp32 && kScales == 4);

  struct Kv {
    alignas(1024) uint8_t tiles[kStages][kLatentChunks][kChunkBytes];
    alignas(1024) Element rope[kStages][kChunkElements];
    alignas(16) float scales[kStages][kTileTokens][kScales];
  };

  struct KvPipelines {
    alignas(8) uint32_t present[kStages][kKvWarps];  // a bit for each token
    TransactionBarrier full[kStages];
    Barrier empty[kStages];

    // A lane that gathers arrives when it has said which tokens exist, and when its copies are
    // done.
    __device__ void init_barriers() {
      for (auto& barrier : full) barrier.init(2 * kKvWarps * kWarp);
      for (auto& barrier : empty) barrier.init(kWarpgroup);
    }
  };

  static __device__ __forceinline__ PipelineState<kStages> state(uint32_t tile) {
    return PipelineState<kStages>(tile);
  }
  static __device__ __forceinline__ int vector_offset(int chunk, int token, int vector) {
    return token * kLatent + ((chunk * kVectors + vector) ^ token % kSwizzleRows) * kVectorBytes;
  }
  static __device__ __forceinline__ void convert_values(uint32_t four, uint32_t& low,
                                                        uint32_t& high) {
    e4m3_to_fp16(four, low, high);
    low = fp16_to_bf16(low);
    high = fp16_to_bf16(high);
  }

 private:
  static __device__ __forceinline__ uint32_t fp16_to_bf16(uint32_t pair) {
    const float2 two = __half22float2(reinterpret_cast<const __half2&>(pair));
    return pack_pair<Element>(two.x, two.y);
  }
};

}  // namespace mla::sm90::swap_ab
