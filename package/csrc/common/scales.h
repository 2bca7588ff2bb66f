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

// The scales of a row's groups that are powers of two lie between these. vLLM and FlashMLA round
// max(amax / 448, 1e-4) up, so that the scale of a group of zeros is the first one.
inline constexpr float kLeastPowerOfTwoScale = 0x1p-13f;
inline constexpr float kGreatestPowerOfTwoScale = 0x1p127f;

// Refuses scales that a cache cannot be written with. The value of the scale of the whole cache may
// be known to the device only.
inline Status check_store_scales(const CacheFormat& format, const mla_store_kv_problem& p) {
  if (format.scale_place != ScalePlace::tensor && p.scale != nullptr) {
    return Status::error(MLA_UNSUPPORTED, "scale", "a tensor", "none for a cache that is not e4m3");
  }
  if (format.scale_type == DType::e8m0) return {};  // which are powers of two, asked for or not
  if (format.scale_type == DType::e4m3 && p.power_of_two_scales != 0) {
    return Status::error(MLA_UNSUPPORTED, "power_of_two_scales", "True",
                         text("False, because the scales of ", format.name, " are e4m3"));
  }
  if (format.scale_place != ScalePlace::row && p.power_of_two_scales != 0) {
    return Status::error(MLA_UNSUPPORTED, "power_of_two_scales", "True",
                         "False for a cache that is not fp8_ds_mla");
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
