#pragma once

#include "common/traits.h"

namespace mla::cpu::gather_kv {

// Rows of any cache are read.
constexpr bool supports(DType /*kv*/, DType out) { return is_float(out); }

}  // namespace mla::cpu::gather_kv
