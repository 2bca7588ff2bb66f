// Loads tiles of KV, or of fp8 to be dequantized, by TMA. In a cluster, each block asks for some of
// the boxes, and all blocks receive them (multicast).
#pragma once

#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "sm90/mainloop/kv_cache_policy.cuh"
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
  uint64_t policy = 0;  // of the work tile's KV in L2

  // `scheduler` is at the first work tile.
  template <class WorkTiles>
  __device__ void run(WorkTiles work_tiles, TileScheduler<Params> scheduler) {
    const bool leads = cute::elect_one_sync();
    const auto pages_from = [this](int32_t request, int32_t block) {
      return FirstPages(params.kv, params.capacity, min(request, params.shape.batch - 1), block);
    };
    FirstPages pages;
    WorkTile work;
    // This warp finds its first work tile itself, as does the one that tells all others; its pages
    // are asked for meanwhile. Where KV is dequantized, this warp tells the others.
    constexpr bool kFindsFirst = !Format::kDequantizes;
    bool found;
    if constexpr (kFindsFirst) {
      pages = pages_from(scheduler.at().request, scheduler.at().block);
      found = scheduler.next(work);
    } else {
      found = work_tiles.next(work);
    }
    uint32_t tile = 0;
    bool is_first = true;
    while (found) {
      const int blocks = work.end_block - work.first_block;
      // Q needs no page, so that these are on their way while it is asked for.
      if (blocks > 0 && !(kFindsFirst && is_first)) {
        pages = pages_from(work.request, work.first_block);
      }
      if constexpr (!Format::kDequantizes) {
        if (has_query<Format>(params, is_first, blocks)) {
          if (!is_query_early<Format>(params, is_first)) {
            QueryProducer<Format, TmaProducer, Params>{params, shared, first_row}.begin(tile, work,
                                                                                        0);
          }
          ++tile;
        }
      }
      if (blocks > 0) load_kv(tile, work, pages, leads);
      if constexpr (kFindsFirst) {
        if (is_first) work_tiles.skip();
      }
      is_first = false;
      found = work_tiles.next(work);
    }
    if constexpr (kCluster > 1) end(tile);
  }

 private:
  // Waits until all that this warp fills is empty, after so many tiles.
  __device__ __forceinline__ void end(uint32_t tiles) const {
    if constexpr (Format::kMultipliesFp8) {
      producer_tail(shared.staging.empty, tiles);
    } else if constexpr (Format::kDequantizes) {
      for (Barrier& empty : shared.staging.empty) empty.wait((tiles & 1) ^ 1);
    } else {
      producer_tail(shared, tiles);
    }
  }

  // Loads the KV of a work tile, from `tile` on.
  __device__ __forceinline__ void load_kv(uint32_t& tile, const WorkTile& work,
                                          const FirstPages& pages, bool leads) {
    policy = kv_cache_policy(work);
    PagedKvTma kv(params.kv, work, pages);
    for (int block = work.first_block; block < work.end_block; ++block) {
      if (block == work.first_block + 1) kv.read_ahead();
      kv.begin_tile(block);
      const uint64_t present = kv.present(work.tokens - block * kTileTokens);
      if constexpr (Format::kMultipliesFp8) {
        stage_tile(tile, kv, present, leads);
      } else if constexpr (Format::kDequantizes) {
        stage_fp8(tile, kv, present, leads);
      } else {
        load(tile, kv, present, leads);
      }
      ++tile;
    }
  }

  // Loads a tile in the order in which its logits are computed.
  __device__ void load(uint32_t tile, const PagedKvTma& kv, uint64_t present, bool leads) {
    constexpr bool kRopeFirst = kPvAfterLogits<Format, kBlocks> || !Format::kHasKeyChunk;
    if constexpr (kPvAfterLogits<Format, kBlocks>) prefetch(kv, leads);
    load_half(tile, 0, kv, leads);
    if constexpr (kRopeFirst) load_rope(tile, kv, present, leads);
    if constexpr (Format::kHalves == 2) load_half(tile, 1, kv, leads);
    if constexpr (!kRopeFirst) load_rope(tile, kv, present, leads);
  }

  __device__ void load_half(uint32_t tile, int half, const PagedKvTma& kv, bool leads) {
    const auto latent = latent_state<Format>(tile, half);
    // In the first round, empty stages are in the phase before.
    shared.latent_empty[latent.stage].wait(latent.phase ^ 1);
    TransactionBarrier& full = shared.latent_full[latent.stage];
    if (leads) {
      full.expect_transaction(sizeof(shared.latent[0]));
      arrive_n(full, kLatentArrivals);
    }
    load<kHalfChunks>(&params.latent_map, half * kHalfChunks, full, shared.latent[latent.stage], kv,
                      leads);
  }

  __device__ void load_rope(uint32_t tile, const PagedKvTma& kv, uint64_t present, bool leads) {
    const auto rope = rope_state<Format>(tile);
    shared.rope_empty[rope.stage].wait(rope.phase ^ 1);
    TransactionBarrier& full = shared.rope_full[rope.stage];
    if (leads) {
      reinterpret_cast<uint64_t&>(shared.present[rope.stage]) = present;
      if constexpr (Format::kHasKeyChunk) full.expect_transaction(sizeof(shared.rope[0]));
      arrive_n(full, kRopeArrivals);
    }
    if constexpr (Format::kHasKeyChunk) {
      load<1>(&params.rope_map, 0, full, shared.rope[rope.stage], kv, leads);
    }
  }

  // Loads `kCount` chunks of a tile, from `chunk` on.
  template <int kCount>
  __device__ void load(const CUtensorMap* map, int chunk, TransactionBarrier& full, Element* to,
                       const PagedKvTma& kv, bool leads) {
    for_own_boxes(kv, leads, [&](int box, int32_t token, int32_t group, int32_t page) {
      copy_box<cute::SM90_TMA_LOAD_5D, cute::SM90_TMA_LOAD_MULTICAST_5D>(
          map, full, to + box * params.kv.box_tokens * (kCount * kChunk), 0, token, chunk, group,
          page);
    });
  }

  // Prefetches a tile to L2.
  __device__ void prefetch(const PagedKvTma& kv, bool leads) {
    for_own_boxes(kv, leads, [&](int, int32_t token, int32_t group, int32_t page) {
      using Prefetch = cute::SM90_TMA_LOAD_5D::PREFETCH;
      Prefetch::copy(&params.latent_map, 0, token, 0, group, page);
      if constexpr (Format::kHalves == 2) {
        Prefetch::copy(&params.latent_map, 0, token, int32_t{kHalfChunks}, group, page);
      }
      if constexpr (Format::kHasKeyChunk) {
        Prefetch::copy(&params.rope_map, 0, token, 0, group, page);
      }
    });
  }

  // Calls `ask` with the boxes of a tile that this block asks for, and where each of them is.
  template <class Ask>
  __device__ __forceinline__ void for_own_boxes(const PagedKvTma& kv, bool leads, const Ask& ask) {
    const PagedKvView& view = params.kv;
#pragma unroll 1
    for (int box = rank; box < view.tile_boxes; box += kCluster) {
      const TokenBox source = kv.box(box);
      if (leads) {
        const int32_t group = view.is_in_groups ? source.offset / kSwizzleRows : 0;
        ask(box, source.offset - group * kSwizzleRows, group, source.page);
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
        for (int chunk = 0; chunk < Format::kChunks; ++chunk) {
          load_chunk(chunk, begin_chunk(tile, chunk, present), shared.staging.chunks[chunk], whole);
        }
      }
      __syncwarp();
      return;
    }
#pragma unroll 1
    for (int chunk = 0; chunk < Format::kChunks; ++chunk) {
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

  // Stages all of a tile at once.
  __device__ void stage_tile(uint32_t tile, const PagedKvTma& kv, uint64_t present, bool leads) {
    using Staging = typename Format::Staging;
    const PipelineState<Staging::kStages> staged(tile);
    TransactionBarrier& full = shared.staging.full[staged.stage];
    shared.staging.empty[staged.stage].wait(staged.phase ^ 1);
    if (leads) {
      shared.staging.present[staged.stage] = present;
      full.arrive_and_expect_tx(Staging::kTileBytes);
    }
    __syncwarp();
#pragma unroll 1
    for (int box = 0; box < params.kv.tile_boxes; ++box) {
      const TokenBox source = kv.box(box);
      if (leads) {
#pragma unroll 1
        for (int chunk = 0; chunk < Format::kChunks; ++chunk) {
          load_chunk(
              chunk, full,
              shared.staging.chunks[staged.stage][chunk] + box * params.kv.box_tokens * kChunk,
              source);
        }
      }
      __syncwarp();
    }
  }

  // Waits until the staged chunk may be overwritten. One thread calls this.
  __device__ TransactionBarrier& begin_chunk(uint32_t tile, int chunk, uint64_t present) {
    shared.staging.empty[chunk].wait((tile & 1) ^ 1);
    if (chunk + 1 == Format::kChunks) shared.staging.present = present;
    TransactionBarrier& full = shared.staging.full[chunk];
    full.arrive_and_expect_tx(kChunkElements);
    return full;
  }

  // In a cluster, each block loads every other chunk.
  __device__ void load_chunk(int chunk, TransactionBarrier& full, void* to,
                             const TokenBox& source) {
    if (kCluster > 1 && chunk % kCluster != rank) return;
    const bool is_rope = Format::kHasKeyChunk && chunk == Format::kKeyChunk;
    copy_box<cute::SM90_TMA_LOAD_3D, cute::SM90_TMA_LOAD_MULTICAST_3D>(
        is_rope ? &params.rope_map : &params.latent_map, full, to, is_rope ? 0 : chunk * kChunk,
        source.offset, source.page);
  }

  // Loads a box into all blocks; zeros if there is no such page.
  template <class Copy, class Multicast, class... Coordinates>
  __device__ void copy_box(const CUtensorMap* map, TransactionBarrier& full, void* to,
                           Coordinates... at) {
    auto* const barrier = reinterpret_cast<uint64_t*>(&full);
    if constexpr (kCluster == 1) {
      Copy::copy(map, barrier, policy, to, at...);
    } else {
      constexpr uint16_t kAll = (1 << kCluster) - 1;
      Multicast::copy(map, barrier, kAll, policy, to, at...);
    }
  }
};

}  // namespace mla::sm90::rows_m64
