// Generated from codegen/matrix/cpu.toml.
#include "cpu/store_kv/store_kv.h"

namespace mla::cpu {

template struct StoreKv<DType::fp32, DType::fp32>;

template struct StoreKv<DType::fp32, DType::e4m3>;

template struct StoreKv<DType::fp32, DType::fp8_ds_mla>;

template struct StoreKv<DType::fp16, DType::fp16>;

template struct StoreKv<DType::fp16, DType::e4m3>;

template struct StoreKv<DType::fp16, DType::fp8_ds_mla>;

template struct StoreKv<DType::bf16, DType::bf16>;

template struct StoreKv<DType::bf16, DType::e4m3>;

template struct StoreKv<DType::bf16, DType::fp8_ds_mla>;

}  // namespace mla::cpu
