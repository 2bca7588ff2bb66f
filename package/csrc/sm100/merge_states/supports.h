#pragma once

#include "common/traits.h"

namespace mla::sm100::merge_states {

// CUTLASS reduces the fp32 partial results of its split kernel.
constexpr bool supports(DType in, DType out, Schedule schedule) {
  return in == DType::fp32 && has_16_bits(out) && schedule == Schedule::reduction;
}

}  // namespace mla::sm100::merge_states
