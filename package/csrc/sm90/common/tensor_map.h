// Tensor maps of a cache and of queries for the tensor memory accelerator.
#pragma once

#include "common/status.h"
#include "sm90/decode/params.h"
#include "sm90/decode/problem.h"

namespace mla::sm90 {

// Fills the maps of what is loaded so, KV and Q.
Status encode_maps(const Traits& traits, Params* params);

// Of queries [batch, q_len, num_heads], as rows and their strides say.
struct QueryRows {
  int64_t batch;
  int64_t q_len;
  int64_t num_heads;
  const void* latent;
  const int64_t (&latent_stride)[3];
  const void* rope;
  const int64_t (&rope_stride)[3];
};
Status encode_query_maps(const QueryRows& rows, DType dtype, CUtensorMap* latent,
                         CUtensorMap* rope);

}  // namespace mla::sm90
