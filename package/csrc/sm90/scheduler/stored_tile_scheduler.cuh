// The walk over a part, kept in shared memory by the one lane that makes it, for want of registers.
#pragma once

#include "sm90/scheduler/work_tile_pipeline.cuh"
#include "sm90/sparse_decode/params.h"

namespace mla::sm90::sparse {

class StoredWalk {
 public:
  // Begun by one thread.
  __device__ StoredWalk(const SelectedParams& params, int part, Boundary& at)
      : params_(params), part_(part), at_(at) {}
  __device__ void begin() { at_ = params_.schedule().boundary(part_); }

  __device__ __forceinline__ bool next(Item& item) {
    Walk<SelectedParams> walk(params_, part_, at_);
    const bool found = walk.next(item);
    at_ = walk.at();
    return found;
  }

 private:
  const SelectedParams& params_;
  const int part_;
  Boundary& at_;
};

// Items for warps of which the first tells them to all. How many there were is kept in shared
// memory too.
class SharedItems {
 public:
  __device__ SharedItems(ItemRing& ring, const StoredWalk& walk, bool leads, uint32_t& turn)
      : ring_(ring), walk_(walk), leads_(leads), turn_(turn) {
    if (threadIdx.x % kWarp == 0) turn_ = 0;
    __syncwarp();
  }

  __device__ __forceinline__ bool next(Item& item) {
    const uint32_t turn = turn_;
    if (leads_ && threadIdx.x % kWarp == 0) write(turn);
    __syncwarp();
    const bool found = read_item(ring_, item, turn);
    if (threadIdx.x % kWarp == 0) turn_ = turn + 1;
    __syncwarp();
    return found;
  }

 private:
  __device__ __forceinline__ void write(uint32_t turn) {
    const Place<kItemSlots> place(turn);
    ring_.empty[place.slot].wait(place.phase ^ 1);
    if (!walk_.next(ring_.items[place.slot])) ring_.items[place.slot].request = kNoRequest;
    ring_.full[place.slot].arrive();
  }

  ItemRing& ring_;
  StoredWalk walk_;
  const bool leads_;
  uint32_t& turn_;
};

}  // namespace mla::sm90::sparse
