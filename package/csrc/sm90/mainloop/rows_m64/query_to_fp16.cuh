// Q in bf16 becomes fp16, in the warpgroup of the logits.
#pragma once

#include "sm90/mainloop/fp16_row_scale.cuh"
#include "sm90/mainloop/rows_m64/layouts.cuh"

namespace mla::sm90::rows_m64 {

// Four threads convert two rows together.
class QueryToFp16 {
 public:
  // Takes note of a pair of elements of a row.
  __device__ __forceinline__ void see(uint32_t pair, int row) {
    raise_abs_max(greatest_[row], pair);
  }

  // @pre Every pair has been seen.
  __device__ __forceinline__ void choose_factors() {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      uint32_t greatest = greater_of_pair(greatest_[i]);
      greatest = max(greatest, __shfl_xor_sync(~0u, greatest, 1));
      greatest = max(greatest, __shfl_xor_sync(~0u, greatest, 2));
      scale_[i] = Fp16RowScale(greatest);
      factor_[i] = scale_[i].factor();
    }
  }

  __device__ __forceinline__ uint32_t convert(uint32_t pair, int row) const {
    return Fp16RowScale::to_fp16(pair, factor_[row]);
  }

  __device__ __forceinline__ float inverse_factor(int row) const { return scale_[row].inverse(); }

 private:
  uint32_t greatest_[kThreadRows] = {};  // pairs
  Fp16RowScale scale_[kThreadRows];
  float factor_[kThreadRows];
};

}  // namespace mla::sm90::rows_m64
