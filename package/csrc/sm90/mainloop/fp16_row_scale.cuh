// Rows of Q in bf16 as fp16. A row's range may exceed that of fp16, so each row is scaled by a
// power of 2 that brings its greatest element to just below 2^15. Nothing is rounded but what is
// below 2^-28 of that, and in effect such an element weighs as much as the rounding of the
// greatest.
#pragma once

#include "sm90/common/elements.cuh"

namespace mla::sm90 {

// The greatest magnitudes of pairs of bf16. NaN is no maximum.
__device__ __forceinline__ void see_pair(uint32_t& greatest, uint32_t pair) {
  asm("{ .reg .b32 size; abs.bf16x2 size, %1; max.bf16x2 %0, %0, size; }"
      : "+r"(greatest)
      : "r"(pair));
}
__device__ __forceinline__ uint32_t greater_of(uint32_t pair) {
  return max(pair & 0xffff, pair >> 16);
}

// The scale of one row.
class HalfScale {
  static constexpr int kBias = 127;
  static constexpr int kGreatest = 14;  // exponent
  // The inverse of a factor has to be a normal number, as has the factor of the greatest bf16.
  static constexpr int kLowest = kGreatest + 1;
  static constexpr int kHighest = 2 * kBias;

 public:
  HalfScale() = default;
  // `greatest` is the magnitude of the greatest element, as bf16.
  __device__ __forceinline__ explicit HalfScale(uint32_t greatest)
      : exponent_(min(max(static_cast<int>(greatest >> 7), kLowest), kHighest)) {}

  __device__ __forceinline__ float factor() const {
    return power_of_2_of(kGreatest + kBias - exponent_);
  }
  __device__ __forceinline__ float inverse() const {
    return power_of_2_of(exponent_ - kBias - kGreatest);
  }

  static __device__ __forceinline__ uint32_t narrow(uint32_t pair, float factor) {
    return pair_of<cutlass::half_t>(__uint_as_float(pair << 16) * factor,
                                    __uint_as_float(pair & 0xffff0000u) * factor);
  }

 private:
  static __device__ __forceinline__ float power_of_2_of(int exponent) {
    return __uint_as_float(static_cast<uint32_t>(exponent + kBias) << 23);
  }

  int exponent_;  // of the greatest element, biased
};

}  // namespace mla::sm90
