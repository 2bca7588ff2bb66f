#pragma once

#include "common/checks.h"
#include "sm100/cutlass_mla/kernel.cuh"
#include "sm100/decode/decode.h"
#include "sm100/decode/problem.h"

namespace mla::sm100 {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::can_run(const Problem& problem) {
  AttentionProblem attention;
  return describe_all(problem, {kQ, kKv, kOut, kLoad, kSchedule}, &attention);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::workspace_size(const Problem& problem,
                                                               int64_t* bytes) {
  return workspace_bytes(problem, {kQ, kKv, kOut, kLoad, kSchedule}, bytes);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::launch(const Problem& problem, ConstBuffer,
                                                       Buffer workspace, Stream stream) {
  AttentionProblem attention;
  MLA_TRY(describe_all(problem, {kQ, kKv, kOut, kLoad, kSchedule}, &attention));
  if (attention.shape.rows == 0) return {};
  const int64_t slots = saturating_product({problem.num_pages, problem.page_size});
  MLA_TRY(check_present({{"q", problem.q_latent, 1},
                         {"q", problem.q_rope, 1},
                         {"kv_cache", problem.kv_latent, slots},
                         {"kv_cache", problem.kv_rope, slots},
                         {"seq_lens", problem.seq_lens, 1},
                         {"out", problem.out, 1}}));
  WorkspaceLayout layout;
  MLA_TRY(lay_out(attention, &layout));
  const cuda::DeviceGuard guard(problem.device);
  MLA_TRY(guard.status());
  MLA_TRY(prepare(problem.device));
  MLA_TRY(launch_rows(attention, layout, workspace.data, static_cast<cudaStream_t>(stream)));
  return run(attention, layout, workspace.data, stream);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::prepare(int32_t device) {
  return prepare_kernel<MlaKernel<kQ, kOut, kLoad, kSchedule>>(device);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::run(const AttentionProblem& attention,
                                                    const WorkspaceLayout& layout, void* workspace,
                                                    Stream stream) {
  return launch_kernel<MlaKernel<kQ, kOut, kLoad, kSchedule>>(attention, layout, workspace,
                                                              static_cast<cudaStream_t>(stream));
}

}  // namespace mla::sm100
