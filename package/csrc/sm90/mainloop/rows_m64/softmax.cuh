// Online softmax of the rows of a tile, tile after tile: what the warpgroup of the logits knows of
// its rows.
#pragma once

#include <cfloat>
#include <cmath>

#include "sm90/combine/row_results.cuh"
#include "sm90/common/special_registers.cuh"
#include "sm90/scheduler/tile_scheduler.cuh"

namespace mla::sm90::rows_m64 {

// The greatest P of a row is 2 to the power of `kGreatest`, or up to 1.7 times as much where
// its maximum is stale.
template <int kGreatest>
struct ExponentRange {
  static constexpr float kShift = kGreatest;
  static constexpr float kThreshold = kGreatest + 0.75f;
};
// It is 1, or up to kMaxP.
template <>
struct ExponentRange<0> {
  static constexpr float kShift = 0;
  static constexpr float kThreshold = kRescaleThreshold;
};

// `Logits` is a thread's fragment of a tile. Rows of Q may have been scaled, each by a factor of
// its own, which the scale of the row's logits takes back. If `kClearsMissingRows`, P of the rows
// of a tile that the request does not have is 0, which takes up to 9% less time in prefill. Where
// KV is dequantized, tensor cores are not the limit.
template <class Logits, int kParts, bool kRowsAreScaled, bool kClearsMissingRows, class Params,
          class Range = ExponentRange<0>>
class Softmax {
  static constexpr int kLogits = cute::size(Logits{});
  static constexpr int kPartLogits = kLogits / kParts;
  // The sum of a thread's P of a row in a part, where each is as great as may be.
  static constexpr float kMaxSum = kPartLogits / kThreadRows * kMaxP;

 public:
  using Rows = float[kThreadRows];
  using Flags = bool[kThreadRows];
  // Sparse attention returns the greatest logits, and so has to look at all of them. Where rows are
  // scaled, there are no registers to keep logits until P is known to fit.
  static constexpr bool kSearchesFirst = Params::kIsSparse || kRowsAreScaled;

  __device__ Softmax(const Params& params, int first_row)
      : params_(params), first_row_(first_row), thread_(threadIdx.x % kWarpgroup) {}

  __device__ __forceinline__ void start(const WorkTile& work) {
    const int hidden = params_.causal ? params_.shape.q_len - 1 : 0;
    const int visible = params_.causal ? work.visible : work.tokens;
    seen_by_all_ = visible - hidden;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const int row = request_row(i);
      const int s = params_.shape.token_of(row);
      limit_[i] = params_.causal ? visible - hidden + s : visible;
      const bool is_missing = kClearsMissingRows && row >= query_rows(params_, work);
      shift_[i] = is_missing ? FLT_MAX : -FLT_MAX;
      sum_[i] = 0;
      if constexpr (Params::kIsSparse) max_logit_[i] = -INFINITY;
    }
    if constexpr (!Params::kIsSparse) {
      if (params_.token_lengths.data != nullptr) limit_by_tokens(work);
    }
  }

