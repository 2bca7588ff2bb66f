// Generated from codegen/matrix.
#include "cuda/gather_kv/gather_kv.cuh"

template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp32, 512>;
template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::fp16, 512>;
template struct mla::cuda::GatherKv<mla::DType::e4m3, mla::DType::bf16, 512>;
template struct mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp32, 512>;
template struct mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::fp16, 512>;
template struct mla::cuda::GatherKv<mla::DType::fp8_ds_mla, mla::DType::bf16, 512>;
template struct mla::cuda::GatherKv<mla::DType::fp8_ds_v4, mla::DType::fp32, 512>;
template struct mla::cuda::GatherKv<mla::DType::fp8_ds_v4, mla::DType::fp16, 512>;
template struct mla::cuda::GatherKv<mla::DType::fp8_ds_v4, mla::DType::bf16, 512>;
template struct mla::cuda::GatherKv<mla::DType::fp8_ds_v41, mla::DType::fp32, 512>;
template struct mla::cuda::GatherKv<mla::DType::fp8_ds_v41, mla::DType::fp16, 512>;
template struct mla::cuda::GatherKv<mla::DType::fp8_ds_v41, mla::DType::bf16, 512>;
template struct mla::cuda::GatherKv<mla::DType::fp4_ds_v41, mla::DType::fp32, 512>;
template struct mla::cuda::GatherKv<mla::DType::fp4_ds_v41, mla::DType::fp16, 512>;
template struct mla::cuda::GatherKv<mla::DType::fp4_ds_v41, mla::DType::bf16, 512>;
template struct mla::cuda::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::fp32, 512>;
template struct mla::cuda::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::fp16, 512>;
template struct mla::cuda::GatherKv<mla::DType::mxfp4_ds_v4, mla::DType::bf16, 512>;
template struct mla::cuda::GatherKv<mla::DType::fp16, mla::DType::fp16, 512>;
template struct mla::cuda::GatherKv<mla::DType::bf16, mla::DType::bf16, 512>;
