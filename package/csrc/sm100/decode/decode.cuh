#pragma once

#include "common/queries.h"
#include "sm100/cutlass_mla/attention_op.h"
#include "sm100/cutlass_mla/kernel.cuh"
#include "sm100/decode/decode.h"
#include "sm100/decode/problem.h"

namespace mla::sm100 {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV>::can_run(const Problem& problem) {
  return can_run_attention(problem, kTraits);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV>::workspace_size(const Problem& problem,
                                                                          int64_t* bytes) {
  return workspace_bytes(problem, kTraits, bytes);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV>::launch(const Problem& problem,
                                                                  ConstBuffer, Buffer workspace,
                                                                  Stream stream) {
  MLA_TRY(check_all_queries(problem));
  return launch_attention(problem, kTraits, {"seq_lens", problem.seq_lens, 1}, workspace.data,
                          stream, prepare, [&](const auto& attention, const auto& layout) {
                            return run(attention, layout, workspace.data, stream);
                          });
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV>::prepare(int32_t device) {
  return prepare_kernel<MlaKernel<kQ, kOut, kLoad, kSchedule, kDV>>(device);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV>::run(const AttentionProblem& attention,
                                                               const WorkspaceLayout& layout,
                                                               void* workspace, Stream stream) {
  return launch_kernel<MlaKernel<kQ, kOut, kLoad, kSchedule, kDV>>(attention, layout, workspace,
                                                                   cuda::cuda_stream(stream));
}

}  // namespace mla::sm100
