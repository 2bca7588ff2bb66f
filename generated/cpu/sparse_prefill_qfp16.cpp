// Generated from codegen/matrix/cpu.toml.
#include "cpu/sparse_prefill/sparse_prefill.h"

namespace mla::cpu {

template struct SparsePrefill<DType::fp16, DType::fp16, DType::fp16>;
static_assert(SparsePrefill<DType::fp16, DType::fp16, DType::fp16>::kLoad == "direct");
static_assert(SparsePrefill<DType::fp16, DType::fp16, DType::fp16>::kSchedule == "rows");

}  // namespace mla::cpu
