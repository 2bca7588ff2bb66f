// Which rows of an accumulator a thread holds.
#pragma once

#include "sm90/common/warp.cuh"
#include "sm90/mainloop/tile_layouts.cuh"

namespace mla::sm90::rows_m64 {

// The row of an accumulator that is a thread's first, where the rows of the tile begin at
// `first_row`; the thread's second is eight rows further.
inline constexpr int kThreadRows = 2;
__device__ __forceinline__ int accumulator_row(int first_row, int thread) {
  return first_row + thread / kWarp * 16 + thread % kWarp / 4;
}

// The row of a tile that is a thread's i-th.
__device__ __forceinline__ int tile_row(int i) {
  return accumulator_row(0, threadIdx.x % kWarpgroup) + i * 8;
}

}  // namespace mla::sm90::rows_m64
