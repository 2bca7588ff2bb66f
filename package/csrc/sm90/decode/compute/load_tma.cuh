// Loads tiles, or their codes, with the tensor memory accelerator. In a cluster, every block asks
// for every other chunk of KV, and all blocks get it.
#pragma once

#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "sm90/decode/compute/load_query.cuh"
#include "sm90/decode/compute/shared.cuh"
#include "sm90/decode/places.cuh"

namespace mla::sm90 {

template <class Format, int kCluster>
struct TmaLoader {
  using Element = typename Format::Element;
  static constexpr int kWarps = 1;
  static constexpr int kQueryWaiters = kWarps;
  // Of a warp, which copies Q where that is no boxes.
  static constexpr int kLatentArrivals = kWarp;
  static constexpr int kRopeArrivals = kWarp;
  static constexpr uint32_t kChunkBytes = kChunkElements * sizeof(Element);

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
  __device__ bool is_mine(int chunk) const { return kCluster == 1 || chunk % kCluster == rank; }

  __device__ const CUtensorMap* map_of(int chunk) const {
    return chunk == kRopeChunk ? &params.rope_map : &params.latent_map;
  }

  static __device__ int32_t column_of(int chunk) { return chunk % kRopeChunk * kChunk; }

  __device__ void load(uint32_t tile, const TilePlaces& places, uint64_t present, bool leads) {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const auto place = half_place<Format>(tile, half);
      // In the first round, empty slots are in the phase before.
      shared.latent_empty[place.slot].wait(place.phase ^ 1);
      FullBarrier& full = shared.latent_full[place.slot];
      if (leads) {
        full.expect_transaction(kHalfChunks * kChunkBytes);
        arrive_times(full, kLatentArrivals);
      }
      load<kHalfChunks>(half * kHalfChunks, full, shared.latent[place.slot], places, leads);
    }
    const auto rope = rope_place<Format>(tile);
    shared.rope_empty[rope.slot].wait(rope.phase ^ 1);
    FullBarrier& full = shared.rope_full[rope.slot];
    if (leads) {
      reinterpret_cast<uint64_t&>(shared.present[rope.slot]) = present;
      full.expect_transaction(kChunkBytes);
      arrive_times(full, kRopeArrivals);
    }
    load<1>(kRopeChunk, full, shared.rope[rope.slot], places, leads);
  }

  __device__ void load_codes(uint32_t tile, const TilePlaces& places, uint64_t present,
                             bool leads) {
    const BoxOfTokens whole = places.of(0);
    if (params.kv.tile_boxes == 1) {
      // By one thread, which nine waits of the whole warp would hold up: e4m3 takes 20% longer.
      if (leads) {
#pragma unroll 1
        for (int chunk = 0; chunk < kChunks; ++chunk) {
          load(chunk, begin_codes(tile, chunk, present), shared.codes.chunks[chunk], whole);
        }
      }
      __syncwarp();
      return;
    }
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if (leads) begin_codes(tile, chunk, present);
      __syncwarp();
      load<1>(chunk, shared.codes.full[chunk], shared.codes.chunks[chunk], places, leads);
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

  // `kCount` chunks from one on.
  template <int kCount, class Stored>
  __device__ void load(int chunk, FullBarrier& full, Stored* to, const TilePlaces& places,
                       bool leads) {
#pragma unroll 1
    for (int box = 0; box < params.kv.tile_boxes; ++box) {
      const BoxOfTokens source = places.of(box);
      if (leads) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          load(chunk + i, full, to + i * kChunkElements, source);
        }
      }
      __syncwarp();
      to += params.kv.box_tokens * kChunk;
    }
  }

  // Where there is no such page, zeros.
  __device__ void load(int chunk, FullBarrier& full, void* to, const BoxOfTokens& source) {
    if (!is_mine(chunk)) return;
    auto* const barrier = reinterpret_cast<uint64_t*>(&full);
    constexpr auto kHint = static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_FIRST);
    if constexpr (kCluster == 1) {
      cute::SM90_TMA_LOAD_3D::copy(map_of(chunk), barrier, kHint, to, column_of(chunk),
                                   source.offset, source.page);
    } else {
      constexpr uint16_t kAll = (1 << kCluster) - 1;
      cute::SM90_TMA_LOAD_MULTICAST_3D::copy(map_of(chunk), barrier, kAll, kHint, to,
                                             column_of(chunk), source.offset, source.page);
    }
  }
};

}  // namespace mla::sm90
