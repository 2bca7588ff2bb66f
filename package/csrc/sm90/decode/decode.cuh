#pragma once

#include "common/checks.h"
#include "common/queries.h"
#include "cuda/launch.h"
#include "sm90/combine/combine.h"
#include "sm90/decode/decode.h"
#include "sm90/decode/problem.h"
#include "sm90/mainloop/kernels.cuh"

namespace mla::sm90 {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV,
          ComputeDType kCompute>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kCompute>::can_run(
    const Problem& problem) {
  Shape shape;
  MLA_TRY(decode::describe_shape(problem, &shape));
  MLA_TRY(decode::check_problem(problem, kTraits));
  decode::Params params;
  return decode::describe(problem, kTraits, shape, nullptr, nullptr, &params);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV,
          ComputeDType kCompute>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kCompute>::plan_size(
    const Problem& problem, int64_t* bytes) {
  Shape shape;
  MLA_TRY(decode::describe_shape(problem, &shape));
  *bytes = PlanView::bytes(shape);
  return {};
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV,
          ComputeDType kCompute>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kCompute>::plan(const Problem& problem,
                                                                          Buffer plan,
                                                                          Stream stream) {
  Shape shape;
  MLA_TRY(decode::describe_shape(problem, &shape));
  if (shape.batch == 0) return {};
  MLA_TRY(check_present({{"seq_lens", problem.seq_lens, 1}}));
  const cuda::DeviceGuard guard(problem.device);
  MLA_TRY(guard.status());
  return make_plan(shape, static_cast<const int32_t*>(problem.seq_lens), plan.data,
                   cuda::cuda_stream(stream));
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV,
          ComputeDType kCompute>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kCompute>::workspace_size(
    const Problem& problem, int64_t* bytes) {
  Shape shape;
  MLA_TRY(decode::describe_shape(problem, &shape));
  *bytes = decode::workspace_bytes(shape);
  return {};
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV,
          ComputeDType kCompute>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kCompute>::launch(const Problem& problem,
                                                                            ConstBuffer plan,
                                                                            Buffer workspace,
                                                                            Stream stream) {
  Shape shape;
  MLA_TRY(decode::describe_shape(problem, &shape));
  MLA_TRY(decode::check_problem(problem, kTraits));
  decode::Params params = {};  // a kernel prefetches all maps, also those that stay empty
  MLA_TRY(decode::describe(problem, kTraits, shape, plan.data, workspace.data, &params));
  if (shape.batch == 0 || shape.rows == 0 || problem.q_len == 0) return {};
  MLA_TRY(check_all_queries(problem));
  constexpr int kHasRope = kTraits.format().rope > 0;
  const int64_t slots = saturating_product({problem.num_pages, problem.page_size});
  MLA_TRY(check_present({{"q", problem.q_latent, 1},
                         {"q", problem.q_rope, kHasRope},
                         {"kv_cache", problem.kv_latent, slots},
                         {"kv_cache", problem.kv_rope, kHasRope * slots},
                         {"seq_lens", problem.seq_lens, 1},
                         {"out", problem.out, 1}}));
  // A thread that has no context yet gets one here, and the driver encodes no map without.
  const cuda::DeviceGuard guard(problem.device);
  MLA_TRY(guard.status());
  if (params.capacity > 0) MLA_TRY(decode::encode_maps(problem, kTraits, &params));
  MLA_TRY(prepare(problem.device));
  const Kernel kernel = Kernels<decode::Params, kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV,
                                ExtraKv::same, kCompute>::of(shape);
  bool fits = true;
  MLA_TRY(launch_kernel(kernel, params, cuda::cuda_stream(stream), &fits));
  if (!fits) {
    // The stream has fewer multiprocessors than the device, as that of a green context.
    params.combines = 0;
    MLA_TRY(launch_kernel(kernel, params, cuda::cuda_stream(stream), &fits));
  }
  if (params.combines || decode::workspace_bytes(shape) == 0) return {};
  return combine_partials<kOut>(params, problem.device, cuda::cuda_stream(stream));
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk, int kDV,
          ComputeDType kCompute>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV, kCompute>::prepare(int32_t device) {
  static cuda::PreparedDevices prepared;
  return prepared.ensure(device, [device]() -> Status {
    using VariantKernels = Kernels<decode::Params, kQ, kKv, kOut, kLoad, kSchedule, kDQk, kDV,
                                   ExtraKv::same, kCompute>;
    MLA_TRY(prepare_kernels<VariantKernels>());
    MLA_TRY(prepare_plan(device));
    return prepare_combine<kOut>(device);
  });
}

}  // namespace mla::sm90
