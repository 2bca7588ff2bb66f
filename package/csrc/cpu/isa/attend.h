#pragma once

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"
#include "cpu/isa/widths.h"

namespace mla::cpu {

inline constexpr int kMaxRows = 128;  // of queries in one item

// attend may use as much beside the item's rows of O, so that a thread stays within 1 MiB.
inline constexpr size_t kMaxScratchBytes = (1 << 20) - sizeof(float) * kMaxRows * kMaxDV;

// A row of a cache as stored. Its scales are the latent's, in a cache that holds scales.
struct StoredRow {
  const std::byte* latent;
  const std::byte* rope;
  const std::byte* scales;
};

// Tells where the tokens of one request lie. Strides count bytes.
//
// Token i is on page page_table[i / page_size], or all tokens are on the fixed page where the table
// is null. Where there are slots, as in sparse attention, token i is global slot slots[i] instead,
// and a negative slot is absent.
struct KvTokens {
  const std::byte* latent = nullptr;  // of slot 0
  const std::byte* rope = nullptr;
  const std::byte* scales = nullptr;  // their pages are the latent's
  int64_t latent_page_stride = 0;
  int64_t latent_token_stride = 0;
  int64_t rope_page_stride = 0;
  int64_t rope_token_stride = 0;
  int64_t scales_token_stride = 0;
  int64_t page_size = 1;
  const int32_t* page_table = nullptr;
  int64_t fixed_page = 0;
  const int32_t* slots = nullptr;
};

// A block of query rows attends tokens [begin, end), of which row r sees those before row_limit[r],
// or all where there are no limits. o is v_scale * softmax(scale * Q K^T) V, and lse the
// log-sum-exp of the scaled logits; a row without tokens gets 0 and -inf. To compute in e4m3 rounds
// each row of Q, times the power of two that brings its greatest magnitude into (224, 448], and 256
// P. `scale` holds the scales
// of Q and of the cache, `v_scale` those of the cache and of the output.
//
// @pre scratch has Isa::scratch_bytes and is aligned to 64 bytes; its contents are undefined.
struct AttendItem {
  DType q_dtype = DType::fp32;  // fp32, fp16, bf16
  ComputeDType compute = ComputeDType::exact;
  const CacheFormat* format = nullptr;
  int rows = 0;                           // 1..kMaxRows
  const void* const* q_latent = nullptr;  // [rows] -> [latent of the format]
  const void* const* q_rope = nullptr;    // [rows] -> [rope of the format]
  KvTokens kv;
  int64_t begin = 0;
  int64_t end = 0;
  const int64_t* row_limit = nullptr;  // [rows] or null
  float scale = 1;
  float v_scale = 1;
  float* o = nullptr;  // [rows][d_v], stride o_stride
  int64_t o_stride = 0;
  float* lse = nullptr;        // [rows]
  float* max_logit = nullptr;  // [rows] or null
  std::byte* scratch = nullptr;
};

}  // namespace mla::cpu
