// Generated from codegen/matrix/cpu.toml.
#include "cpu/sparse_prefill/sparse_prefill.h"

namespace mla::cpu {

template struct SparsePrefill<DType::fp32, DType::fp32, DType::fp32>;
static_assert(SparsePrefill<DType::fp32, DType::fp32, DType::fp32>::kLoad == "direct");
static_assert(SparsePrefill<DType::fp32, DType::fp32, DType::fp32>::kSchedule == "rows");

}  // namespace mla::cpu
