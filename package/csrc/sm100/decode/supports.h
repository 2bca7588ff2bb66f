#pragma once

#include "common/traits.h"

namespace mla::sm100::decode {

// CUTLASS example 77 multiplies equal types; its output has 16 bits.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule) {
  const bool has_out = q == DType::e4m3 ? has_16_bits(out) : out == q && has_16_bits(q);
  return kv == q && has_out && (load == Load::tma || load == Load::cpasync) &&
         (schedule == Schedule::individual || schedule == Schedule::persistent);
}

}  // namespace mla::sm100::decode
