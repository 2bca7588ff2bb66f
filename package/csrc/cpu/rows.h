// Which caches the CPU converts row by row.
#pragma once

#include "common/traits.h"
#include "cpu/isa/widths.h"
#include "mla/formats.h"

namespace mla::cpu {

// Rows of every format are converted that has the widths of a product.
constexpr bool converts_rows(DType kv, int d_qk, int d_v) {
  return has_products(d_qk, d_v) && is_cache_format(kv, d_qk, d_v);
}

// Rows of these formats are written too.
constexpr bool writes_rows(DType kv, int d_qk, int d_v) {
  return converts_rows(kv, d_qk, d_v) && find_cache_format(kv, d_qk, d_v)->is_written();
}

// Rows of floats have no scale.
constexpr bool has_float_rows(DType kv, int d_qk, int d_v) {
  return converts_rows(kv, d_qk, d_v) && is_float(kv);
}

}  // namespace mla::cpu
