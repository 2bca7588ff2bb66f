#pragma once

#include "mla/abi.h"
#include "sm100/cutlass_mla/attention_problem.h"

namespace mla::sm100 {

// Describes a problem of dense decode apart from its scales, and refuses what the kernel cannot do.
// Tensors may be absent.
Status describe(const mla_decode_problem& problem, const Traits& traits,
                AttentionProblem* attention);

}  // namespace mla::sm100
