// Cache formats that are rows of bytes: e4m3 with a scale for some columns of a token each, and
// rope columns of bf16, if any, which may be columns of the value too.
#pragma once

#include <cuda_fp16.h>

#include "mla/formats.h"
#include "sm90/mainloop/swap_ab/format.cuh"

namespace mla::sm90::swap_ab {

// e4m3 is multiplied without its scale; logits and P are multiplied by that. As K it becomes fp16
// in registers, as Q does, and as V bf16, as P times a scale may be larger or smaller than fp16
// holds. A stage has the tokens of a tile as they were gathered.
template <DType kKv, int kDQk>
struct ScaledRows : Fp8Vectors {
  static constexpr CacheFormat kRow = kCacheFormat<kKv, kDQk, kLatent>;
  using Element = cute::bfloat16_t;
  using QueryElement = cute::half_t;  // but that of rope columns
  static constexpr bool kIsSparse = true;
  static constexpr bool kConvertsQuery = true;
  static constexpr int kCodeChunks = kRow.latent / kChunk;
  static constexpr bool kHasRope = kRow.rope > 0;
  static constexpr bool kRopeIsValue = kRow.latent < kLatent;
  static constexpr int kQueryChunks = kDQk / kChunk;
  static constexpr int kQueryRopeChunk = kCodeChunks;  // if there is one
  static constexpr bool kConvertsRope = false;
  static constexpr bool kHasPageScales = kRow.scale_place == ScalePlace::page;
  static constexpr int kScales = kRow.latent / kRow.scale_group;  // of a token
  static constexpr int kScaleChunks = kRow.scale_group / kChunk;  // that have one scale
  // P is there once for each scale, and as it is, if rope columns are columns of the value.
  static constexpr int kWeights = kScales + kRopeIsValue;
  static constexpr int kKvWarps = 2;
  static constexpr int kStages = 3;
  static_assert(kRow.latent_type == DType::e4m3 && kRow.latent % kChunk == 0);
  static_assert(!kHasRope || (kRow.rope == kChunk && kRow.rope_type == DType::bf16));
  static_assert(kRow.scale_group % kChunk == 0 && kRow.scale_interleave == 1);

  using Scale = std::conditional_t<kRow.scale_type == DType::fp32, float, uint8_t>;
  static_assert(kRow.scale_type == DType::fp32 || kRow.scale_type == DType::e8m0);

  // A token has its scales behind its codes, in as many bytes as let the same vector of eight
  // neighbouring tokens be in all banks.
  static constexpr int kTokenBytes = kRow.latent + kVectorBytes;
  static_assert(kRow.scale_bytes <= kVectorBytes && kTokenBytes / kVectorBytes % 2 == 1);

  struct Stage {
    alignas(1024) uint8_t tokens[kTileTokens][kTokenBytes];
    alignas(1024) Element rope[kHasRope ? kChunkElements : kVectorBytes];
  };
  struct Kv {
    Stage stages[kStages];
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

  static constexpr size_t kTileBytes = sizeof(Stage);
  static __device__ __forceinline__ uint8_t* tile(Kv& kv, int stage) {
    return kv.stages[stage].tokens[0];
  }
  static __device__ __forceinline__ PipelineState<kStages> state(uint32_t tile) {
    return PipelineState<kStages>(tile);
  }

  static __device__ __forceinline__ int vector_offset(int chunk, int token, int vector) {
    return token * kTokenBytes + (chunk * kVectors + vector) * kVectorBytes;
  }

  // Converts four e4m3 of V to two pairs.
  static __device__ __forceinline__ void convert_values(uint32_t four, uint32_t& low,
                                                        uint32_t& high) {
    e4m3_to_fp16(four, low, high);
    low = fp16_to_bf16(low);
    high = fp16_to_bf16(high);
  }

  static __device__ __forceinline__ float to_float(float scale) { return scale; }
  // The bits of e8m0 are the exponent of an fp32, but for the least, which is subnormal there, and
  // for the greatest, which is NaN and would be infinite: infinity times 0 is NaN.
  static __device__ __forceinline__ float to_float(uint8_t scale) {
    const float power = __uint_as_float(max(uint32_t{scale} << 23, 0x00400000u));
    return fmaf(power, 0, power);
  }

 private:
  static __device__ __forceinline__ uint32_t fp16_to_bf16(uint32_t pair) {
    const float2 two = __half22float2(reinterpret_cast<const __half2&>(pair));
    return pack_pair<Element>(two.x, two.y);
  }
};

template <int kDQk>
struct Format<DType::bf16, DType::fp8_ds_mla, Load::gather, kDQk>
    : ScaledRows<DType::fp8_ds_mla, kDQk> {};
template <int kDQk>
struct Format<DType::bf16, DType::fp8_ds_v4, Load::gather, kDQk>
    : ScaledRows<DType::fp8_ds_v4, kDQk> {};

}  // namespace mla::sm90::swap_ab
