// Generated from codegen/matrix.
#include "sm100/merge_states/merge_states.cuh"

template struct mla::sm100::MergeStates<mla::DType::fp32, mla::DType::fp16, mla::Schedule::reduction>;
template struct mla::sm100::MergeStates<mla::DType::fp32, mla::DType::bf16, mla::Schedule::reduction>;
