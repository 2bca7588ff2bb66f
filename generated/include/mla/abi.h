// The contract between mla_kernels and a payload. Generated; see codegen/abi.py.
#pragma once

#include <stdint.h>

#define MLA_ABI_HASH "37a74483f1e08d68"
#define MLA_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mla_status {
  MLA_OK = 0,
  MLA_DTYPE = 1,
  MLA_DEVICE = 2,
  MLA_SHAPE = 3,
  MLA_STRIDE = 4,
  MLA_ALIGNMENT = 5,
  MLA_RANGE = 6,
  MLA_WORKSPACE = 7,
  MLA_UNSUPPORTED = 8,
  MLA_INTERNAL = 9,
} mla_status;

typedef enum mla_op {
  MLA_OP_DECODE = 0,
  MLA_OP_SPARSE_DECODE = 1,
  MLA_OP_SPARSE_PREFILL = 2,
  MLA_OP_MERGE_STATES = 3,
  MLA_OP_STORE_KV = 4,
  MLA_OP_GATHER_KV = 5,
  MLA_OP_TO_GLOBAL_INDICES = 6,
} mla_op;

// Strides count elements; a null optional pointer means absent; `device` is an ordinal.

typedef struct mla_decode_problem {
  int32_t op;
  int32_t device;
  void* q_latent;
  int64_t q_latent_stride_b;
  int64_t q_latent_stride_s;
  int64_t q_latent_stride_h;
  void* q_rope;
  int64_t q_rope_stride_b;
  int64_t q_rope_stride_s;
  int64_t q_rope_stride_h;
  void* kv_latent;
  int64_t kv_latent_stride_page;
  int64_t kv_latent_stride_token;
  void* kv_rope;
  int64_t kv_rope_stride_page;
  int64_t kv_rope_stride_token;
  void* block_table;
  int64_t block_table_stride_b;
  void* seq_lens;
  void* out;
  int64_t out_stride_b;
  int64_t out_stride_s;
  int64_t out_stride_h;
  void* lse;
  int64_t lse_stride_b;
  int64_t lse_stride_h;
  int64_t lse_stride_s;
  void* cu_seqlens_q;
  void* token_seq_lens;
  int64_t token_seq_lens_stride_b;
  int64_t token_seq_lens_stride_s;
  int64_t batch;
  int64_t q_len;
  int64_t num_heads;
  int64_t num_pages;
  int64_t page_size;
  int64_t num_requests;
  int64_t table_width;
  int64_t num_bounds;
  int64_t max_splits;
  int64_t max_q_len;
  float softmax_scale;
  float q_scale;
  float kv_scale;
  float out_scale;
  int32_t causal;
  int32_t batch_invariant;
} mla_decode_problem;

typedef struct mla_sparse_decode_problem {
  int32_t op;
  int32_t device;
  void* q_latent;
  int64_t q_latent_stride_b;
  int64_t q_latent_stride_s;
  int64_t q_latent_stride_h;
  void* q_rope;
  int64_t q_rope_stride_b;
  int64_t q_rope_stride_s;
  int64_t q_rope_stride_h;
  void* kv_latent;
  int64_t kv_latent_stride_page;
  int64_t kv_latent_stride_token;
  void* kv_rope;
  int64_t kv_rope_stride_page;
  int64_t kv_rope_stride_token;
  void* indices;
  int64_t indices_stride_b;
  int64_t indices_stride_s;
  void* out;
  int64_t out_stride_b;
  int64_t out_stride_s;
  int64_t out_stride_h;
  void* lse;
  int64_t lse_stride_b;
  int64_t lse_stride_h;
  int64_t lse_stride_s;
  void* max_logits;
  int64_t max_logits_stride_b;
  int64_t max_logits_stride_h;
  int64_t max_logits_stride_s;
  void* topk_length;
  int64_t topk_length_stride_b;
  int64_t topk_length_stride_s;
  void* attn_sink;
  void* extra_kv_latent;
  int64_t extra_kv_latent_stride_page;
  int64_t extra_kv_latent_stride_token;
  void* extra_kv_rope;
  int64_t extra_kv_rope_stride_page;
  int64_t extra_kv_rope_stride_token;
  void* extra_indices;
  int64_t extra_indices_stride_b;
  int64_t extra_indices_stride_s;
  void* extra_topk_length;
  int64_t extra_topk_length_stride_b;
  int64_t extra_topk_length_stride_s;
  int64_t batch;
  int64_t q_len;
  int64_t num_heads;
  int64_t num_pages;
  int64_t page_size;
  int64_t topk;
  int64_t extra_num_pages;
  int64_t extra_page_size;
  int64_t extra_topk;
  int64_t max_splits;
  float softmax_scale;
  float q_scale;
  float kv_scale;
  float out_scale;
} mla_sparse_decode_problem;

