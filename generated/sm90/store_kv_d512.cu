// Generated from codegen/matrix.
#include "cuda/store_kv/store_kv.cuh"

template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp16, 512>;
template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::e4m3, 512>;
template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_mla, 512>;
template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_v4, 512>;
template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_v41, 512>;
template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp4_ds_v41, 512>;
template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::bf16, 512>;
template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::e4m3, 512>;
template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_mla, 512>;
template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_v4, 512>;
template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_v41, 512>;
template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::fp4_ds_v41, 512>;
