// Kernels support what the matrix allows, and nothing else. Generated from codegen/matrix.
#pragma once

#include <array>

#include "common/traits.h"
#include "cuda/gather_kv/supports.h"
#include "cuda/merge_states/supports.h"
#include "cuda/store_kv/supports.h"
#include "sm90/decode/supports.h"
#include "sm90/sparse_decode/supports.h"
#include "sm90/sparse_prefill/supports.h"

namespace mla {

static_assert(points(cuda::merge_states::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{Schedule::rows}) == 9);
static_assert(points(cuda::merge_states::supports,
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{Schedule::split, Schedule::individual, Schedule::persistent, Schedule::reduction, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "merge_states, schedule: merge_states has a plain CUDA schedule, rows, and on sm100f CUTLASS's reduction of fp32 to 16 bits");

static_assert(points(cuda::store_kv::supports,
                     std::array{DType::fp32},
                     std::array{DType::e4m3, DType::fp8_ds_mla}) == 2);
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16, DType::e4m3, DType::fp8_ds_mla}) == 3);
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16, DType::e4m3, DType::fp8_ds_mla}) == 3);
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::fp32},
                     std::array{DType::fp32, DType::fp16, DType::bf16, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4}) == 0,
              "store_kv, kv_dtype: store_kv copies or quantises; a cache in another float type belongs to the producer of the latent, and no GPU kernel reads an fp32 cache");
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp32, DType::bf16, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4}) == 0,
              "store_kv, kv_dtype: store_kv copies or quantises; a cache in another float type belongs to the producer of the latent, and no GPU kernel reads an fp32 cache");
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4}) == 0,
              "store_kv, kv_dtype: store_kv copies or quantises; a cache in another float type belongs to the producer of the latent, and no GPU kernel reads an fp32 cache");

static_assert(points(cuda::gather_kv::supports,
                     std::array{DType::fp16, DType::bf16, DType::e4m3, DType::fp8_ds_mla},
                     std::array{DType::fp32, DType::fp16, DType::bf16}) == 12);
static_assert(points(cuda::gather_kv::supports,
                     std::array{DType::fp32, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4},
                     std::array{DType::fp32, DType::fp16, DType::bf16}) == 0,
              "gather_kv, kv_dtype: GPU payloads have no fp32 caches: the kernel that gathers their rows moves at most 16 bits an element");

static_assert(points(sm90::decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::tma},
                     std::array{Schedule::rows_m64}) == 1);
static_assert(points(sm90::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::tma},
                     std::array{Schedule::rows_m64}) == 1);
static_assert(points(sm90::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::e4m3},
                     std::array{DType::bf16},
                     std::array{Load::tma},
                     std::array{Schedule::rows_m64}) == 1);
static_assert(points(sm90::decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::tma},
                     std::array{Schedule::swap_ab}) == 1);
static_assert(points(sm90::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::tma},
                     std::array{Schedule::swap_ab}) == 1);
static_assert(points(sm90::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::e4m3},
                     std::array{DType::bf16},
                     std::array{Load::tma},
                     std::array{Schedule::swap_ab}) == 1);
static_assert(points(sm90::decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::gather},
                     std::array{Schedule::rows_m64}) == 1);
static_assert(points(sm90::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::gather},
                     std::array{Schedule::rows_m64}) == 1);
static_assert(points(sm90::decode::supports,
                     std::array{DType::fp32, DType::e4m3},
                     std::array{DType::fp32, DType::fp16, DType::bf16, DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "decode, q_dtype: the kernel multiplies 16-bit elements");
static_assert(points(sm90::decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp32, DType::bf16, DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "decode, kv_dtype: the kernel multiplies equal types: Q and KV have one element type, or KV is e4m3 and Q bf16");
static_assert(points(sm90::decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp32, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "decode, out_dtype: the output has the element type of Q");
static_assert(points(sm90::decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::direct, Load::cpasync},
                     kEverySchedule) == 0,
              "decode, load: the kernel loads KV by TMA, or gathers it row by row; an fp8 cache is loaded by TMA only");
static_assert(points(sm90::decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::tma},
                     std::array{Schedule::split, Schedule::rows, Schedule::individual, Schedule::persistent, Schedule::reduction}) == 0,
              "decode, schedule: the kernel has two schedules, rows_m64 and, for few rows of queries, swap_ab");
static_assert(points(sm90::decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::gather},
                     std::array{Schedule::split, Schedule::rows, Schedule::individual, Schedule::persistent, Schedule::reduction, Schedule::swap_ab}) == 0,
              "decode, schedule: no kernel has this schedule");
static_assert(points(sm90::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "decode, kv_dtype: the kernel multiplies equal types: Q and KV have one element type, or KV is e4m3 and Q bf16");
static_assert(points(sm90::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::fp32, DType::fp16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "decode, out_dtype: the output has the element type of Q");
static_assert(points(sm90::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::direct, Load::cpasync},
                     kEverySchedule) == 0,
              "decode, load: the kernel loads KV by TMA, or gathers it row by row; an fp8 cache is loaded by TMA only");
static_assert(points(sm90::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::tma},
                     std::array{Schedule::split, Schedule::rows, Schedule::individual, Schedule::persistent, Schedule::reduction}) == 0,
              "decode, schedule: the kernel has two schedules, rows_m64 and, for few rows of queries, swap_ab");
static_assert(points(sm90::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::gather},
                     std::array{Schedule::split, Schedule::rows, Schedule::individual, Schedule::persistent, Schedule::reduction, Schedule::swap_ab}) == 0,
              "decode, schedule: no kernel has this schedule");
