#pragma once

#include "cuda/launch.h"
#include "sm90/mainloop/kernels.cuh"
#include "sm90/sparse_decode/sparse_decode.h"

namespace mla::sm90 {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::can_run(
    const Problem& problem) {
  return can_run(problem, sparse_decode::kDecodeNames);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::workspace_size(
    const Problem& problem, int64_t* bytes) {
  return workspace_size(problem, sparse_decode::kDecodeNames, bytes);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::launch(const Problem& problem,
                                                                             ConstBuffer,
                                                                             Buffer workspace,
                                                                             Stream stream) {
  return launch(problem, sparse_decode::kDecodeNames, workspace, stream);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::can_run(
    const Problem& problem, const sparse_decode::Names& names) {
  sparse_decode::Params params;
  return sparse_decode::describe(problem, kTraits, names, &params);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::workspace_size(
    const Problem& problem, const sparse_decode::Names& names, int64_t* bytes) {
  sparse_decode::Params params;
  MLA_TRY(sparse_decode::describe(problem, kTraits, names, &params));
  *bytes = sparse_decode::workspace_bytes(params);
  return {};
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule, int kDQk,
          ExtraKv kExtraKv>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule, kDQk, kExtraKv>::launch(
    const Problem& problem, const sparse_decode::Names& names, Buffer workspace, Stream stream) {
  sparse_decode::Params params;
  MLA_TRY(sparse_decode::describe(problem, kTraits, names, &params));
  if (params.shape.batch == 0) return {};
  MLA_TRY(sparse_decode::check_tensors(problem, kTraits, names));
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
  return prepared.ensure(device, prepare_kernels<VariantKernels>);
}

}  // namespace mla::sm90
