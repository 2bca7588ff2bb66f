#pragma once

#include "common/traits.h"
#include "mla/formats.h"
#include "sm100/decode/supports.h"

namespace mla::sm100::sparse_decode {

// Selected tokens are pages of one token, or rows of bytes that are dequantised first, those of an
// extra cache too.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule, int d_qk,
                        ExtraKv extra_kv) {
  const CacheFormat* const format = find_cache_format(kv, d_qk, kLatent);
  if (format == nullptr || schedule != Schedule::individual) return false;
  if (extra_kv != ExtraKv::same && !has_extra_format(kv, d_qk)) return false;
  if (load != Load::gather) {
    return load == Load::cpasync && extra_kv == ExtraKv::same &&
           decode::supports(q, kv, out, load, schedule, d_qk, kLatent);
  }
  return q == DType::bf16 && format->is_bytes && out == q;
}

}  // namespace mla::sm100::sparse_decode
