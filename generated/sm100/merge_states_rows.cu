// Generated from codegen/matrix.
#include "cuda/merge_states/merge_states.cuh"

template struct mla::cuda::MergeStates<mla::DType::fp32, mla::DType::fp32, mla::Schedule::rows>;
template struct mla::cuda::MergeStates<mla::DType::fp32, mla::DType::fp16, mla::Schedule::rows>;
template struct mla::cuda::MergeStates<mla::DType::fp32, mla::DType::bf16, mla::Schedule::rows>;
template struct mla::cuda::MergeStates<mla::DType::fp16, mla::DType::fp16, mla::Schedule::rows>;
template struct mla::cuda::MergeStates<mla::DType::bf16, mla::DType::bf16, mla::Schedule::rows>;
