// Kernels support what the matrix allows, and nothing else. Generated from codegen/matrix.
#pragma once

#include <array>

#include "common/traits.h"
#include "cuda/gather_kv/supports.h"
#include "cuda/merge_states/supports.h"
#include "cuda/store_kv/supports.h"
#include "sm100/decode/supports.h"
#include "sm100/merge_states/supports.h"
#include "sm100/sparse_decode/supports.h"

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
                     std::array{DType::e4m3, DType::fp8_ds_mla, DType::nvfp4_ds_mla},
                     std::array{576}) == 3);
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16, DType::e4m3, DType::fp8_ds_mla, DType::nvfp4_ds_mla},
                     std::array{576}) == 4);
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16, DType::e4m3, DType::fp8_ds_mla, DType::nvfp4_ds_mla},
                     std::array{576}) == 4);
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::fp32},
                     std::array{DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41},
                     std::array{512}) == 5);
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16, DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41},
                     std::array{512}) == 6);
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16, DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41},
                     std::array{512}) == 6);
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::fp32},
                     std::array{DType::fp32, DType::fp16, DType::bf16, DType::mxfp4_ds_v4},
                     std::array{576, 512, 320}) == 0,
              "store_kv, kv_dtype: store_kv copies or quantises; a cache in another float type belongs to the producer of the latent, and no GPU kernel reads an fp32 cache");
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::fp32},
                     std::array{DType::e4m3, DType::fp8_ds_mla},
                     std::array{320}) == 0,
              "store_kv, d_qk: no kernel has this d_qk");
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::fp32},
                     std::array{DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41},
                     std::array{576, 320}) == 0,
              "store_kv, d_qk: no kernel has this d_qk");
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::fp32},
                     std::array{DType::nvfp4_ds_mla},
                     std::array{512, 320}) == 0,
              "store_kv, d_qk: no kernel has this d_qk");
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp32, DType::bf16, DType::mxfp4_ds_v4},
                     std::array{576, 512, 320}) == 0,
              "store_kv, kv_dtype: store_kv copies or quantises; a cache in another float type belongs to the producer of the latent, and no GPU kernel reads an fp32 cache");
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16, DType::e4m3, DType::fp8_ds_mla},
                     std::array{320}) == 0,
              "store_kv, d_qk: no kernel has this d_qk");
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41},
                     std::array{576, 320}) == 0,
              "store_kv, d_qk: no kernel has this d_qk");
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::fp16},
                     std::array{DType::nvfp4_ds_mla},
                     std::array{512, 320}) == 0,
              "store_kv, d_qk: no kernel has this d_qk");
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::mxfp4_ds_v4},
                     std::array{576, 512, 320}) == 0,
              "store_kv, kv_dtype: store_kv copies or quantises; a cache in another float type belongs to the producer of the latent, and no GPU kernel reads an fp32 cache");
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16, DType::e4m3, DType::fp8_ds_mla},
                     std::array{320}) == 0,
              "store_kv, d_qk: no kernel has this d_qk");
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::bf16},
                     std::array{DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41},
                     std::array{576, 320}) == 0,
              "store_kv, d_qk: no kernel has this d_qk");
static_assert(points(cuda::store_kv::supports,
                     std::array{DType::bf16},
                     std::array{DType::nvfp4_ds_mla},
                     std::array{512, 320}) == 0,
              "store_kv, d_qk: no kernel has this d_qk");

static_assert(points(cuda::gather_kv::supports,
                     std::array{DType::fp16, DType::bf16, DType::e4m3, DType::fp8_ds_mla, DType::nvfp4_ds_mla},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{576}) == 15);
