#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/isa/attend.h"

namespace mla::cpu {

// The routines compiled for one instruction set.
struct Isa {
  const char* name;      // baseline avx2 avx512 avx512_bf16 amx_bf16
  size_t scratch_bytes;  // of a thread
  void (*attend)(const AttendItem& item);
  // @pre The type is one of elements, not of a cache of bytes.
  void (*to_fp32)(DType from, const void* src, float* dst, int64_t n);
  void (*from_fp32)(DType to, const float* src, void* dst, int64_t n);
  // Adds weight * part to o.
  void (*accumulate)(float* o, const float* part, float weight, int64_t n);
  // Dequantises one cache row to [d_qk].
  void (*gather_row)(const CacheFormat& format, const StoredRow& stored, float kv_scale,
                     float* row);
  // Is called once in each thread before its first attend, unless it is null.
  void (*prepare_thread)();
};

// Returns the best instruction set that the processor and the operating system support, or the one
// that MLA_KERNELS_CPU_ISA names.
const Isa& active_isa();

// Returns what MLA_KERNELS_CPU_ISA names if this machine does not have it (active_isa is then
// baseline), or null.
const char* refused_isa();

// Lists the instruction sets of this machine, the best one first.
std::vector<const Isa*> supported_isas();

}  // namespace mla::cpu
