// Generated from codegen/matrix.
#include "sm90/decode/decode.cuh"

template struct mla::sm90::Decode<mla::DType::bf16, mla::DType::e4m3, mla::DType::bf16, mla::Load::tma, mla::Schedule::rows_m64, 512, 512, mla::ComputeDType::e4m3>;
