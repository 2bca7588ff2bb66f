#pragma once

#include "cpu/rows.h"

namespace mla::cpu::store_kv {

// A row is copied, or quantised.
constexpr bool supports(DType in, DType kv, int d_qk, int d_v) {
  return is_float(in) && writes_rows(kv, d_qk, d_v) && (kv == in || !is_float(kv));
}

}  // namespace mla::cpu::store_kv
