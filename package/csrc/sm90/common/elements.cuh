// The elements that tensor cores multiply, and conversions to them.
#pragma once

#include <cutlass/numeric_conversion.h>

#include "cuda/cutlass_element.cuh"

namespace mla::sm90 {

using cuda::ElementOf;

// Rounds two neighbours of a row and packs them into a word.
template <class Element>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  const cutlass::NumericArrayConverter<Element, float, 2> convert;
  const auto pair = convert(cutlass::Array<float, 2>{low, high});
  return reinterpret_cast<const uint32_t&>(pair);
}

// Two lanes, of which one is `upper`, exchange pairs of columns: the lower one has the low pairs of
// both then, the upper one the high pairs. Each has four neighbours.
__device__ __forceinline__ uint2 exchange_pairs(uint32_t low, uint32_t high, bool upper) {
  const uint32_t got = __shfl_xor_sync(~0u, upper ? low : high, 1);
  return {upper ? got : low, upper ? high : got};
}

// Stores four neighbours that are not aligned to be stored at once.
__device__ __forceinline__ void store_one_by_one(uint16_t* to, const uint2& pairs) {
  to[0] = static_cast<uint16_t>(pairs.x);
  to[1] = static_cast<uint16_t>(pairs.x >> 16);
  to[2] = static_cast<uint16_t>(pairs.y);
  to[3] = static_cast<uint16_t>(pairs.y >> 16);
}

// Converts four e4m3 to fp16, which has each of them exactly; NaN stays NaN.
__device__ __forceinline__ void e4m3_to_fp16(uint32_t four, uint32_t& low, uint32_t& high) {
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2;"
      " cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h; }"
      : "=r"(low), "=r"(high)
      : "r"(four));
}

}  // namespace mla::sm90
