#pragma once

#include "common/traits.h"

namespace mla::cpu::merge_states {

// Sums are in fp32, whatever comes in and goes out.
constexpr bool supports(DType in, DType out, Schedule schedule) {
  return is_float(in) && is_float(out) && schedule == Schedule::rows;
}

}  // namespace mla::cpu::merge_states
