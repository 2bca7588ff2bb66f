#pragma once

#include "cuda/gather_kv/gather_kv.h"
#include "sm100/cutlass_mla/attention_op.h"
#include "sm100/decode/decode.h"
#include "sm100/sparse_decode/problem.h"
#include "sm100/sparse_decode/sparse_decode.h"

namespace mla::sm100 {

// The dense op that computes sparse attention: gathered rows are contiguous and of the type of Q.
template <DType kQ, DType kOut, Load kLoad, Schedule kSchedule>
using Dense = Decode<kQ, kQ, kOut, kLoad == Load::gather ? Load::tma : kLoad, kSchedule>;

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule>::can_run(const Problem& problem) {
  return can_run_attention(problem, kTraits);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule>::workspace_size(const Problem& problem,
                                                                     int64_t* bytes) {
  return workspace_bytes(problem, kTraits, bytes);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule>::launch(const Problem& problem, ConstBuffer,
                                                             Buffer workspace, Stream stream) {
  const auto run = [&](AttentionProblem attention, const WorkspaceLayout& layout) -> Status {
    if constexpr (kLoad == Load::gather) {
      const auto gather = sparse_decode::gather_problem(problem, attention, layout, workspace.data);
      MLA_TRY((cuda::GatherKv<kKv, kQ>::launch(gather, {}, {}, stream)));
      sparse_decode::set_gathered_kv(layout, workspace.data, &attention);
    }
    return Dense<kQ, kOut, kLoad, kSchedule>::run(attention, layout, workspace.data, stream);
  };
  return launch_attention(problem, kTraits, {"indices", problem.indices, problem.topk},
                          workspace.data, stream, prepare, run);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule>::prepare(int32_t device) {
  return Dense<kQ, kOut, kLoad, kSchedule>::prepare(device);
}

}  // namespace mla::sm100
