// The request that a block combines, and how the blocks that have split it wait for each other.
#pragma once

#include "sm90/combine/grid_barrier.cuh"
#include "sm90/common/views.h"
#include "sm90/common/warp.cuh"
#include "sm90/params/partials.h"
#include "sm90/scheduler/plan.h"

namespace mla::sm90 {

// The parts that end with a split of a request are its workers: each combines a share of its rows
// when all splits are there. Where another request follows the last split, its part is no worker.
// So a part combines one request at most, and has nothing else to do then.
struct SplitRequest {
  int32_t query;       // where its query tokens are, as QueryTokens has it
  int32_t query_rows;  // how many it has
  int32_t first_partial;
  int32_t splits;  // 0: the part is no worker
  int32_t worker;  // which of the splits, and of the workers, the part is
  int32_t workers;
  int32_t first_split;  // which split of its request the part's first work tile is

  // Whether two parts that do nothing else have a split each, and combine half of the columns each.
  __device__ __forceinline__ bool is_pair() const { return splits == 2 && workers == 2; }
};

// Returns what a part combines. Lengths may have changed since the plan was made; splits have not.
template <class Params>
__device__ SplitRequest split_request_of(const Params& params, int part) {
  const auto plan = params.plan();
  const Boundary begin = plan.boundary(part);
  const Boundary end = plan.boundary(part + 1);
  SplitRequest own = {};
  own.first_split = begin.split;
  int32_t request;
  if (end.split > 0) {  // the part ends within the request
    request = end.request;
    own.worker = end.split - 1;
    own.splits = plan.partials_of(end.request);
    const Boundary after = plan.boundary(part - own.worker + own.splits);
    const bool last_ends = after.request == end.request + 1 && after.split == 0;
    own.workers = last_ends ? own.splits : own.splits - 1;
  } else if (begin.split > 0 && begin.request == end.request - 1) {  // with its last split
    request = begin.request;
    own.worker = begin.split;
    own.splits = own.workers = begin.split + 1;
  } else {
    return own;
  }
  if (own.splits == 2 && !begin.in_pair) {
    own.workers = 1;
    if (own.worker > 0) own.splits = 0;
  }
  own.first_partial = plan.first_partial_of(request);
  const QueryTokens query = params.query_tokens(request);
  own.query = query.first;
  own.query_rows = query.count * params.shape.num_heads;
  return own;
}

// How many splits of a request have been stored is counted, by tiles of rows, where the block of
// the first split has its number.
template <class Params>
__device__ __forceinline__ uint32_t* stored_splits(const Params& params, int32_t split) {
  return params.partials.stored_splits + read_block_index() - split * gridDim.x;
}

// Two warpgroups of each block call this before their first work tile, if the launch combines.
//
// @post `own` is complete when both have synchronized.
template <class Params>
__device__ __forceinline__ void prepare_combine(const Params& params, SplitRequest& own) {
  if (!params.combines) return;
  if (threadIdx.x == 0) {
    // The workspace may hold anything before.
    *stored_splits(params, 0) = 0;
    grid_barrier();
  } else if (threadIdx.x == kWarpgroup) {
    own = split_request_of(params, blockIdx.y);
  }
}

// Counts a work tile that is a split, if `counts` is true, which it is of one thread of a block.
// There is no branch: the compiler would take warps for divergent in the loop over tiles, and move
// descriptors of the tensor cores for every instruction.
//
// @pre Those that have stored the partial result have synchronized with that thread.
template <class Params>
__device__ __forceinline__ void count_split(const Params& params, const SplitRequest& own,
                                            bool is_first_work_tile, bool counts) {
  asm volatile(
      "{ .reg .pred counts; setp.ne.u32 counts, %1, 0;\n"
      "@counts fence.acq_rel.gpu;\n"
      "@counts red.relaxed.gpu.global.add.u32 [%0], 1; }" ::"l"(
          stored_splits(params, is_first_work_tile ? own.first_split : 0)),
      "r"(static_cast<uint32_t>(counts))
      : "memory");
}

// Thread 0 of a worker waits for `count` splits of its request.
template <class Params>
__device__ __forceinline__ void wait_for_splits(const Params& params, const SplitRequest& own,
                                                uint32_t count) {
  const uint32_t* const stored = stored_splits(params, own.worker);
  uint32_t found;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(stored) : "memory");
  } while (found < count);
}

}  // namespace mla::sm90
