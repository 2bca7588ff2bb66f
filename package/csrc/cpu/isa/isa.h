#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/isa/attend.h"

namespace mla::cpu {

// The routines compiled for one instruction set.
struct Isa {
  const char* name;      // baseline avx2 avx512 avx512_bf16 amx_bf16
  size_t scratch_bytes;  // a thread
  void (*attend)(const AttendItem& item);
  void (*to_fp32)(DType from, const void* src, float* dst, int64_t n);       // not fp8_ds_mla
  void (*from_fp32)(DType to, const float* src, void* dst, int64_t n);       // not fp8_ds_mla
  void (*accumulate)(float* o, const float* part, float weight, int64_t n);  // o += weight * part
  // Dequantises one cache row to [576]; rope is unused by fp8_ds_mla.
  void (*gather_row)(DType kv, const void* latent, const void* rope, float kv_scale, float* row);
  void (*prepare_thread)();  // once in each thread before its first attend; may be null
};

// The best instruction set that the processor and the operating system support, or the one that
// MLA_KERNELS_CPU_ISA names.
const Isa& active_isa();

// Why MLA_KERNELS_CPU_ISA could not be followed (active_isa is then baseline), or null.
const char* isa_error();

// Best first.
std::vector<const Isa*> supported_isas();

}  // namespace mla::cpu
