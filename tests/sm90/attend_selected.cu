// The kernels of sparse attention, until they are variants of the payload: compiled, and looked
// into for spills and for tensor cores that wait.
#include "sm90/sparse/attend.cuh"

namespace mla::sm90::sparse {

#define MLA_ATTEND_SELECTED(q, kv)                                                 \
  template __global__ void                                                         \
  attend_selected<DType::q, DType::kv, DType::q, Load::gather, Schedule::compute>( \
      const __grid_constant__ SelectedParams);

MLA_ATTEND_SELECTED(bf16, fp8_ds_mla)
MLA_ATTEND_SELECTED(bf16, bf16)
MLA_ATTEND_SELECTED(fp16, fp16)

#undef MLA_ATTEND_SELECTED

}  // namespace mla::sm90::sparse
