// The kernels of a variant: which there are, and which one a launch takes.
#pragma once

#include <algorithm>
#include <array>

#include "sm90/common/launch.h"
#include "sm90/mainloop/rows_m64/kernel.cuh"
#include "sm90/mainloop/swap_ab/kernel.cuh"

namespace mla::sm90::decode {

template <DType kQ, DType kKv, DType kOut, Load kLoad, Schedule kSchedule>
struct Kernels;

template <DType kQ, DType kKv, DType kOut, Load kLoad>
struct Kernels<kQ, kKv, kOut, kLoad, Schedule::rows_m64> {
  // Blocks that gather share nothing.
  static constexpr int kMostCluster = kLoad == Load::gather ? 1 : 2;

  template <int kCluster>
  static Kernel of_cluster() {
    return {
        reinterpret_cast<const void*>(attend<kQ, kKv, kOut, kLoad, Schedule::rows_m64, kCluster>),
        kThreads, kCluster, sizeof(SharedMemory<Format<kQ, kKv>>)};
  }
  static Kernel of(const Shape& shape) {
    return std::min(shape.cluster, kMostCluster) == 1 ? of_cluster<1>()
                                                      : of_cluster<kMostCluster>();
  }
  static std::array<Kernel, 2> all() { return {of_cluster<1>(), of_cluster<kMostCluster>()}; }
};

template <DType kQ, DType kKv, DType kOut, Load kLoad>
struct Kernels<kQ, kKv, kOut, kLoad, Schedule::swap_ab> {
  template <int kRows>
  static Kernel of_rows() {
    return {reinterpret_cast<const void*>(
                attend_stream<kQ, kKv, kOut, kLoad, Schedule::swap_ab, kRows>),
            stream::kThreads, 1, sizeof(stream::SharedMemory<kRows>)};
  }
  static Kernel of(const Shape& shape) {
    return shape.rows <= 16 ? of_rows<16>() : of_rows<kStreamRows>();
  }
  static std::array<Kernel, 2> all() { return {of_rows<16>(), of_rows<kStreamRows>()}; }
};

}  // namespace mla::sm90::decode
