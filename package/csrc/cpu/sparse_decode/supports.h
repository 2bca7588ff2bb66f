#pragma once

#include "cpu/rows.h"

namespace mla::cpu::sparse_decode {

// Q and the output are floats; rows of KV are converted.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule, int d_qk,
                        int d_v, ExtraKv extra_kv) {
  if (extra_kv != ExtraKv::same && !has_extra_format(kv, d_qk)) return false;
  return is_float(q) && converts_rows(kv, d_qk, d_v) && is_float(out) && load == Load::direct &&
         schedule == Schedule::split;
}

}  // namespace mla::cpu::sparse_decode
