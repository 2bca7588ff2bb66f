#pragma once

#include "common/traits.h"

namespace mla::cpu::sparse_prefill {

// The cache is gathered, and so has no scales.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule) {
  return is_float(q) && is_float(kv) && is_float(out) && load == Load::direct &&
         schedule == Schedule::rows;
}

}  // namespace mla::cpu::sparse_prefill
