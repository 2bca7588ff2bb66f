// Generated from codegen/matrix.
#include "sm100/sparse_decode/sparse_decode.cuh"

template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual>;
template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::nvfp4_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual>;
