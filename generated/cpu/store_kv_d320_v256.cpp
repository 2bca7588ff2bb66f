// Generated from codegen/matrix.
#include "cpu/store_kv/store_kv.h"

template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::fp32, 320, 256>;
template struct mla::cpu::StoreKv<mla::DType::fp32, mla::DType::e4m3, 320, 256>;
template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::fp16, 320, 256>;
template struct mla::cpu::StoreKv<mla::DType::fp16, mla::DType::e4m3, 320, 256>;
template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::bf16, 320, 256>;
template struct mla::cpu::StoreKv<mla::DType::bf16, mla::DType::e4m3, 320, 256>;
