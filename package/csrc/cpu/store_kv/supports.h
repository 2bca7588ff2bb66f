#pragma once

#include "common/rows.h"

namespace mla::cpu::store_kv {

// A row is copied, or quantised.
constexpr bool supports(DType in, DType kv) {
  return is_float(in) && (kv == in || quantises_rows(kv));
}

}  // namespace mla::cpu::store_kv
