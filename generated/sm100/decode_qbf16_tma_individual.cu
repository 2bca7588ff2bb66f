// Generated from codegen/matrix.
#include "sm100/decode/decode.cuh"

extern template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::persistent>;
extern template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::persistent, 512>;
template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual>;
template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::tma, mla::Schedule::individual, 512>;
