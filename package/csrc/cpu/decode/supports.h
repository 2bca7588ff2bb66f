#pragma once

#include "common/rows.h"

namespace mla::cpu::decode {

// Q and the output are floats; rows of KV are converted.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule) {
  return is_float(q) && converts_rows(kv) && is_float(out) && load == Load::direct &&
         schedule == Schedule::split;
}

}  // namespace mla::cpu::decode
