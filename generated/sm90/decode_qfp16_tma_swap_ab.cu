// Generated from codegen/matrix.
#include "sm90/decode/decode.cuh"

extern template struct mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::rows_m64>;
template struct mla::sm90::Decode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::tma, mla::Schedule::swap_ab>;
