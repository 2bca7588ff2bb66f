// Generated from codegen/matrix.
#include "sm90/decode/decode.cuh"

extern template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64>;
extern template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64>;
template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::swap_ab>;
template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::swap_ab>;
