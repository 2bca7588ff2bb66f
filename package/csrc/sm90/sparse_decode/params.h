// What the kernels of sparse attention are given: the members that the roles of dense decode read,
// by the same names, and more. A request is one query token.
#pragma once

#include <cuda.h>

#include "cuda/divisor.h"
#include "sm90/decode/params.h"
#include "sm90/scheduler/uniform_plan.h"

namespace mla::sm90::sparse {

// A tensor as [token, head], where tokens are [batch, query token]; strides in elements.
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
};

struct Query {
  CUtensorMap latent_map;  // if by_tma
  CUtensorMap rope_map;
  TokenView latent;
  TokenView rope;
  int32_t in_pieces;  // rows are aligned to 16 bytes
  int32_t by_tma;     // and a tile is one box

  MLA_HOST_DEVICE BoxPlace box(int32_t token, int32_t) const {
    const int32_t b = latent.q_len.quotient(token);
    return {static_cast<int32_t>(latent.q_len.remainder(token, b)), b};
  }
};

// Slots of a cache, and which of them each token selects. Strides in elements.
struct Pool {
  const void* latent;
  const void* rope;
  int64_t latent_stride_page;
  int64_t latent_stride_token;
  int64_t rope_stride_page;
  int64_t rope_stride_token;
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

struct SelectedParams {
  static constexpr bool kSelects = true;
  static constexpr int32_t causal = 0;

  Query query;
  Shape shape;  // of query tokens; max_splits is 0, whatever the plan's is
  UniformPlan plan;
  int32_t capacity;
  Pool main;
  Pool extra;            // topk 0: none
  int32_t extra_begins;  // at this token of a request: the first of a tile, past all if none
  TokenView out;
  int32_t out_in_fours;  // rows are aligned to four elements
  TokenView lse;         // null: none
  TokenView max_logits;  // null: none
  const float* sink;     // of each head; null: none
  Partials partials;
  float* partial_peaks;  // [slots, rows]: the greatest logits, as powers of 2; never null
  int32_t merges;        // the blocks, all at once, merge what they have split
  float logit_scale;     // positive, as a power of 2
  uint32_t sign_flip;    // of the queries, where the scale is negative
  float out_scale;

  MLA_HOST_DEVICE const UniformPlan& schedule() const { return plan; }
  MLA_HOST_DEVICE int32_t length_of(int32_t token) const {
    const BoxPlace at = query.box(token, 0);
    return extra.topk > 0 ? extra_begins + extra.length_of(at.b, at.s) : main.length_of(at.b, at.s);
  }
};

}  // namespace mla::sm90::sparse
