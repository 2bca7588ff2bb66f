// Generated from codegen/matrix.
#include "cpu/sparse_decode/sparse_decode.h"

template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::fp32, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 320, 256>;
template struct mla::cpu::SparseDecode<mla::DType::fp32, mla::DType::e4m3, mla::DType::fp32, mla::Load::direct, mla::Schedule::split, 320, 256>;