  // Takes back the factor by which the thread's i-th row of Q was scaled.
  __device__ __forceinline__ void scale_logits(int i, float inverse_factor) {
    // The scale is never 0, so that a masked logit stays -inf.
    logit_scale_[i] = fmaxf(params_.logit_scale * inverse_factor, FLT_MIN);
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

  // Finds the rows whose logits exceed what their maxima allow; says whether the warp has any.
  __device__ __forceinline__ bool find_excess(const Logits& logits, Flags& found) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const float own = greatest(logits, i, 0);
      if constexpr (Params::kIsSparse) max_logit_[i] = fmaxf(max_logit_[i], own);
      found[i] = exceeds(own, i);
    }
    return __any_sync(~0u, found[0] || found[1]);
  }

  // Finds them when the first part has become P: by its sums, which may be NaN, and the logits of
  // the other parts.
  __device__ __forceinline__ bool find_excess(const Logits& logits, const Rows& sums,
                                              Flags& found) const {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const bool fits = sums[i] <= kMaxSum;
      found[i] = !fits || exceeds(greatest(logits, i, kPartLogits), i);
    }
    return __any_sync(~0u, found[0] || found[1]);
  }

  // Raises the maxima of the rows that a lane has found, and of no others: the bits of a row do not
  // depend on its neighbours. `rescale` gets the factors of what was summed before.
  __device__ __forceinline__ void raise_max(const Logits& logits, const Flags& found,
                                            Rows& rescale) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      float own = greatest(logits, i, 0);
      own = fmaxf(own, __shfl_xor_sync(~0u, own, 1));
      own = fmaxf(own, __shfl_xor_sync(~0u, own, 2));
      const float shift = own * logit_scale(i) - Range::kShift;
      const uint32_t of_row = __ballot_sync(~0u, found[i]) >> (thread_ % kWarp & ~3) & 0xf;
      if (of_row == 0 || !(shift > shift_[i])) continue;
      rescale[i] = exp2_approx(shift_[i] - shift);
      shift_[i] = shift;
      sum_[i] *= rescale[i];
    }
  }

  // Turns a part of the logits into P, which is summed up by rows.
  __device__ __forceinline__ void exponentiate(const Logits& logits, int part, Logits& p,
                                               Rows& sums) const {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      float own[2] = {0, 0};
#pragma unroll
      for (int e = part * kPartLogits; e < (part + 1) * kPartLogits; e += 4) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int at = e + i * 2 + k;
          p(at) = exp2_approx(logits(at) * logit_scale(i) - shift_[i]);
          own[k] += p(at);
        }
      }
      sums[i] = own[0] + own[1];
    }
  }

  __device__ __forceinline__ void add(const Rows& sums) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) sum_[i] += sums[i];
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
    }
    if (thread_ % 4 != 0) return;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      float sum = sum_[i];
      if constexpr (Params::kIsSparse) sum += sink(work, i);
      final_scale[tile_row(i)] = sum_[i] == 0 ? 0 : params_.out_scale * inverse_of(sum);
    }
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) store_row_results(work, i);
  }

  // Does so for a request without KV. The epilogue does so for a split without KV.
  __device__ __forceinline__ void finish_empty(const WorkTile& work) const {
    if (thread_ % 4 != 0 || work.partial >= 0) return;
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) store_row_results(work, i);
  }

 private:
  // The row of the request that is a thread's i-th. It is worked out anew each time, or the
  // compiler keeps what follows from it in registers.
  __device__ __forceinline__ int request_row(int i) const {
    return accumulator_row(first_row_, read_thread_index() % kWarpgroup) + i * 8;
  }

  // Lets each row see as many tokens as the caller says for its query token.
  __device__ __forceinline__ void limit_by_tokens(const WorkTile& work) {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const int row = request_row(i);
      limit_[i] = row < query_rows(params_, work)
                      ? params_.seen(work.query, params_.shape.token_of(row), work.tokens)
                      : 0;
    }
    seen_by_all_ = min(limit_[0], limit_[1]);  // of this thread, which masks its own rows
    static_assert(kThreadRows == 2);
  }

  __device__ __forceinline__ float logit_scale(int i) const {
    return kRowsAreScaled ? logit_scale_[i] : params_.logit_scale;
  }

  __device__ __forceinline__ bool exceeds(float logit, int i) const {
    return logit * logit_scale(i) > shift_[i] + Range::kThreshold;
  }

  // The greatest of a thread's logits of a row from the `first`-th on.
  __device__ __forceinline__ static float greatest(const Logits& logits, int i, int first) {
    float best[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) best[k] = logits(first + i * 2 + k / 2 * 4 + k % 2);
#pragma unroll
    for (int e = first + 8; e < kLogits; e += 4) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        float& own = best[e / 4 % 2 * 2 + k];
        own = fmaxf(own, logits(e + i * 2 + k));
      }
    }
    return fmaxf(fmaxf(best[0], best[1]), fmaxf(best[2], best[3]));
  }

  // What the attention sink adds to the sum of a row.
  __device__ __forceinline__ float sink(const WorkTile& work, int i) const {
    const int h = first_row_ + tile_row(i);
    if (params_.sink == nullptr || work.partial >= 0 || h >= params_.shape.num_heads) return 0;
    return exp2_approx(params_.sink_of(work.query, h) * kLog2E - shift_[i]);
  }

  __device__ __forceinline__ void store_row_results(const WorkTile& work, int i) const {
    const int r = request_row(i);
    if (r >= query_rows(params_, work)) return;
    if constexpr (Params::kIsSparse) {
      store_work_tile_max_logit(params_, work, r, max_logit_[i] * logit_scale(i));
    }
    store_work_tile_lse(params_, work, r, lse_of(shift_[i], sum_[i]));
  }

  const Params& params_;
  const int first_row_;
  const int thread_;
  // What the exponents of a row are reduced by: a maximum of its scaled logits, or almost. Before
  // the first, P of any logit but -inf is inf. That of missing rows makes their P 0 (FLT_MAX).
  Rows shift_;
  Rows sum_;
  Rows max_logit_;    // only if Params::kIsSparse
  Rows logit_scale_;  // positive, for powers of 2
  int limit_[kThreadRows];
  int seen_by_all_;
};

}  // namespace mla::sm90::rows_m64
