#pragma once

#include "common/traits.h"

namespace mla::sm90::sparse_decode {

// The kernel gathers the selected rows. It dequantizes those of the formats that have a policy in
// sm90/mainloop/rows_m64/format_*.cuh.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule) {
  const bool dequantizes = q == DType::bf16 && kv == DType::fp8_ds_mla;
  const bool has_one_type = kv == q && has_16_bits(q);
  return (has_one_type || dequantizes) && out == q && load == Load::gather &&
         schedule == Schedule::rows_m64;
}

}  // namespace mla::sm90::sparse_decode
