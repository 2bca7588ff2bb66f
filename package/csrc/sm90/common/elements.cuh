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

// Converts four e4m3 to fp16, which has each of them exactly; NaN stays NaN.
__device__ __forceinline__ void e4m3_to_fp16(uint32_t four, uint32_t& low, uint32_t& high) {
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2;"
      " cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h; }"
      : "=r"(low), "=r"(high)
      : "r"(four));
}

}  // namespace mla::sm90
