#pragma once

#include "common/traits.h"

namespace mla::cpu::store_kv {

// A row is copied, or quantised.
constexpr bool supports(DType in, DType kv) {
  return is_float(in) && (kv == in || kv == DType::e4m3 || kv == DType::fp8_ds_mla);
}

}  // namespace mla::cpu::store_kv
