#include "cpu/isa/attend_bf16_dot.h"
#include "cpu/isa/units/units.h"

namespace mla::cpu {

const Isa kAvx512Bf16 = {
    "avx512_bf16",
    kBf16DotScratchBytes > kFp32ScratchBytes ? kBf16DotScratchBytes : kFp32ScratchBytes,
    attend_bf16_dot,
    to_fp32,
    from_fp32,
    accumulate,
    gather_row,
    nullptr};

}  // namespace mla::cpu
