// Which thread and which block this is, read anew: what follows from it would otherwise be kept in
// registers while the roles run.
#pragma once

#include <cstdint>

namespace mla::sm90 {

__device__ __forceinline__ int own_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}
__device__ __forceinline__ uint32_t own_block() {
  uint32_t block;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  return block;
}

}  // namespace mla::sm90
