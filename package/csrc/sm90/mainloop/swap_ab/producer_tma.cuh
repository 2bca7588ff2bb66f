// Loads tiles of e4m3 by TMA.
#pragma once

#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "sm90/mainloop/paged_kv_tma.cuh"
#include "sm90/mainloop/swap_ab/shared_storage.cuh"

namespace mla::sm90::swap_ab {

// One warp calls this.
template <int kRows, class Params>
struct TmaProducer {
  static constexpr int kStages = SharedStorage<kRows>::kKvStages;

  const Params& params;
  SharedStorage<kRows>& shared;

  template <class WorkTiles>
  __device__ void run(WorkTiles work_tiles) const {
    const bool leads = cute::elect_one_sync();
    uint32_t tile = 0;
    WorkTile work;
    while (work_tiles.next(work)) {
      if (work.first_block >= work.end_block) continue;
      PagedKvTma kv(params.kv, work);
      kv.read_ahead();
      for (int block = work.first_block; block < work.end_block; ++block) {
        kv.begin_tile(block);
        load(PipelineState<kStages>(tile), kv, work.tokens - block * kTileTokens, leads);
        ++tile;
      }
    }
  }

 private:
  __device__ void load(PipelineState<kStages> state, const PagedKvTma& kv, int32_t tokens,
                       bool leads) const {
    const uint64_t present = kv.present(tokens);
    // In the first round, empty stages are in the phase before.
    shared.kv_empty[state.stage].wait(state.phase ^ 1);
    TransactionBarrier& full = shared.kv_full[state.stage];
    if (leads) {
      shared.present[state.stage] = present;
      full.arrive_and_expect_tx(kChunks * kChunkBytes);
    }
#pragma unroll 1
    for (int box = 0; box < params.kv.tile_boxes; ++box) {
      const TokenBox source = kv.box(box);
      if (leads) load(state.stage, box, full, source);
      __syncwarp();
    }
  }

  __device__ void load(int stage, int box, TransactionBarrier& full, const TokenBox& source) const {
    const int first = box * params.kv.box_tokens * kChunk;
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const bool is_rope = chunk == kRopeChunk;
      // If there is no such page, this loads zeros.
      cute::SM90_TMA_LOAD_3D::copy(is_rope ? &params.rope_map : &params.latent_map,
                                   reinterpret_cast<uint64_t*>(&full),
                                   static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_FIRST),
                                   shared.kv[stage][chunk] + first, is_rope ? 0 : chunk * kChunk,
                                   source.offset, source.page);
    }
  }
};

}  // namespace mla::sm90::swap_ab
