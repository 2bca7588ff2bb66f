// Arithmetic on sizes that every payload needs.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "common/dtype.h"

namespace mla {

inline constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

// The least integer that is not below `n` / `divisor`.
//
// @pre n >= 0 and divisor > 0, and their sum does not overflow.
template <class N, class Divisor>
MLA_ALWAYS_INLINE constexpr std::common_type_t<N, Divisor> ceil_div(N n, Divisor divisor) {
  return (n + divisor - 1) / divisor;
}

}  // namespace mla
