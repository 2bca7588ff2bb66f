// Generated from codegen/matrix.
#include "cuda/gather_kv/gather_kv.cuh"

template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp32, 320, 256>;
template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp16, 320, 256>;
template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::bf16, 320, 256>;
template struct mla::cuda::GatherKv<mla::DType::fp16, mla::DType::fp16, 320, 256>;
template struct mla::cuda::GatherKv<mla::DType::bf16, mla::DType::bf16, 320, 256>;
