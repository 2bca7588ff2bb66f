#pragma once

#include "common/traits.h"
#include "sm90/sparse_decode/supports.h"

namespace mla::sm90::sparse_prefill {

// Sparse prefill is the kernel of sparse decode, over caches that need no dequantization.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule, int d_qk) {
  return kv == q && sparse_decode::supports(q, kv, out, load, schedule, d_qk, ExtraKv::same);
}

}  // namespace mla::sm90::sparse_prefill
