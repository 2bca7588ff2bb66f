// Generated from codegen/matrix/cpu.toml.
#include "cpu/merge_states/merge_states.h"

namespace mla::cpu {

template struct MergeStates<DType::fp32, DType::fp32>;

template struct MergeStates<DType::fp32, DType::fp16>;

template struct MergeStates<DType::fp32, DType::bf16>;

template struct MergeStates<DType::fp16, DType::fp16>;

template struct MergeStates<DType::bf16, DType::bf16>;

}  // namespace mla::cpu
