// Problems of one op told as problems of another. Generated; see codegen/signature/conversions.py.
#pragma once

#include "mla/abi.h"

namespace mla {

// The decode of one request whose caches are one page each: payloads may compute both by one kernel.
inline mla_sparse_decode_problem as_decode(const mla_sparse_prefill_problem& problem) {
  mla_sparse_decode_problem result = {};
  result.op = MLA_OP_SPARSE_DECODE;
  result.device = problem.device;
  result.q_latent = problem.q_latent;
  result.q_latent_stride_s = problem.q_latent_stride_s;
  result.q_latent_stride_h = problem.q_latent_stride_h;
  result.q_rope = problem.q_rope;
  result.q_rope_stride_s = problem.q_rope_stride_s;
  result.q_rope_stride_h = problem.q_rope_stride_h;
  result.kv_latent = problem.kv_latent;
  result.kv_latent_stride_token = problem.kv_latent_stride_token;
  result.kv_rope = problem.kv_rope;
  result.kv_rope_stride_token = problem.kv_rope_stride_token;
  result.indices = problem.indices;
  result.indices_stride_s = problem.indices_stride_s;
  result.out = problem.out;
  result.out_stride_s = problem.out_stride_s;
  result.out_stride_h = problem.out_stride_h;
  result.lse = problem.lse;
  result.lse_stride_h = problem.lse_stride_h;
  result.lse_stride_s = problem.lse_stride_s;
  result.max_logits = problem.max_logits;
  result.max_logits_stride_h = problem.max_logits_stride_h;
  result.max_logits_stride_s = problem.max_logits_stride_s;
  result.topk_length = problem.topk_length;
  result.topk_length_stride_s = problem.topk_length_stride_s;
  result.attn_sink = problem.attn_sink;
  result.extra_kv_latent = problem.extra_kv_latent;
  result.extra_kv_latent_stride_token = problem.extra_kv_latent_stride_token;
  result.extra_kv_rope = problem.extra_kv_rope;
  result.extra_kv_rope_stride_token = problem.extra_kv_rope_stride_token;
  result.extra_indices = problem.extra_indices;
  result.extra_indices_stride_s = problem.extra_indices_stride_s;
  result.extra_topk_length = problem.extra_topk_length;
  result.extra_topk_length_stride_s = problem.extra_topk_length_stride_s;
  result.batch = 1;
  result.q_len = problem.q_len;
  result.num_heads = problem.num_heads;
  result.num_pages = 1;
  result.page_size = problem.kv_len;
  result.topk = problem.topk;
  result.extra_num_pages = 1;
  result.extra_page_size = problem.extra_kv_len;
  result.extra_topk = problem.extra_topk;
  result.softmax_scale = problem.softmax_scale;
  result.q_scale = problem.q_scale;
  result.kv_scale = problem.kv_scale;
  result.out_scale = problem.out_scale;
  return result;
}

// The gathering of the rows that a sparse decode selects; attention applies their scale.
inline mla_gather_kv_problem as_gather(const mla_sparse_decode_problem& problem,
    void* indices,
    void* out_latent,
    int64_t out_latent_stride_row,
    void* out_rope,
    int64_t out_rope_stride_row,
    int64_t num_rows) {
  mla_gather_kv_problem result = {};
  result.op = MLA_OP_GATHER_KV;
  result.device = problem.device;
  result.kv_latent = problem.kv_latent;
  result.kv_latent_stride_page = problem.kv_latent_stride_page;
  result.kv_latent_stride_token = problem.kv_latent_stride_token;
  result.kv_rope = problem.kv_rope;
  result.kv_rope_stride_page = problem.kv_rope_stride_page;
  result.kv_rope_stride_token = problem.kv_rope_stride_token;
  result.indices = indices;
  result.out_latent = out_latent;
  result.out_latent_stride_row = out_latent_stride_row;
  result.out_rope = out_rope;
  result.out_rope_stride_row = out_rope_stride_row;
  result.num_pages = problem.num_pages;
  result.page_size = problem.page_size;
  result.num_rows = num_rows;
  result.kv_scale = 1;
  return result;
}

// The same with the extra cache, and what is selected of it, in place of the first.
inline mla_sparse_decode_problem as_extra(const mla_sparse_decode_problem& problem) {
  mla_sparse_decode_problem result = {};
  result.op = MLA_OP_SPARSE_DECODE;
  result.device = problem.device;
  result.q_latent = problem.q_latent;
  result.q_latent_stride_b = problem.q_latent_stride_b;
  result.q_latent_stride_s = problem.q_latent_stride_s;
  result.q_latent_stride_h = problem.q_latent_stride_h;
  result.q_rope = problem.q_rope;
  result.q_rope_stride_b = problem.q_rope_stride_b;
  result.q_rope_stride_s = problem.q_rope_stride_s;
  result.q_rope_stride_h = problem.q_rope_stride_h;
  result.kv_latent = problem.extra_kv_latent;
  result.kv_latent_stride_page = problem.extra_kv_latent_stride_page;
  result.kv_latent_stride_token = problem.extra_kv_latent_stride_token;
  result.kv_rope = problem.extra_kv_rope;
  result.kv_rope_stride_page = problem.extra_kv_rope_stride_page;
  result.kv_rope_stride_token = problem.extra_kv_rope_stride_token;
  result.indices = problem.extra_indices;
  result.indices_stride_b = problem.extra_indices_stride_b;
  result.indices_stride_s = problem.extra_indices_stride_s;
  result.out = problem.out;
  result.out_stride_b = problem.out_stride_b;
  result.out_stride_s = problem.out_stride_s;
  result.out_stride_h = problem.out_stride_h;
  result.lse = problem.lse;
  result.lse_stride_b = problem.lse_stride_b;
  result.lse_stride_h = problem.lse_stride_h;
  result.lse_stride_s = problem.lse_stride_s;
  result.max_logits = problem.max_logits;
  result.max_logits_stride_b = problem.max_logits_stride_b;
  result.max_logits_stride_h = problem.max_logits_stride_h;
  result.max_logits_stride_s = problem.max_logits_stride_s;
  result.topk_length = problem.extra_topk_length;
  result.topk_length_stride_b = problem.extra_topk_length_stride_b;
  result.topk_length_stride_s = problem.extra_topk_length_stride_s;
  result.attn_sink = problem.attn_sink;
  result.extra_kv_latent = problem.extra_kv_latent;
  result.extra_kv_latent_stride_page = problem.extra_kv_latent_stride_page;
  result.extra_kv_latent_stride_token = problem.extra_kv_latent_stride_token;
  result.extra_kv_rope = problem.extra_kv_rope;
  result.extra_kv_rope_stride_page = problem.extra_kv_rope_stride_page;
  result.extra_kv_rope_stride_token = problem.extra_kv_rope_stride_token;
  result.extra_indices = problem.extra_indices;
  result.extra_indices_stride_b = problem.extra_indices_stride_b;
  result.extra_indices_stride_s = problem.extra_indices_stride_s;
  result.extra_topk_length = problem.extra_topk_length;
  result.extra_topk_length_stride_b = problem.extra_topk_length_stride_b;
  result.extra_topk_length_stride_s = problem.extra_topk_length_stride_s;
  result.batch = problem.batch;
  result.q_len = problem.q_len;
  result.num_heads = problem.num_heads;
  result.num_pages = problem.extra_num_pages;
  result.page_size = problem.extra_page_size;
  result.topk = problem.extra_topk;
  result.extra_num_pages = problem.extra_num_pages;
  result.extra_page_size = problem.extra_page_size;
  result.extra_topk = problem.extra_topk;
  result.max_splits = problem.max_splits;
  result.softmax_scale = problem.softmax_scale;
  result.q_scale = problem.q_scale;
  result.kv_scale = problem.kv_scale;
  result.out_scale = problem.out_scale;
  return result;
}

}  // namespace mla
