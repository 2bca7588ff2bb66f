// Generated from codegen/matrix/cpu.toml.
#include "cpu/sparse_decode/sparse_decode.h"

namespace mla::cpu {

template struct SparseDecode<DType::bf16, DType::bf16, DType::bf16>;
static_assert(SparseDecode<DType::bf16, DType::bf16, DType::bf16>::kLoad == "direct");
static_assert(SparseDecode<DType::bf16, DType::bf16, DType::bf16>::kSchedule == "split");

template struct SparseDecode<DType::bf16, DType::e4m3, DType::bf16>;
static_assert(SparseDecode<DType::bf16, DType::e4m3, DType::bf16>::kLoad == "direct");
static_assert(SparseDecode<DType::bf16, DType::e4m3, DType::bf16>::kSchedule == "split");

template struct SparseDecode<DType::bf16, DType::fp8_ds_mla, DType::bf16>;
static_assert(SparseDecode<DType::bf16, DType::fp8_ds_mla, DType::bf16>::kLoad == "direct");
static_assert(SparseDecode<DType::bf16, DType::fp8_ds_mla, DType::bf16>::kSchedule == "split");

}  // namespace mla::cpu