static_assert(points(cuda::gather_kv::supports,
                     std::array{DType::fp16, DType::bf16, DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{512}) == 24);
static_assert(points(cuda::gather_kv::supports,
                     std::array{DType::fp32},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{576, 512, 320}) == 0,
              "gather_kv, kv_dtype: the kernel reads rows of floats of at most 16 bits an element, or of e4m3 or e2m1: no GPU payload has caches of fp32");
static_assert(points(cuda::gather_kv::supports,
                     std::array{DType::fp16, DType::bf16, DType::e4m3, DType::fp8_ds_mla},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{320}) == 0,
              "gather_kv, d_qk: no kernel has this d_qk");
static_assert(points(cuda::gather_kv::supports,
                     std::array{DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{576, 320}) == 0,
              "gather_kv, d_qk: no kernel has this d_qk");
static_assert(points(cuda::gather_kv::supports,
                     std::array{DType::nvfp4_ds_mla},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     std::array{512, 320}) == 0,
              "gather_kv, d_qk: no kernel has this d_qk");

static_assert(points(sm100::decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::tma},
                     std::array{Schedule::individual, Schedule::persistent}) == 2);
static_assert(points(sm100::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::tma},
                     std::array{Schedule::individual, Schedule::persistent}) == 2);
static_assert(points(sm100::decode::supports,
                     std::array{DType::e4m3},
                     std::array{DType::e4m3},
                     std::array{DType::fp16, DType::bf16},
                     std::array{Load::tma},
                     std::array{Schedule::individual, Schedule::persistent}) == 4);
static_assert(points(sm100::decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::cpasync},
                     std::array{Schedule::individual, Schedule::persistent}) == 2);
static_assert(points(sm100::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::cpasync},
                     std::array{Schedule::individual, Schedule::persistent}) == 2);
static_assert(points(sm100::decode::supports,
                     std::array{DType::e4m3},
                     std::array{DType::e4m3},
                     std::array{DType::fp16, DType::bf16},
                     std::array{Load::cpasync},
                     std::array{Schedule::individual, Schedule::persistent}) == 4);
