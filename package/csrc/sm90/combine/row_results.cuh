// What is stored of a row beside the output: its log-sum-exp (LSE), and its greatest logit for ops
// that return it.
#pragma once

#include <cmath>

#include "sm90/common/exp2.h"

namespace mla::sm90 {

// The inverse of a sum of P, which is 0, NaN, or at least 1.
__device__ __forceinline__ float inverse_of(float sum) { return sum == 0 ? 0 : __fdividef(1, sum); }

// The sum of a row's P with that of its attention sink; a sum of 0 stays 0.
template <class Params>
__device__ __forceinline__ float with_sink(const Params& params, int query, int r, float row_max,
                                           float sum) {
  if (params.sink == nullptr || sum == 0) return sum;
  return sum + exp2_approx((params.sink_of(query, r) - row_max) * kLog2E);
}

// The log-sum-exp of a row whose exponents, of 2, were reduced by `shift`.
__device__ __forceinline__ float lse_of(float shift, float sum) {
  return sum == 0 ? -INFINITY : (shift + log2_approx(sum)) * kLn2;
}

template <class Params>
__device__ __forceinline__ void store_lse(const Params& params, int query, int r, float row_max,
                                          float sum) {
  if (params.lse.data == nullptr) return;
  const auto& shape = params.shape;
  *params.lse.template at<float>(query, shape.token_of(r), shape.head_of(r)) =
      sum == 0 ? -INFINITY : row_max + log2_approx(sum) * kLn2;
}

// `max_logit` is a logit for powers of 2.
//
// @pre The launch wants greatest logits.
template <class Params>
__device__ __forceinline__ void store_max_logit(const Params& params, int query, int r,
                                                float max_logit) {
  *params.max_logits.template at<float>(query, 0, r) = max_logit * kLn2;
}

// Stores the LSE of a row of a work tile: of its partial result or, if it has none, the request's.
template <class Params, class WorkTile>
__device__ __forceinline__ void store_work_tile_lse(const Params& params, const WorkTile& work,
                                                    int r, float lse) {
  if (work.partial >= 0) {
    *params.partials.at(params.partials.lse, work.partial, r) = lse;
  } else if (params.lse.data != nullptr) {
    const auto& shape = params.shape;
    *params.lse.template at<float>(work.query, shape.token_of(r), shape.head_of(r)) = lse;
  }
}

// Does the same with a row's greatest logit.
template <class Params, class WorkTile>
__device__ __forceinline__ void store_work_tile_max_logit(const Params& params,
                                                          const WorkTile& work, int r,
                                                          float max_logit) {
  if (work.partial >= 0) {
    *params.partials.at(params.partial_max_logits, work.partial, r) = max_logit;
  } else if (params.max_logits.data != nullptr) {
    store_max_logit(params, work.query, r, max_logit);
  }
}

}  // namespace mla::sm90
