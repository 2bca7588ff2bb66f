// What is in a row of bytes: scales, rope columns, and e4m3 or e2m1 that is multiplied by its
// scale.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "common/dtype.h"
#include "sm90/common/elements.cuh"
#include "sm90/mainloop/tile_layouts.cuh"

namespace mla::sm90::rows_m64 {

inline constexpr uint32_t kLaneColumns = 16;  // of a row, which have one scale
inline constexpr uint32_t kEight = 8;         // elements that are dequantized together

// Eight elements of the latent.
template <class Rows>
using Codes = std::conditional_t<Rows::kCodes == 2, uint32_t, uint2>;

template <class Rows>
__device__ __forceinline__ Codes<Rows> codes_of(const uint8_t* row, uint32_t column) {
  return *reinterpret_cast<const Codes<Rows>*>(row + column / Rows::kCodes);
}

// A scale as it is stored, and as elements are multiplied by it: in fp32, or twice in a word in
// bf16, which has all digits of scales of one byte and of their products.
template <class Rows>
inline constexpr bool kHasFp32Scales = Rows::kFormat.scale_type == DType::fp32;
template <class Rows>
using StoredScale = std::conditional_t<kHasFp32Scales<Rows>, float, uint8_t>;
template <class Rows>
using Factor = std::conditional_t<kHasFp32Scales<Rows>, float, __nv_bfloat162>;

template <class Rows>
__device__ __forceinline__ StoredScale<Rows> scale_of(const uint8_t* row, uint32_t column) {
  static_assert(Rows::kFormat.scale_group % kLaneColumns == 0);
  constexpr int kGroup = Rows::kFormat.scale_group;
  constexpr int kGroups = Rows::kFormat.latent / kGroup;
  const int i = scale_index(column / kGroup, kGroups, Rows::kFormat.scale_interleave);
  return reinterpret_cast<const StoredScale<Rows>*>(row + Rows::kScaleOffset)[i];
}

template <class Rows>
__device__ __forceinline__ Factor<Rows> factor_of(StoredScale<Rows> scale) {
  if constexpr (kHasFp32Scales<Rows>) {
    return scale;
  } else if constexpr (Rows::kFormat.scale_type == DType::e8m0) {
    // The bits of e8m0 are the exponent of a bf16, but for the least, which is subnormal there, and
    // for the greatest, which is NaN and would be infinite: infinity times 0 is NaN.
    const uint32_t exponents = max(scale * 0x00800080u, 0x00400040u);
    const auto& power = reinterpret_cast<const __nv_bfloat162&>(exponents);
    return __hfma2(power, __float2bfloat162_rn(0), power);
  } else {
    static_assert(Rows::kFormat.scale_type == DType::e4m3);
    uint32_t pair, none;
    e4m3_to_fp16(scale, pair, none);
    return __float2bfloat162_rn(__low2float(reinterpret_cast<const __half2&>(pair)));
  }
}

__device__ __forceinline__ uint32_t product(uint32_t pair, const __nv_bfloat162& factor) {
  const __nv_bfloat162 result = __hmul2(reinterpret_cast<const __nv_bfloat162&>(pair), factor);
  return reinterpret_cast<const uint32_t&>(result);
}

template <class Element>
__device__ __forceinline__ uint32_t scaled_pair(uint32_t pair, float scale) {
  const float2 two = __half22float2(reinterpret_cast<const __half2&>(pair));
  return pack_pair<Element>(two.x * scale, two.y * scale);
}
template <class Element>
__device__ __forceinline__ uint32_t scaled_pair(uint32_t pair, const __nv_bfloat162& scale) {
  const float2 two = __half22float2(reinterpret_cast<const __half2&>(pair));
  return product(pack_pair<Element>(two.x, two.y), scale);
}

// Eight e4m3 times their scale; only the products are rounded.
template <class Element, class Factor>
__device__ __forceinline__ uint4 scaled(const uint2& fp8, const Factor& scale) {
  static_assert(std::is_same_v<Element, cute::bfloat16_t>);
  uint4 pairs;
  e4m3_to_fp16(fp8.x, pairs.x, pairs.y);
  e4m3_to_fp16(fp8.y, pairs.z, pairs.w);
  return {scaled_pair<Element>(pairs.x, scale), scaled_pair<Element>(pairs.y, scale),
          scaled_pair<Element>(pairs.z, scale), scaled_pair<Element>(pairs.w, scale)};
}

// Eight e2m1 times their scale. The bits of an e2m1 are those of a bf16 that is 2^-126 times as
// large.
template <class Element>
__device__ __forceinline__ uint4 scaled(uint32_t fp4, const __nv_bfloat162& scale) {
  static_assert(std::is_same_v<Element, cute::bfloat16_t>);
  constexpr uint32_t kSigns = 0x80008000, kMagnitudes = 0x01c001c0;
  const __nv_bfloat162 unit = __float2bfloat162_rn(0x1p126f);
  const auto scaled_two = [&](uint32_t signs, uint32_t magnitudes) {
    return product(product((signs & kSigns) | (magnitudes & kMagnitudes), unit), scale);
  };
  // Two columns that are four apart come from the halves of a word.
  const uint32_t of_0 = scaled_two(fp4 << 12, fp4 << 6), of_1 = scaled_two(fp4 << 8, fp4 << 2);
  const uint32_t of_2 = scaled_two(fp4 << 4, fp4 >> 2), of_3 = scaled_two(fp4, fp4 >> 6);
  constexpr uint32_t kLow = 0x5410, kHigh = 0x7632;
  return {__byte_perm(of_0, of_1, kLow), __byte_perm(of_2, of_3, kLow),
          __byte_perm(of_0, of_1, kHigh), __byte_perm(of_2, of_3, kHigh)};
}

// The i-th eight of the rope columns.
template <class Rows, class Element>
__device__ __forceinline__ uint4 rope_of(const uint8_t* row, uint32_t i) {
  const uint8_t* const rope = row + Rows::kFormat.rope_offset;
  if constexpr (Rows::kFormat.rope_type == DType::e4m3) {
    return scaled<Element>(reinterpret_cast<const uint2*>(rope)[i], 1.0f);
  } else {
    static_assert(Rows::kFormat.rope_type == DType::bf16);
    return reinterpret_cast<const uint4*>(rope)[i];
  }
}

}  // namespace mla::sm90::rows_m64
