#include "cpu/isa/attend_amx.h"
#include "cpu/isa/units/units.h"

namespace mla::cpu {

const Isa kAmxBf16 = {
    "amx_bf16", sizeof(AmxScratch) > kFp32ScratchBytes ? sizeof(AmxScratch) : kFp32ScratchBytes,
    attend_amx, to_fp32,
    from_fp32,  accumulate,
    gather_row, nullptr};

}  // namespace mla::cpu
