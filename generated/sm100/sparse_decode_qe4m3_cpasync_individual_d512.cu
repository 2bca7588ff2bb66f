// Generated from codegen/matrix.
#include "sm100/sparse_decode/sparse_decode.cuh"

template struct mla::sm100::SparseDecode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual, 512>;
template struct mla::sm100::SparseDecode<mla::DType::e4m3, mla::DType::e4m3, mla::DType::bf16, mla::Load::cpasync, mla::Schedule::individual, 512>;
