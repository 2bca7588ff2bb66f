#pragma once

#include "common/traits.h"

namespace mla::cuda::store_kv {

// A row is copied, or quantised; no kernel reads an fp32 cache.
constexpr bool supports(DType in, DType kv) {
  if (kv == DType::e4m3 || kv == DType::fp8_ds_mla) return is_float(in);
  return kv == in && (in == DType::fp16 || in == DType::bf16);
}

}  // namespace mla::cuda::store_kv
