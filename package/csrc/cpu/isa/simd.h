#pragma once

// Each unit in isa/ compiles this header under its own options. Internal linkage keeps the linker
// from merging the copies.

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"

namespace mla::cpu {
namespace {

#if defined(__AVX512F__)
#define MLA_VECTOR_BYTES 64
inline constexpr int kAccumulators = 28;  // out of 32 registers
inline constexpr int kValueVectors = 4;
#else
#if defined(__AVX__)
#define MLA_VECTOR_BYTES 32
#else
#define MLA_VECTOR_BYTES 16
#endif
inline constexpr int kAccumulators = 12;  // out of 16 registers
inline constexpr int kValueVectors = 2;
#endif
inline constexpr int kLanes = MLA_VECTOR_BYTES / 4;

using Vec [[gnu::vector_size(MLA_VECTOR_BYTES)]] = float;
using IntVec [[gnu::vector_size(MLA_VECTOR_BYTES)]] = int32_t;

inline constexpr float kInfinity = __builtin_inff();

MLA_ALWAYS_INLINE Vec load(const float* from) {
  Vec value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

MLA_ALWAYS_INLINE IntVec load(const int32_t* from) {
  IntVec value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

MLA_ALWAYS_INLINE void store(float* to, Vec value) { __builtin_memcpy(to, &value, sizeof value); }

// The compiler drops this subtraction, but not 0 + value, which has to turn -0 into 0.
MLA_ALWAYS_INLINE Vec broadcast(float value) { return value - Vec{}; }

MLA_ALWAYS_INLINE IntVec broadcast(int32_t value) { return value - IntVec{}; }

MLA_ALWAYS_INLINE Vec select(IntVec condition, Vec yes, Vec no) { return condition ? yes : no; }

// Keeps `kept` where value is NaN.
MLA_ALWAYS_INLINE Vec maximum(Vec kept, Vec value) { return select(value > kept, value, kept); }

// The relative error is below 2e-7. Below -87, where results would be subnormal, they are 0; NaN
// stays NaN.
MLA_ALWAYS_INLINE Vec exponential(Vec x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // few enough bits that n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: the low bits of kRound + n hold n
  const Vec lowest = broadcast(-87.0f);
  const Vec clamped = select(x < lowest, lowest, x);
  const Vec shifted = clamped * kLog2E + kRound;
  const Vec n = shifted - kRound;
  const Vec r = (clamped - n * kLn2High) - n * kLn2Low;
  Vec p = broadcast(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Vec power = (Vec)(((IntVec)shifted + 127) << 23);
  return select(x < lowest, Vec{}, p * power);
}

}  // namespace
}  // namespace mla::cpu
