// Generated from codegen/matrix.
#include "sm90/sparse_decode/sparse_decode.cuh"

extern template struct mla::sm90::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::rows_m64>;
template struct mla::sm90::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::gather, mla::Schedule::swap_ab>;
