// Generated from codegen/matrix.
#include "sm100/sparse_decode/sparse_decode.cuh"

template struct mla::sm100::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::cpasync, mla::Schedule::individual, 512>;
