// Generated from codegen/matrix/cpu.toml.
#include "cpu/gather_kv/gather_kv.h"

namespace mla::cpu {

template struct GatherKv<DType::e4m3, DType::fp32>;

template struct GatherKv<DType::e4m3, DType::fp16>;

template struct GatherKv<DType::e4m3, DType::bf16>;

template struct GatherKv<DType::fp8_ds_mla, DType::fp32>;

template struct GatherKv<DType::fp8_ds_mla, DType::fp16>;

template struct GatherKv<DType::fp8_ds_mla, DType::bf16>;

template struct GatherKv<DType::fp32, DType::fp32>;

template struct GatherKv<DType::fp16, DType::fp16>;

template struct GatherKv<DType::bf16, DType::bf16>;

}  // namespace mla::cpu
