#include "cpu/isa/attend_fp32.h"
#include "cpu/isa/units/units.h"

namespace mla::cpu {

const Isa kBaseline = {"baseline", kFp32ScratchBytes, attend_fp32, to_fp32,
                       from_fp32,  accumulate,        gather_row,  nullptr};

}  // namespace mla::cpu
