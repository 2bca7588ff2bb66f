#pragma once

namespace mla::cuda {

// Divides many values of fp16 or bf16 by one number, in five instructions each. Each quotient
// becomes the e4m3 code that IEEE division would give: it is off by one unit in the last place at
// most, and with a dividend of 11 significant bits never so near to where two codes meet.
class ScaleDivisor {
 public:
  __device__ explicit ScaleDivisor(float divisor) {
    divisor_ = divisor;
    reciprocal_ = __frcp_rn(divisor);
    // Within these bounds no remainder that matters is subnormal; codes begin at quotients of
    // 2^-10.
    is_ordinary_ = divisor >= 0x1p-60f && divisor <= 0x1p60f;
  }

  template <int kCount>
  __device__ __forceinline__ void divide(float (&values)[kCount]) const {
    if (is_ordinary_) {
#pragma unroll
      for (float& value : values) value = quotient(value);
    } else {
#pragma unroll
      for (float& value : values) value = __fdiv_rn(value, divisor_);
    }
  }

 private:
  // The estimate is bounded because the remainder of infinity would be NaN; a NaN comes back with
  // the remainder, and subtracting that keeps the sign of zero.
  __device__ __forceinline__ float quotient(float value) const {
    constexpr float kBound = 512;  // above kMaxE4m3, so that what saturates still does
    const float estimate = fminf(fmaxf(__fmul_rn(value, reciprocal_), -kBound), kBound);
    const float remainder = __fmaf_rn(estimate, divisor_, -value);
    return __fmaf_rn(-remainder, reciprocal_, estimate);
  }

  float divisor_;
  float reciprocal_;
  bool is_ordinary_;
};

}  // namespace mla::cuda
