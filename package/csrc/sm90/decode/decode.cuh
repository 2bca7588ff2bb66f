#pragma once

#include <algorithm>
#include <atomic>

#include "common/checks.h"
#include "cuda/launch.h"
#include "sm90/decode/attend.cuh"
#include "sm90/decode/decode.h"
#include "sm90/decode/partials.h"
#include "sm90/decode/plan.h"
#include "sm90/decode/problem.h"
#include "sm90/decode/tensor_map.h"

namespace mla::sm90 {
namespace decode {

template <class Kernel>
Status prepare_kernel(Kernel* kernel, size_t shared_bytes) {
  return cuda::check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                          cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(shared_bytes)),
                     "kernel");
}

template <class Kernel>
Status launch_kernel(Kernel* kernel, int cluster, size_t shared_bytes, const Params& params,
                     cudaStream_t stream) {
  const Shape& shape = params.shape;
  cudaLaunchConfig_t config = {};
  config.gridDim = {static_cast<unsigned>(shape.parts * shape.groups * shape.cluster), 1, 1};
  config.blockDim = {kThreads, 1, 1};
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  config.attrs = attributes;
  config.numAttrs = 2;
  return cuda::check(cudaLaunchKernelEx(&config, kernel, params), "launch of decode");
}

}  // namespace decode

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::can_run(const Problem& problem) {
  Shape shape;
  MLA_TRY(describe_shape(problem, &shape));
  MLA_TRY(check_problem(problem, {kQ, kKv, kOut, kLoad}));
  Params params;
  return describe(problem, {kQ, kKv, kOut, kLoad}, shape, nullptr, nullptr, &params);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::plan_size(const Problem& problem, int64_t* bytes) {
  Shape shape;
  MLA_TRY(describe_shape(problem, &shape));
  *bytes = PlanView::bytes(shape);
  return {};
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::plan(const Problem& problem, Buffer plan,
                                                     Stream stream) {
  Shape shape;
  MLA_TRY(describe_shape(problem, &shape));
  if (shape.batch == 0) return {};
  MLA_TRY(check_present({{"seq_lens", problem.seq_lens, 1}}));
  const cuda::DeviceGuard guard(problem.device);
  MLA_TRY(guard.status());
  return make_plan(shape, static_cast<const int32_t*>(problem.seq_lens), plan.data,
                   cuda::cuda_stream(stream));
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::workspace_size(const Problem& problem,
                                                               int64_t* bytes) {
  Shape shape;
  MLA_TRY(describe_shape(problem, &shape));
  *bytes = workspace_bytes(shape);
  return {};
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::launch(const Problem& problem, ConstBuffer plan,
                                                       Buffer workspace, Stream stream) {
  constexpr Traits kTraits = {kQ, kKv, kOut, kLoad};
  Shape shape;
  MLA_TRY(describe_shape(problem, &shape));
  MLA_TRY(check_problem(problem, kTraits));
  Params params;
  MLA_TRY(describe(problem, kTraits, shape, plan.data, workspace.data, &params));
  if (shape.batch == 0 || shape.rows == 0) return {};
  const int64_t slots = saturating_product({problem.num_pages, problem.page_size});
  MLA_TRY(check_present({{"q", problem.q_latent, 1},
                         {"q", problem.q_rope, 1},
                         {"kv_cache", problem.kv_latent, slots},
                         {"kv_cache", problem.kv_rope, slots},
                         {"seq_lens", problem.seq_lens, 1},
                         {"out", problem.out, 1}}));
  if (params.capacity > 0) MLA_TRY(encode_maps(kTraits, &params));
  const cuda::DeviceGuard guard(problem.device);
  MLA_TRY(guard.status());
  MLA_TRY(prepare(problem.device));
  // Blocks that gather share nothing.
  constexpr int kMostCluster = kLoad == Load::gather ? 1 : 2;
  const int cluster = std::min(shape.cluster, kMostCluster);
  const auto attend = cluster == 1 ? decode::attend<kQ, kKv, kOut, kLoad, kSchedule, 1>
                                   : decode::attend<kQ, kKv, kOut, kLoad, kSchedule, kMostCluster>;
  using Shared = SharedMemory<Format<kQ, kKv>>;
  MLA_TRY(
      decode::launch_kernel(attend, cluster, sizeof(Shared), params, cuda::cuda_stream(stream)));
  if (workspace_bytes(shape) == 0) return {};
  return merge_partials<kOut>(params, problem.device, cuda::cuda_stream(stream));
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::prepare(int32_t device) {
  constexpr int32_t kMostDevices = 64;
  static std::atomic<bool> prepared[kMostDevices];
  const bool known = device >= 0 && device < kMostDevices;
  if (known && prepared[device].load(std::memory_order_acquire)) return {};
  const cuda::DeviceGuard guard(device);
  MLA_TRY(guard.status());
  using Shared = SharedMemory<Format<kQ, kKv>>;
  MLA_TRY(
      decode::prepare_kernel(decode::attend<kQ, kKv, kOut, kLoad, kSchedule, 1>, sizeof(Shared)));
  if constexpr (kLoad == Load::tma) {
    MLA_TRY(
        decode::prepare_kernel(decode::attend<kQ, kKv, kOut, kLoad, kSchedule, 2>, sizeof(Shared)));
  }
  MLA_TRY(prepare_plan(device));
  MLA_TRY(prepare_merge<kOut>(device));
  if (known) prepared[device].store(true, std::memory_order_release);
  return {};
}

}  // namespace mla::sm90
