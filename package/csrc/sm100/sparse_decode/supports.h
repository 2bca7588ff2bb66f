#pragma once

#include "common/rows.h"
#include "sm100/decode/supports.h"

namespace mla::sm100::sparse_decode {

// Selected tokens are pages of one token, or rows that are dequantised first.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule) {
  if (schedule != Schedule::individual) return false;
  if (load != Load::gather)
    return load == Load::cpasync && decode::supports(q, kv, out, load, schedule);
  return q == DType::bf16 && has_byte_rows(kv) && out == q;
}

}  // namespace mla::sm100::sparse_decode
