// Softmax of tiles whose tokens are the rows of an accumulator: what a worker knows of its queries.
#pragma once

#include <cmath>

#include "sm90/common/exp2.cuh"
#include "sm90/mainloop/swap_ab/shared_storage.cuh"

namespace mla::sm90::stream {

// `Logits` is a thread's part of a tile, as the tensor cores leave it: of two tokens, every fourth
// pair of rows of queries.
template <class Logits, int kRows>
class Softmax {
  static constexpr int kLogits = cute::size(Logits{});

 public:
  static constexpr int kOwn = kRows / 4;  // rows of a thread
  using Own = float[kOwn];

  // The row of queries that is a thread's n-th.
  static __device__ __forceinline__ int row(int n) {
    return n / 2 * 8 + threadIdx.x % 4 * 2 + n % 2;
  }
  // Which of its rows a thread's e-th logit or sum belongs to.
  static constexpr __device__ int row_of(int e) { return e / 4 * 2 + e % 2; }

  __device__ explicit Softmax(const Params& params) : params_(params) {}

  // The scales are read anew for each tile, for want of registers.
  __device__ __forceinline__ void start(const Item& item, const float (&scales)[kRows]) {
    tokens_ = item.tokens;
    scales_ = scales;
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      max_[n] = -INFINITY;
      sum_[n] = 0;
    }
  }

  // Logits of tokens that do not exist, or that the row does not see, become -inf.
  __device__ __forceinline__ void mask(Logits& logits, uint64_t present, int first) const {
    const int hidden = params_.causal ? params_.shape.q_len - 1 : 0;  // from the first row
    if (present == ~uint64_t{0} && first + kTileTokens <= tokens_ - hidden) return;
    const int own = threadIdx.x % kWarpgroup / kWarp * 16 + threadIdx.x % kWarp / 4;
#pragma unroll
    for (int e = 0; e < kLogits; ++e) {
      const int token = own + e % 4 / 2 * 8;
      const int ahead = params_.causal ? params_.shape.token_of(row(row_of(e))) : 0;
      const int limit = tokens_ - hidden + ahead;
      if ((present >> token & 1) == 0 || first + token >= limit) logits(e) = -INFINITY;
    }
  }

  // Whether a logit of this thread calls for a new maximum.
  __device__ __forceinline__ bool exceeds(const Logits& logits) const {
    bool any = false;
#pragma unroll
    for (int n = 0; n < kOwn; ++n) any |= is_raised(own_greatest(logits, n), n);
    return any;
  }

  // By all threads of a worker: new maxima where logits call for them, and what that makes of the
  // sums before. The warps tell each other theirs in `maxima`.
  __device__ __forceinline__ void raise_max(const Logits& logits, float (&maxima)[kWarps][kRows],
                                            uint32_t barrier, Own& factor) {
    Own greatest;
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      greatest[n] = own_greatest(logits, n);
#pragma unroll
      for (int lanes = 4; lanes < kWarp; lanes *= 2) {
        greatest[n] = fmaxf(greatest[n], __shfl_xor_sync(~0u, greatest[n], lanes));
      }
      if (threadIdx.x % kWarp < 4) {
        maxima[threadIdx.x % kWarpgroup / kWarp][row(n)] = greatest[n];
      }
    }
    cutlass::arch::NamedBarrier::sync(kWarpgroup, barrier);
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        greatest[n] = fmaxf(greatest[n], maxima[warp][row(n)]);
      }
      const bool raised = is_raised(greatest[n], n);
      factor[n] = raised ? power_of_2((max_[n] - greatest[n]) * scale(n)) : 1;
      if (raised) max_[n] = greatest[n];
      sum_[n] *= factor[n];
    }
  }

  // From logits to weights.
  __device__ __forceinline__ void exponentiate(Logits& logits) {
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      const float shift = max_[n] == -INFINITY ? 0 : max_[n] * scale(n);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& logit = logits(element(n, i));
        logit = power_of_2(logit * scale(n) - shift);
        sum_[n] += logit;
      }
    }
  }

  // The sum of a row over the tokens of the warp.
  __device__ __forceinline__ float sum_of_warp(int n) const {
    float sum = sum_[n];
#pragma unroll
    for (int lanes = 4; lanes < kWarp; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    return sum;
  }
  __device__ __forceinline__ float max(int n) const { return max_[n]; }
  // Of a row's logits: positive, as a power of 2.
  __device__ __forceinline__ float scale(int n) const { return scales_[row(n)]; }

 private:
  // Of a row and a token of the thread.
  static constexpr __device__ int element(int n, int i) { return n / 2 * 4 + i * 2 + n % 2; }

  static __device__ __forceinline__ float own_greatest(const Logits& logits, int n) {
    return fmaxf(logits(element(n, 0)), logits(element(n, 1)));
  }

  __device__ __forceinline__ bool is_raised(float logit, int n) const {
    return logit * scale(n) > max_[n] * scale(n) + kSlack;
  }

  const Params& params_;
  Own max_;
  Own sum_;
  const float* scales_;
  int tokens_;
};

}  // namespace mla::sm90::stream
