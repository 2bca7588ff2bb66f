#pragma once

#include "common/traits.h"
#include "mla/formats.h"

namespace mla::sm90::sparse_decode {

// The kernels gather the selected rows, of 576 columns or of 512. `rows_m64` dequantizes those of
// the formats that have a policy in sm90/mainloop/rows_m64/format_byte_rows.cuh, and `swap_ab` has
// formats of its own in sm90/mainloop/swap_ab/format_scaled_rows.cuh.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule, int d_qk,
                        ExtraKv extra_kv) {
  const CacheFormat* const format = find_cache_format(kv, d_qk, kLatent);
  if (format == nullptr) return false;
  if (extra_kv != ExtraKv::same && !has_extra_format(kv, d_qk)) return false;
  const bool dequantizes = q == DType::bf16 && format->is_bytes;
  const bool has_one_type = kv == q && has_16_bits(q);
  if (out != q || load != Load::gather) return false;
  if (schedule == Schedule::swap_ab) {
    const bool has_scales = kv == DType::fp8_ds_mla || kv == DType::fp8_ds_v4;
    return (has_one_type || (dequantizes && has_scales)) && extra_kv == ExtraKv::same;
  }
  return (has_one_type || dequantizes) && schedule == Schedule::rows_m64;
}

}  // namespace mla::sm90::sparse_decode
