// What the kernel of sparse attention is given. The mainloop reads the same members as of dense
// decode's. A request is one query token.
#pragma once

#include <cuda.h>

#include "sm90/common/views.h"
#include "sm90/params/partials.h"
#include "sm90/scheduler/uniform_plan.h"

namespace mla::sm90::sparse_decode {

// A tensor [batch, query token, head], whose requests are the query tokens of all of the batch.
struct TokenView {
  void* data;
  int64_t stride[3];
  Divisor q_len;

  template <class T>
  MLA_HOST_DEVICE T* at(int32_t token, int32_t, int32_t h) const {
    const int64_t b = q_len.quotient(token);
    const int64_t s = q_len.remainder(token, b);
    return static_cast<T*>(data) + b * stride[0] + s * stride[1] + h * stride[2];
  }

  MLA_HOST_DEVICE QueryCoordinates coordinates(int32_t token, int32_t) const {
    const int32_t b = q_len.quotient(token);
    return {static_cast<int32_t>(q_len.remainder(token, b)), b};
  }
};

// A cache, and the slots of it that each query token selects.
struct SelectedKvView : KvView {
  Divisor page_size;
  int32_t slots;
  const int32_t* indices;
  int64_t indices_stride[2];
  const int32_t* lengths;  // null: topk of each token
  int64_t lengths_stride[2];
  int32_t topk;

  // How many of a token's indices count.
  MLA_HOST_DEVICE int32_t length_of(int32_t b, int32_t s) const {
    if (lengths == nullptr) return topk;
    const int32_t length = lengths[b * lengths_stride[0] + s * lengths_stride[1]];
    return length < 0 ? 0 : length < topk ? length : topk;
  }
};

struct Params {
  static constexpr bool kIsSparse = true;
  static constexpr int32_t causal = 0;

  QueryView<TokenView> query;
  Shape shape;  // of query tokens; max_splits is 0, whatever the plan's is
  UniformPlan uniform_plan;
  int32_t capacity;
  SelectedKvView main;
  SelectedKvView extra;  // topk 0: there is none
  int32_t extra_begins;  // at this token of a request, the first of a tile; past all if none
  TokenView out;
  int32_t out_is_aligned_to_4;   // elements
  int32_t out_is_aligned_to_16;  // bytes
  TokenView lse;                 // null: the launch wants none
  TokenView max_logits;          // null: the launch wants none
  const float* sink;             // of each head; null: none
  int32_t sink_stride;           // heads to the sinks of the next query token
  Partials partials;
  float* partial_max_logits;  // [partials, rows], as powers of 2; never null
  int32_t combines;           // the blocks, all at once, combine what they have split
  float logit_scale;          // positive, for powers of 2
  uint32_t sign_flip;         // of the queries, where the scale is negative
  float out_scale;

  MLA_HOST_DEVICE const UniformPlan& plan() const { return uniform_plan; }
  MLA_HOST_DEVICE QueryTokens query_tokens(int32_t token) const { return {token, 1}; }
  MLA_HOST_DEVICE float sink_of(int32_t token, int32_t head) const {
    return sink[query.coordinates(token, 0).s * sink_stride + head];
  }
  MLA_HOST_DEVICE int32_t kv_length(int32_t token) const {
    const QueryCoordinates at = query.coordinates(token, 0);
    return extra.topk > 0 ? extra_begins + extra.length_of(at.b, at.s) : main.length_of(at.b, at.s);
  }
};

}  // namespace mla::sm90::sparse_decode
