// Which rows of an accumulator a thread holds.
#pragma once

#include "sm90/common/special_registers.cuh"
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

// Reads a thread's rows of what is known of all rows of a tile.
__device__ __forceinline__ void read_rows(const float (&rows)[kTileRows], int thread,
                                          float (&own)[kThreadRows]) {
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) own[i] = rows[accumulator_row(0, thread) + i * 8];
}

// Multiplies a thread's rows of an accumulator.
template <class Accumulator>
__device__ __forceinline__ void scale_rows(Accumulator& sums, const float (&factor)[kThreadRows]) {
#pragma unroll
  for (int e = 0; e < cute::size(sums); ++e) sums(e) *= factor[e % 4 / 2];
}

// The columns of each half that a warpgroup computes. The compiler refuses an instruction with more
// sums than the registers that a thread of four warpgroups starts with, so no more than 128.
inline constexpr int kPvColumns = 128;

// Which of the two warpgroups of the output the thread is in.
__device__ __forceinline__ int side_of_thread() {
  return static_cast<uint32_t>(read_thread_index()) / kWarpgroup;
}

}  // namespace mla::sm90::rows_m64
