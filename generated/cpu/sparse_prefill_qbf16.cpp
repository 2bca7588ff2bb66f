// Generated from codegen/matrix/cpu.toml.
#include "cpu/sparse_prefill/sparse_prefill.h"

namespace mla::cpu {

template struct SparsePrefill<DType::bf16, DType::bf16, DType::bf16>;
static_assert(SparsePrefill<DType::bf16, DType::bf16, DType::bf16>::kLoad == "direct");
static_assert(SparsePrefill<DType::bf16, DType::bf16, DType::bf16>::kSchedule == "rows");

}  // namespace mla::cpu
