// Generated from codegen/matrix.
#include "sm100/decode/decode.cuh"

extern template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual>;
extern template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual, 512>;
template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::persistent>;
template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::persistent, 512>;
