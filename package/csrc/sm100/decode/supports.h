#pragma once

#include "common/traits.h"
#include "mla/formats.h"

namespace mla::sm100::decode {

// CUTLASS example 77 multiplies equal types; its output has 16 bits. Rows of 320 columns have
// kernels of their own, and those of 512 share them with rows of 576.
constexpr bool supports(DType q, DType kv, DType out, Load load, Schedule schedule, int d_qk,
                        int d_v) {
  const bool has_out = q == DType::e4m3 ? has_16_bits(out) : out == q && has_16_bits(q);
  const bool has_latent = (d_qk == kHeadDim || d_qk == kLatent) && d_v == kLatent;
  const bool has_short_rows = d_qk == 320 && d_v == 256 && has_16_bits(q);
  return kv == q && has_out && (load == Load::tma || load == Load::cpasync) &&
         (schedule == Schedule::individual ||
          (schedule == Schedule::persistent && !has_short_rows)) &&
         (has_latent || has_short_rows);
}

}  // namespace mla::sm100::decode
