// Pipelines: buffers in shared memory, their stages, which producers fill and consumers read in
// turn.
#pragma once

#include <cute/arch/util.hpp>

#include "sm90/common/barriers.cuh"

namespace mla::sm90 {

// The stage that the `count`-th use of a pipeline takes, and the phase of the stage's barriers
// then.
template <int kStages>
struct PipelineState {
  int stage;
  uint32_t phase;

  __device__ __forceinline__ explicit PipelineState(uint32_t count)
      : stage(count % kStages), phase(count / kStages & 1) {}
};

// Arrives at a barrier as `count` threads would.
__device__ __forceinline__ void arrive_n(TransactionBarrier& barrier, int count) {
  asm volatile(
      "mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(cute::cast_smem_ptr_to_uint(&barrier)),
      "r"(count)
      : "memory");
}

}  // namespace mla::sm90