static_assert(points(sm100::decode::supports,
                     std::array{DType::fp32},
                     std::array{DType::fp32, DType::fp16, DType::bf16, DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4, DType::nvfp4_ds_mla},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "decode, q_dtype: the kernel's tensor-core instructions take 8- and 16-bit elements");
static_assert(points(sm100::decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp32, DType::bf16, DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4, DType::nvfp4_ds_mla},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "decode, kv_dtype: the kernel multiplies equal types: Q and KV have one element type");
static_assert(points(sm100::decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp32, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "decode, out_dtype: the output has the element type of Q, or of 8-bit Q a 16-bit type");
static_assert(points(sm100::decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::direct, Load::gather},
                     kEverySchedule) == 0,
              "decode, load: CUTLASS example 77 loads KV by TMA or cp.async; nothing else exists for its pipeline");
static_assert(points(sm100::decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::tma},
                     std::array{Schedule::split, Schedule::rows, Schedule::reduction, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "decode, schedule: CUTLASS example 77 has two tile schedulers, individual and persistent; fused reduction is left out because its memset runs on the default stream and its sums depend on the order of arrival");
static_assert(points(sm100::decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::cpasync},
                     std::array{Schedule::split, Schedule::rows, Schedule::reduction, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "decode, schedule: no kernel has this schedule");
static_assert(points(sm100::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4, DType::nvfp4_ds_mla},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "decode, kv_dtype: the kernel multiplies equal types: Q and KV have one element type");
static_assert(points(sm100::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::fp32, DType::fp16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "decode, out_dtype: the output has the element type of Q, or of 8-bit Q a 16-bit type");
static_assert(points(sm100::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::direct, Load::gather},
                     kEverySchedule) == 0,
              "decode, load: CUTLASS example 77 loads KV by TMA or cp.async; nothing else exists for its pipeline");
static_assert(points(sm100::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::tma},
                     std::array{Schedule::split, Schedule::rows, Schedule::reduction, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "decode, schedule: CUTLASS example 77 has two tile schedulers, individual and persistent; fused reduction is left out because its memset runs on the default stream and its sums depend on the order of arrival");
static_assert(points(sm100::decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::cpasync},
                     std::array{Schedule::split, Schedule::rows, Schedule::reduction, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "decode, schedule: no kernel has this schedule");
static_assert(points(sm100::decode::supports,
                     std::array{DType::e4m3},
                     std::array{DType::fp32, DType::fp16, DType::bf16, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4, DType::nvfp4_ds_mla},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "decode, kv_dtype: the kernel multiplies equal types: Q and KV have one element type");
static_assert(points(sm100::decode::supports,
                     std::array{DType::e4m3},
                     std::array{DType::e4m3},
                     std::array{DType::fp32},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "decode, out_dtype: the output has the element type of Q, or of 8-bit Q a 16-bit type");
static_assert(points(sm100::decode::supports,
                     std::array{DType::e4m3},
                     std::array{DType::e4m3},
                     std::array{DType::fp16, DType::bf16},
                     std::array{Load::direct, Load::gather},
                     kEverySchedule) == 0,
              "decode, load: CUTLASS example 77 loads KV by TMA or cp.async; nothing else exists for its pipeline");
static_assert(points(sm100::decode::supports,
                     std::array{DType::e4m3},
                     std::array{DType::e4m3},
                     std::array{DType::fp16, DType::bf16},
                     std::array{Load::tma},
                     std::array{Schedule::split, Schedule::rows, Schedule::reduction, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "decode, schedule: CUTLASS example 77 has two tile schedulers, individual and persistent; fused reduction is left out because its memset runs on the default stream and its sums depend on the order of arrival");
static_assert(points(sm100::decode::supports,
                     std::array{DType::e4m3},
                     std::array{DType::e4m3},
                     std::array{DType::fp16, DType::bf16},
                     std::array{Load::cpasync},
                     std::array{Schedule::split, Schedule::rows, Schedule::reduction, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "decode, schedule: no kernel has this schedule");

static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::cpasync},
                     std::array{Schedule::individual}) == 1);
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::cpasync},
                     std::array{Schedule::individual}) == 1);
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::e4m3},
                     std::array{DType::e4m3},
                     std::array{DType::fp16, DType::bf16},
                     std::array{Load::cpasync},
                     std::array{Schedule::individual}) == 2);
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::fp8_ds_mla, DType::nvfp4_ds_mla},
                     std::array{DType::bf16},
                     std::array{Load::gather},
                     std::array{Schedule::individual}) == 2);
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::fp32},
                     std::array{DType::fp32, DType::fp16, DType::bf16, DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4, DType::nvfp4_ds_mla},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_decode, q_dtype: the kernel's tensor-core instructions take 8- and 16-bit elements");
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp32, DType::bf16, DType::e4m3, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4, DType::nvfp4_ds_mla},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_decode, kv_dtype: the kernel multiplies equal types: Q and KV have one element type, or fp8_ds_mla and nvfp4_ds_mla are dequantised to bf16");
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp32, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_decode, out_dtype: the output has the element type of Q, or of 8-bit Q a 16-bit type");
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::direct, Load::tma, Load::gather},
                     kEverySchedule) == 0,
              "sparse_decode, load: selected tokens are one-token pages, which cp.async reads, or rows of fp8_ds_mla and nvfp4_ds_mla, which are gathered and dequantised first");
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{DType::fp16},
                     std::array{Load::cpasync},
                     std::array{Schedule::split, Schedule::rows, Schedule::persistent, Schedule::reduction, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "sparse_decode, schedule: the persistent scheduler with KV splits was reported to give wrong results, and one token row rarely fills the machine without them");
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::e4m3, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_decode, kv_dtype: the kernel multiplies equal types: Q and KV have one element type, or fp8_ds_mla and nvfp4_ds_mla are dequantised to bf16");
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::fp32, DType::fp16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_decode, out_dtype: the output has the element type of Q, or of 8-bit Q a 16-bit type");
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::direct, Load::tma, Load::gather},
                     kEverySchedule) == 0,
              "sparse_decode, load: selected tokens are one-token pages, which cp.async reads, or rows of fp8_ds_mla and nvfp4_ds_mla, which are gathered and dequantised first");
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{DType::bf16},
                     std::array{Load::cpasync},
                     std::array{Schedule::split, Schedule::rows, Schedule::persistent, Schedule::reduction, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "sparse_decode, schedule: the persistent scheduler with KV splits was reported to give wrong results, and one token row rarely fills the machine without them");
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::fp8_ds_mla, DType::nvfp4_ds_mla},
                     std::array{DType::fp32, DType::fp16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_decode, out_dtype: the output has the element type of Q, or of 8-bit Q a 16-bit type");
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::fp8_ds_mla, DType::nvfp4_ds_mla},
                     std::array{DType::bf16},
                     std::array{Load::direct, Load::tma, Load::cpasync},
                     kEverySchedule) == 0,
              "sparse_decode, load: selected tokens are one-token pages, which cp.async reads, or rows of fp8_ds_mla and nvfp4_ds_mla, which are gathered and dequantised first");
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::bf16},
                     std::array{DType::fp8_ds_mla, DType::nvfp4_ds_mla},
                     std::array{DType::bf16},
                     std::array{Load::gather},
                     std::array{Schedule::split, Schedule::rows, Schedule::persistent, Schedule::reduction, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "sparse_decode, schedule: the persistent scheduler with KV splits was reported to give wrong results, and one token row rarely fills the machine without them");
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::e4m3},
                     std::array{DType::fp32, DType::fp16, DType::bf16, DType::fp8_ds_mla, DType::fp8_ds_v4, DType::fp8_ds_v41, DType::fp4_ds_v41, DType::mxfp4_ds_v4, DType::nvfp4_ds_mla},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_decode, kv_dtype: the kernel multiplies equal types: Q and KV have one element type, or fp8_ds_mla and nvfp4_ds_mla are dequantised to bf16");
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::e4m3},
                     std::array{DType::e4m3},
                     std::array{DType::fp32},
                     kEveryLoad,
                     kEverySchedule) == 0,
              "sparse_decode, out_dtype: the output has the element type of Q, or of 8-bit Q a 16-bit type");
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::e4m3},
                     std::array{DType::e4m3},
                     std::array{DType::fp16, DType::bf16},
                     std::array{Load::direct, Load::tma, Load::gather},
                     kEverySchedule) == 0,
              "sparse_decode, load: selected tokens are one-token pages, which cp.async reads, or rows of fp8_ds_mla and nvfp4_ds_mla, which are gathered and dequantised first");
