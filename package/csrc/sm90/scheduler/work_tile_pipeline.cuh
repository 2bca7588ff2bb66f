// The pipeline that carries work tiles from the thread that schedules them to all other warps.
#pragma once

#include "sm90/common/pipeline.cuh"
#include "sm90/common/warp.cuh"
#include "sm90/scheduler/tile_scheduler.cuh"

namespace mla::sm90 {

inline constexpr int kWorkTileStages = 4;

struct WorkTilePipeline {
  WorkTile tiles[kWorkTileStages];
  Barrier full[kWorkTileStages];
  Barrier empty[kWorkTileStages];

  // `consumers` warps read the work tiles.
  __device__ __forceinline__ void init_barriers(int consumers) {
    for (auto& barrier : full) barrier.init(1);
    for (auto& barrier : empty) barrier.init(consumers * kWarp);
  }
};

// The request of the work tile that ends the sequence.
inline constexpr int kNoRequest = -1;

// One thread produces the work tiles, in order.
template <class Scheduler>
class WorkTileProducer {
 public:
  __device__ WorkTileProducer(WorkTilePipeline& pipeline, Scheduler scheduler)
      : pipeline_(pipeline), scheduler_(scheduler) {}

  // Produces the next work tile, or the end of the sequence; says which.
  __device__ __forceinline__ bool produce() {
    const PipelineState<kWorkTileStages> state(count_++);
    pipeline_.empty[state.stage].wait(state.phase ^ 1);
    WorkTile& work = pipeline_.tiles[state.stage];  // there are no registers for a whole one
    const bool found = scheduler_.next(work);
    if (!found) work.request = kNoRequest;
    pipeline_.full[state.stage].arrive();
    return found;
  }

 private:
  WorkTilePipeline& pipeline_;
  Scheduler scheduler_;
  uint32_t count_ = 0;
};

// Reads the `count`-th work tile; says whether there is one. All lanes of a warp call this.
__device__ __forceinline__ bool consume_work_tile(WorkTilePipeline& pipeline, WorkTile& work,
                                                  uint32_t count) {
  const PipelineState<kWorkTileStages> state(count);
  pipeline.full[state.stage].wait(state.phase);
  work = pipeline.tiles[state.stage];
  __syncwarp();  // without it, the producer that gathers lacks a register
  // Every lane arrives: racecheck does not take what the others read for read before one arrives.
  pipeline.empty[state.stage].arrive();
  return work.request != kNoRequest;
}

class WorkTileConsumer {
 public:
  __device__ explicit WorkTileConsumer(WorkTilePipeline& pipeline) : pipeline_(pipeline) {}

  __device__ __forceinline__ bool next(WorkTile& work) {
    return consume_work_tile(pipeline_, work, count_++);
  }

  // Leaves a work tile that the warp has found itself.
  __device__ __forceinline__ void skip() {
    WorkTile known;
    next(known);
  }

  // How many work tiles have been read.
  __device__ __forceinline__ uint32_t count() const { return count_; }

 private:
  WorkTilePipeline& pipeline_;
  uint32_t count_ = 0;
};

// For a warp whose first lane produces the work tiles and which also consumes them.
template <class Scheduler>
class WorkTileProducerConsumer {
 public:
  __device__ WorkTileProducerConsumer(WorkTilePipeline& pipeline, Scheduler scheduler)
      : producer_(pipeline, scheduler), consumer_(pipeline) {}

  __device__ __forceinline__ bool next(WorkTile& work) {
    if (threadIdx.x % kWarp == 0) producer_.produce();
    __syncwarp();
    return consumer_.next(work);
  }

 private:
  WorkTileProducer<Scheduler> producer_;
  WorkTileConsumer consumer_;
};

}  // namespace mla::sm90
