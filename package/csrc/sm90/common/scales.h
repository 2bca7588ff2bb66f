// Factors of a problem as kernels multiply by them.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/checks.h"
#include "common/dtype.h"

namespace mla::sm90 {

// Refuses factors that are not finite, and those of types that have none.
template <class Problem, class Params>
Status set_scales(const Problem& p, DType kv, Params* params) {
  MLA_TRY(check_finite({{"softmax_scale", p.softmax_scale},
                        {"q_scale", p.q_scale},
                        {"kv_scale", p.kv_scale},
                        {"out_scale", p.out_scale}}));
  if (p.q_scale != 1) {
    return Status::error(MLA_RANGE, "q_scale", text(p.q_scale), "1 for a q that is not e4m3");
  }
  if (kv != DType::e4m3 && p.kv_scale != 1) {
    return Status::error(MLA_RANGE, "kv_scale", text(p.kv_scale), "1 for a cache that is not e4m3");
  }
  constexpr float kLog2E = 1.44269504088896341f;
  const float scale = p.softmax_scale * p.kv_scale * kLog2E;
  // With the smallest positive number in place of 0, a masked logit stays -inf.
  params->logit_scale = std::max(std::abs(scale), std::numeric_limits<float>::min());
  params->sign_flip = scale < 0 ? 0x80008000u : 0;
  params->out_scale = p.out_scale * p.kv_scale;
  return {};
}

}  // namespace mla::sm90
