#pragma once

#include "common/traits.h"
#include "mla/formats.h"

namespace mla::sm90::decode {

// The tensor cores multiply 16-bit elements of one type. The kernels dequantize an e4m3 cache to
// it: in shared memory for rows_m64, in registers for swap_ab, which has one pair of widths. With
// compute e4m3, rows_m64 rounds Q and P to e4m3 instead, and multiplies the cache as it is.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule, int d_qk,
                        int d_v, ComputeDType compute) {
  const bool dequantizes = q == DType::bf16 && kv == DType::e4m3;
  const bool has_one_type = kv == q && has_16_bits(q);
  const bool has_default_widths = d_qk == kHeadDim && d_v == kLatent;
  const bool has_other_widths = (d_qk == 512 && d_v == 512) || (d_qk == 320 && d_v == 256);
  if (out != q) return false;
  if (compute == ComputeDType::e4m3) {
    return dequantizes && load == Load::tma && schedule == Schedule::rows_m64 && d_v == kLatent &&
           (d_qk == kHeadDim || d_qk == kLatent);
  }
  if (schedule == Schedule::swap_ab) {
    return (has_one_type || dequantizes) && load == Load::tma && has_default_widths;
  }
  if (schedule != Schedule::rows_m64 || !(has_default_widths || has_other_widths)) return false;
  return (has_one_type && (load == Load::tma || load == Load::gather)) ||
         (dequantizes && load == Load::tma);
}

}  // namespace mla::sm90::decode
