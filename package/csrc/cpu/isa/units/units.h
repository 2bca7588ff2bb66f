#pragma once

#include "cpu/isa/isa.h"

namespace mla::cpu {

// Each is defined in a unit that is compiled under options of its own.
extern const Isa kBaseline;
#if defined(__x86_64__)
extern const Isa kAvx2;
extern const Isa kAvx512;
extern const Isa kAvx512Bf16;
extern const Isa kAmxBf16;
#endif

}  // namespace mla::cpu
