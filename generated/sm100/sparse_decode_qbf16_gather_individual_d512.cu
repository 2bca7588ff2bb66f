// Generated from codegen/matrix.
#include "sm100/sparse_decode/sparse_decode.cuh"

template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512>;
template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v4, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512>;
template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512>;
template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp4_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512>;
template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::mxfp4_ds_v4, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512>;
