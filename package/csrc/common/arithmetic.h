// Arithmetic on sizes that every payload needs.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "common/inline.h"

namespace mla {

inline constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

// The least integer that is not below `n` / `divisor`.
//
// @pre n >= 0 and divisor > 0, and their sum does not overflow.
template <class N, class Divisor>
MLA_ALWAYS_INLINE constexpr std::common_type_t<N, Divisor> ceil_div(N n, Divisor divisor) {
  return (n + divisor - 1) / divisor;
}

// The least multiple of `multiple` that is not below `n`; the preconditions are those of ceil_div.
template <class N, class Multiple>
MLA_ALWAYS_INLINE constexpr std::common_type_t<N, Multiple> round_up(N n, Multiple multiple) {
  return ceil_div(n, multiple) * multiple;
}

}  // namespace mla
