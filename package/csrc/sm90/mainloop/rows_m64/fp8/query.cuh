// Q in bf16 becomes e4m3, in the warpgroup of the logits, on the way into shared memory.
//
// Each row is scaled by the power of 2 that brings its greatest element into (224, 448], where 448
// is the greatest e4m3. A row with an infinity becomes NaN, as e4m3 has none.
#pragma once

#include "sm90/mainloop/fp16_row_scale.cuh"
#include "sm90/mainloop/rows_m64/layouts.cuh"

namespace mla::sm90::rows_m64 {

// Packs four neighbours of a row into a word of e4m3; what exceeds 448 becomes 448.
__device__ __forceinline__ uint32_t pack_e4m3(float a, float b, float c, float d) {
  uint32_t word;
  asm("{ .reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high}; }"
      : "=r"(word)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return word;
}

// The scale of a row that four threads have together.
class QueryScale {
 public:
  // Takes note of a pair of elements.
  __device__ __forceinline__ void see(uint32_t pair) { raise_abs_max(greatest_, pair); }

  // @pre Every pair has been seen.
  __device__ __forceinline__ void choose() {
    uint32_t greatest = greater_of_pair(greatest_);
    greatest = max(greatest, __shfl_xor_sync(~0u, greatest, 1));
    greatest = max(greatest, __shfl_xor_sync(~0u, greatest, 2));
    const int exponent = static_cast<int>(greatest >> kMantissaBits);
    const bool exceeds = (greatest & ((1 << kMantissaBits) - 1)) > kMantissaOf448;
    // Both the factor and its inverse have to be normal numbers.
    exponent_ = min(max(exponent + exceeds, kGreatest + 1), 2 * kBias);
    factor_ = power_of_2(kGreatest + kBias - exponent_);
    if (exponent > 2 * kBias) factor_ = NAN;
  }

  // Converts four neighbours.
  __device__ __forceinline__ uint32_t convert(uint2 four) const {
    return pack_e4m3(
        __uint_as_float(four.x << 16) * factor_, __uint_as_float(four.x & 0xffff0000u) * factor_,
        __uint_as_float(four.y << 16) * factor_, __uint_as_float(four.y & 0xffff0000u) * factor_);
  }

  __device__ __forceinline__ float inverse() const {
    return power_of_2(exponent_ - kBias - kGreatest);
  }

 private:
  static constexpr int kMantissaBits = 7;
  static constexpr int kMantissaOf448 = 0x60;  // 1.75
  static constexpr int kBias = 127;
  static constexpr int kGreatest = 8;  // the exponent of 448

  static __device__ __forceinline__ float power_of_2(int exponent) {
    return __uint_as_float(static_cast<uint32_t>(exponent + kBias) << 23);
  }

  uint32_t greatest_ = 0;  // a pair
  int exponent_;           // of the least power of 2 that scales to 448, biased
  float factor_;
};

}  // namespace mla::sm90::rows_m64
