// Softmax computes with powers of 2: logits are multiplied by log2(e) once, with the scale.
#pragma once

namespace mla::sm90 {

inline constexpr float kLn2 = 0.693147180559945309f;
inline constexpr float kLog2E = 1.44269504088896341f;

// A row keeps its maximum until a logit exceeds it by this power of 2. P then stays within what
// fp16 holds, and hardly any tile makes the output be rescaled.
inline constexpr float kRescaleThreshold = 8;
inline constexpr float kMaxP = 256;  // 2 to the power of kRescaleThreshold

#ifdef __CUDACC__
// The result is within 2 units in the last place; results below the normal numbers become 0.
__device__ __forceinline__ float exp2_approx(float exponent) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
  return power;
}

// The error is at most 2^-22 for numbers from 0.5 to 2, and 2^-22 of the logarithm for others.
__device__ __forceinline__ float log2_approx(float number) {
  float logarithm;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(logarithm) : "f"(number));
  return logarithm;
}
#endif

}  // namespace mla::sm90
