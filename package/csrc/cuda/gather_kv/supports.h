#pragma once

#include "common/rows.h"

namespace mla::cuda::gather_kv {

// A lane loads a chunk of at most 16 bits an element as one vector.
constexpr bool supports(DType kv, DType out, int d_qk, int d_v) {
  return converts_rows(kv, d_qk, d_v) && kv != DType::fp32 && is_float(out);
}

}  // namespace mla::cuda::gather_kv
