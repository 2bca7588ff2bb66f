#pragma once

#include "sm100/cutlass_mla/attention_op.h"
#include "sm100/decode/decode.h"
#include "sm100/sparse_decode/gather_selected.cuh"
#include "sm100/sparse_decode/problem.h"
#include "sm100/sparse_decode/sparse_decode.h"

namespace mla::sm100 {

// The dense op that computes sparse attention: gathered rows are contiguous and of the type of Q.
template <DType kQ, DType kOut, Load kLoad, Schedule kSchedule>
using Dense = Decode<kQ, kQ, kOut, kLoad == Load::gather ? Load::tma : kLoad, kSchedule>;

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::can_run(
    const Problem& problem) {
  return can_run_attention(problem, kTraits);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::workspace_size(
    const Problem& problem, int64_t* bytes) {
  return workspace_bytes(problem, kTraits, bytes);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::launch(const Problem& problem,
                                                                             ConstBuffer,
                                                                             Buffer workspace,
                                                                             Stream stream) {
  const auto run = [&](AttentionProblem attention, const WorkspaceLayout& layout) -> Status {
    if constexpr (kLoad == Load::gather) {
      sparse_decode::set_gathered_kv(layout, workspace.data, &attention);
      MLA_TRY((gather_selected::launch<kKv, extra_format(kExtraKv, kKv), kQ, kDQk>(
          problem, attention.shape.rows, row_arrays(attention, layout, workspace.data),
          static_cast<uint16_t*>(const_cast<void*>(attention.kv.latent)),
          cuda::cuda_stream(stream))));
    }
    return Dense<kQ, kOut, kLoad, kSchedule>::run(attention, layout, workspace.data, stream);
  };
  MLA_TRY(sparse_decode::check_extra(problem));
  return launch_attention(problem, kTraits, {"indices", problem.indices, problem.topk},
                          workspace.data, stream, prepare, run);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::prepare(int32_t device) {
  if constexpr (kLoad == Load::gather) {
    MLA_TRY((gather_selected::prepare<kKv, extra_format(kExtraKv, kKv), kQ, kDQk>(device)));
  }
  return Dense<kQ, kOut, kLoad, kSchedule>::prepare(device);
}

}  // namespace mla::sm100
