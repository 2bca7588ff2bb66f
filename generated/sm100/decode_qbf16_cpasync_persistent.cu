// Generated from codegen/matrix.
#include "sm100/decode/decode.cuh"

template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::persistent>;
template struct mla::sm100::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::persistent, 512>;
