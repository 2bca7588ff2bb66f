// What is in a row of bytes: scales, rope columns, and e4m3 that is multiplied by its scale.
#pragma once

#include <cuda_fp16.h>

#include "common/dtype.h"
#include "sm90/common/elements.cuh"
#include "sm90/mainloop/tile_layouts.cuh"

namespace mla::sm90::rows_m64 {

inline constexpr uint32_t kApart = 2 * kChunk;  // columns, of the two chunks that a lane has

// The scales of the groups that a lane's columns from `left` and from `right` on are in.
template <class Staging>
__device__ __forceinline__ float2 scales_of(const typename Staging::Row& row, uint32_t left,
                                            uint32_t right) {
  constexpr uint32_t kGroup = Staging::kFormat.scale_group;
  const uint8_t* const scales = row.bytes + Staging::kScaleOffset;
  if constexpr (Staging::kFormat.scale_type == DType::e8m0) {
    return {e8m0_to_fp32(scales[left / kGroup]), e8m0_to_fp32(scales[right / kGroup])};
  } else {
    static_assert(kGroup == kApart);
    return reinterpret_cast<const float2*>(scales)[left / kHalf];
  }
}

template <class Staging>
__device__ __forceinline__ const uint4* rope_of(const typename Staging::Row& row) {
  return reinterpret_cast<const uint4*>(row.bytes + Staging::kFormat.rope_offset);
}

template <class Element>
__device__ __forceinline__ uint32_t scaled(uint32_t pair, float scale) {
  const float2 two = __half22float2(reinterpret_cast<const __half2&>(pair));
  return pack_pair<Element>(two.x * scale, two.y * scale);
}

// Eight e4m3 times their scale; only the products are rounded.
template <class Element>
__device__ __forceinline__ uint4 scaled(const uint2& fp8, float scale) {
  uint4 pairs;
  e4m3_to_fp16(fp8.x, pairs.x, pairs.y);
  e4m3_to_fp16(fp8.y, pairs.z, pairs.w);
  return {scaled<Element>(pairs.x, scale), scaled<Element>(pairs.y, scale),
          scaled<Element>(pairs.z, scale), scaled<Element>(pairs.w, scale)};
}

}  // namespace mla::sm90::rows_m64
