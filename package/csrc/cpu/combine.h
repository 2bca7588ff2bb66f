#pragma once

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"
#include "cpu/isa/isa.h"

namespace mla::cpu {

// The results of one query row over disjoint sets of tokens. What a state without tokens (lse -inf)
// has in o is never read.
struct States {
  DType dtype;
  const std::byte* o;
  int64_t o_stride;  // in bytes
  const float* lse;
  int64_t lse_stride;
  int64_t count;
};

// The LSE of several states. The weight of state i is exp(LSE_i - shift) / sum, which is exact even
// where LSE itself is large and so coarsely rounded.
struct CombinedLse {
  float value;
  float shift;
  float sum;
};

// The LSE of no states is -inf; infinities and NaN are treated as by torch.logsumexp.
CombinedLse combine_lse(const States& states);

// Writes columns [first, first + n) of sum exp(LSE_i - LSE) O_i to o[0, n).
// @pre n <= kLatent.
void combine_columns(const Isa& isa, const States& states, const CombinedLse& lse, int64_t first,
                     int64_t n, float* o);

}  // namespace mla::cpu
