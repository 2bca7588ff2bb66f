#include "cpu/store_kv/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/dtype.h"

namespace mla::cpu::store_kv {
namespace {

using Limits = std::numeric_limits<float>;

// NaN is ignored.
float greatest_magnitude(const float* values, int n) {
  float greatest = 0;
  for (int i = 0; i < n; ++i) {
    const float magnitude = std::fabs(values[i]);
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  return greatest;
}

bool has_nan(const float* values, int n) {
  return std::any_of(values, values + n, [](float value) { return std::isnan(value); });
}

// Rounds a positive number up to a power of two.
float power_of_two_from(float value) {
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);
  return std::ldexp(1.0f, fraction == 0.5f ? exponent - 1 : exponent);
}

// Rounds a scale to its type. NaN stays NaN.
float rounded_scale(DType type, bool power_of_two, float scale) {
  if (std::isnan(scale)) return scale;
  if (type == DType::e4m3) {
    return e4m3_to_fp32(fp32_to_e4m3(std::clamp(scale, kLeastE4m3, kMaxE4m3)));
  }
  if (power_of_two || type == DType::e8m0) {
    return power_of_two_from(std::clamp(scale, kLeastPowerOfTwoScale, kGreatestPowerOfTwoScale));
  }
  // A normal number, so that the quotients keep their precision and a group of zeros divides.
  return std::clamp(scale, Limits::min(), Limits::max());
}

// @pre The scale is one of the type's.
void store_scale(DType type, float scale, std::byte* to) {
  if (type == DType::fp32) {
    std::memcpy(to, &scale, sizeof scale);
  } else {
    *to = std::byte{type == DType::e8m0 ? fp32_to_e8m0(scale) : fp32_to_e4m3(scale)};
  }
}

void store_elements(DType type, const float* values, int n, float scale, std::byte* to) {
  if (type == DType::e4m3) {
    for (int i = 0; i < n; ++i) to[i] = std::byte{fp32_to_e4m3(values[i] / scale)};
    return;
  }
  for (int i = 0; i < n; i += 2) {
    const int low = fp32_to_e2m1(values[i] / scale);
    const int high = fp32_to_e2m1(values[i + 1] / scale);
    to[i / 2] = std::byte{static_cast<uint8_t>(high << 4 | low)};
  }
}

}  // namespace

void quantise(const CacheFormat& format, bool power_of_two, const float* latent,
              const WritableRow& to) {
  const int columns = format.scale_group;
  const bool is_e2m1 = format.latent_type == DType::e2m1;
  const int bytes = is_e2m1 ? columns / 2 : columns;  // of a group
  const int scale_bytes = static_cast<int>(element_bytes(format.scale_type));
  const int groups = format.latent / columns;
  for (int group = 0; group < groups; ++group) {
    const float* const values = latent + group * columns;
    float scale = greatest_magnitude(values, columns) / (is_e2m1 ? kMaxE2m1 : kMaxE4m3);
    if (is_e2m1 && has_nan(values, columns)) scale = Limits::quiet_NaN();
    scale = rounded_scale(format.scale_type, power_of_two, scale);
    store_scale(format.scale_type, scale, to.scales + format.scale_index(group) * scale_bytes);
    store_elements(format.latent_type, values, columns, scale, to.latent + group * bytes);
  }
  const int used = groups * scale_bytes;  // padding follows
  std::memset(to.scales + used, 0, static_cast<size_t>(format.scale_bytes - used));
}

}  // namespace mla::cpu::store_kv
