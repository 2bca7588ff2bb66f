#pragma once

#include "common/traits.h"

namespace mla::sm90::sparse_decode {

// The kernel gathers the selected rows, and dequantizes those of fp8_ds_mla to bf16.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule) {
  const bool dequantizes = q == DType::bf16 && kv == DType::fp8_ds_mla;
  const bool has_one_type = kv == q && (q == DType::fp16 || q == DType::bf16);
  return (has_one_type || dequantizes) && out == q && load == Load::gather &&
         schedule == Schedule::rows_m64;
}

}  // namespace mla::sm90::sparse_decode
