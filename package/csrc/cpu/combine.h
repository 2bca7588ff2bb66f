#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "common/dtype.h"
#include "cpu/isa/isa.h"

namespace mla::cpu {

// Which states are without tokens: those whose LSE is -inf, or those with +inf too, as FlashMLA
// gives it. The parts of a decode are never +inf but by an overflow, which must be seen.
enum class Empty { minus_inf, both_infs };

// The results of one query row over disjoint sets of tokens. What a state without tokens has in o
// is never read.
struct States {
  DType dtype;
  const std::byte* o;
  int64_t o_stride;  // in bytes
  const float* lse;
  int64_t lse_stride;
  int64_t count;
  Empty empty = Empty::minus_inf;

  // The LSE of a state, -inf where it is without tokens.
  float lse_of(int64_t state) const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float value = lse[state * lse_stride];
    return value == kInfinity && empty == Empty::both_infs ? -kInfinity : value;
  }
};

// This is the LSE of several states. The weight of state i is exp(LSE_i - shift) / sum, which is
// exact even where LSE itself is large and so coarsely rounded.
struct CombinedLse {
  float value;
  float shift;
  float sum;
};

// The LSE of no states is -inf; infinities and NaN are treated as by torch.logsumexp.
CombinedLse combine_lse(const States& states);

// Writes columns [first, first + n) of sum exp(LSE_i - LSE) O_i to o[0, n).
// @pre n <= kMaxDV.
void combine_columns(const Isa& isa, const States& states, const CombinedLse& lse, int64_t first,
                     int64_t n, float* o);

}  // namespace mla::cpu
