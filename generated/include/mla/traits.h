// The traits that are baked into kernels. Generated; codegen/matrix/domains.toml says what each enumerator means.
#pragma once

#include <array>
#include <cstdint>

namespace mla {

enum class DType : int32_t {
  fp32,
  fp16,
  bf16,
  e4m3,
  fp8_ds_mla,
  fp8_ds_v4,
  fp8_ds_v41,
  fp4_ds_v41,
  mxfp4_ds_v4,
  nvfp4_ds_mla,
  e8m0,
  e2m1,
};

inline constexpr std::array kEveryDType = {
    DType::fp32,
    DType::fp16,
    DType::bf16,
    DType::e4m3,
    DType::fp8_ds_mla,
    DType::fp8_ds_v4,
    DType::fp8_ds_v41,
    DType::fp4_ds_v41,
    DType::mxfp4_ds_v4,
    DType::nvfp4_ds_mla,
    DType::e8m0,
    DType::e2m1,
};

enum class Load : int32_t {
  direct,
  tma,
  cpasync,
  gather,
};

inline constexpr std::array kEveryLoad = {
    Load::direct,
    Load::tma,
    Load::cpasync,
    Load::gather,
};

enum class Schedule : int32_t {
  split,
  rows,
  individual,
  persistent,
  reduction,
  rows_m64,
  swap_ab,
};

inline constexpr std::array kEverySchedule = {
    Schedule::split,
    Schedule::rows,
    Schedule::individual,
    Schedule::persistent,
    Schedule::reduction,
    Schedule::rows_m64,
    Schedule::swap_ab,
};

enum class ExtraKv : int32_t {
  same,
  fp4_ds_v41,
};

inline constexpr std::array kEveryExtraKv = {
    ExtraKv::same,
    ExtraKv::fp4_ds_v41,
};

enum class ComputeDType : int32_t {
  exact,
  e4m3,
};

inline constexpr std::array kEveryComputeDType = {
    ComputeDType::exact,
    ComputeDType::e4m3,
};

}  // namespace mla
