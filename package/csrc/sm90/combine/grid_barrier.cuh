// The barrier of all blocks of a cooperative launch, for one thread of each. That of cooperative
// groups is for all threads of the blocks, and whole roles would wait for it.
#pragma once

#include <cooperative_groups.h>

#include "sm90/common/special_registers.cuh"

namespace mla::sm90 {

// Waits until one thread of each block has come here. What these threads did before is visible.
//
// @pre The launch is cooperative, so that all blocks run at once and the driver has given it a word
// for the barrier.
__device__ __forceinline__ void grid_barrier() {
  unsigned int* const word = &cooperative_groups::details::get_grid_workspace()->barrier;
  // All additions together are 2^31, so that the last one flips the highest bit.
  constexpr uint32_t kFlip = 0x80000000;
  const uint32_t own = read_block_index() == 0 ? kFlip - (blocks_of_grid() - 1) : 1;
  uint32_t before, now;
  asm volatile("atom.add.release.gpu.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(word), "r"(own)
               : "memory");
  do {
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
  } while (((before ^ now) & kFlip) == 0);
}

}  // namespace mla::sm90
