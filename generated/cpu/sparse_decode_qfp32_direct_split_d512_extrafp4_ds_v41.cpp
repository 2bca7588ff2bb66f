// Generated from codegen/matrix.
#include "cpu/sparse_decode/sparse_decode.h"

template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp8_ds_v41, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 512, 512, mla::ExtraKv::fp4_ds_v41>;
