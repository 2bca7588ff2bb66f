// Generated from codegen/matrix.
#include "sm100/sparse_decode/sparse_decode.cuh"

template struct mla::sm100::SparseDecode<mla::DType::bf16, mla::DType::fp8_ds_v41, mla::DType::bf16, mla::Load::gather, mla::Schedule::individual, 512, mla::ExtraKv::fp4_ds_v41>;
