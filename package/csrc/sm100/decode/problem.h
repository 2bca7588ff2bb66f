#pragma once

#include "mla/abi.h"
#include "sm100/decode/attention.h"

namespace mla::sm100::decode {

// Says a problem in the kernel's terms, apart from scales, and refuses what the kernel cannot do.
// Tensors may be absent.
Status describe(const mla_decode_problem& problem, const Traits& traits, Attention* attention);

// The same of a whole problem.
Status describe_all(const mla_decode_problem& problem, const Traits& traits, Attention* attention);

}  // namespace mla::sm100::decode
