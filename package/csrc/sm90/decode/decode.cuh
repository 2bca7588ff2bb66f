#pragma once

#include <atomic>

#include "common/checks.h"
#include "cuda/launch.h"
#include "sm90/decode/decode.h"
#include "sm90/decode/kernels.cuh"
#include "sm90/decode/partials.h"
#include "sm90/decode/plan.h"
#include "sm90/decode/problem.h"
#include "sm90/decode/tensor_map.h"

namespace mla::sm90 {
namespace decode {

inline Status prepare_kernel(const Kernel& kernel) {
  return cuda::check(
      cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(kernel.shared_bytes)),
      "kernel");
}

// All blocks at once, if they merge. Whether there is room for them, `*fits` tells.
inline Status launch_kernel(const Kernel& kernel, const Params& params, cudaStream_t stream,
                            bool* fits) {
  const Shape& shape = params.shape;
  cudaLaunchConfig_t config = {};
  config.gridDim = {static_cast<unsigned>(shape.parts * shape.groups * shape.cluster), 1, 1};
  config.blockDim = {static_cast<unsigned>(kernel.threads), 1, 1};
  config.dynamicSmemBytes = kernel.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[3] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(kernel.cluster), 1, 1};
  attributes[2].id = cudaLaunchAttributeCooperative;
  attributes[2].val.cooperative = params.merges;
  config.attrs = attributes;
  config.numAttrs = 3;
  void* arguments[] = {const_cast<Params*>(&params)};
  const cudaError_t error = cudaLaunchKernelExC(&config, kernel.function, arguments);
  *fits = error != cudaErrorCooperativeLaunchTooLarge;
  if (!*fits) cudaGetLastError();
  return *fits ? cuda::check(error, "launch of decode") : Status();
}

}  // namespace decode

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status Decode<kQ, kKv, kOut, kLoad, kSchedule>::can_run(const Problem& problem) {
  Shape shape;
  MLA_TRY(describe_shape(problem, &shape));
  MLA_TRY(check_problem(problem, {kQ, kKv, kOut, kLoad, kSchedule}));
  Params params;
  return describe(problem, {kQ, kKv, kOut, kLoad, kSchedule}, shape, nullptr, nullptr, &params);
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
  constexpr Traits kTraits = {kQ, kKv, kOut, kLoad, kSchedule};
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
  using Kernels = decode::Kernels<kQ, kKv, kOut, kLoad, kSchedule>;
  const decode::Kernel kernel = Kernels::of(shape);
  bool fits = true;
  MLA_TRY(decode::launch_kernel(kernel, params, cuda::cuda_stream(stream), &fits));
  if (!fits) {
    // A stream of fewer multiprocessors than the device has, as of a green context.
    params.merges = 0;
    MLA_TRY(decode::launch_kernel(kernel, params, cuda::cuda_stream(stream), &fits));
  }
  if (params.merges || workspace_bytes(shape) == 0) return {};
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
  for (const decode::Kernel& kernel : decode::Kernels<kQ, kKv, kOut, kLoad, kSchedule>::all()) {
    MLA_TRY(decode::prepare_kernel(kernel));
  }
  MLA_TRY(prepare_plan(device));
  MLA_TRY(prepare_merge<kOut>(device));
  if (known) prepared[device].store(true, std::memory_order_release);
  return {};
}

}  // namespace mla::sm90
