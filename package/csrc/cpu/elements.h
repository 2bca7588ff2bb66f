// The elements that only rows with scales have: e8m0, a power of two, and e2m1, of four bits.
#pragma once

#include "common/dtype.h"

namespace mla::cpu {

// @pre `value` is a power of two that e8m0 has, or NaN.
MLA_ALWAYS_INLINE constexpr uint8_t fp32_to_e8m0(float value) {
  return static_cast<uint8_t>(float_bits(value) >> 23);
}

inline constexpr float kLeastE4m3 = 0x1p-9f;  // above 0
inline constexpr float kMaxE2m1 = 6;

// @pre code < 16.
MLA_ALWAYS_INLINE constexpr float e2m1_to_fp32(int code) {
  const uint32_t magnitude = code & 7;
  const uint32_t sign = static_cast<uint32_t>(code & 8) << 28;
  const uint32_t normal = (magnitude << 22) + (126u << 23);
  const uint32_t subnormal = magnitude == 0 ? 0 : 0x3f000000;  // 0.5
  return bits_float(sign | (magnitude < 2 ? subnormal : normal));
}

// Rounds to nearest, ties to even; what is too large saturates. There is no NaN: it becomes 0.
MLA_ALWAYS_INLINE constexpr uint8_t fp32_to_e2m1(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t normal = (magnitude - (126u << 23) + 0x1fffff + (magnitude >> 22 & 1)) >> 22;
  // Adding 2^22 aligns the unit in the last place with the smallest subnormal, 0.5.
  const uint32_t subnormal =
      float_bits(bits_float(magnitude) + 4194304.0f) - float_bits(4194304.0f);
  const uint32_t finite = magnitude < 0x3f800000 ? subnormal : normal;
  const uint32_t saturated = magnitude >= 0x40c00000 ? 7 : finite;  // kMaxE2m1
  return magnitude > 0x7f800000 ? 0 : static_cast<uint8_t>((bits >> 28 & 8) | saturated);
}

}  // namespace mla::cpu
