#pragma once

#include "common/checks.h"
#include "cuda/device.h"
#include "cuda/gather_kv/gather_kv.h"
#include "sm100/decode/decode.h"
#include "sm100/sparse_decode/problem.h"
#include "sm100/sparse_decode/sparse_decode.h"

namespace mla::sm100 {

// The dense op that computes sparse attention: gathered rows are contiguous and of the type of Q.
template <DType kQ, DType kOut, Load kLoad, Schedule kSchedule>
using Dense = Decode<kQ, kQ, kOut, kLoad == Load::gather ? Load::tma : kLoad, kSchedule>;

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule>::can_run(const Problem& problem) {
  AttentionProblem attention;
  return describe_all(problem, {kQ, kKv, kOut, kLoad, kSchedule}, &attention);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule>::workspace_size(const Problem& problem,
                                                                     int64_t* bytes) {
  return workspace_bytes(problem, {kQ, kKv, kOut, kLoad, kSchedule}, bytes);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule>::launch(const Problem& problem, ConstBuffer,
                                                             Buffer workspace, Stream stream) {
  using Kernel = Dense<kQ, kOut, kLoad, kSchedule>;
  AttentionProblem attention;
  MLA_TRY(describe_all(problem, {kQ, kKv, kOut, kLoad, kSchedule}, &attention));
  if (attention.shape.rows == 0) return {};
  const int64_t slots = saturating_product({problem.num_pages, problem.page_size});
  MLA_TRY(check_present({{"q", problem.q_latent, 1},
                         {"q", problem.q_rope, 1},
                         {"kv_cache", problem.kv_latent, slots},
                         {"indices", problem.indices, problem.topk},
                         {"out", problem.out, 1}}));
  WorkspaceLayout layout;
  MLA_TRY(lay_out(attention, &layout));
  const cuda::DeviceGuard guard(problem.device);
  MLA_TRY(guard.status());
  MLA_TRY(Kernel::prepare(problem.device));
  MLA_TRY(launch_rows(attention, layout, workspace.data, static_cast<cudaStream_t>(stream)));
  if constexpr (kLoad == Load::gather) {
    const auto gather = sparse_decode::gather_problem(problem, attention, layout, workspace.data);
    MLA_TRY((cuda::GatherKv<kKv, kQ>::launch(gather, {}, {}, stream)));
    sparse_decode::set_gathered_kv(layout, workspace.data, &attention);
  }
  return Kernel::run(attention, layout, workspace.data, stream);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule>::prepare(int32_t device) {
  return Dense<kQ, kOut, kLoad, kSchedule>::prepare(device);
}

}  // namespace mla::sm100
