// Softmax of the rows of a tile, tile after tile: what a warpgroup knows of its rows.
#pragma once

#include <cfloat>
#include <cmath>

#include "sm90/common/exp2.cuh"
#include "sm90/common/special_registers.cuh"
#include "sm90/mainloop/rows_m64/query_to_fp16.cuh"
#include "sm90/mainloop/rows_m64/shared_storage.cuh"
#include "sm90/scheduler/tile_scheduler.cuh"

namespace mla::sm90 {

// `Logits` is a thread's part of a tile, as the tensor cores leave it. Rows of Q may be scaled,
// each by a factor of its own, which the logits are relieved of here.
template <class Logits, bool kRowsAreScaled, class Params>
class Softmax {
  static constexpr int kLogits = cute::size(Logits{});
  using Rows = float[kThreadRows];

 public:
  __device__ Softmax(const Params& params, int first_row)
      : params_(params), first_row_(first_row), thread_(threadIdx.x % kWarpgroup) {}

  __device__ __forceinline__ void start(const Item& item) {
    const int hidden = params_.causal ? params_.shape.q_len - 1 : 0;
    seen_by_all_ = item.tokens - hidden;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const int s = params_.shape.token_of(own_row(i));
      limit_[i] = params_.causal ? item.tokens - hidden + s : item.tokens;
      max_[i] = -INFINITY;
      sum_[i] = 0;
      if constexpr (Params::kSelects) peak_[i] = -INFINITY;
    }
  }

  __device__ __forceinline__ void scale_logits(const HalfQuery& query) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      // Not 0, so that a masked logit stays -inf.
      logit_scale_[i] = fmaxf(params_.logit_scale * query.inverse_factor(i), FLT_MIN);
    }
  }

  // Logits of tokens that do not exist, or that the row does not see, become -inf.
  __device__ __forceinline__ void mask(Logits& logits, uint64_t present, int first) const {
    if (present == ~uint64_t{0} && first + kTileTokens <= seen_by_all_) return;
    // As seen from a thread's first column, so that the others are constants.
    const int own = thread_ % 4 * 2;
    present >>= own;
#pragma unroll
    for (int e = 0; e < kLogits; ++e) {
      const int column = e / 4 * 8 + e % 2;
      const bool seen = (present >> column & 1) != 0 && column < limit_[e % 4 / 2] - first - own;
      if (!seen) logits(e) = -INFINITY;
    }
  }

  // Whether any row of the warp has a new maximum. Lanes compare only where one of their own logits
  // exceeds the old one.
  __device__ __forceinline__ bool raise_max(const Logits& logits, Rows& scale) {
    Rows greatest;
    bool exceeds = false;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      float best[4] = {logits(i * 2), logits(i * 2 + 1), logits(i * 2 + 4), logits(i * 2 + 5)};
#pragma unroll
      for (int e = 8; e < kLogits; e += 4) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          float& own = best[e / 4 % 2 * 2 + k];
          own = fmaxf(own, logits(e + i * 2 + k));
        }
      }
      greatest[i] = fmaxf(fmaxf(best[0], best[1]), fmaxf(best[2], best[3]));
      if constexpr (Params::kSelects) peak_[i] = fmaxf(peak_[i], greatest[i]);
      exceeds |= is_raised(greatest[i], i);
    }
    if (!__any_sync(~0u, exceeds)) return false;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      greatest[i] = fmaxf(greatest[i], __shfl_xor_sync(~0u, greatest[i], 1));
      greatest[i] = fmaxf(greatest[i], __shfl_xor_sync(~0u, greatest[i], 2));
      if (!is_raised(greatest[i], i)) continue;
      scale[i] = power_of_2((max_[i] - greatest[i]) * logit_scale(i));
      max_[i] = greatest[i];
    }
    return true;
  }

  __device__ __forceinline__ void exponentiate(Logits& logits, const Rows& scale) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const float shift = max_[i] == -INFINITY ? 0 : max_[i] * logit_scale(i);
      float sums[2] = {sum_[i] * scale[i], 0};
