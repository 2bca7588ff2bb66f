// Generated from codegen/matrix.
#include "cpu/gather_kv/gather_kv.h"

template struct mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::fp32, 320, 256>;
template struct mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::fp16, 320, 256>;
template struct mla::cpu::GatherKv<mla::DType::e4m3, mla::DType::bf16, 320, 256>;
template struct mla::cpu::GatherKv<mla::DType::fp32, mla::DType::fp32, 320, 256>;
template struct mla::cpu::GatherKv<mla::DType::fp16, mla::DType::fp16, 320, 256>;
template struct mla::cpu::GatherKv<mla::DType::bf16, mla::DType::bf16, 320, 256>;
