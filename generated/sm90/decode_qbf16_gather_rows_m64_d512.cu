// Generated from codegen/matrix.
#include "sm90/decode/decode.cuh"

template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
