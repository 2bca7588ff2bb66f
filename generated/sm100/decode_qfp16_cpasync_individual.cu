// Generated from codegen/matrix.
#include "sm100/decode/decode.cuh"

template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual>;
template struct mla::sm100::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual, 512>;
