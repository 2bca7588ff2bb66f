// Generated from codegen/matrix.
#include "sm90/sparse_decode/sparse_decode.cuh"

extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab, 512>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab, 512>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v4, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab, 512>;
template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v4, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp4_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::mxfp4_ds_v4, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64, 512>;
