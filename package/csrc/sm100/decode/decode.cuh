#pragma once

#include "common/checks.h"
#include "sm100/decode/decode.h"
#include "sm100/decode/kernel.cuh"
#include "sm100/decode/problem.h"

namespace mla::sm100 {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::can_run(const Problem& problem) {
  Attention attention;
  return decode::describe_all(problem, {kQ, kKv, kOut, kLoad, kSchedule}, &attention);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::workspace_size(const Problem& problem,
                                                               int64_t* bytes) {
  Attention attention;
  MLA_TRY(decode::describe(problem, {kQ, kKv, kOut, kLoad, kSchedule}, &attention));
  Layout sizes;
  MLA_TRY(layout(attention, &sizes));
  *bytes = sizes.bytes;
  return {};
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::launch(const Problem& problem, ConstBuffer,
                                                       Buffer workspace, Stream stream) {
  Attention attention;
  MLA_TRY(decode::describe_all(problem, {kQ, kKv, kOut, kLoad, kSchedule}, &attention));
  if (attention.shape.rows == 0) return {};
  const int64_t slots = saturating_product({problem.num_pages, problem.page_size});
  MLA_TRY(check_present({{"q", problem.q_latent, 1},
                         {"q", problem.q_rope, 1},
                         {"kv_cache", problem.kv_latent, slots},
                         {"kv_cache", problem.kv_rope, slots},
                         {"seq_lens", problem.seq_lens, 1},
                         {"out", problem.out, 1}}));
  Layout sizes;
  MLA_TRY(layout(attention, &sizes));
  const cuda::DeviceGuard guard(problem.device);
  MLA_TRY(guard.status());
  MLA_TRY(prepare(problem.device));
  MLA_TRY(launch_rows(attention, sizes, workspace.data, static_cast<cudaStream_t>(stream)));
  return run(attention, sizes, workspace.data, stream);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::prepare(int32_t device) {
  return prepare_kernel<MlaKernel<kQ, kOut, kLoad, kSchedule>>(device);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::run(const Attention& attention,
                                                    const Layout& layout, void* workspace,
                                                    Stream stream) {
  return launch_kernel<MlaKernel<kQ, kOut, kLoad, kSchedule>>(attention, layout, workspace,
                                                              static_cast<cudaStream_t>(stream));
}

}  // namespace mla::sm100
