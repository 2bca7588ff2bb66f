// Generated from codegen/matrix.
#include "sm100/decode/decode.cuh"

template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::persistent>;
template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::persistent>;
template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::persistent, 512>;
template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::persistent, 512>;
