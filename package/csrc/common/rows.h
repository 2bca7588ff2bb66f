// Which caches the kernels read that convert a cache row by row, on any device.
#pragma once

#include "common/traits.h"
#include "mla/formats.h"

namespace mla {

// Rows have the default widths and hold floats or e4m3. Their scales, if any, are fp32, and are one
// for the cache or lie in the row.
constexpr bool converts_rows(DType kv) {
  if (!is_cache_format(kv)) return false;
  const CacheFormat& format = cache_format(kv);
  const bool is_e4m3 = format.latent_type == DType::e4m3;
  return (is_e4m3 || (is_float(format.latent_type) && !format.is_bytes)) &&
         format.scale_type == DType::fp32 && format.scale_place != ScalePlace::page;
}

// The same of e4m3, which rows are quantised to where they are written.
constexpr bool quantises_rows(DType kv) {
  return converts_rows(kv) && cache_format(kv).latent_type == DType::e4m3;
}

// The same of a cache of bytes, which holds the scales of its rows.
constexpr bool has_byte_rows(DType kv) { return converts_rows(kv) && cache_format(kv).is_bytes; }

}  // namespace mla
