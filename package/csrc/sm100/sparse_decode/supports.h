#pragma once

#include "common/traits.h"
#include "sm100/decode/supports.h"

namespace mla::sm100::sparse_decode {

// Selected tokens are pages of one token, or rows that are dequantised first.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule) {
  if (schedule != Schedule::individual) return false;
  if (load != Load::gather)
    return load == Load::cpasync && decode::supports(q, kv, out, load, schedule);
  return q == DType::bf16 && kv == DType::fp8_ds_mla && out == q;
}

}  // namespace mla::sm100::sparse_decode
