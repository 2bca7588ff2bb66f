// Generated from codegen/matrix.
#include "cuda/store_kv/store_kv.cuh"

template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::fp16, 320, 256>;
template struct mla::cuda::StoreKv<mla::DType::fp16, mla::DType::e4m3, 320, 256>;
template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::bf16, 320, 256>;
template struct mla::cuda::StoreKv<mla::DType::bf16, mla::DType::e4m3, 320, 256>;
