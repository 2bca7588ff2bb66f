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
        const TilePlace source = places.of(block);
        const int32_t tokens = item.tokens - block * kTileTokens;
        if (leads) {
          if constexpr (Format::kWidens) {
            load_codes(tile, source, tokens);
          } else {
            load(tile, source, tokens);
          }
        }
        ++tile;
        __syncwarp();
      }
    }
  }

 private:
  __device__ bool is_mine(int chunk) const { return kCluster == 1 || chunk % kCluster == rank; }

  __device__ const CUtensorMap* map_of(int chunk) const {
    return chunk == kRopeChunk ? &params.rope_map : &params.latent_map;
  }

  static __device__ int32_t column_of(int chunk) { return chunk % kRopeChunk * kChunk; }

  __device__ void load(uint32_t tile, const TilePlace& source, int32_t tokens) {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const auto place = half_place<Format>(tile, half);
      // In the first round, empty slots are in the phase before.
      shared.latent_empty[place.slot].wait(place.phase ^ 1);
      FullBarrier& full = shared.latent_full[place.slot];
      full.expect_transaction(kHalfChunks * kChunkBytes);
      arrive_times(full, kLatentArrivals);
#pragma unroll
      for (int i = 0; i < kHalfChunks; ++i) {
        load(half * kHalfChunks + i, full, shared.latent[place.slot] + i * kChunkElements, source);
      }
    }
    const auto rope = rope_place<Format>(tile);
    shared.rope_empty[rope.slot].wait(rope.phase ^ 1);
    reinterpret_cast<uint64_t&>(shared.present[rope.slot]) =
        tokens_present(params.kv, source, tokens);
    FullBarrier& full = shared.rope_full[rope.slot];
    full.expect_transaction(kChunkBytes);
    arrive_times(full, kRopeArrivals);
    load(kRopeChunk, full, shared.rope[rope.slot], source);
  }

  __device__ void load_codes(uint32_t tile, const TilePlace& source, int32_t tokens) {
    const uint32_t phase = tile & 1;
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      shared.codes.empty[chunk].wait(phase ^ 1);
      if (chunk == kRopeChunk) shared.codes.present = tokens_present(params.kv, source, tokens);
      FullBarrier& full = shared.codes.full[chunk];
      full.arrive_and_expect_tx(kChunkElements);
      load(chunk, full, shared.codes.chunks[chunk], source);
    }
  }

  // Where there is no such page, zeros.
  __device__ void load(int chunk, FullBarrier& full, void* to, const TilePlace& source) {
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
