// Which caches the kernels read that convert a cache row by row, on any device.
#pragma once

#include "common/traits.h"
#include "mla/formats.h"

namespace mla {

// Rows hold floats, or e4m3 with scales that are fp32 or powers of two.
constexpr bool converts_rows(DType kv, int d_qk = kHeadDim) {
  const CacheFormat* const format = find_cache_format(kv, d_qk, kLatent);
  if (format == nullptr) return false;
  return format->latent_type == DType::e4m3 || (is_float(format->latent_type) && !format->is_bytes);
}

// The same of e4m3, which rows are quantised to where they are written.
constexpr bool quantises_rows(DType kv, int d_qk = kHeadDim) {
  return converts_rows(kv, d_qk) &&
         find_cache_format(kv, d_qk, kLatent)->latent_type == DType::e4m3;
}

// The same of a cache of bytes, which holds the scales of its rows.
constexpr bool has_byte_rows(DType kv) { return converts_rows(kv) && cache_format(kv).is_bytes; }

}  // namespace mla
