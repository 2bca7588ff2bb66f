// Generated from codegen/matrix/cpu.toml.
#include "cpu/decode/decode.h"

namespace mla::cpu {

template struct Decode<DType::fp16, DType::fp16, DType::fp16>;
static_assert(Decode<DType::fp16, DType::fp16, DType::fp16>::kLoad == "direct");
static_assert(Decode<DType::fp16, DType::fp16, DType::fp16>::kSchedule == "split");

template struct Decode<DType::fp16, DType::e4m3, DType::fp16>;
static_assert(Decode<DType::fp16, DType::e4m3, DType::fp16>::kLoad == "direct");
static_assert(Decode<DType::fp16, DType::e4m3, DType::fp16>::kSchedule == "split");

template struct Decode<DType::fp16, DType::fp8_ds_mla, DType::fp16>;
static_assert(Decode<DType::fp16, DType::fp8_ds_mla, DType::fp16>::kLoad == "direct");
static_assert(Decode<DType::fp16, DType::fp8_ds_mla, DType::fp16>::kSchedule == "split");

}  // namespace mla::cpu
