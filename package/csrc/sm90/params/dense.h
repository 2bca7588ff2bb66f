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
  Shape shape;
  const void* plan_buffer;
  const int32_t* lengths;
  int32_t capacity;  // the most tokens that a request can have
  int32_t causal;
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
  // The query tokens of a request; shape.q_len are the most.
  MLA_HOST_DEVICE int32_t query_tokens(int32_t request) const {
    return out.bounds.bounds == nullptr ? shape.q_len : out.bounds.count(request, shape.q_len);
  }
  // The query rows of a request; shape.rows are the most.
  MLA_HOST_DEVICE int32_t query_rows(int32_t request) const {
    return out.bounds.bounds == nullptr ? shape.rows : query_tokens(request) * shape.num_heads;
  }
};

}  // namespace mla::sm90::decode
