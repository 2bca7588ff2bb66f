#pragma once

#include "common/rows.h"

namespace mla::cuda::store_kv {

// A row is copied, or quantised; no kernel reads an fp32 cache.
constexpr bool supports(DType in, DType kv) {
  if (quantises_rows(kv)) return is_float(in);
  return kv == in && has_16_bits(in);
}

}  // namespace mla::cuda::store_kv
