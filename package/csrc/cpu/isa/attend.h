#pragma once

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"

namespace mla::cpu {

inline constexpr int kMaxRows = 128;  // of queries in one item

// Beside the item's rows of O, attend may use as much, so that a thread stays within 1 MiB.
inline constexpr size_t kMaxScratchBytes = (1 << 20) - sizeof(float) * kMaxRows * kLatent;

// Where the tokens of one request lie. Strides count bytes.
struct KvTokens {
  const std::byte* latent = nullptr;  // slot 0
  const std::byte* rope = nullptr;
  int64_t latent_page_stride = 0;
  int64_t latent_token_stride = 0;
  int64_t rope_page_stride = 0;
  int64_t rope_token_stride = 0;
  int64_t page_size = 1;
  const int32_t* page_table = nullptr;  // page of token i: page_table[i / page_size]
  int64_t fixed_page = 0;               // the page of every token, where page_table is null
  const int32_t* slots = nullptr;       // sparse: token i is global slot slots[i]; negative: absent
};

// A block of query rows attends a range of tokens; the result is softmax(scale * Q K^T) V and its
// log-sum-exp.
struct AttendItem {
  DType q_dtype = DType::fp32;            // fp32, fp16, bf16
  const CacheFormat* format = nullptr;    // of KV
  int rows = 0;                           // 1..kMaxRows
  const void* const* q_latent = nullptr;  // [rows] -> [kLatent]
  const void* const* q_rope = nullptr;    // [rows] -> [kRope]
  KvTokens kv;
  int64_t begin = 0;  // tokens [begin, end)
  int64_t end = 0;
  const int64_t* row_limit = nullptr;  // [rows]: row r attends tokens i < row_limit[r]; null: all
  float scale = 1;     // of the logits, natural base; holds the scales of q and of the cache
  float v_scale = 1;   // of V
  float* o = nullptr;  // [rows][kLatent], stride o_stride; 0 for a row without tokens
  int64_t o_stride = kLatent;
  float* lse = nullptr;          // [rows], natural log; -inf for a row without tokens
  float* max_logit = nullptr;    // [rows] or null; -inf for a row without tokens
  std::byte* scratch = nullptr;  // Isa::scratch_bytes, 64-byte aligned, contents undefined
};

}  // namespace mla::cpu
