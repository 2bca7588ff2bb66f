// This header says how many threads warps and warpgroups have.
#pragma once

#include "cuda/warp.h"

namespace mla::sm90 {

using cuda::kWarp;

inline constexpr int kWarpgroup = 128;
inline constexpr int kWarps = kWarpgroup / kWarp;  // of a warpgroup

// Returns the value of lane 0 in all lanes. A number that all lanes share is passed through this
// where branches depend on it: the compiler then knows that the warp does not diverge.
template <class Number>
__device__ __forceinline__ Number warp_uniform(Number number) {
  return __shfl_sync(~0u, number, 0);
}

// Returns a number that all lanes share, and which the compiler keeps in a uniform register. Where
// descriptors of the tensor cores follow from it, so does their arithmetic, which otherwise takes
// turns with the instructions that use them.
__device__ __forceinline__ uint32_t in_uniform_register(uint32_t number) {
  return __reduce_max_sync(~0u, number);
}

}  // namespace mla::sm90
