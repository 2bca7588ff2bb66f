// Generated from codegen/matrix.
#include "cpu/merge_states/merge_states.h"

template struct mla::cpu::MergeStates<mla::DType::fp32, mla::DType::fp32, mla::Schedule::rows>;
template struct mla::cpu::MergeStates<mla::DType::fp32, mla::DType::fp16, mla::Schedule::rows>;
template struct mla::cpu::MergeStates<mla::DType::fp32, mla::DType::bf16, mla::Schedule::rows>;
template struct mla::cpu::MergeStates<mla::DType::fp16, mla::DType::fp16, mla::Schedule::rows>;
template struct mla::cpu::MergeStates<mla::DType::bf16, mla::DType::bf16, mla::Schedule::rows>;
