#pragma once

#include "common/traits.h"

namespace mla::cuda::gather_kv {

// A lane loads a chunk of at most 16 bits an element as one vector.
constexpr bool supports(DType kv, DType out) { return kv != DType::fp32 && is_float(out); }

}  // namespace mla::cuda::gather_kv
