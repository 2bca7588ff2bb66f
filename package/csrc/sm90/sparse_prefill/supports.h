#pragma once

#include "common/traits.h"
#include "sm90/sparse_decode/supports.h"

namespace mla::sm90::sparse_prefill {

// By the kernel of sparse decode, over a cache without codes.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule) {
  return kv == q && sparse_decode::supports(q, kv, out, load, schedule);
}

}  // namespace mla::sm90::sparse_prefill
