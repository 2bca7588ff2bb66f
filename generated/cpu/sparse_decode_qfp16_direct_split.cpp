// Generated from codegen/matrix.
#include "cpu/sparse_decode/sparse_decode.h"

template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp16, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>;
template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::e4m3, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>;
template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::fp8_ds_mla, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>;
template struct mla::cpu::SparseDecode<mla::DType::fp16, mla::DType::nvfp4_ds_mla, mla::DType::fp16, mla::Load::direct, mla::Schedule::split>;
