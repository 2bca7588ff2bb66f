// Computes the log-sum-exp of a row's states and the weight of each, by a warp.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/launch.h"

namespace mla::cuda::merge_states {

// The LSE of each state of a row. A state without tokens has -inf.
struct StateLse {
  const float* data;
  int64_t stride;
  int count;

  __device__ float operator[](int state) const { return data[state * stride]; }
};

// LSEs that another library may have written: FlashMLA gives +inf to a state without tokens. Of our
// own states +inf says that logits overflowed, and is kept.
struct ForeignStateLse : StateLse {
  __device__ float operator[](int state) const {
    const float lse = StateLse::operator[](state);
    return lse == INFINITY ? -INFINITY : lse;
  }
};

// The weight of state i is exp(LSE_i - shift) / sum, which is exact even where LSE itself is large
// and so coarsely rounded.
struct MergedLse {
  float value;
  float shift;
  float sum;
};

__device__ inline float warp_max(float value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, distance));
  }
  return value;
}

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(~0u, value, distance);
  }
  return value;
}

// The LSE of no states is -inf; infinities and NaN are treated as by torch.logsumexp. All lanes get
// the same result.
template <class Lse>
__device__ inline MergedLse merge_lse(const Lse& lse, int lane) {
  if (lse.count == 1) return {lse[0], lse[0], 1};
  float greatest = -INFINITY;
  bool empty = true;
  for (int i = lane; i < lse.count; i += kWarp) {
    greatest = fmaxf(greatest, lse[i]);
    empty &= lse[i] == -INFINITY;
  }
  greatest = warp_max(greatest);
  if (__all_sync(~0u, empty)) return {-INFINITY, 0, 1};
  const bool finite = isfinite(greatest);
  const float shift = finite ? greatest : 0;
  float sum = 0;
  for (int i = lane; i < lse.count; i += kWarp) sum += expf(lse[i] - shift);
  sum = warp_sum(sum);
  const float value = logf(sum) + shift;
  return finite ? MergedLse{value, shift, sum} : MergedLse{value, value, 1};
}

// A state without tokens has no weight, and what it has in o is never read.
inline constexpr float kAbsent = -1;
__device__ inline bool is_absent(float weight) { return weight < 0; }

template <class Lse>
__device__ inline float weight_of(const Lse& lse, const MergedLse& merged, int state) {
  if (state >= lse.count || lse[state] == -INFINITY) return kAbsent;
  return expf(lse[state] - merged.shift) / merged.sum;
}

}  // namespace mla::cuda::merge_states
