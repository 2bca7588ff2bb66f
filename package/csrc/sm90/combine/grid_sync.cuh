// The barrier of all blocks of the grid, after which they combine what they have split.
#pragma once

#include <cooperative_groups.h>

#include "sm90/combine/split_list.cuh"

namespace mla::sm90 {

// All threads of a block call this when their roles end, and those of all blocks synchronize if
// anything was split; `prepare` runs before that. Says whether it was.
//
// @pre The launch is cooperative if params.combines.
// @post What all blocks have stored is visible, if anything was split.
template <class Params, class Prepare>
__device__ __forceinline__ bool grid_sync(const Params& params, const SplitList& list,
                                          Prepare&& prepare) {
  if (!params.combines) return false;
  constexpr unsigned kAllThreads = 0;
  __barrier_sync(kAllThreads);
  if (list.count == 0 && !list.has_twos) return false;
  prepare();
  cooperative_groups::this_grid().sync();
  return true;
}
template <class Params>
__device__ __forceinline__ void grid_sync(const Params& params, const SplitList& list) {
  grid_sync(params, list, [] {});
}

}  // namespace mla::sm90