static_assert(points(sm100::sparse_decode::supports,
                     std::array{DType::e4m3},
                     std::array{DType::e4m3},
                     std::array{DType::fp16, DType::bf16},
                     std::array{Load::cpasync},
                     std::array{Schedule::split, Schedule::rows, Schedule::persistent, Schedule::reduction, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "sparse_decode, schedule: the persistent scheduler with KV splits was reported to give wrong results, and one token row rarely fills the machine without them");

static_assert(points(sm100::merge_states::supports,
                     std::array{DType::fp32},
                     std::array{DType::fp16, DType::bf16},
                     std::array{Schedule::reduction}) == 2);
static_assert(points(sm100::merge_states::supports,
                     std::array{DType::fp32},
                     std::array{DType::fp32},
                     kEverySchedule) == 0,
              "merge_states, out_dtype: no kernel has this out_dtype");
static_assert(points(sm100::merge_states::supports,
                     std::array{DType::fp32},
                     std::array{DType::fp16, DType::bf16},
                     std::array{Schedule::split, Schedule::rows, Schedule::individual, Schedule::persistent, Schedule::rows_m64, Schedule::swap_ab}) == 0,
              "merge_states, schedule: no kernel has this schedule");
static_assert(points(sm100::merge_states::supports,
                     std::array{DType::fp16, DType::bf16},
                     std::array{DType::fp32, DType::fp16, DType::bf16},
                     kEverySchedule) == 0,
              "merge_states, in_dtype: no kernel has this in_dtype");

}  // namespace mla
