// The traits that are baked into kernels. Generated; codegen/matrix/domains.toml says what each enumerator means.
#pragma once

#include <cstdint>

namespace mla {

enum class DType : int32_t {
  fp32,
  fp16,
  bf16,
  e4m3,
  fp8_ds_mla,
};

enum class Load : int32_t {
  direct,
  tma,
  cpasync,
  gather,
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

}  // namespace mla
