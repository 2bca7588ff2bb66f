// Generated from codegen/matrix.
#include "sm100/decode/decode.cuh"

extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::tma, mla::Schedule::persistent>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::persistent>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::tma, mla::Schedule::persistent, 512>;
extern template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::persistent, 512>;
template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::tma, mla::Schedule::individual>;
template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual>;
template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::tma, mla::Schedule::individual, 512>;
template struct mla::sm100::Decode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual, 512>;
