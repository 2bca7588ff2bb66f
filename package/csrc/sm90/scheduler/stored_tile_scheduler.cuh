// A tile scheduler whose state is in shared memory, for producers that have no registers for it.
#pragma once

#include "sm90/scheduler/work_tile_pipeline.cuh"

namespace mla::sm90 {

// One lane schedules.
template <class Params>
class StoredTileScheduler {
 public:
  __device__ StoredTileScheduler(const Params& params, int part, Boundary& at)
      : params_(params), part_(part), at_(at) {}

  // One thread calls this, before the first next().
  __device__ void begin() { at_ = params_.plan().boundary(part_); }

  __device__ __forceinline__ bool next(WorkTile& work) {
    TileScheduler<Params> scheduler(params_, part_, at_);
    const bool found = scheduler.next(work);
    at_ = scheduler.at();
    return found;
  }

 private:
  const Params& params_;
  const int part_;
  Boundary& at_;
};

// Work tiles for several warps, the first of which also produces them. `count`, how many a warp has
// read, is in shared memory too.
template <class Scheduler>
class StoredWorkTileConsumer {
 public:
  __device__ StoredWorkTileConsumer(WorkTilePipeline& pipeline, const Scheduler& scheduler,
                                    bool produces, uint32_t& count)
      : pipeline_(pipeline), scheduler_(scheduler), produces_(produces), count_(count) {
    if (threadIdx.x % kWarp == 0) count_ = 0;
    __syncwarp();
  }

  __device__ __forceinline__ bool next(WorkTile& work) {
    const uint32_t count = count_;
    if (produces_ && threadIdx.x % kWarp == 0) produce(count);
    __syncwarp();
    const bool found = consume_work_tile(pipeline_, work, count);
    if (threadIdx.x % kWarp == 0) count_ = count + 1;
    __syncwarp();
    return found;
  }

 private:
  __device__ __forceinline__ void produce(uint32_t count) {
    const PipelineState<kWorkTileStages> state(count);
    pipeline_.empty[state.stage].wait(state.phase ^ 1);
    WorkTile& work = pipeline_.tiles[state.stage];
    if (!scheduler_.next(work)) work.request = kNoRequest;
    pipeline_.full[state.stage].arrive();
  }

  WorkTilePipeline& pipeline_;
  Scheduler scheduler_;
  const bool produces_;
  uint32_t& count_;
};

}  // namespace mla::sm90
