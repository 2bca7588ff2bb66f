// The factors that come with a problem, and which of them a variant takes.
#pragma once

#include "common/checks.h"
#include "common/dtype.h"

namespace mla {

struct Scales {
  float softmax;
  float q;
  float kv;
  float out;
};

// Works on every attention problem.
template <class Problem>
Scales scales(const Problem& p) {
  return {p.softmax_scale, p.q_scale, p.kv_scale, p.out_scale};
}

// Refuses a scale for a cache whose format has none that is an argument.
inline Status check_kv_scale(const CacheFormat& format, float kv_scale) {
  MLA_TRY(check_finite({{"kv_scale", kv_scale}}));
  if (format.scale_place != ScalePlace::tensor && kv_scale != 1) {
    return Status::error(MLA_RANGE, "kv_scale", text(kv_scale), "1 for a cache that is not e4m3");
  }
  return {};
}

// The same for the scale that a cache is written with; its value may be known to the device only.
inline Status check_store_scale(const CacheFormat& format, const void* scale) {
  if (format.scale_place != ScalePlace::tensor && scale != nullptr) {
    return Status::error(MLA_UNSUPPORTED, "scale", "a tensor", "none for a cache that is not e4m3");
  }
  return {};
}

inline Status check_scales(DType q, const CacheFormat& format, const Scales& scales) {
  MLA_TRY(check_finite(
      {{"softmax_scale", scales.softmax}, {"q_scale", scales.q}, {"out_scale", scales.out}}));
  MLA_TRY(check_kv_scale(format, scales.kv));
  if (q != DType::e4m3 && scales.q != 1) {
    return Status::error(MLA_RANGE, "q_scale", text(scales.q), "1 for a q that is not e4m3");
  }
  return {};
}

}  // namespace mla
