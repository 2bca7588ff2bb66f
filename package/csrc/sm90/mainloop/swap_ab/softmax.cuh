// Online softmax of tiles whose tokens are the rows of an accumulator: what a consumer knows of its
// queries.
#pragma once

#include <cmath>

#include "sm90/common/exp2.h"
#include "sm90/mainloop/swap_ab/shared_storage.cuh"

namespace mla::sm90::swap_ab {

// `Logits` is a thread's fragment of a tile: of two tokens, every fourth pair of query rows. Rows
// of Q may have been scaled, each by a factor of its own, which the scale of the row's logits takes
// back.
template <class Format, class Logits, int kRows, class Params>
class Softmax {
  using Shared = SharedStorage<Format, kRows>;
  static constexpr int kLogits = cute::size(Logits{});

 public:
  // Where maxima and sums are: if not in registers, in shared memory.
  static constexpr bool kInRegisters = kKeepsRowsInRegisters<Format, kRows>;
  static constexpr int kThreadRows = kRows / 4;  // query rows of a thread
  using Rows = float[kThreadRows];

  // The query row that is a thread's n-th.
  static __device__ __forceinline__ int row(int n) {
    return n / 2 * 8 + threadIdx.x % 4 * 2 + n % 2;
  }
  // The n-th of its rows that a thread's e-th logit or sum belongs to.
  static constexpr __device__ int row_of(int e) { return e / 4 * 2 + e % 2; }

  __device__ Softmax(const Params& params, Shared& shared) : params_(params), shared_(shared) {}

  // The facts are read anew for each tile, since there are no registers for them.
  __device__ __forceinline__ void start(const QueryFacts<kRows>& facts) {
    facts_ = &facts;
#pragma unroll
    for (int n = 0; n < kThreadRows; ++n) {
      row_max(n) = -INFINITY;
      if constexpr (Params::kIsSparse) max_logit(n) = -INFINITY;
      sum(n) = 0;
    }
  }

  // The query rows of the request.
  __device__ __forceinline__ int query_rows() const { return facts_->work.query_rows; }

  // Logits of tokens that do not exist, or that the row does not see, become -inf.
  __device__ __forceinline__ void mask(Logits& logits, uint64_t present, int first_token) const {
    if (present == ~uint64_t{0} && first_token + kTileTokens <= facts_->least_limit) return;
    const int own = threadIdx.x % kWarpgroup / kWarp * 16 + threadIdx.x % kWarp / 4;
#pragma unroll
    for (int e = 0; e < kLogits; ++e) {
      const int token = own + e % 4 / 2 * 8;
      const int limit = facts_->limits[row(row_of(e))];
      if ((present >> token & 1) == 0 || first_token + token >= limit) logits(e) = -INFINITY;
    }
  }

  // Whether a logit of this thread calls for a new maximum.
  __device__ __forceinline__ bool exceeds(const Logits& logits) {
    bool any = false;
#pragma unroll
    for (int n = 0; n < kThreadRows; ++n) any |= is_raised(own_greatest(logits, n), n);
    if constexpr (Params::kIsSparse) {
      if (kInRegisters || params_.max_logits.data != nullptr) raise_max_logits(logits);
    }
    return any;
  }

  // Raises maxima where logits call for it; `rescale` has the factors of what was summed before.
  // All threads of a consumer call this: its warps tell each other their maxima in `maxima`.
  __device__ __forceinline__ void raise_max(const Logits& logits, float (&maxima)[kWarps][kRows],
                                            uint32_t barrier, Rows& rescale) {
    Rows greatest;
#pragma unroll
    for (int n = 0; n < kThreadRows; ++n) {
      greatest[n] = own_greatest(logits, n);
#pragma unroll
      for (int lanes = 4; lanes < kWarp; lanes *= 2) {
        greatest[n] = fmaxf(greatest[n], __shfl_xor_sync(~0u, greatest[n], lanes));
      }
      maxima[threadIdx.x % kWarpgroup / kWarp][row(n)] = greatest[n];
    }
    cutlass::arch::NamedBarrier::sync(kWarpgroup, barrier);
#pragma unroll
    for (int n = 0; n < kThreadRows; ++n) {
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        greatest[n] = fmaxf(greatest[n], maxima[warp][row(n)]);
      }
      const bool raised = is_raised(greatest[n], n);
      rescale[n] = raised ? exp2_approx((row_max(n) - greatest[n]) * scale(n)) : 1;
      if (raised) row_max(n) = greatest[n];
      sum(n) *= rescale[n];
    }
  }

