// Reads of special registers that the compiler must make where they stand. It would otherwise keep
// what follows from threadIdx.x and the like in registers, which the roles do not have to spare.
#pragma once

#include <cstdint>

namespace mla::sm90 {

__device__ __forceinline__ int read_thread_index() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}
// The index of the block in the grid, row after row.
__device__ __forceinline__ uint32_t read_block_index() {
  uint32_t x, y;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
  asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(y));
  return y * gridDim.x + x;
}
__device__ __forceinline__ uint32_t blocks_of_grid() { return gridDim.x * gridDim.y; }
__device__ __forceinline__ uint32_t read_lane_index() {
  uint32_t lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// The compiler must keep the number in a register, and not read anew what it is from.
__device__ __forceinline__ uint32_t keep_in_register(uint32_t number) {
  asm volatile("" : "+r"(number));
  return number;
}

}  // namespace mla::sm90
