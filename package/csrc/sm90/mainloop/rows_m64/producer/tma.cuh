// Loads tiles of KV, or of fp8 to be dequantized, by TMA. In a cluster, each block asks for some of
// the boxes, and all blocks receive them (multicast).
#pragma once

#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "sm90/mainloop/paged_kv_tma.cuh"
#include "sm90/mainloop/rows_m64/producer/query.cuh"

namespace mla::sm90::rows_m64 {

template <class Format, int kCluster, class Params>
struct TmaProducer {
  using Element = typename Format::Element;
  static constexpr int kBlocks = kCluster;
  static constexpr int kWarps = 1;
  static constexpr int kQueryWaiters = kWarps;
  // As many as the lanes of the warp that copies Q if that is not boxes.
  static constexpr int kLatentArrivals = kWarp;
  static constexpr int kRopeArrivals = kWarp;

  const Params& params;
  SharedStorage<Format>& shared;
  const int first_row;
  const int rank;

  template <class WorkTiles>
  __device__ void run(WorkTiles work_tiles) {
    const bool leads = cute::elect_one_sync();
    uint32_t tile = 0;
    WorkTile work;
    while (work_tiles.next(work)) {
      if (work.first_block >= work.end_block) continue;
      PagedKvTma kv(params.kv, work);
      if constexpr (!Format::kDequantizes) {
        QueryProducer<Format, TmaProducer, Params>{params, shared, first_row}.begin(
            tile, work.request, 0);
        ++tile;
      }
      kv.read_ahead();
      for (int block = work.first_block; block < work.end_block; ++block) {
        kv.begin_tile(block);
        const uint64_t present = kv.present(work.tokens - block * kTileTokens);
        if constexpr (Format::kDequantizes) {
          stage_fp8(tile, kv, present, leads);
        } else {
          load(tile, kv, present, leads);
        }
        ++tile;
      }
    }
  }

 private:
  __device__ void load(uint32_t tile, const PagedKvTma& kv, uint64_t present, bool leads) {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const auto latent = latent_state<Format>(tile, half);
      // In the first round, empty stages are in the phase before.
      shared.latent_empty[latent.stage].wait(latent.phase ^ 1);
      TransactionBarrier& full = shared.latent_full[latent.stage];
      if (leads) {
        full.expect_transaction(sizeof(shared.latent[0]));
        arrive_n(full, kLatentArrivals);
      }
      load<kHalfChunks>(&params.latent_map, half * kHalfChunks, full, shared.latent[latent.stage],
                        kv, leads);
    }
    const auto rope = rope_state<Format>(tile);
    shared.rope_empty[rope.stage].wait(rope.phase ^ 1);
    TransactionBarrier& full = shared.rope_full[rope.stage];
    if (leads) {
      reinterpret_cast<uint64_t&>(shared.present[rope.stage]) = present;
      full.expect_transaction(sizeof(shared.rope[0]));
      arrive_n(full, kRopeArrivals);
    }
    load<1>(&params.rope_map, 0, full, shared.rope[rope.stage], kv, leads);
  }

  // Loads `kCount` chunks of a tile, from `chunk` on.
  template <int kCount>
  __device__ void load(const CUtensorMap* map, int chunk, TransactionBarrier& full, Element* to,
                       const PagedKvTma& kv, bool leads) {
    const PagedKvView& view = params.kv;
#pragma unroll 1
    for (int box = rank; box < view.tile_boxes; box += kCluster) {
      const TokenBox source = kv.box(box);
      if (leads) {
        const int32_t group = view.is_in_groups ? source.offset / kSwizzleRows : 0;
        copy_box<cute::SM90_TMA_LOAD_5D, cute::SM90_TMA_LOAD_MULTICAST_5D>(
            map, full, to + box * view.box_tokens * (kCount * kChunk), 0,
            source.offset - group * kSwizzleRows, chunk, group, source.page);
      }
      __syncwarp();
    }
  }

  __device__ void stage_fp8(uint32_t tile, const PagedKvTma& kv, uint64_t present, bool leads) {
    const TokenBox whole = kv.box(0);
    if (params.kv.tile_boxes == 1) {
      // One thread does all of it: nine waits of the whole warp make e4m3 take 20% longer.
      if (leads) {
#pragma unroll 1
        for (int chunk = 0; chunk < kChunks; ++chunk) {
          load_chunk(chunk, begin_chunk(tile, chunk, present), shared.staging.chunks[chunk], whole);
        }
      }
      __syncwarp();
      return;
    }
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if (leads) begin_chunk(tile, chunk, present);
      __syncwarp();
      uint8_t* to = shared.staging.chunks[chunk];
#pragma unroll 1
      for (int box = 0; box < params.kv.tile_boxes; ++box) {
        const TokenBox source = kv.box(box);
        if (leads) load_chunk(chunk, shared.staging.full[chunk], to, source);
        __syncwarp();
        to += params.kv.box_tokens * kChunk;
      }
    }
  }

  // Waits until the staged chunk may be overwritten. One thread calls this.
  __device__ TransactionBarrier& begin_chunk(uint32_t tile, int chunk, uint64_t present) {
    shared.staging.empty[chunk].wait((tile & 1) ^ 1);
    if (chunk == kRopeChunk) shared.staging.present = present;
    TransactionBarrier& full = shared.staging.full[chunk];
    full.arrive_and_expect_tx(kChunkElements);
    return full;
  }

  // In a cluster, each block loads every other chunk.
  __device__ void load_chunk(int chunk, TransactionBarrier& full, uint8_t* to,
                             const TokenBox& source) {
    if (kCluster > 1 && chunk % kCluster != rank) return;
    const bool is_rope = chunk == kRopeChunk;
    copy_box<cute::SM90_TMA_LOAD_3D, cute::SM90_TMA_LOAD_MULTICAST_3D>(
        is_rope ? &params.rope_map : &params.latent_map, full, to, is_rope ? 0 : chunk * kChunk,
        source.offset, source.page);
  }

  // Loads a box into all blocks; zeros if there is no such page.
  template <class Copy, class Multicast, class... Coordinates>
  static __device__ void copy_box(const CUtensorMap* map, TransactionBarrier& full, void* to,
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

}  // namespace mla::sm90::rows_m64
