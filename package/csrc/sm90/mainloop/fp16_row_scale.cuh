// Rows of Q become fp16 from bf16. A row's range may exceed that of fp16, so each row is scaled by
// a power of 2 that brings its greatest element to just below 2^15. Only elements below 2^-28 of
// the greatest are rounded, which changes a logit no more than the rounding of the greatest does.
#pragma once

#include "sm90/common/elements.cuh"

namespace mla::sm90 {

// Raises a pair of greatest magnitudes to those of a pair of bf16. NaN raises none.
__device__ __forceinline__ void raise_abs_max(uint32_t& greatest, uint32_t pair) {
  asm("{ .reg .b32 size; abs.bf16x2 size, %1; max.bf16x2 %0, %0, size; }"
      : "+r"(greatest)
      : "r"(pair));
}
__device__ __forceinline__ uint32_t greater_of_pair(uint32_t pair) {
  return max(pair & 0xffff, pair >> 16);
}

// A row of Q has this scale.
class Fp16RowScale {
  static constexpr int kBias = 127;
  static constexpr int kGreatest = 14;  // the exponent of the scaled greatest element
  // Both the factor of the greatest bf16 and the inverse of a factor have to be normal numbers.
  static constexpr int kLowest = kGreatest + 1;
  static constexpr int kHighest = 2 * kBias;

 public:
  Fp16RowScale() = default;
  // `greatest` is the magnitude of the greatest element, as bf16.
  __device__ __forceinline__ explicit Fp16RowScale(uint32_t greatest)
      : exponent_(min(max(static_cast<int>(greatest >> 7), kLowest), kHighest)) {}

  __device__ __forceinline__ float factor() const {
    return power_of_2(kGreatest + kBias - exponent_);
  }
  __device__ __forceinline__ float inverse() const {
    return power_of_2(exponent_ - kBias - kGreatest);
  }

  // Converts a pair of bf16, scaled by a factor, to fp16.
  static __device__ __forceinline__ uint32_t to_fp16(uint32_t pair, float factor) {
    return pack_pair<cutlass::half_t>(__uint_as_float(pair << 16) * factor,
                                      __uint_as_float(pair & 0xffff0000u) * factor);
  }

 private:
  static __device__ __forceinline__ float power_of_2(int exponent) {
    return __uint_as_float(static_cast<uint32_t>(exponent + kBias) << 23);
  }

  int exponent_;  // of the greatest element, biased
};

}  // namespace mla::sm90
