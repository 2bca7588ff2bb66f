// Loads tiles, or their codes, with the tensor memory accelerator. In a cluster, every block asks
// for every other box of KV, and all blocks get it.
#pragma once

#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "sm90/mainloop/paged_kv_tma.cuh"
#include "sm90/mainloop/rows_m64/producer_query.cuh"
#include "sm90/mainloop/rows_m64/shared_storage.cuh"

namespace mla::sm90 {

template <class Format, int kCluster>
struct TmaLoader {
  using Element = typename Format::Element;
  static constexpr int kWarps = 1;
  static constexpr int kQueryWaiters = kWarps;
  // Of a warp, which copies Q where that is no boxes.
  static constexpr int kLatentArrivals = kWarp;
  static constexpr int kRopeArrivals = kWarp;

  const Params& params;
  SharedMemory<Format>& shared;
  const int rank;
  const int first_row;

  template <class Items>
  __device__ void run(Items items) {
    const bool leads = cute::elect_one_sync();
    uint32_t tile = 0;
    Item item;
    while (items.next(item)) {
      if (item.first >= item.end) continue;
      TilePlaces places(params.kv, item);
      if constexpr (!Format::kWidens) {
        QueryLoader<Format, TmaLoader, Params>{params, shared, first_row}.begin(tile, item.request,
                                                                                0);
        ++tile;
      }
      places.read_ahead();
      for (int block = item.first; block < item.end; ++block) {
        places.begin(block);
        const uint64_t present = places.present(item.tokens - block * kTileTokens);
        if constexpr (Format::kWidens) {
          load_codes(tile, places, present, leads);
        } else {
          load(tile, places, present, leads);
        }
        ++tile;
      }
    }
  }

 private:
  __device__ void load(uint32_t tile, const TilePlaces& places, uint64_t present, bool leads) {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const auto place = half_place<Format>(tile, half);
      // In the first round, empty slots are in the phase before.
      shared.latent_empty[place.slot].wait(place.phase ^ 1);
      FullBarrier& full = shared.latent_full[place.slot];
      if (leads) {
        full.expect_transaction(sizeof(shared.latent[0]));
        arrive_times(full, kLatentArrivals);
      }
      load<kHalfChunks>(&params.latent_map, half * kHalfChunks, full, shared.latent[place.slot],
                        places, leads);
    }
    const auto rope = rope_place<Format>(tile);
    shared.rope_empty[rope.slot].wait(rope.phase ^ 1);
    FullBarrier& full = shared.rope_full[rope.slot];
    if (leads) {
      reinterpret_cast<uint64_t&>(shared.present[rope.slot]) = present;
      full.expect_transaction(sizeof(shared.rope[0]));
      arrive_times(full, kRopeArrivals);
    }
    load<1>(&params.rope_map, 0, full, shared.rope[rope.slot], places, leads);
  }

  // `kCount` chunks from one on.
  template <int kCount>
  __device__ void load(const CUtensorMap* map, int chunk, FullBarrier& full, Element* to,
                       const TilePlaces& places, bool leads) {
    const KvView& kv = params.kv;
#pragma unroll 1
    for (int box = rank; box < kv.tile_boxes; box += kCluster) {
      const BoxOfTokens source = places.of(box);
      if (leads) {
        const int32_t group = kv.in_groups ? source.offset / kGroup : 0;
        copy_box<cute::SM90_TMA_LOAD_5D, cute::SM90_TMA_LOAD_MULTICAST_5D>(
            map, full, to + box * kv.box_tokens * (kCount * kChunk), 0,
            source.offset - group * kGroup, chunk, group, source.page);
      }
      __syncwarp();
    }
  }

  __device__ void load_codes(uint32_t tile, const TilePlaces& places, uint64_t present,
                             bool leads) {
    const BoxOfTokens whole = places.of(0);
    if (params.kv.tile_boxes == 1) {
      // By one thread, which nine waits of the whole warp would hold up: e4m3 takes 20% longer.
      if (leads) {
#pragma unroll 1
        for (int chunk = 0; chunk < kChunks; ++chunk) {
          load_chunk(chunk, begin_codes(tile, chunk, present), shared.codes.chunks[chunk], whole);
        }
      }
      __syncwarp();
      return;
    }
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if (leads) begin_codes(tile, chunk, present);
      __syncwarp();
      uint8_t* to = shared.codes.chunks[chunk];
#pragma unroll 1
      for (int box = 0; box < params.kv.tile_boxes; ++box) {
        const BoxOfTokens source = places.of(box);
        if (leads) load_chunk(chunk, shared.codes.full[chunk], to, source);
        __syncwarp();
        to += params.kv.box_tokens * kChunk;
      }
    }
  }

  // When the place is empty, by one thread.
  __device__ FullBarrier& begin_codes(uint32_t tile, int chunk, uint64_t present) {
    shared.codes.empty[chunk].wait((tile & 1) ^ 1);
    if (chunk == kRopeChunk) shared.codes.present = present;
    FullBarrier& full = shared.codes.full[chunk];
    full.arrive_and_expect_tx(kChunkElements);
    return full;
  }

  // Of codes, in a cluster every other chunk by each block.
  __device__ void load_chunk(int chunk, FullBarrier& full, uint8_t* to, const BoxOfTokens& source) {
    if (kCluster > 1 && chunk % kCluster != rank) return;
    const bool is_rope = chunk == kRopeChunk;
    copy_box<cute::SM90_TMA_LOAD_3D, cute::SM90_TMA_LOAD_MULTICAST_3D>(
        is_rope ? &params.rope_map : &params.latent_map, full, to, is_rope ? 0 : chunk * kChunk,
        source.offset, source.page);
  }

  // Into all blocks; where there is no such page, zeros.
  template <class Copy, class Multicast, class... Coordinates>
  static __device__ void copy_box(const CUtensorMap* map, FullBarrier& full, void* to,
                                  Coordinates... at) {
    auto* const barrier = reinterpret_cast<uint64_t*>(&full);
    constexpr auto kHint = static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_FIRST);
    if constexpr (kCluster == 1) {
      Copy::copy(map, barrier, kHint, to, at...);
    } else {
      constexpr uint16_t kAll = (1 << kCluster) - 1;
      Multicast::copy(map, barrier, kAll, kHint, to, at...);
    }
  }
};

}  // namespace mla::sm90
