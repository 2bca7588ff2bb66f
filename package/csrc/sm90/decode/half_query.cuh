// Rows of Q in bf16 as fp16. A row's range may exceed that of fp16, so each row is scaled by a
// power of 2 that brings its greatest element to just below 2^15. Nothing is rounded but what is
// below 2^-28 of that, and in effect such an element weighs as much as the rounding of the
// greatest.
#pragma once

#include "sm90/decode/shared.cuh"

namespace mla::sm90 {

// By the four threads that have two rows together.
class HalfQuery {
  static constexpr int kBias = 127;
  static constexpr int kGreatest = 14;  // exponent
  // The inverse of a factor has to be a normal number, as has the factor of the greatest bf16.
  static constexpr int kLowest = kGreatest + 1;
  static constexpr int kHighest = 2 * kBias;

 public:
  // A pair of elements of a row. NaN is no maximum.
  __device__ __forceinline__ void see(uint32_t pair, int row) {
    asm("{ .reg .b32 size; abs.bf16x2 size, %1; max.bf16x2 %0, %0, size; }"
        : "+r"(greatest_[row])
        : "r"(pair));
  }

  __device__ __forceinline__ void choose_factors() {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      uint32_t greatest = max(greatest_[i] & 0xffff, greatest_[i] >> 16);
      greatest = max(greatest, __shfl_xor_sync(~0u, greatest, 1));
      greatest = max(greatest, __shfl_xor_sync(~0u, greatest, 2));
      exponent_[i] = min(max(static_cast<int>(greatest >> 7), kLowest), kHighest);
      factor_[i] = __uint_as_float(power_of_2_bits(kGreatest + kBias - exponent_[i]));
    }
  }

  __device__ __forceinline__ uint32_t of(uint32_t pair, int row) const {
    return pair_of<cute::half_t>(__uint_as_float(pair << 16) * factor_[row],
                                 __uint_as_float(pair & 0xffff0000u) * factor_[row]);
  }

  __device__ __forceinline__ float inverse_factor(int row) const {
    return __uint_as_float(power_of_2_bits(exponent_[row] - kBias - kGreatest));
  }

 private:
  static __device__ __forceinline__ uint32_t power_of_2_bits(int exponent) {
    return static_cast<uint32_t>(exponent + kBias) << 23;
  }

  uint32_t greatest_[kThreadRows] = {};  // pairs
  int exponent_[kThreadRows];            // of the greatest element, biased
  float factor_[kThreadRows];
};

}  // namespace mla::sm90
