// Generated from codegen/matrix/cpu.toml.
#include "cpu/decode/decode.h"

namespace mla::cpu {

template struct Decode<DType::bf16, DType::bf16, DType::bf16>;
static_assert(Decode<DType::bf16, DType::bf16, DType::bf16>::kLoad == "direct");
static_assert(Decode<DType::bf16, DType::bf16, DType::bf16>::kSchedule == "split");

template struct Decode<DType::bf16, DType::e4m3, DType::bf16>;
static_assert(Decode<DType::bf16, DType::e4m3, DType::bf16>::kLoad == "direct");
static_assert(Decode<DType::bf16, DType::e4m3, DType::bf16>::kSchedule == "split");

template struct Decode<DType::bf16, DType::fp8_ds_mla, DType::bf16>;
static_assert(Decode<DType::bf16, DType::fp8_ds_mla, DType::bf16>::kLoad == "direct");
static_assert(Decode<DType::bf16, DType::fp8_ds_mla, DType::bf16>::kSchedule == "split");

}  // namespace mla::cpu
