// A dense or sparse decode in the terms of CUTLASS example 77, and what both refuse alike.
#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/scales.h"
#include "common/status.h"
#include "cuda/kv_view.h"
#include "cuda/traits.h"
#include "sm100/cutlass_mla/batch_rows.h"

namespace mla::sm100 {

using Traits = cuda::Traits;

// The kernel multiplies d_v columns of the latent, which are the value too, and kRope columns
// behind them. Where queries and keys have d_v columns in all, Q has zeros behind them, and K its
// first columns once more, which are finite and which the zeros cancel.

// KV as the kernel sees it: pages, or batch rows of `page_size` tokens each.
struct BatchKvView : cuda::KvView {
  bool paged;
  int64_t page_count;
  int32_t page_size;
};

struct AttentionProblem {
  int32_t device;
  int32_t sm_count;
  RowShape shape;
  RowSource source;
  QueryPacking query;
  RowResults results;
  BatchKvView kv;
  float softmax_scale;
  float out_scale;
  DType out_dtype;
  bool has_rope;             // columns behind those of the value
  bool has_tokens;           // some row may have one
  int32_t gathered_columns;  // of the bf16 rows into which KV is gathered; 0 where it is not
};

struct Sizes {
  int64_t batch;
  int64_t q_len;
  int64_t num_heads;
  int64_t max_splits;
  bool batch_invariant;
};

// Sets the shape, and the splits that the device has room for.
//
// @pre `attention->device` is set.
Status set_shape(const Sizes& sizes, const Traits& traits, AttentionProblem* attention);

// Folds the scales of Q and KV into those of the logits and of the output.
Status set_scales(const Scales& scales, const Traits& traits, AttentionProblem* attention);

// Sets Q, from views [batch, token, head] of latent and rope with strides in elements.
void set_query(const void* latent, const int64_t (&latent_stride)[3], const void* rope,
               const int64_t (&rope_stride)[3], const Traits& traits, AttentionProblem* attention);

// Sets Q and the results from a problem of the ABI, dense or sparse.
template <class Problem>
void set_query_and_results(const Problem& p, const Traits& traits, AttentionProblem* attention) {
  set_query(p.q_latent, {p.q_latent_stride_b, p.q_latent_stride_s, p.q_latent_stride_h}, p.q_rope,
            {p.q_rope_stride_b, p.q_rope_stride_s, p.q_rope_stride_h}, traits, attention);
  attention->results = {p.out,
                        {p.out_stride_b, p.out_stride_s, p.out_stride_h},
                        static_cast<float*>(p.lse),
                        {p.lse_stride_b, p.lse_stride_s, p.lse_stride_h},
                        nullptr};
}

// Lets the kernel read keys without a rope part as it needs them.
void set_keys_without_rope(AttentionProblem* attention);

// Refuses addresses and strides that cannot be copied 16 bytes at a time. Absent tensors pass.
Status check_kv(const cuda::KvView& kv, DType dtype);

// Describes a problem of the ABI, dense or sparse, with its scales, and refuses what the kernel
// cannot do. An overload of `describe` does all but the scales.
template <class Problem>
Status describe_all(const Problem& p, const Traits& traits, AttentionProblem* attention) {
  MLA_TRY(describe(p, traits, attention));
  return set_scales(scales(p), traits, attention);
}

// Whether the kernel can read Q where it is.
bool reads_query_in_place(const AttentionProblem& attention);

// Whether the kernel can write the output where it belongs. An absent one, of which a workspace is
// sized, may lie anywhere.
bool writes_out_in_place(const AttentionProblem& attention);

// Whether the kernel can write LSE where it belongs.
bool writes_lse_in_place(const AttentionProblem& attention);

}  // namespace mla::sm100
