// Rings of places in shared memory, which some warps fill and others empty.
#pragma once

#include <cute/arch/util.hpp>

#include "sm90/common/barriers.cuh"

namespace mla::sm90 {

inline constexpr int kWarp = 32;
inline constexpr int kWarpgroup = 128;
inline constexpr int kWarps = kWarpgroup / kWarp;

// Where the `turn`-th user of a ring is.
template <int kSlots>
struct Place {
  int slot;
  uint32_t phase;

  __device__ __forceinline__ explicit Place(uint32_t turn)
      : slot(turn % kSlots), phase(turn / kSlots & 1) {}
};

// As if as many threads arrived.
__device__ __forceinline__ void arrive_times(FullBarrier& full, int times) {
  asm volatile(
      "mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(cute::cast_smem_ptr_to_uint(&full)),
      "r"(times)
      : "memory");
}

}  // namespace mla::sm90
