// Inputs, outputs and partial results, as decode and the sparse ops share them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/arithmetic.h"
#include "common/checks.h"
#include "common/dtype.h"
#include "common/scales.h"
#include "cpu/combine.h"
#include "cpu/isa/isa.h"

namespace mla::cpu {

struct AttentionTypes {
  DType q;
  CacheFormat kv;
  DType out;
  ComputeDType compute = ComputeDType::exact;
};

// A tensor [batch, q_len, num_heads, ...] whose strides count bytes.
struct RowTensor {
  std::byte* data = nullptr;
  int64_t stride_b = 0;
  int64_t stride_s = 0;
  int64_t stride_h = 0;

  std::byte* at(int64_t b, int64_t s, int64_t h) const {
    return data + b * stride_b + s * stride_s + h * stride_h;
  }
};

inline RowTensor row_tensor(void* data, size_t element_bytes, int64_t stride_b, int64_t stride_s,
                            int64_t stride_h) {
  const int64_t bytes = static_cast<int64_t>(element_bytes);
  return {static_cast<std::byte*>(data), stride_b * bytes, stride_s * bytes, stride_h * bytes};
}

// A cache [pages, page_size] whose strides count elements.
struct PoolView {
  const void* latent;
  int64_t latent_page_stride;
  int64_t latent_token_stride;
  const void* rope;
  int64_t rope_page_stride;
  int64_t rope_token_stride;
  int64_t page_size;
};

// It takes every problem with a cache of pages.
template <class Problem>
PoolView pool_view(const Problem& p) {
  return {p.kv_latent, p.kv_latent_stride_page, p.kv_latent_stride_token,
          p.kv_rope,   p.kv_rope_stride_page,   p.kv_rope_stride_token,
          p.page_size};
}

KvTokens pool_tokens(const CacheFormat& format, const PoolView& pool);

// Refuses strides of a cache [num_pages, page_size] that its format does not have: where the scales
// follow the rows of a page, these follow each other.
Status check_page_strides(const char* name, const CacheFormat& format, const PoolView& pool,
                          int64_t num_pages);

// Sets the scales of the logits and of V; the scale of the output folds into that of V.
void set_scales(const Scales& scales, AttendItem& item);

// Points to the two parts of each query row of a block.
struct QueryRows {
  const void* latent[kMaxRows];
  const void* rope[kMaxRows];
};

// A row has this result.
struct RowResult {
  float* o;  // [d_v]; a sink changes it
  float lse;
  float max_logit = 0;
};

// The tensors that results go to; those without data are absent.
struct Outputs {
  DType dtype;
  int d_v;
  RowTensor out;
  RowTensor lse;
  RowTensor max_logits;
  const float* attn_sink = nullptr;  // [num_heads]

  void write(const Isa& isa, int64_t b, int64_t s, int64_t h, const RowResult& row) const;
};

// The workspace of rows whose tokens are split has slots of [rows][d_v] partial outputs, then their
// LSEs, then their largest logits.
class Partials {
 public:
  Partials(void* workspace, int64_t slots, int64_t rows, int d_v)
      : o_(static_cast<float*>(workspace)),
        lse_(o_ + slots * rows * d_v),
        max_logits_(lse_ + slots * rows),
        rows_(rows),
        d_v_(d_v) {}

  static int64_t bytes(int64_t slots, int64_t rows, int d_v) {
    return saturating_product({slots, rows, d_v + 2, sizeof(float)});
  }

  float* o(int64_t slot, int64_t row) const { return o_ + (slot * rows_ + row) * d_v_; }
  float* lse(int64_t slot, int64_t row) const { return lse_ + slot * rows_ + row; }
  float* max_logit(int64_t slot, int64_t row) const { return max_logits_ + slot * rows_ + row; }

  // Returns the states of a row in slots [first, first + count).
  States states(int64_t first, int64_t count, int64_t row) const;

 private:
  float* o_;
  float* lse_;
  float* max_logits_;
  int64_t rows_;
  int d_v_;
};

// Estimates what attending takes, to decide how many threads it is worth.
int64_t attend_nanoseconds(const CacheFormat& format, int64_t row_tokens);

// Rows that one item combines.
inline constexpr int kCombineRows = 16;

}  // namespace mla::cpu
