// Generated from codegen/matrix.
#include "cuda/gather_kv/gather_kv.cuh"

template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp32>;
template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp16>;
template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::bf16>;
template struct mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp32>;
template struct mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp16>;
template struct mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::bf16>;
template struct mla::cuda::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::fp32>;
template struct mla::cuda::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::fp16>;
template struct mla::cuda::GatherKv<mla::DType::nvfp4_ds_mla, mla::DType::bf16>;
template struct mla::cuda::GatherKv<mla::DType::fp16, mla::DType::fp16>;
template struct mla::cuda::GatherKv<mla::DType::bf16, mla::DType::bf16>;
