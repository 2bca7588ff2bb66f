// What the kernels of a launch are given.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/divisor.h"
#include "sm90/scheduler/shape.h"

namespace mla::sm90 {

// A tensor as [batch, token, head]; strides in elements.
struct RowView {
  void* data;
  int64_t stride[3];

  MLA_HOST_DEVICE int64_t offset(int64_t b, int64_t s, int64_t h) const {
    return b * stride[0] + s * stride[1] + h * stride[2];
  }

  template <class T>
  MLA_HOST_DEVICE T* at(int64_t b, int64_t s, int64_t h) const {
    return static_cast<T*>(data) + offset(b, s, h);
  }
};

// Partial results by slot and row; rows are padded to whole tiles. Where blocks merge them, columns
// are packed (packed.h).
struct Partials {
  float* out;  // [slots, rows, 512]
  float* lse;  // [slots, rows]
  int32_t rows;
};

// KV as pages; contiguous KV has a page a request and no table. Strides in elements.
struct KvView {
  const void* latent;
  const void* rope;
  int64_t latent_stride_page;
  int64_t latent_stride_token;
  int64_t rope_stride_page;
  int64_t rope_stride_token;
  const int32_t* table;
  int64_t table_stride;
  int32_t num_pages;
  Divisor page_size;
  int32_t box_tokens;  // of one page, that the accelerator loads together
  int32_t tile_boxes;
  int32_t in_groups;  // a box is groups of tokens, in a dimension of their own
};

// Of a box of queries in its tensor map.
struct BoxPlace {
  int32_t s;
  int32_t b;
};

struct Query {
  CUtensorMap latent_map;  // if by_tma
  CUtensorMap rope_map;
  RowView latent;
  RowView rope;
  int32_t in_pieces;  // rows are aligned to 16 bytes
  int32_t by_tma;     // and tiles are boxes of whole tokens, or of some heads of one token

  MLA_HOST_DEVICE BoxPlace box(int32_t request, int32_t s) const { return {s, request}; }
};

struct Params {
  static constexpr bool kSelects = false;

  CUtensorMap latent_map;
  CUtensorMap rope_map;
  Query query;
  Shape shape;
  const void* plan;
  const int32_t* lengths;
  int32_t capacity;  // the most tokens that a request can have
  int32_t causal;
  KvView kv;
  RowView out;
  int32_t out_in_fours;  // rows are aligned to four elements
  RowView lse;           // null: none
  Partials partials;
  int32_t merges;      // the blocks, all at once, merge what they have split
  float logit_scale;   // positive, as a power of 2
  uint32_t sign_flip;  // of the queries, where the scale is negative
  float out_scale;

  MLA_HOST_DEVICE PlanView schedule() const { return PlanView(plan, shape); }
  MLA_HOST_DEVICE int32_t length_of(int32_t request) const { return lengths[request]; }
};

}  // namespace mla::sm90
