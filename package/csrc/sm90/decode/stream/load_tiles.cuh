// Loads tiles of codes with the tensor memory accelerator.
#pragma once

#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "sm90/decode/places.cuh"
#include "sm90/decode/stream/shared.cuh"

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
        const TilePlace source = places.of(block);
        if (leads) load(Place<kSlots>(turn), source, item.tokens - block * kTileTokens);
        ++turn;
        __syncwarp();
      }
    }
  }

 private:
  __device__ void load(Place<kSlots> place, const TilePlace& source, int32_t tokens) const {
    // In the first round, empty slots are in the phase before.
    shared.tile_empty[place.slot].wait(place.phase ^ 1);
    shared.present[place.slot] = tokens_present(params.kv, source, tokens);
    FullBarrier& full = shared.tile_full[place.slot];
    full.arrive_and_expect_tx(kChunks * kChunkBytes);
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const bool is_rope = chunk == kRopeChunk;
      // Where there is no such page, zeros.
      cute::SM90_TMA_LOAD_3D::copy(is_rope ? &params.rope_map : &params.latent_map,
                                   reinterpret_cast<uint64_t*>(&full),
                                   static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_FIRST),
                                   shared.tiles[place.slot][chunk], is_rope ? 0 : chunk * kChunk,
                                   source.offset, source.page);
    }
  }
};

}  // namespace mla::sm90::stream
