// Prefill in decode's words, for payloads that compute both by one kernel.
#pragma once

#include "mla/abi.h"

namespace mla {

// The decode of one request whose caches are one page each.
inline mla_sparse_decode_problem as_decode(const mla_sparse_prefill_problem& p) {
  mla_sparse_decode_problem decode = {};
  decode.op = MLA_OP_SPARSE_DECODE;
  decode.device = p.device;
  decode.q_latent = p.q_latent;
  decode.q_latent_stride_s = p.q_latent_stride_s;
  decode.q_latent_stride_h = p.q_latent_stride_h;
  decode.q_rope = p.q_rope;
  decode.q_rope_stride_s = p.q_rope_stride_s;
  decode.q_rope_stride_h = p.q_rope_stride_h;
  decode.kv_latent = p.kv_latent;
  decode.kv_latent_stride_token = p.kv_latent_stride_token;
  decode.kv_rope = p.kv_rope;
  decode.kv_rope_stride_token = p.kv_rope_stride_token;
  decode.indices = p.indices;
  decode.indices_stride_s = p.indices_stride_s;
  decode.out = p.out;
  decode.out_stride_s = p.out_stride_s;
  decode.out_stride_h = p.out_stride_h;
  decode.lse = p.lse;
  decode.lse_stride_h = p.lse_stride_h;
  decode.lse_stride_s = p.lse_stride_s;
  decode.max_logits = p.max_logits;
  decode.max_logits_stride_h = p.max_logits_stride_h;
  decode.max_logits_stride_s = p.max_logits_stride_s;
  decode.topk_length = p.topk_length;
  decode.topk_length_stride_s = p.topk_length_stride_s;
  decode.attn_sink = p.attn_sink;
  decode.extra_kv_latent = p.extra_kv_latent;
  decode.extra_kv_latent_stride_token = p.extra_kv_latent_stride_token;
  decode.extra_kv_rope = p.extra_kv_rope;
  decode.extra_kv_rope_stride_token = p.extra_kv_rope_stride_token;
  decode.extra_indices = p.extra_indices;
  decode.extra_indices_stride_s = p.extra_indices_stride_s;
  decode.extra_topk_length = p.extra_topk_length;
  decode.extra_topk_length_stride_s = p.extra_topk_length_stride_s;
  decode.batch = 1;
  decode.q_len = p.q_len;
  decode.num_heads = p.num_heads;
  decode.num_pages = 1;
  decode.page_size = p.kv_len;
  decode.topk = p.topk;
  decode.extra_num_pages = 1;
  decode.extra_page_size = p.extra_kv_len;
  decode.extra_topk = p.extra_topk;
  decode.softmax_scale = p.softmax_scale;
  decode.q_scale = p.q_scale;
  decode.kv_scale = p.kv_scale;
  decode.out_scale = p.out_scale;
  return decode;
}

}  // namespace mla
