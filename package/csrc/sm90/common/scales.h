// The factors of a problem as kernels multiply by them.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/scales.h"
#include "cuda/traits.h"
#include "sm90/common/exp2.h"

namespace mla::sm90 {

// Refuses factors that are not finite, and those of types that have none.
template <class Problem, class Params>
Status set_scales(const Problem& p, const cuda::Traits& traits, Params* params) {
  MLA_TRY(check_scales(traits.q, traits.format(), scales(p)));
  const float scale = p.softmax_scale * p.kv_scale * kLog2E;
  // The smallest positive number stands in for 0, so that a masked logit stays -inf.
  params->logit_scale = std::max(std::abs(scale), std::numeric_limits<float>::min());
  params->sign_flip = scale < 0 ? 0x80008000u : 0;
  params->out_scale = p.out_scale * p.kv_scale;
  return {};
}

}  // namespace mla::sm90
