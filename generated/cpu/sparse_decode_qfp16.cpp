// Generated from codegen/matrix/cpu.toml.
#include "cpu/sparse_decode/sparse_decode.h"

namespace mla::cpu {

template struct SparseDecode<DType::fp16, DType::fp16, DType::fp16>;
static_assert(SparseDecode<DType::fp16, DType::fp16, DType::fp16>::kLoad == "direct");
static_assert(SparseDecode<DType::fp16, DType::fp16, DType::fp16>::kSchedule == "split");

template struct SparseDecode<DType::fp16, DType::e4m3, DType::fp16>;
static_assert(SparseDecode<DType::fp16, DType::e4m3, DType::fp16>::kLoad == "direct");
static_assert(SparseDecode<DType::fp16, DType::e4m3, DType::fp16>::kSchedule == "split");

template struct SparseDecode<DType::fp16, DType::fp8_ds_mla, DType::fp16>;
static_assert(SparseDecode<DType::fp16, DType::fp8_ds_mla, DType::fp16>::kLoad == "direct");
static_assert(SparseDecode<DType::fp16, DType::fp8_ds_mla, DType::fp16>::kSchedule == "split");

}  // namespace mla::cpu