#pragma unroll
      for (int e = 0; e < kLogits; e += 4) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          float& logit = logits(e + i * 2 + k);
          logit = power_of_2(logit * logit_scale(i) - shift);
          sums[k] += logit;
        }
      }
      sum_[i] = sums[0] + sums[1];
    }
  }

  // The sums are complete.
  __device__ __forceinline__ void finish(const Item& item, float (&factor)[kTileRows]) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      sum_[i] += __shfl_xor_sync(~0u, sum_[i], 1);
      sum_[i] += __shfl_xor_sync(~0u, sum_[i], 2);
      if constexpr (Params::kSelects) {
        peak_[i] = fmaxf(peak_[i], __shfl_xor_sync(~0u, peak_[i], 1));
        peak_[i] = fmaxf(peak_[i], __shfl_xor_sync(~0u, peak_[i], 2));
      }
      if (thread_ % 4 != 0) continue;
      float sum = sum_[i];
      if constexpr (Params::kSelects) sum += sink(item, i);
      factor[tile_row(i)] = sum_[i] == 0 ? 0 : params_.out_scale / sum;
      store_lse(item, i);
    }
  }

  // There is nothing to sum.
  __device__ __forceinline__ void store_nothing(const Item& item) const {
    if (thread_ % 4 != 0) return;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) store_lse(item, i);
  }

 private:
  // Of the request. Worked out anew, or the compiler keeps what follows from it in registers that
  // it lacks.
  __device__ __forceinline__ int own_row(int i) const {
    const int thread = own_thread() % kWarpgroup;
    return first_row_ + thread / kWarp * 16 + thread % kWarp / 4 + i * 8;
  }

  __device__ __forceinline__ float logit_scale(int i) const {
    return kRowsAreScaled ? logit_scale_[i] : params_.logit_scale;
  }

  __device__ __forceinline__ bool is_raised(float logit, int i) const {
    return logit * logit_scale(i) > max_[i] * logit_scale(i) + kSlack;
  }

  // What a sink weighs beside the sum of a row.
  __device__ __forceinline__ float sink(const Item& item, int i) const {
    const int h = first_row_ + tile_row(i);
    if (params_.sink == nullptr || item.partial >= 0 || h >= params_.shape.num_heads) return 0;
    return power_of_2(params_.sink[h] * kLog2E - max_[i] * logit_scale(i));
  }

  __device__ __forceinline__ void store_lse(const Item& item, int i) const {
    const int r = own_row(i);
    if (r >= params_.shape.rows) return;
    if constexpr (Params::kSelects) store_peak(item, i, r);
    const float lse = sum_[i] == 0 ? -INFINITY : (max_[i] * logit_scale(i) + log2f(sum_[i])) * kLn2;
    if (item.partial >= 0) {
      params_.partials.lse[int64_t{item.partial} * params_.partials.rows + r] = lse;
    } else if (params_.lse.data != nullptr) {
      const Shape& shape = params_.shape;
      *params_.lse.template at<float>(item.request, shape.token_of(r), shape.head_of(r)) = lse;
    }
  }

  __device__ __forceinline__ void store_peak(const Item& item, int i, int r) const {
    const float peak = peak_[i] * logit_scale(i);
    if (item.partial >= 0) {
      params_.partial_peaks[int64_t{item.partial} * params_.partials.rows + r] = peak;
    } else if (params_.max_logits.data != nullptr) {
      *params_.max_logits.template at<float>(item.request, 0, r) = peak * kLn2;
    }
  }

  const Params& params_;
  const int first_row_;
  const int thread_;
  Rows max_;
  Rows sum_;
  Rows peak_;         // the greatest logits, which max_ may be less than; only if Params::kSelects
  Rows logit_scale_;  // positive, as a power of 2
  int limit_[kThreadRows];
  int seen_by_all_;
};

}  // namespace mla::sm90
