// What the kernels of dense decode are given.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "sm90/common/views.h"
#include "sm90/params/partials.h"
#include "sm90/scheduler/plan.h"

namespace mla::sm90::decode {

struct Params {
  static constexpr bool kIsSparse = false;

  CUtensorMap latent_map;
  CUtensorMap rope_map;
  QueryView<RowView> query;
  QueryBounds bounds;
  Shape shape;
  const void* plan_buffer;
  const int32_t* lengths;
  int32_t capacity;  // the most tokens that a request can have
  int32_t causal;
  RowView token_lengths;  // how many keys each query token sees; null: as `causal` says
  PagedKvView kv;
  RowView out;
  int32_t out_columns;
  int32_t out_is_aligned_to_4;   // elements
  int32_t out_is_aligned_to_16;  // bytes
  RowView lse;                   // null: the launch wants none
  Partials partials;
  int32_t combines;    // the blocks, all at once, combine what they have split
  float logit_scale;   // positive, for powers of 2
  uint32_t sign_flip;  // of the queries, where the scale is negative
  float out_scale;

  MLA_HOST_DEVICE PlanView plan() const { return PlanView(plan_buffer, shape); }
  MLA_HOST_DEVICE int32_t kv_length(int32_t request) const { return lengths[request]; }
  MLA_HOST_DEVICE QueryTokens query_tokens(int32_t request) const {
    return bounds.of(request, shape.q_len);
  }
  // How many of a request's `tokens` its query token sees that is the s-th of those from `first`.
  MLA_HOST_DEVICE int32_t seen(int32_t first, int32_t s, int32_t tokens) const {
    const int32_t stated = *token_lengths.at<const int32_t>(first, s, 0);
    return stated < 0 ? 0 : stated < tokens ? stated : tokens;
  }
};

}  // namespace mla::sm90::decode
