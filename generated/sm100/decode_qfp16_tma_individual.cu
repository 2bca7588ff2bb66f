// Generated from codegen/matrix.
#include "sm100/decode/decode.cuh"

extern template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::persistent>;
extern template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::persistent, 512>;
template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::individual>;
template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::individual, 512>;
