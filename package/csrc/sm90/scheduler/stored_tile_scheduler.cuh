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

  // Finds the first work tile. The thread that schedules calls this while the barriers of the
  // pipeline are made ready: that takes as long.
  __device__ void begin(WorkTilePipeline& pipeline) const {
    at_ = params_.plan().boundary(part_);
    next(pipeline.tiles[0]);
  }

  // Finds the next work tile, or the end of the sequence.
  __device__ __forceinline__ void next(WorkTile& work) const {
    TileScheduler<Params> scheduler(params_, part_, at_);
    if (!scheduler.next(work)) work.request = kNoRequest;
    at_ = scheduler.at();
  }

 private:
  const Params& params_;
  const int part_;
  Boundary& at_;
};

// Work tiles for several warps, the first of which also produces them. `count`, how many a warp has
// read, is in shared memory too.
//
// @pre The first work tile has been found.
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
    if (count > 0) {
      pipeline_.empty[state.stage].wait(state.phase ^ 1);
      scheduler_.next(pipeline_.tiles[state.stage]);
    }
    pipeline_.full[state.stage].arrive();
  }

  WorkTilePipeline& pipeline_;
  Scheduler scheduler_;
  const bool produces_;
  uint32_t& count_;
};

}  // namespace mla::sm90
