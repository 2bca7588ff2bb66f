// What a product in e4m3 would read, as floats: rounded to e4m3, and divided by its power of two,
// which is exact.
#pragma once

#include "common/dtype.h"

namespace mla::cpu {
namespace {

MLA_ALWAYS_INLINE float round_to_e4m3(float value) { return e4m3_to_fp32(fp32_to_e4m3(value)); }

// Returns the power of two that brings a magnitude into (224, 448], the last binade of e4m3; NaN
// for infinity. It is a normal float: a magnitude below 2^-118 stays smaller.
inline float e4m3_factor(float magnitude) {
  constexpr int kBias = 127, kMostExponent = 126;
  constexpr uint32_t kMantissaOf448 = 0x600000, kInfinityBits = 0x7f800000;
  if (magnitude == 0) return 1;
  const uint32_t bits = float_bits(magnitude);
  if (bits == kInfinityBits) return __builtin_nanf("");
  const int last = (bits & 0x7fffff) > kMantissaOf448 ? 7 : 8;
  const int exponent = last - (static_cast<int>(bits >> 23) - kBias);
  return bits_float(
      static_cast<uint32_t>((exponent < kMostExponent ? exponent : kMostExponent) + kBias) << 23);
}

inline void round_query_to_e4m3(float* row, int columns) {
  float greatest = 0;
  for (int d = 0; d < columns; ++d) {
    const float magnitude = __builtin_fabsf(row[d]);
    if (magnitude > greatest) greatest = magnitude;  // not NaN, which stays in its column
  }
  const float factor = e4m3_factor(greatest);
  for (int d = 0; d < columns; ++d) row[d] = round_to_e4m3(row[d] * factor) / factor;
}

inline void round_probabilities_to_e4m3(float* p, int rows) {
  constexpr float kFactor = 256;
  for (int r = 0; r < rows; ++r) p[r] = round_to_e4m3(p[r] * kFactor) / kFactor;
}

}  // namespace
}  // namespace mla::cpu
