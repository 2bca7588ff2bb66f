// Generated from codegen/matrix.
#include "cpu/store_kv/store_kv.h"

template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp32>;
template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::e4m3>;
template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp8_ds_mla>;
template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::nvfp4_ds_mla>;
template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp16>;
template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::e4m3>;
template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp8_ds_mla>;
template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::nvfp4_ds_mla>;
template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::bf16>;
template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::e4m3>;
template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::fp8_ds_mla>;
template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::nvfp4_ds_mla>;
