#pragma once

#include "common/traits.h"

namespace mla::cpu::decode {

// Q and the output are floats; rows of KV are read in any type.
constexpr bool supports(DType q, DType /*kv*/, DType out, Load load, Schedule schedule) {
  return is_float(q) && is_float(out) && load == Load::direct && schedule == Schedule::split;
}

}  // namespace mla::cpu::decode
