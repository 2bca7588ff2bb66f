// Generated from codegen/matrix.
#include "cpu/decode/decode.h"

template struct mla::cpu::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>;
template struct mla::cpu::Decode<mla::DType::fp16, mla::DType::e4m3, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>;
template struct mla::cpu::Decode<mla::DType::fp16, mla::DType::fp8_ds_mla, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>;
