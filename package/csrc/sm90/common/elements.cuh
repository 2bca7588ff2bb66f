// Elements that tensor cores multiply.
#pragma once

#include <cutlass/numeric_conversion.h>
#include <cutlass/numeric_types.h>

#include "common/dtype.h"

namespace mla::sm90 {

template <DType kDType>
struct ElementOf;
template <>
struct ElementOf<DType::fp16> {
  using Type = cutlass::half_t;
};
template <>
struct ElementOf<DType::bf16> {
  using Type = cutlass::bfloat16_t;
};

// Two neighbours of a row, rounded.
template <class Element>
__device__ __forceinline__ uint32_t pair_of(float low, float high) {
  const cutlass::NumericArrayConverter<Element, float, 2> convert;
  const auto pair = convert(cutlass::Array<float, 2>{low, high});
  return reinterpret_cast<const uint32_t&>(pair);
}

// Codes of e4m3 as fp16: exact, and NaN for a NaN.
__device__ __forceinline__ void widen(uint32_t codes, uint32_t& low, uint32_t& high) {
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2;"
      " cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h; }"
      : "=r"(low), "=r"(high)
      : "r"(codes));
}

}  // namespace mla::sm90