  // Turns logits into P.
  __device__ __forceinline__ void exponentiate(Logits& logits) {
#pragma unroll
    for (int n = 0; n < kThreadRows; ++n) {
      const float shift = row_max(n) == -INFINITY ? 0 : row_max(n) * scale(n);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& logit = logits(element(n, i));
        logit = exp2_approx(logit * scale(n) - shift);
      }
      sum(n) += logits(element(n, 0)) + logits(element(n, 1));
    }
  }

  // The sum of a row over the tokens of the warp.
  __device__ __forceinline__ float sum_of_warp(int n) {
    float total = sum(n);
#pragma unroll
    for (int lanes = 4; lanes < kWarp; lanes *= 2) total += __shfl_xor_sync(~0u, total, lanes);
    return total;
  }
  __device__ __forceinline__ float& row_max(int n) {
    if constexpr (kInRegisters) {
      return row_max_[n];
    } else {
      return shared_.of_threads.row_max[n][threadIdx.x];
    }
  }
  // The greatest logit of a row over the tokens of the warp.
  __device__ __forceinline__ float max_logit_of_warp(int n) {
    float greatest = max_logit(n);
#pragma unroll
    for (int lanes = 4; lanes < kWarp; lanes *= 2) {
      greatest = fmaxf(greatest, __shfl_xor_sync(~0u, greatest, lanes));
    }
    return greatest;
  }
  // Returns the scale of a row's logits, which is positive and for powers of 2.
  __device__ __forceinline__ float scale_of_row(int row) const {
    return Format::kConvertsQuery ? facts_->logit_scale[row] : params_.logit_scale;
  }

 private:
  __device__ __forceinline__ void raise_max_logits(const Logits& logits) {
#pragma unroll
    for (int n = 0; n < kThreadRows; ++n) {
      max_logit(n) = fmaxf(max_logit(n), own_greatest(logits, n));
    }
  }

  __device__ __forceinline__ float scale(int n) const { return scale_of_row(row(n)); }

  // Returns the element of a row for the thread's i-th token.
  static constexpr __device__ int element(int n, int i) { return n / 2 * 4 + i * 2 + n % 2; }

  static __device__ __forceinline__ float own_greatest(const Logits& logits, int n) {
    return fmaxf(logits(element(n, 0)), logits(element(n, 1)));
  }

  __device__ __forceinline__ bool is_raised(float logit, int n) {
    return logit * scale(n) > row_max(n) * scale(n) + kRescaleThreshold;
  }

  __device__ __forceinline__ float& sum(int n) {
    if constexpr (kInRegisters) {
      return sum_[n];
    } else {
      return shared_.of_threads.sum[n][threadIdx.x];
    }
  }
  __device__ __forceinline__ float& max_logit(int n) {
    if constexpr (kInRegisters) {
      return max_logit_[n];
    } else {
      return shared_.of_threads.max_logit[n][threadIdx.x];
    }
  }

  const Params& params_;
  Shared& shared_;
  Rows row_max_;  // these three only if kInRegisters
  Rows sum_;
  Rows max_logit_;  // and this one only if Params::kIsSparse
  const QueryFacts<kRows>* facts_;
};

}  // namespace mla::sm90::swap_ab
