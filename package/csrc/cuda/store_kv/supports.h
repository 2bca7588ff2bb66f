#pragma once

#include "common/rows.h"

namespace mla::cuda::store_kv {

// A row is copied, or quantised; no kernel reads an fp32 cache.
constexpr bool supports(DType in, DType kv, int d_qk, int d_v) {
  if (quantises_rows(kv, d_qk, d_v)) return is_float(in);
  return kv == in && has_16_bits(in) && converts_rows(kv, d_qk, d_v);
}

}  // namespace mla::cuda::store_kv