typedef struct mla_sparse_prefill_problem {
  int32_t op;
  int32_t device;
  void* q_latent;
  int64_t q_latent_stride_s;
  int64_t q_latent_stride_h;
  void* q_rope;
  int64_t q_rope_stride_s;
  int64_t q_rope_stride_h;
  void* kv_latent;
  int64_t kv_latent_stride_token;
  void* kv_rope;
  int64_t kv_rope_stride_token;
  void* indices;
  int64_t indices_stride_s;
  void* out;
  int64_t out_stride_s;
  int64_t out_stride_h;
  void* max_logits;
  int64_t max_logits_stride_s;
  int64_t max_logits_stride_h;
  void* lse;
  int64_t lse_stride_s;
  int64_t lse_stride_h;
  void* topk_length;
  int64_t topk_length_stride_s;
  void* attn_sink;
  void* extra_kv_latent;
  int64_t extra_kv_latent_stride_token;
  void* extra_kv_rope;
  int64_t extra_kv_rope_stride_token;
  void* extra_indices;
  int64_t extra_indices_stride_s;
  void* extra_topk_length;
  int64_t extra_topk_length_stride_s;
  int64_t q_len;
  int64_t num_heads;
  int64_t kv_len;
  int64_t topk;
  int64_t extra_kv_len;
  int64_t extra_topk;
  float softmax_scale;
  float q_scale;
  float kv_scale;
  float out_scale;
} mla_sparse_prefill_problem;

typedef struct mla_merge_states_problem {
  int32_t op;
  int32_t device;
  void* o;
  int64_t o_stride_n;
  int64_t o_stride_t;
  int64_t o_stride_h;
  void* lse;
  int64_t lse_stride_n;
  int64_t lse_stride_t;
  int64_t lse_stride_h;
  void* counts;
  int64_t counts_stride_t;
  void* out;
  int64_t out_stride_t;
  int64_t out_stride_h;
  void* out_lse;
  int64_t out_lse_stride_t;
  int64_t out_lse_stride_h;
  int64_t num_states;
  int64_t num_tokens;
  int64_t num_heads;
  int64_t head_dim;
} mla_merge_states_problem;

typedef struct mla_store_kv_problem {
  int32_t op;
  int32_t device;
  void* latent;
  int64_t latent_stride_t;
  void* rope;
  int64_t rope_stride_t;
  void* kv_latent;
  int64_t kv_latent_stride_page;
  int64_t kv_latent_stride_token;
  void* kv_rope;
  int64_t kv_rope_stride_page;
  int64_t kv_rope_stride_token;
  void* slot_mapping;
  void* scale;
  int64_t num_tokens;
  int64_t num_pages;
  int64_t page_size;
  int32_t power_of_two_scales;
  int32_t reserved;
} mla_store_kv_problem;

typedef struct mla_gather_kv_problem {
  int32_t op;
  int32_t device;
  void* kv_latent;
  int64_t kv_latent_stride_page;
  int64_t kv_latent_stride_token;
  void* kv_rope;
  int64_t kv_rope_stride_page;
  int64_t kv_rope_stride_token;
  void* indices;
  void* out_latent;
  int64_t out_latent_stride_row;
  void* out_rope;
  int64_t out_rope_stride_row;
  int64_t num_pages;
  int64_t page_size;
  int64_t num_rows;
  float kv_scale;
  int32_t reserved;
} mla_gather_kv_problem;

typedef struct mla_to_global_indices_problem {
  int32_t op;
  int32_t device;
  void* req_id;
  void* block_table;
  int64_t block_table_stride_b;
  void* token_indices;
  int64_t token_indices_stride_t;
  void* out;
  int64_t out_stride_t;
  int64_t num_tokens;
  int64_t num_requests;
  int64_t table_width;
  int64_t topk;
  int64_t page_size;
} mla_to_global_indices_problem;

typedef struct mla_variant {
  const char* name;
  mla_op op;
} mla_variant;

// `problem` points to the struct of the variant's op. Buffers named plan and workspace live on the problem's device.
// A launch answers MLA_WORKSPACE, and does nothing, where one of them has fewer bytes than its size says.
MLA_EXPORT const char* mla_abi_hash(void);
MLA_EXPORT const char* mla_version(void);
MLA_EXPORT const mla_variant* mla_registry(int64_t* count);
MLA_EXPORT mla_status mla_can_run(int64_t variant, const void* problem);
MLA_EXPORT mla_status mla_plan_size(int64_t variant, const void* problem, int64_t* bytes);
MLA_EXPORT mla_status mla_plan(int64_t variant, const void* problem, void* plan, int64_t plan_bytes,
                               void* stream);
MLA_EXPORT mla_status mla_workspace_size(int64_t variant, const void* problem, int64_t* bytes);
MLA_EXPORT mla_status mla_prepare(int64_t variant, int32_t device);
MLA_EXPORT mla_status mla_launch(int64_t variant, const void* problem, const void* plan, int64_t plan_bytes,
                                 void* workspace, int64_t workspace_bytes, void* stream);
// Three lines: the argument, what it got, what is accepted. Thread-local, valid until the next call.
MLA_EXPORT const char* mla_last_error(void);

#ifdef __cplusplus
}
#endif
