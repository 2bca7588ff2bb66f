#pragma once

#include "cpu/rows.h"

namespace mla::cpu::decode {

// Q and the output are floats; rows of KV are converted. A cache of e4m3 may be multiplied in e4m3.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule, int d_qk,
                        int d_v, ComputeDType compute) {
  return is_float(q) && converts_rows(kv, d_qk, d_v) && is_float(out) && load == Load::direct &&
         schedule == Schedule::split && (compute == ComputeDType::exact || kv == DType::e4m3);
}

}  // namespace mla::cpu::decode
