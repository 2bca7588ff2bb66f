#include "cpu/attention.h"

#include <cmath>
#include <limits>

namespace mla::cpu {

KvTokens pool_tokens(const CacheFormat& format, const PoolView& pool) {
  const int64_t bytes = static_cast<int64_t>(element_bytes(format.dtype));
  KvTokens tokens;
  tokens.latent = static_cast<const std::byte*>(pool.latent);
  tokens.latent_page_stride = pool.latent_page_stride * bytes;
  tokens.latent_token_stride = pool.latent_token_stride * bytes;
  if (format.has_rope_view()) {
    tokens.rope = static_cast<const std::byte*>(pool.rope);
    tokens.rope_page_stride = pool.rope_page_stride * bytes;
    tokens.rope_token_stride = pool.rope_token_stride * bytes;
  } else {
    tokens.rope = tokens.latent + format.rope_offset;
    tokens.rope_page_stride = tokens.latent_page_stride;
    tokens.rope_token_stride = tokens.latent_token_stride;
  }
  tokens.page_size = pool.page_size > 0 ? pool.page_size : 1;
  tokens.scales = tokens.latent + format.scale_offset;
  tokens.scales_token_stride = tokens.latent_token_stride;
  if (format.scale_place == ScalePlace::page) {
    tokens.latent_token_stride = tokens.rope_token_stride = format.row_bytes;
    tokens.scales = tokens.latent + tokens.page_size * format.row_bytes;
    tokens.scales_token_stride = format.scale_bytes;
  }
  return tokens;
}

Status check_page_strides(const char* name, const CacheFormat& format, const PoolView& pool,
                          int64_t num_pages) {
  return mla::check_page_strides(name, format, num_pages, pool.page_size, pool.latent_page_stride,
                                 pool.latent_token_stride);
}

void set_scales(const Scales& scales, AttendItem& item) {
  item.scale = scales.softmax * scales.q * scales.kv;
  item.v_scale = scales.kv * scales.out;
}

void Outputs::write(const Isa& isa, int64_t b, int64_t s, int64_t h, const RowResult& row) const {
  if (attn_sink != nullptr && row.lse != -std::numeric_limits<float>::infinity()) {
    const float factor = 1 / (1 + std::exp(attn_sink[h] - row.lse));
    for (int i = 0; i < d_v; ++i) row.o[i] *= factor;
  }
  isa.from_fp32(dtype, row.o, out.at(b, s, h), d_v);
  if (lse.data != nullptr) *reinterpret_cast<float*>(lse.at(b, s, h)) = row.lse;
  if (max_logits.data != nullptr) {
    *reinterpret_cast<float*>(max_logits.at(b, s, h)) = row.max_logit;
  }
}

States Partials::states(int64_t first, int64_t count, int64_t row) const {
  return {DType::fp32,
          reinterpret_cast<const std::byte*>(o(first, row)),
          rows_ * d_v_ * static_cast<int64_t>(sizeof(float)),
          lse(first, row),
          rows_,
          count};
}

int64_t attend_nanoseconds(const CacheFormat& format, int64_t row_tokens) {
  constexpr int64_t kMultiplyAddsPerNanosecond = 32;
  return saturating_product({row_tokens, format.d_qk + format.d_v}) / kMultiplyAddsPerNanosecond;
}

}  // namespace mla::cpu
