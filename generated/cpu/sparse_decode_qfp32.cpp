// Generated from codegen/matrix/cpu.toml.
#include "cpu/sparse_decode/sparse_decode.h"

namespace mla::cpu {

template struct SparseDecode<DType::fp32, DType::fp32, DType::fp32>;
static_assert(SparseDecode<DType::fp32, DType::fp32, DType::fp32>::kLoad == "direct");
static_assert(SparseDecode<DType::fp32, DType::fp32, DType::fp32>::kSchedule == "split");

template struct SparseDecode<DType::fp32, DType::e4m3, DType::fp32>;
static_assert(SparseDecode<DType::fp32, DType::e4m3, DType::fp32>::kLoad == "direct");
static_assert(SparseDecode<DType::fp32, DType::e4m3, DType::fp32>::kSchedule == "split");

template struct SparseDecode<DType::fp32, DType::fp8_ds_mla, DType::fp32>;
static_assert(SparseDecode<DType::fp32, DType::fp8_ds_mla, DType::fp32>::kLoad == "direct");
static_assert(SparseDecode<DType::fp32, DType::fp8_ds_mla, DType::fp32>::kSchedule == "split");

}  // namespace mla::cpu
