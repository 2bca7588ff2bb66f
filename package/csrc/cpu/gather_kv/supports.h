#pragma once

#include "common/rows.h"

namespace mla::cpu::gather_kv {

// A row is copied, or dequantised.
constexpr bool supports(DType kv, DType out) { return converts_rows(kv) && is_float(out); }

}  // namespace mla::cpu::gather_kv
