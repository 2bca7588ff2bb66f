// Q in bf16 as fp16, by the warpgroup of the logits.
#pragma once

#include "sm90/mainloop/fp16_row_scale.cuh"
#include "sm90/mainloop/rows_m64/shared_storage.cuh"

namespace mla::sm90 {

// By the four threads that have two rows together.
class HalfQuery {
 public:
  // A pair of elements of a row.
  __device__ __forceinline__ void see(uint32_t pair, int row) { see_pair(greatest_[row], pair); }

  __device__ __forceinline__ void choose_factors() {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      uint32_t greatest = greater_of(greatest_[i]);
      greatest = max(greatest, __shfl_xor_sync(~0u, greatest, 1));
      greatest = max(greatest, __shfl_xor_sync(~0u, greatest, 2));
      scale_[i] = HalfScale(greatest);
      factor_[i] = scale_[i].factor();
    }
  }

  __device__ __forceinline__ uint32_t of(uint32_t pair, int row) const {
    return HalfScale::narrow(pair, factor_[row]);
  }

  __device__ __forceinline__ float inverse_factor(int row) const { return scale_[row].inverse(); }

 private:
  uint32_t greatest_[kThreadRows] = {};  // pairs
  HalfScale scale_[kThreadRows];
  float factor_[kThreadRows];
};

}  // namespace mla::sm90
