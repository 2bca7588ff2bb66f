// The kernels of a variant: which there are, and which one a launch takes.
#pragma once

#include <algorithm>
#include <array>

#include "sm90/mainloop/launch.h"
#include "sm90/mainloop/rows_m64/kernel.cuh"
#include "sm90/mainloop/swap_ab/kernel.cuh"

namespace mla::sm90 {

template <class Params, DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule,
          int kDQk = kHeadDim, int kDV = kLatent, ExtraKv kExtraKv = ExtraKv::same,
          ComputeDType kCompute = ComputeDType::exact>
struct Kernels;

template <class Params, DType kQ, DType kKv, DType kOut, Load kLoad, int kDQk, int kDV,
          ExtraKv kExtraKv, ComputeDType kCompute>
struct Kernels<Params, kQ, kKv, kOut, kLoad, Schedule::rows_m64, kDQk, kDV, kExtraKv, kCompute> {
  template <int kCluster>
  using Format = rows_m64::FormatOf<kQ, kKv, kDQk, kDV, kExtraKv, kCompute, kLoad, kCluster>;
  static constexpr int kMaxCluster = Format<1>::template kMaxCluster<kLoad>;

  template <int kCluster>
  static Kernel of_cluster() {
    return {reinterpret_cast<const void*>(
                rows_m64::attention_kernel<Params, kQ, kKv, kOut, kLoad, Schedule::rows_m64,
                                           kExtraKv, kCluster, kDQk, kDV, kCompute>),
            rows_m64::kThreads, kCluster, sizeof(rows_m64::SharedStorage<Format<kCluster>>)};
  }
  static Kernel of(const Shape& shape) {
    return std::min(shape.cluster, kMaxCluster) == 1 ? of_cluster<1>() : of_cluster<kMaxCluster>();
  }
  static std::array<Kernel, 2> all() { return {of_cluster<1>(), of_cluster<kMaxCluster>()}; }
};

template <class Params, DType kQ, DType kKv, DType kOut, Load kLoad, int kDQk>
struct Kernels<Params, kQ, kKv, kOut, kLoad, Schedule::swap_ab, kDQk, kLatent> {
  using Format = swap_ab::Format<kQ, kKv, kLoad, kDQk>;
  static constexpr int kMaxRows = swap_ab_rows(kKv, kDQk);

  template <int kRows>
  static Kernel of_rows() {
    return {
        reinterpret_cast<const void*>(swap_ab::attention_kernel<Params, kQ, kKv, kOut, kLoad,
                                                                Schedule::swap_ab, kRows, kDQk>),
        swap_ab::kThreads, 1, sizeof(swap_ab::SharedStorage<Format, kRows>)};
  }
  static Kernel of(const Shape& shape) {
    return shape.rows <= 16 ? of_rows<16>() : of_rows<kMaxRows>();
  }
  static std::array<Kernel, 2> all() { return {of_rows<16>(), of_rows<kMaxRows>()}; }
};

// `Kernels` are those of a variant.
template <class Kernels>
Status prepare_kernels() {
  for (const Kernel& kernel : Kernels::all()) {
    MLA_TRY(prepare_kernel(kernel));
  }
  return {};
}

}  // namespace mla::sm90
