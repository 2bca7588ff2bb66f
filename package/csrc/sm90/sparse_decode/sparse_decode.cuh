#pragma once

#include <algorithm>
#include <array>

#include "sm90/common/launch.h"
#include "sm90/mainloop/rows_m64/kernel_sparse.cuh"
#include "sm90/sparse_decode/sparse_decode.h"

namespace mla::sm90 {
namespace sparse {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
struct Kernels {
  // Only rows that are widened are shared.
  static constexpr int kMostCluster = kKv == DType::fp8_ds_mla ? 2 : 1;

  template <int kCluster>
  static Kernel of_cluster() {
    return {
        reinterpret_cast<const void*>(attend_selected<kQ, kKv, kOut, kLoad, kSchedule, kCluster>),
        kThreads, kCluster, sizeof(SharedMemory<Format<kQ, kKv>>)};
  }
  static Kernel of(const Shape& shape) {
    return std::min(shape.cluster, kMostCluster) == 1 ? of_cluster<1>()
                                                      : of_cluster<kMostCluster>();
  }
  static std::array<Kernel, 2> all() { return {of_cluster<1>(), of_cluster<kMostCluster>()}; }
};

}  // namespace sparse

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule>::can_run(const Problem& problem) {
  return can_run(problem, sparse::kDecodeNames);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule>::workspace_size(const Problem& problem,
                                                                     int64_t* bytes) {
  return workspace_size(problem, sparse::kDecodeNames, bytes);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule>::launch(const Problem& problem, ConstBuffer,
                                                             Buffer workspace, Stream stream) {
  return launch(problem, sparse::kDecodeNames, workspace, stream);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule>::can_run(const Problem& problem,
                                                              const sparse::Names& names) {
  sparse::SelectedParams params;
  return sparse::describe(problem, kTraits, names, &params);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule>::workspace_size(const Problem& problem,
                                                                     const sparse::Names& names,
                                                                     int64_t* bytes) {
  sparse::SelectedParams params;
  MLA_TRY(sparse::describe(problem, kTraits, names, &params));
  *bytes = sparse::workspace_bytes(params);
  return {};
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule>::launch(const Problem& problem,
                                                             const sparse::Names& names,
                                                             Buffer workspace, Stream stream) {
  sparse::SelectedParams params;
  MLA_TRY(sparse::describe(problem, kTraits, names, &params));
  if (params.shape.batch == 0) return {};
  MLA_TRY(sparse::check_tensors(problem, kTraits, names));
  MLA_TRY(sparse::encode_maps(kTraits, &params));
  sparse::set_workspace(workspace.data, &params);
  const cuda::DeviceGuard guard(problem.device);
  MLA_TRY(guard.status());
  MLA_TRY(prepare(problem.device));
  const Kernel kernel = sparse::Kernels<kQ, kKv, kOut, kLoad, kSchedule>::of(params.shape);
  bool fits = true;
  MLA_TRY(launch_kernel(kernel, params, cuda::cuda_stream(stream), &fits));
  if (fits) return {};
  MLA_TRY(sparse::split_nothing(&params));
  return launch_kernel(kernel, params, cuda::cuda_stream(stream), &fits);
}

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
Status SparseDecode<kQ, kKv, kOut, kLoad, kSchedule>::prepare(int32_t device) {
  static cuda::PreparedDevices prepared;
  if (prepared.contains(device)) return {};
  const cuda::DeviceGuard guard(device);
  MLA_TRY(guard.status());
  for (const Kernel& kernel : sparse::Kernels<kQ, kKv, kOut, kLoad, kSchedule>::all()) {
    MLA_TRY(prepare_kernel(kernel));
  }
  prepared.add(device);
  return {};
}

}  // namespace mla::sm90
