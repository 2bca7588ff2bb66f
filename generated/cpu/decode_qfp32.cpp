// Generated from codegen/matrix/cpu.toml.
#include "cpu/decode/decode.h"

namespace mla::cpu {

template struct Decode<DType::fp32, DType::fp32, DType::fp32>;
static_assert(Decode<DType::fp32, DType::fp32, DType::fp32>::kLoad == "direct");
static_assert(Decode<DType::fp32, DType::fp32, DType::fp32>::kSchedule == "split");

template struct Decode<DType::fp32, DType::e4m3, DType::fp32>;
static_assert(Decode<DType::fp32, DType::e4m3, DType::fp32>::kLoad == "direct");
static_assert(Decode<DType::fp32, DType::e4m3, DType::fp32>::kSchedule == "split");

template struct Decode<DType::fp32, DType::fp8_ds_mla, DType::fp32>;
static_assert(Decode<DType::fp32, DType::fp8_ds_mla, DType::fp32>::kLoad == "direct");
static_assert(Decode<DType::fp32, DType::fp8_ds_mla, DType::fp32>::kSchedule == "split");

}  // namespace mla::cpu
