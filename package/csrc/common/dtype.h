#pragma once

#include <cstddef>
#include <cstdint>

#include "common/inline.h"
#include "mla/formats.h"

namespace mla {

// A type that is no element's names a cache that is an array of bytes.
MLA_ALWAYS_INLINE constexpr size_t element_bytes(DType dtype) {
  return dtype == DType::fp32 ? 4 : dtype == DType::fp16 || dtype == DType::bf16 ? 2 : 1;
}

// The conversions have no branches, so that loops over them vectorise, and round to nearest even.

MLA_ALWAYS_INLINE constexpr uint32_t float_bits(float value) {
  return __builtin_bit_cast(uint32_t, value);
}

MLA_ALWAYS_INLINE constexpr float bits_float(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

MLA_ALWAYS_INLINE constexpr float bf16_to_fp32(uint16_t code) {
  return bits_float(static_cast<uint32_t>(code) << 16);
}

MLA_ALWAYS_INLINE constexpr uint16_t fp32_to_bf16(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const uint32_t quiet_nan = bits >> 16 | 0x40;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded);
}

MLA_ALWAYS_INLINE constexpr float fp16_to_fp32(uint16_t code) {
  const uint32_t magnitude = code & 0x7fff;
  const uint32_t sign = static_cast<uint32_t>(code & 0x8000) << 16;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t special = magnitude << 13 | 0x7f800000;
  const uint32_t subnormal = float_bits(static_cast<float>(static_cast<int32_t>(magnitude)) *
                                        5.9604644775390625e-8f);  // 2^-24
  const uint32_t finite = magnitude < 0x400 ? subnormal : normal;
  return bits_float(sign | (magnitude >= 0x7c00 ? special : finite));
}

MLA_ALWAYS_INLINE constexpr uint16_t fp32_to_fp16(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  // Adding 0.5 aligns the unit in the last place with the smallest subnormal, 2^-24.
  const uint32_t subnormal = float_bits(bits_float(magnitude) + 0.5f) - float_bits(0.5f);
  const uint32_t finite = magnitude < 0x38800000 ? subnormal : normal;
  const uint32_t special = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
  const uint32_t code = magnitude >= 0x477ff000 ? special : finite;  // 65520 rounds to infinity
  return static_cast<uint16_t>(bits >> 16 & 0x8000) | static_cast<uint16_t>(code);
}

MLA_ALWAYS_INLINE constexpr float e4m3_to_fp32(uint8_t code) {
  const uint32_t magnitude = code & 0x7f;
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24;
  const uint32_t normal = (magnitude << 20) + (120u << 23);
  const uint32_t subnormal =
      float_bits(static_cast<float>(static_cast<int32_t>(magnitude)) * 0.001953125f);  // 2^-9
  const uint32_t finite = magnitude < 8 ? subnormal : normal;
  return bits_float(sign | (magnitude == 0x7f ? 0x7fc00000 : finite));
}

// 2^(code - 127); the last code is NaN.
MLA_ALWAYS_INLINE constexpr float e8m0_to_fp32(uint8_t code) {
  const uint32_t least = 0x00400000;  // 2^-127 is subnormal
  const uint32_t finite = code == 0 ? least : static_cast<uint32_t>(code) << 23;
  return bits_float(code == 0xff ? 0x7fc00000 : finite);
}

inline constexpr float kMaxE4m3 = 448;  // the largest finite value

// Finite values and infinities saturate; NaN stays NaN.
MLA_ALWAYS_INLINE constexpr uint8_t fp32_to_e4m3(float value) {
  const uint32_t bits = float_bits(value);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t normal = (magnitude - (120u << 23) + 0x7ffff + (magnitude >> 20 & 1)) >> 20;
  // Adding 2^14 aligns the unit in the last place with the smallest subnormal, 2^-9.
  const uint32_t subnormal = float_bits(bits_float(magnitude) + 16384.0f) - float_bits(16384.0f);
  const uint32_t finite = magnitude < 0x3c800000 ? subnormal : normal;
  const uint32_t saturated = magnitude >= 0x43e00000 ? 0x7e : finite;  // kMaxE4m3
  const uint32_t code = magnitude > 0x7f800000 ? 0x7f : saturated;
  return static_cast<uint8_t>((bits >> 24 & 0x80) | code);
}

// Only rows with scales have these elements: e8m0, a power of two, and e2m1, of four bits.

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

}  // namespace mla
