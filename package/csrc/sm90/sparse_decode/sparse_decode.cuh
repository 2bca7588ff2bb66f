#pragma once

#include <algorithm>

#include "cuda/launch.h"
#include "sm90/mainloop/kernels.cuh"
#include "sm90/sparse_decode/head_groups.h"
#include "sm90/sparse_decode/sparse_decode.h"

namespace mla::sm90 {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::can_run(
    const Problem& problem) {
  return can_run(problem, sparse_decode::kDecodeContext);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::workspace_size(
    const Problem& problem, int64_t* bytes) {
  return workspace_size(problem, sparse_decode::kDecodeContext, bytes);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::launch(const Problem& problem,
                                                                             ConstBuffer,
                                                                             Buffer workspace,
                                                                             Stream stream) {
  return launch(problem, sparse_decode::kDecodeContext, workspace, stream);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::can_run(
    const Problem& problem, const sparse_decode::Context& context) {
  sparse_decode::Params params;
  return sparse_decode::describe(problem, kTraits, context, &params);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::workspace_size(
    const Problem& problem, const sparse_decode::Context& context, int64_t* bytes) {
  sparse_decode::Params params;
  MLA_TRY(sparse_decode::describe(problem, kTraits, context, &params));
  *bytes = sparse_decode::workspace_bytes(params);
  if constexpr (kTakesGroups) {
    bool takes = false;
    MLA_TRY(sparse_decode::takes_head_groups(problem, kTraits, context, &takes));
    if (takes) {
      int64_t of_groups = 0;
      MLA_TRY(Groups::workspace_size(sparse_decode::in_head_groups(problem),
                                     sparse_decode::in_head_groups(context), &of_groups));
      // Not less than without groups, so that the most query tokens still need the most.
      *bytes = std::max(*bytes, of_groups);
    }
  }
  return {};
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::launch(
    const Problem& problem, const sparse_decode::Context& context, Buffer workspace,
    Stream stream) {
  if constexpr (kTakesGroups) {
    bool takes = false;
    MLA_TRY(sparse_decode::takes_head_groups(problem, kTraits, context, &takes));
    if (takes) {
      return Groups::launch(sparse_decode::in_head_groups(problem),
                            sparse_decode::in_head_groups(context), workspace, stream);
    }
  }
  sparse_decode::Params params;
  MLA_TRY(sparse_decode::describe(problem, kTraits, context, &params));
  if (params.shape.batch == 0) return {};
  MLA_TRY(sparse_decode::check_tensors(problem, kTraits, context));
  sparse_decode::set_workspace(workspace.data, &params);
  // A thread that has no context yet gets one here, and the driver encodes no map without.
  const cuda::DeviceGuard guard(problem.device);
  MLA_TRY(guard.status());
  MLA_TRY(sparse_decode::encode_maps(kTraits, &params));
  MLA_TRY(prepare(problem.device));
  using VariantKernels =
      Kernels<sparse_decode::Params, kQ, kKv, kOut, kLoad, kSchedule, kDQk, kLatent, kExtraKv>;
  const Kernel kernel = VariantKernels::of(params.shape);
  bool fits = true;
  MLA_TRY(launch_kernel(kernel, params, cuda::cuda_stream(stream), &fits));
  if (fits) return {};
  MLA_TRY(sparse_decode::plan_without_splits(&params));
  return launch_kernel(kernel, params, cuda::cuda_stream(stream), &fits);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::prepare(int32_t device) {
  static cuda::PreparedDevices prepared;
  using VariantKernels =
      Kernels<sparse_decode::Params, kQ, kKv, kOut, kLoad, kSchedule, kDQk, kLatent, kExtraKv>;
  MLA_TRY(prepared.ensure(device, prepare_kernels<VariantKernels>));
  if constexpr (kTakesGroups && kSchedule != Schedule::swap_ab) return Groups::prepare(device);
  return {};
}

}  // namespace mla::sm90
