// What the dense and the sparse op ask of CUTLASS example 77, and where in the workspace it
// happens.
#pragma once

#include <cstdint>

#include "common/buffer.h"
#include "common/dtype.h"
#include "common/status.h"
#include "common/traits.h"
#include "sm100/decode/rows.h"

namespace mla::sm100 {

struct Traits {
  DType q;
  DType kv;
  DType out;
  Load load;
  Schedule schedule;
};

// KV as the kernel sees it: pages, or batch rows of `page_size` tokens each. Strides in elements.
struct KvView {
  bool paged;
  const void* latent;
  const void* rope;
  int64_t latent_stride_page;
  int64_t latent_stride_token;
  int64_t rope_stride_page;
  int64_t rope_stride_token;
  int64_t page_count;
  int32_t page_size;
};

struct Attention {
  int32_t device;
  int32_t sm_count;
  RowShape shape;
  RowSource source;
  QueryPacking query;
  RowResults results;
  KvView kv;
  float softmax_scale;
  float out_scale;
  bool has_tokens;  // some row may have one
  bool gathers;     // into bf16 rows of the workspace, as many tokens a batch row as its table has
};

// Byte offsets into the workspace.
struct Layout {
  int64_t arrays;
  int64_t table;
  int64_t query;
  int64_t out;
  int64_t lse;
  int64_t gathered;
  int64_t partial;
  int64_t bytes;
  int64_t table_stride;
  bool packs_query;
  bool unpacks;  // fewer than 128 heads
};

struct Sizes {
  int64_t batch;
  int64_t q_len;
  int64_t num_heads;
  int64_t max_splits;
  bool batch_invariant;
};

// Fills the shape of the attention on its device.
Status set_shape(const Sizes& sizes, const Traits& traits, Attention* attention);

struct Scales {
  float softmax;
  float q;
  float kv;
  float out;
};

// Folds the scales of Q and KV into those of the logits and of the output.
Status set_scales(const Scales& scales, const Traits& traits, Attention* attention);

// Q as [batch, token, head] views of latent and rope; strides in elements.
void set_query(const void* latent, const int64_t (&latent_stride)[3], const void* rope,
               const int64_t (&rope_stride)[3], DType dtype, Attention* attention);

// Refuses addresses and strides that cannot be copied 16 bytes at a time. Absent tensors pass.
Status check_kv(const KvView& kv, DType dtype);

// Refuses an `out` that the kernel cannot write in place where it would have to.
Status check_results(const Attention& attention);

Status layout(const Attention& attention, Layout* layout);

// Whether Q can be read where it is.
bool reads_query_in_place(const Attention& attention);

// Whether LSE is written where it belongs.
bool writes_lse_in_place(const Attention& attention);

// Prepares the rows in the workspace.
Status launch_rows(const Attention& attention, const Layout& layout, void* workspace,
                   cudaStream_t stream);

RowArrays row_arrays(const Attention& attention, const Layout& layout, void* workspace);

}  // namespace mla::sm100
