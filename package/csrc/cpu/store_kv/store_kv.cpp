#include "cpu/store_kv/store_kv.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/attention.h"
#include "cpu/cache_rows.h"

namespace mla::cpu::store_kv {
namespace {

using Problem = mla_store_kv_problem;
using Limits = std::numeric_limits<float>;

const int64_t* slot_mapping(const Problem& p) {
  return static_cast<const int64_t*>(p.slot_mapping);
}

Status check_values(const Problem& p, const CacheFormat& format) {
  const bool scaled = format.scale_place == ScalePlace::tensor;
  MLA_TRY(check_present({{"latent", p.latent, p.num_tokens},
                         {"rope", p.rope, p.num_tokens},
                         {"slot_mapping", p.slot_mapping, p.num_tokens},
                         {"scale", p.scale, scaled ? 1 : 0}}));
  const CacheRows cache(p, format);
  MLA_TRY(cache.check());
  if (scaled) {
    const float scale = *static_cast<const float*>(p.scale);
    if (!(scale > 0 && std::isfinite(scale))) {
      return Status::error(MLA_RANGE, "scale", text(scale), "a positive number");
    }
  }
  return cache.check_slots("slot_mapping", slot_mapping(p), p.num_tokens);
}

void divide(float* values, int n, float divisor) {
  for (int i = 0; i < n; ++i) values[i] /= divisor;
}

// NaN is ignored.
float greatest_magnitude(const float* values, int n) {
  float greatest = 0;
  for (int i = 0; i < n; ++i) {
    const float magnitude = std::fabs(values[i]);
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  return greatest;
}

// Rounds a positive number up to a power of two.
float power_of_two_from(float value) {
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);
  return std::ldexp(1.0f, fraction == 0.5f ? exponent - 1 : exponent);
}

// Returns the scale of a group. It is a normal number, so that the quotients keep their precision
// and a group of zeros divides.
float group_scale(const float* values, int n, bool is_power_of_two) {
  const float scale = greatest_magnitude(values, n) / kMaxE4m3;
  if (!is_power_of_two) return std::clamp(scale, Limits::min(), Limits::max());
  return power_of_two_from(std::clamp(scale, kLeastPowerOfTwoScale, kGreatestPowerOfTwoScale));
}

// Divides each group of the latent by a scale of its own, and writes the scales into the row.
// @pre The format's scales are float32 and lie in the row; its latent is e4m3.
void scale_groups(const CacheFormat& format, bool power_of_two, float* latent, std::byte* row) {
  const int columns = format.scale_group;
  for (int group = 0; group < format.latent / columns; ++group) {
    float* const values = latent + group * columns;
    const float scale = group_scale(values, columns, power_of_two);
    divide(values, columns, scale);
    std::memcpy(row + format.scale_offset + group * sizeof scale, &scale, sizeof scale);
  }
}

void store_row(const Problem& p, DType in, const CacheFormat& format, int64_t t, std::byte* latent,
               std::byte* rope) {
  const int64_t bytes = static_cast<int64_t>(element_bytes(in));
  const std::byte* from_latent =
      static_cast<const std::byte*>(p.latent) + t * p.latent_stride_t * bytes;
  const std::byte* from_rope = static_cast<const std::byte*>(p.rope) + t * p.rope_stride_t * bytes;
  if (in == format.dtype) {
    std::memcpy(latent, from_latent, format.latent * bytes);
    std::memcpy(rope, from_rope, format.rope * bytes);
    return;
  }
  const Isa& isa = active_isa();
  float values[kMaxHeadDim];
  isa.to_fp32(in, from_latent, values, format.latent);
  isa.to_fp32(in, from_rope, values + format.latent, format.rope);
  if (format.scale_place == ScalePlace::tensor) {
    divide(values, format.d_qk, *static_cast<const float*>(p.scale));
  } else if (format.scale_place == ScalePlace::row) {
    scale_groups(format, p.power_of_two_scales != 0, values, latent);
  }
  isa.from_fp32(format.latent_type, values, latent, format.latent);
  isa.from_fp32(format.rope_type, values + format.latent, rope, format.rope);
}

}  // namespace

Status can_run(const Problem& p, const CacheFormat& format) {
  MLA_TRY(check_environment());
  MLA_TRY(check_extents({{"num_tokens", p.num_tokens}}));
  return check_store_scales(format, p);
}

Status launch(const Problem& p, DType in, const CacheFormat& format) {
  MLA_TRY(can_run(p, format));
  MLA_TRY(check_values(p, format));
  const CacheRows cache(p, format);
  const auto store = [&](int64_t i, const Scratch&) {
    const int64_t end = std::min(p.num_tokens, (i + 1) * kCopyRows);
    for (int64_t t = i * kCopyRows; t < end; ++t) {
      const int64_t slot = slot_mapping(p)[t];
      if (slot >= 0) store_row(p, in, format, t, cache.latent(slot), cache.rope(slot));
    }
  };
  return parallel(ceil_div(p.num_tokens, kCopyRows), p.num_tokens * kCopyNanoseconds, store);
}

}  // namespace mla::cpu::store_kv
