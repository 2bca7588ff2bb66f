// Stands in for the header of csrc: a thread stalls before and after it meets those of other
// blocks.
#pragma once

#include "sm90/common/barriers.cuh"

#define grid_barrier punctual_grid_barrier
#include_next "sm90/combine/grid_barrier.cuh"
#undef grid_barrier

namespace mla::sm90 {

__device__ __forceinline__ void grid_barrier() {
  stall();
  punctual_grid_barrier();
  stall();
}

}  // namespace mla::sm90
