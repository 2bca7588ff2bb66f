// Generated from codegen/matrix.
#include "cpu/decode/decode.h"

template struct mla::cpu::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>;
template struct mla::cpu::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>;
template struct mla::cpu::Decode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::direct, mla::Schedule::split>;
