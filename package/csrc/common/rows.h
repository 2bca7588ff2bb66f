// Which caches the kernels read that convert a cache row by row, on any device.
#pragma once

#include "common/traits.h"
#include "mla/formats.h"

namespace mla {

// Rows hold floats, or e4m3 or e2m1 with scales.
constexpr bool converts_rows(DType kv, int d_qk = kHeadDim, int d_v = kLatent) {
  const CacheFormat* const format = find_cache_format(kv, d_qk, d_v);
  if (format == nullptr) return false;
  // Rows are moved in chunks of 64 columns, of which the rope part is one.
  if (format->latent % kRope != 0 || (format->rope != 0 && format->rope != kRope)) return false;
  const bool is_scaled = format->latent_type == DType::e4m3 || format->latent_type == DType::e2m1;
  return is_scaled || (is_float(format->latent_type) && !format->is_bytes);
}

// Rows of these formats are quantised where they are written.
constexpr bool quantises_rows(DType kv, int d_qk = kHeadDim, int d_v = kLatent) {
  if (!converts_rows(kv, d_qk, d_v)) return false;
  const CacheFormat& format = *find_cache_format(kv, d_qk, d_v);
  return !is_float(format.latent_type) && format.is_written();
}

// These rows hold the scales of their groups.
constexpr bool has_byte_rows(DType kv) { return converts_rows(kv) && cache_format(kv).is_bytes; }

}  // namespace mla
