// Kernels support what the matrix allows, and nothing else. Generated from codegen/matrix.
#pragma once

#include <array>

#include "common/traits.h"
#include "cpu/decode/supports.h"
#include "cpu/gather_kv/supports.h"
#include "cpu/merge_states/supports.h"
#include "cpu/sparse_decode/supports.h"
#include "cpu/sparse_prefill/supports.h"
#include "cpu/store_kv/supports.h"

namespace mla {

static_assert(points(cpu::decode::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryDType,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{Load::direct},
                     std::array{Schedule::split}) == 45);
static_assert(points(cpu::decode::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryDType,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{Load::direct},
                     std::array{Schedule::rows, Schedule::individual, Schedule::persistent, Schedule::reduction, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "decode, schedule: the CPU engine has one schedule of decode, which splits KV over threads");
static_assert(points(cpu::decode::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryDType,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{Load::tma, Load::cpasync, Load::gather},
                     kEverySchedule) == 0,
              "decode, load: a CPU has plain loads only");
static_assert(points(cpu::decode::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryDType,
                     std::array{DType::e4m3, DType::fp8_ds_mla},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "decode, out_dtype: no kernel has this out_dtype");
static_assert(points(cpu::decode::supports,
                     std::array{DType::e4m3, DType::fp8_ds_mla},
                     kEveryDType,
                     kEveryDType,
                     kEveryLoad,
                     kEverySchedule) == 0,
              "decode, q_dtype: the CPU engine keeps Q and P in at least 16 bits: quantising them saves no bandwidth on a CPU and costs accuracy");

static_assert(points(cpu::sparse_decode::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryDType,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{Load::direct},
                     std::array{Schedule::split}) == 45);
static_assert(points(cpu::sparse_decode::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryDType,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{Load::direct},
                     std::array{Schedule::rows, Schedule::individual, Schedule::persistent, Schedule::reduction, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "sparse_decode, schedule: the CPU engine has one schedule of sparse decode, which splits the selected rows over threads");
static_assert(points(cpu::sparse_decode::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryDType,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{Load::tma, Load::cpasync, Load::gather},
                     kEverySchedule) == 0,
              "sparse_decode, load: a CPU has plain loads only");
static_assert(points(cpu::sparse_decode::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryDType,
                     std::array{DType::e4m3, DType::fp8_ds_mla},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_decode, out_dtype: no kernel has this out_dtype");
static_assert(points(cpu::sparse_decode::supports,
                     std::array{DType::e4m3, DType::fp8_ds_mla},
                     kEveryDType,
                     kEveryDType,
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_decode, q_dtype: the CPU engine keeps Q and P in at least 16 bits: quantising them saves no bandwidth on a CPU and costs accuracy");

static_assert(points(cpu::sparse_prefill::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{Load::direct},
                     std::array{Schedule::rows}) == 27);
static_assert(points(cpu::sparse_prefill::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{Load::direct},
                     std::array{Schedule::split, Schedule::individual, Schedule::persistent, Schedule::reduction, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "sparse_prefill, schedule: the CPU engine has one schedule of sparse prefill, which distributes rows of queries over threads");
static_assert(points(cpu::sparse_prefill::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{Load::tma, Load::cpasync, Load::gather},
                     kEverySchedule) == 0,
              "sparse_prefill, load: a CPU has plain loads only");
static_assert(points(cpu::sparse_prefill::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{DType::e4m3, DType::fp8_ds_mla},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_prefill, out_dtype: no kernel has this out_dtype");
static_assert(points(cpu::sparse_prefill::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{DType::e4m3, DType::fp8_ds_mla},
                     kEveryDType,
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_prefill, kv_dtype: sparse prefill reads a gathered 16- or 32-bit cache: dequantise with gather_kv first");
static_assert(points(cpu::sparse_prefill::supports,
                     std::array{DType::e4m3, DType::fp8_ds_mla},
                     kEveryDType,
                     kEveryDType,
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_prefill, q_dtype: the CPU engine keeps Q and P in at least 16 bits: quantising them saves no bandwidth on a CPU and costs accuracy");

static_assert(points(cpu::merge_states::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{Schedule::rows}) == 9);
static_assert(points(cpu::merge_states::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{Schedule::split, Schedule::individual, Schedule::persistent, Schedule::reduction, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "merge_states, schedule: the CPU engine has one schedule of merge_states, which distributes rows over threads");
static_assert(points(cpu::merge_states::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{DType::e4m3, DType::fp8_ds_mla},
                     kEverySchedule) == 0,
              "merge_states, out_dtype: no kernel has this out_dtype");
static_assert(points(cpu::merge_states::supports,
                     std::array{DType::e4m3, DType::fp8_ds_mla},
                     kEveryDType,
                     kEverySchedule) == 0,
              "merge_states, in_dtype: no kernel has this in_dtype");

static_assert(points(cpu::store_kv::supports,
                     std::array{DType::fp32},
                     std::array{DType::fp32, DType::e4m3, DType::fp8_ds_mla}) == 3);
static_assert(points(cpu::store_kv::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16, DType::e4m3, DType::fp8_ds_mla}) == 3);
static_assert(points(cpu::store_kv::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16, DType::e4m3, DType::fp8_ds_mla}) == 3);
static_assert(points(cpu::store_kv::supports,
                     std::array{DType::fp32},
                     std::array{DType::fp16, DType::bf16}) == 0,
              "store_kv, kv_dtype: store_kv copies or quantises; a cache in another float type belongs to the producer of the latent");
static_assert(points(cpu::store_kv::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp32, DType::bf16}) == 0,
              "store_kv, kv_dtype: store_kv copies or quantises; a cache in another float type belongs to the producer of the latent");
static_assert(points(cpu::store_kv::supports,
                     std::array{DType::bf16},
                     std::array{DType::fp32, DType::fp16}) == 0,
              "store_kv, kv_dtype: store_kv copies or quantises; a cache in another float type belongs to the producer of the latent");
static_assert(points(cpu::store_kv::supports,
                     std::array{DType::e4m3, DType::fp8_ds_mla},
                     kEveryDType) == 0,
              "store_kv, in_dtype: no kernel has this in_dtype");

static_assert(points(cpu::gather_kv::supports,
                     kEveryDType,
                     std::array{DType::fp32, DType::fp16, DType::bf16}) == 15);
static_assert(points(cpu::gather_kv::supports,
                     kEveryDType,
                     std::array{DType::e4m3, DType::fp8_ds_mla}) == 0,
              "gather_kv, out_dtype: no kernel has this out_dtype");

}  // namespace mla
