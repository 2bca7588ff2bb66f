// The tiles that warps gather: which rows there are in them, and of what cache.
#pragma once

#include "sm90/mainloop/selected_kv_gather.cuh"
#include "sm90/mainloop/tile_layouts.cuh"
#include "sm90/scheduler/work_tile_pipeline.cuh"

namespace mla::sm90 {

// A warp that gathers 32 tokens of each tile, from `first_token` on, calls this: a lane finds one.
// `load(tile, kv, rows, row)` copies them. `kv` is the view of the cache that a tile's tokens have
// in common, and `row` that of the lane.
template <class Params, class WorkTiles, class Load>
__device__ __forceinline__ void gather_tiles(const Params& params, int first_token,
                                             WorkTiles work_tiles, Load&& load) {
  uint32_t tile = 0;
  WorkTile work;
  while (work_tiles.next(work)) {
    if (work.first_block >= work.end_block) continue;
    const auto selection = selection_of(params, work);
    const auto rows = kv_rows_of(params, selection);
    int32_t token = work.first_block * kTileTokens + first_token + threadIdx.x % kWarp;
    // Slots are looked up two tiles ahead.
    int32_t slot = rows.look_up(token);
    int32_t next = rows.look_up(token + kTileTokens);
    for (int block = work.first_block; block < work.end_block; ++block, token += kTileTokens) {
      const int32_t after = rows.look_up(token + 2 * kTileTokens);
      load(tile++, block * kTileTokens >= params.extra_begins ? params.extra : params.main, rows,
           rows.row(slot, token));
      slot = next;
      next = after;
    }
  }
}

}  // namespace mla::sm90
