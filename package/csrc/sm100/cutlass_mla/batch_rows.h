// Turns requests into the batch rows of CUTLASS's kernel and its results back into theirs. A row is
// an entry of the kernel's batch: up to 128 heads of one query token of one request.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/dtype.h"
#include "common/status.h"

namespace mla::sm100 {

// Device memory for what the kernel and its reduction read of each row.
struct RowArrays {
  int32_t* lengths;  // tokens of a row
  int32_t* splits;   // splits of a row, 0 for an empty one
  // What the reduction reads. It divides by the splits of a row, so an empty row says 1 token in 1
  // split, which the reduction leaves alone.
  int32_t* reduction_lengths;
  int32_t* reduction_splits;
  int32_t* extra_lengths;  // how many of the tokens, the last ones, are of the extra cache
  int32_t* table;          // [rows, table_stride] entries of each row; null for contiguous KV
  int64_t table_stride;
};

// What a row may attend to of one cache: pages of a block table, or selected slots.
struct RowEntries {
  const int32_t* data;  // null for contiguous KV, and for an extra cache that there is not
  int64_t stride_b;
  int64_t stride_s;
  int64_t width;           // entries of a row
  const int32_t* lengths;  // tokens of a request, or entries of a row; null for all
  int64_t lengths_stride_b;
  int64_t lengths_stride_s;
  int64_t capacity;  // the most tokens that they are
  int64_t limit;     // entries outside [0, limit) are absent
};

// What a row may attend to.
struct RowSource {
  RowEntries main;
  RowEntries extra;  // slots of a second cache, behind those of the first
  // How many tokens a query token of a tensor [batch, query token] may attend to; null: as
  // `causal` says.
  const int32_t* token_lengths;
  int64_t token_lengths_stride_b;
  int64_t token_lengths_stride_s;
  // Where the query tokens of each request begin, [requests + 1], if requests have different
  // numbers of them; otherwise null, and the requests are those of the batch.
  const int32_t* query_bounds;
  int32_t requests;
  int32_t entry_tokens;  // tokens of an entry
  bool causal;
  // Slots become multiples of the cache's unit: page * page_units + offset * token_units. Entries
  // that stay as they are have page_size 1 and page_units 1.
  int32_t page_size;
  int32_t page_units;
  int32_t token_units;

  int64_t capacity() const { return main.capacity + extra.capacity; }
};

// A query tensor to pack into rows [rows, 128] of the kernel: the latent part, the rope part if
// any, and zeros. `packed` is null for one that is read in place.
struct QueryPacking {
  const void* latent;
  const void* rope;
  int64_t latent_stride[3];  // in bytes, of batch, token and head
  int64_t rope_stride[3];
  void* packed;
  int32_t element_bytes;
  int32_t latent_bytes;
  int32_t rope_bytes;
  int32_t row_bytes;
};

// Where the results of a row belong. LSE may be null; elements of the output have two bytes.
struct RowResults {
  void* out;
  int64_t out_stride[3];  // in elements, of batch, token and head
  float* lse;
  int64_t lse_stride[3];
  const float* sink;  // of each head, a logit without a value; null for none
};

struct RowShape {
  int32_t rows;  // of all requests, query tokens and tiles of heads, the last varying fastest
  int32_t q_len;
  int32_t num_heads;
  int32_t head_tiles;  // of 128 heads, which a query token has
  int32_t max_splits;
  int32_t d_v;  // columns of an output
};

// Fills `arrays`, packs the queries, and writes 0 and -inf as the results of empty rows.
Status prepare_rows(const RowShape& shape, const RowSource& source, const RowArrays& arrays,
                    const QueryPacking& query, const RowResults& results, cudaStream_t stream);

// Copies `out` [rows, 128, d_v] and `lse` [rows, 128] to where they belong, the output scaled by
// the sink. Either result may be absent, `out` as a null pointer; empty rows are left alone.
Status unpack_rows(const RowShape& shape, const int32_t* lengths, const void* out, DType dtype,
                   const float* lse, const RowResults& results, cudaStream_t stream);

}  // namespace mla::sm100
