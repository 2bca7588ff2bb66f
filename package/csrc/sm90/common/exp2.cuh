// Weights and log-sum-exps, computed as powers of 2.
#pragma once

namespace mla::sm90 {

inline constexpr float kLn2 = 0.693147180559945309f;
inline constexpr float kLog2E = 1.44269504088896341f;

// A row keeps its maximum until a logit exceeds it by this, as a power of 2: weights stay within
// what fp16 holds, and hardly any tile makes the sums before it be rescaled.
inline constexpr float kSlack = 8;

// Within 2 units in the last place; results below the normal numbers become 0.
__device__ __forceinline__ float power_of_2(float exponent) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
  return power;
}

}  // namespace mla::sm90
