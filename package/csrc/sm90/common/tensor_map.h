// Tensor maps, by which the tensor memory accelerator (TMA) loads boxes of a cache and of queries.
#pragma once

#include "common/status.h"
#include "cuda/traits.h"
#include "sm90/common/views.h"

namespace mla::sm90 {

using cuda::Traits;

// Encodes the maps of a paged cache, whose boxes lie in shared memory as the traits' schedule reads
// them.
Status encode_kv_maps(const PagedKvView& kv, const Traits& traits, CUtensorMap* latent,
                      CUtensorMap* rope);

// Queries [batch, q_len, num_heads] are latent and rope rows, with their strides in this order. A
// box has kTileRows of them: `box_heads` heads of each of its tokens. Those past the last head or
// token are zeros.
struct QueryRows {
  int64_t batch;
  int64_t q_len;
  int64_t num_heads;
  const void* latent;
  const int64_t (&latent_stride)[3];
  const void* rope;
  const int64_t (&rope_stride)[3];
  int latent_columns;
  int rope_columns;  // 0: the rows have no rope part, and `rope` no map
  int box_heads;     // divides kTileRows
};

// @pre The rows are aligned to 16 bytes.
Status encode_query_maps(const QueryRows& rows, DType dtype, CUtensorMap* latent,
                         CUtensorMap* rope);

}  // namespace mla::sm90
