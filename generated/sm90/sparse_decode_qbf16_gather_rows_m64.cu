// Generated from codegen/matrix.
#include "sm90/sparse_decode/sparse_decode.cuh"

extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab>;
extern template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::swap_ab>;
template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::bf16, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64>;
template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64>;
template struct mla::sm90::SparseDecode<mla::DType::bf16, mla::DType::nvfp4_ds_mla, mla::DType::bf16, mla::Load::gather, mla::Schedule::rows_m64>;
