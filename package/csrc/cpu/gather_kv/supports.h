#pragma once

#include "cpu/rows.h"

namespace mla::cpu::gather_kv {

// A row is copied, or dequantised.
constexpr bool supports(DType kv, DType out, int d_qk, int d_v) {
  return converts_rows(kv, d_qk, d_v) && is_float(out);
}

}  // namespace mla::cpu::gather_kv