static_assert(points(sm90::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::e4m3},
                     std::array{DType::fp32, DType::fp16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "decode, out_dtype: the output has the element type of Q");
static_assert(points(sm90::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::e4m3},
                     std::array{DType::bf16},
                     std::array{Load::direct, Load::cpasync, Load::gather},
                     kEverySchedule) == 0,
              "decode, load: the kernel loads KV by TMA, or gathers it row by row; an fp8 cache is loaded by TMA only");
static_assert(points(sm90::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::e4m3},
                     std::array{DType::bf16},
                     std::array{Load::tma},
                     std::array{Schedule::split, Schedule::rows, Schedule::individual, Schedule::persistent, Schedule::reduction}) == 0,
              "decode, schedule: the kernel has two schedules, rows_m64 and, for few rows of queries, swap_ab");

static_assert(points(sm90::sparse_decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::gather},
                     std::array{Schedule::rows_m64}) == 1);
static_assert(points(sm90::sparse_decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16, DType::fp8_ds_mla},
                     std::array{DType::bf16},
                     std::array{Load::gather},
                     std::array{Schedule::rows_m64}) == 2);
static_assert(points(sm90::sparse_decode::supports,
                     std::array{DType::fp32, DType::e4m3},
                     std::array{DType::fp32, DType::fp16, DType::bf16, DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_decode, q_dtype: the kernel multiplies 16-bit elements");
static_assert(points(sm90::sparse_decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp32, DType::bf16, DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_decode, kv_dtype: the kernel multiplies equal types, or dequantizes rows of fp8_ds_mla to bf16; no model has a sparse cache of plain e4m3");
static_assert(points(sm90::sparse_decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp32, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_decode, out_dtype: the output has the element type of Q");
static_assert(points(sm90::sparse_decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::direct, Load::tma, Load::cpasync},
                     kEverySchedule) == 0,
              "sparse_decode, load: selected rows lie anywhere: the kernel gathers them one by one");
static_assert(points(sm90::sparse_decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::gather},
                     std::array{Schedule::split, Schedule::rows, Schedule::individual, Schedule::persistent, Schedule::reduction, Schedule::swap_ab}) == 0,
              "sparse_decode, schedule: the kernel has one schedule, rows_m64");
static_assert(points(sm90::sparse_decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::e4m3, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_decode, kv_dtype: the kernel multiplies equal types, or dequantizes rows of fp8_ds_mla to bf16; no model has a sparse cache of plain e4m3");
static_assert(points(sm90::sparse_decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16, DType::fp8_ds_mla},
                     std::array{DType::fp32, DType::fp16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_decode, out_dtype: the output has the element type of Q");
static_assert(points(sm90::sparse_decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16, DType::fp8_ds_mla},
                     std::array{DType::bf16},
                     std::array{Load::direct, Load::tma, Load::cpasync},
                     kEverySchedule) == 0,
              "sparse_decode, load: selected rows lie anywhere: the kernel gathers them one by one");
static_assert(points(sm90::sparse_decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16, DType::fp8_ds_mla},
                     std::array{DType::bf16},
                     std::array{Load::gather},
                     std::array{Schedule::split, Schedule::rows, Schedule::individual, Schedule::persistent, Schedule::reduction, Schedule::swap_ab}) == 0,
              "sparse_decode, schedule: the kernel has one schedule, rows_m64");

static_assert(points(sm90::sparse_prefill::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::gather},
                     std::array{Schedule::rows_m64}) == 1);
static_assert(points(sm90::sparse_prefill::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::gather},
                     std::array{Schedule::rows_m64}) == 1);
static_assert(points(sm90::sparse_prefill::supports,
                     std::array{DType::fp32, DType::e4m3},
                     std::array{DType::fp32, DType::fp16, DType::bf16, DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_prefill, q_dtype: the kernel multiplies 16-bit elements");
static_assert(points(sm90::sparse_prefill::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp32, DType::bf16, DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_prefill, kv_dtype: sparse prefill reads a gathered cache in the element type of Q: dequantise with gather_kv first");
static_assert(points(sm90::sparse_prefill::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp32, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_prefill, out_dtype: the output has the element type of Q");
static_assert(points(sm90::sparse_prefill::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::direct, Load::tma, Load::cpasync},
                     kEverySchedule) == 0,
              "sparse_prefill, load: selected rows lie anywhere: the kernel gathers them one by one");
static_assert(points(sm90::sparse_prefill::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::gather},
                     std::array{Schedule::split, Schedule::rows, Schedule::individual, Schedule::persistent, Schedule::reduction, Schedule::swap_ab}) == 0,
              "sparse_prefill, schedule: the kernel has one schedule, rows_m64");
static_assert(points(sm90::sparse_prefill::supports,
                     std::array{DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_prefill, kv_dtype: sparse prefill reads a gathered cache in the element type of Q: dequantise with gather_kv first");
static_assert(points(sm90::sparse_prefill::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::fp32, DType::fp16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_prefill, out_dtype: the output has the element type of Q");
static_assert(points(sm90::sparse_prefill::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::direct, Load::tma, Load::cpasync},
                     kEverySchedule) == 0,
              "sparse_prefill, load: selected rows lie anywhere: the kernel gathers them one by one");
static_assert(points(sm90::sparse_prefill::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::gather},
                     std::array{Schedule::split, Schedule::rows, Schedule::individual, Schedule::persistent, Schedule::reduction, Schedule::swap_ab}) == 0,
              "sparse_prefill, schedule: the kernel has one schedule, rows_m64");

}  // namespace mla
