// Loads tiles of codes with the tensor memory accelerator.
#pragma once

#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "sm90/mainloop/paged_kv_tma.cuh"
#include "sm90/mainloop/swap_ab/shared_storage.cuh"

namespace mla::sm90::stream {

// By a warp, which tells the others the items.
template <int kRows>
struct TileLoader {
  static constexpr int kSlots = SharedMemory<kRows>::kTileSlots;

  const Params& params;
  SharedMemory<kRows>& shared;

  template <class Items>
  __device__ void run(Items items) const {
    const bool leads = cute::elect_one_sync();
    uint32_t turn = 0;
    Item item;
    while (items.next(item)) {
      if (item.first >= item.end) continue;
      TilePlaces places(params.kv, item);
      places.read_ahead();
      for (int block = item.first; block < item.end; ++block) {
        places.begin(block);
        load(Place<kSlots>(turn), places, item.tokens - block * kTileTokens, leads);
        ++turn;
      }
    }
  }

 private:
  __device__ void load(Place<kSlots> place, const TilePlaces& places, int32_t tokens,
                       bool leads) const {
    const uint64_t present = places.present(tokens);
    // In the first round, empty slots are in the phase before.
    shared.tile_empty[place.slot].wait(place.phase ^ 1);
    FullBarrier& full = shared.tile_full[place.slot];
    if (leads) {
      shared.present[place.slot] = present;
      full.arrive_and_expect_tx(kChunks * kChunkBytes);
    }
#pragma unroll 1
    for (int box = 0; box < params.kv.tile_boxes; ++box) {
      const BoxOfTokens source = places.of(box);
      if (leads) load(place.slot, box, full, source);
      __syncwarp();
    }
  }

  __device__ void load(int slot, int box, FullBarrier& full, const BoxOfTokens& source) const {
    const int first = box * params.kv.box_tokens * kChunk;
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const bool is_rope = chunk == kRopeChunk;
      // Where there is no such page, zeros.
      cute::SM90_TMA_LOAD_3D::copy(is_rope ? &params.rope_map : &params.latent_map,
                                   reinterpret_cast<uint64_t*>(&full),
                                   static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_FIRST),
                                   shared.tiles[slot][chunk] + first, is_rope ? 0 : chunk * kChunk,
                                   source.offset, source.page);
    }
  }
};

}  // namespace mla::sm90::stream
