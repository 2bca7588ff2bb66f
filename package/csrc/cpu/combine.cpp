#include "cpu/combine.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mla::cpu {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

CombinedLse combine_lse(const States& states) {
  if (states.count == 1) return {states.lse_of(0), states.lse_of(0), 1};
  float greatest = -kInfinity;
  bool empty = true;
  for (int64_t i = 0; i < states.count; ++i) {
    const float lse = states.lse_of(i);
    greatest = lse > greatest ? lse : greatest;
    empty &= lse == -kInfinity;
  }
  if (empty) return {-kInfinity, 0, 1};
  const float shift = std::isfinite(greatest) ? greatest : 0;
  float sum = 0;
  for (int64_t i = 0; i < states.count; ++i) {
    sum += std::exp(states.lse_of(i) - shift);
  }
  const float value = std::log(sum) + shift;
  return std::isfinite(greatest) ? CombinedLse{value, shift, sum} : CombinedLse{value, value, 1};
}

void combine_columns(const Isa& isa, const States& states, const CombinedLse& lse, int64_t first,
                     int64_t n, float* o) {
  const int64_t offset = first * static_cast<int64_t>(element_bytes(states.dtype));
  if (states.count == 1 && lse.value > -kInfinity) {  // a NaN is weighed like that of several
    isa.to_fp32(states.dtype, states.o + offset, o, n);
    return;
  }
  std::fill_n(o, n, 0.0f);
  float part[kMaxDV];
  for (int64_t i = 0; i < states.count; ++i) {
    const float state_lse = states.lse_of(i);
    if (state_lse == -kInfinity) continue;
    const std::byte* const from = states.o + i * states.o_stride + offset;
    if (states.dtype != DType::fp32) isa.to_fp32(states.dtype, from, part, n);
    isa.accumulate(o, states.dtype == DType::fp32 ? reinterpret_cast<const float*>(from) : part,
                   std::exp(state_lse - lse.shift) / lse.sum, n);
  }
}

}  // namespace mla::cpu
