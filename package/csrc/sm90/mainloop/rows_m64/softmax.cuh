// Online softmax of the rows of a tile, tile after tile: what the warpgroup of the logits knows of
// its rows.
#pragma once

#include <cfloat>
#include <cmath>

#include "sm90/combine/row_results.cuh"
#include "sm90/common/special_registers.cuh"
#include "sm90/mainloop/rows_m64/query_to_fp16.cuh"
#include "sm90/scheduler/tile_scheduler.cuh"

namespace mla::sm90::rows_m64 {

// `Logits` is a thread's fragment of a tile. Rows of Q may have been scaled, each by a factor of
// its own, which the scale of the row's logits takes back.
template <class Logits, bool kRowsAreScaled, class Params>
class Softmax {
  static constexpr int kLogits = cute::size(Logits{});
  using Rows = float[kThreadRows];

 public:
  __device__ Softmax(const Params& params, int first_row)
      : params_(params), first_row_(first_row), thread_(threadIdx.x % kWarpgroup) {}

  __device__ __forceinline__ void start(const WorkTile& work) {
    const int hidden = params_.causal ? params_.shape.q_len - 1 : 0;
    seen_by_all_ = work.tokens - hidden;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const int s = params_.shape.token_of(request_row(i));
      limit_[i] = params_.causal ? work.tokens - hidden + s : work.tokens;
      row_max_[i] = -INFINITY;
      sum_[i] = 0;
      if constexpr (Params::kIsSparse) max_logit_[i] = -INFINITY;
    }
  }

  __device__ __forceinline__ void scale_logits(const QueryToFp16& query) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      // The scale is never 0, so that a masked logit stays -inf.
      logit_scale_[i] = fmaxf(params_.logit_scale * query.inverse_factor(i), FLT_MIN);
    }
  }

  // Logits of tokens that do not exist, or that the row does not see, become -inf.
  __device__ __forceinline__ void mask(Logits& logits, uint64_t present, int first_token) const {
    if (present == ~uint64_t{0} && first_token + kTileTokens <= seen_by_all_) return;
    // Columns count from the thread's first, so that the others are constants.
    const int own = thread_ % 4 * 2;
    present >>= own;
#pragma unroll
    for (int e = 0; e < kLogits; ++e) {
      const int column = e / 4 * 8 + e % 2;
      const bool seen =
          (present >> column & 1) != 0 && column < limit_[e % 4 / 2] - first_token - own;
      if (!seen) logits(e) = -INFINITY;
    }
  }

  // Whether any row of the warp has a new maximum; then `rescale` has the factors of what was
  // summed before. Lanes compare only if one of their own logits exceeds the old maximum.
  __device__ __forceinline__ bool raise_max(const Logits& logits, Rows& rescale) {
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
      if constexpr (Params::kIsSparse) max_logit_[i] = fmaxf(max_logit_[i], greatest[i]);
      exceeds |= is_raised(greatest[i], i);
    }
    if (!__any_sync(~0u, exceeds)) return false;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      greatest[i] = fmaxf(greatest[i], __shfl_xor_sync(~0u, greatest[i], 1));
      greatest[i] = fmaxf(greatest[i], __shfl_xor_sync(~0u, greatest[i], 2));
      if (!is_raised(greatest[i], i)) continue;
      rescale[i] = exp2_approx((row_max_[i] - greatest[i]) * logit_scale(i));
      row_max_[i] = greatest[i];
    }
    return true;
  }

  // Turns logits into P.
  __device__ __forceinline__ void exponentiate(Logits& logits, const Rows& rescale) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const float shift = row_max_[i] == -INFINITY ? 0 : row_max_[i] * logit_scale(i);
      float sums[2] = {sum_[i] * rescale[i], 0};
#pragma unroll
      for (int e = 0; e < kLogits; e += 4) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          float& logit = logits(e + i * 2 + k);
          logit = exp2_approx(logit * logit_scale(i) - shift);
          sums[k] += logit;
        }
      }
      sum_[i] = sums[0] + sums[1];
    }
  }

  // Stores what becomes of a work tile's rows beside the output, and the factors of the output.
  //
  // @pre The last tile of the work tile has been added.
  __device__ __forceinline__ void finish(const WorkTile& work, float (&final_scale)[kTileRows]) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      sum_[i] += __shfl_xor_sync(~0u, sum_[i], 1);
      sum_[i] += __shfl_xor_sync(~0u, sum_[i], 2);
      if constexpr (Params::kIsSparse) {
        max_logit_[i] = fmaxf(max_logit_[i], __shfl_xor_sync(~0u, max_logit_[i], 1));
        max_logit_[i] = fmaxf(max_logit_[i], __shfl_xor_sync(~0u, max_logit_[i], 2));
      }
      if (thread_ % 4 != 0) continue;
      float sum = sum_[i];
      if constexpr (Params::kIsSparse) sum += sink(work, i);
      final_scale[tile_row(i)] = sum_[i] == 0 ? 0 : params_.out_scale / sum;
      store_row_results(work, i);
    }
  }

  // Does so for a work tile without KV.
  __device__ __forceinline__ void finish_empty(const WorkTile& work) const {
    if (thread_ % 4 != 0) return;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) store_row_results(work, i);
  }

 private:
  // The row of the request that is a thread's i-th. It is worked out anew each time, or the
  // compiler keeps what follows from it in registers.
  __device__ __forceinline__ int request_row(int i) const {
    return accumulator_row(first_row_, read_thread_index() % kWarpgroup) + i * 8;
  }

  __device__ __forceinline__ float logit_scale(int i) const {
    return kRowsAreScaled ? logit_scale_[i] : params_.logit_scale;
  }

  __device__ __forceinline__ bool is_raised(float logit, int i) const {
    return logit * logit_scale(i) > row_max_[i] * logit_scale(i) + kRescaleThreshold;
  }

  // What the attention sink adds to the sum of a row.
  __device__ __forceinline__ float sink(const WorkTile& work, int i) const {
    const int h = first_row_ + tile_row(i);
    if (params_.sink == nullptr || work.partial >= 0 || h >= params_.shape.num_heads) return 0;
    return exp2_approx(params_.sink[h] * kLog2E - row_max_[i] * logit_scale(i));
  }

  __device__ __forceinline__ void store_row_results(const WorkTile& work, int i) const {
    const int r = request_row(i);
    if (r >= params_.shape.rows) return;
    if constexpr (Params::kIsSparse) {
      store_work_tile_max_logit(params_, work, r, max_logit_[i] * logit_scale(i));
    }
    store_work_tile_lse(
        params_, work, r,
        sum_[i] == 0 ? -INFINITY : (row_max_[i] * logit_scale(i) + log2f(sum_[i])) * kLn2);
  }

  const Params& params_;
  const int first_row_;
  const int thread_;
  Rows row_max_;
  Rows sum_;
  Rows max_logit_;    // only if Params::kIsSparse; row_max_ may be less
  Rows logit_scale_;  // positive, for powers of 2
  int limit_[kThreadRows];
  int seen_by_all_;
};

}  // namespace mla::sm90::rows_m64
