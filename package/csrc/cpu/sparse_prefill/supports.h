#pragma once

#include "cpu/rows.h"

namespace mla::cpu::sparse_prefill {

// The cache is gathered, and so has no scales.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule, int d_qk,
                        int d_v) {
  return is_float(q) && has_float_rows(kv, d_qk, d_v) && is_float(out) && load == Load::direct &&
         schedule == Schedule::rows;
}

}  // namespace mla::cpu::sparse_prefill
