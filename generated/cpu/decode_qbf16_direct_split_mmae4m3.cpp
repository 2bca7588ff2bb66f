// Generated from codegen/matrix.
#include "cpu/decode/decode.h"

template struct mla::cpu::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::direct, mla::Schedule::split, 576, 512, mla::ComputeDType::e4m3>;
