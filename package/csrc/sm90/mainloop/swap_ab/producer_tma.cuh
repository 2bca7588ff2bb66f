// Loads tiles of KV by TMA.
#pragma once

#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "sm90/mainloop/kv_cache_policy.cuh"
#include "sm90/mainloop/paged_kv_tma.cuh"
#include "sm90/mainloop/swap_ab/shared_storage.cuh"

namespace mla::sm90::swap_ab {

// One warp calls this.
template <class Format, int kRows, class Params>
struct TmaProducer {
  const Params& params;
  SharedStorage<Format, kRows>& shared;
  uint64_t policy = 0;  // of the work tile's KV in L2

  template <class WorkTiles>
  __device__ void run(WorkTiles work_tiles) {
    const bool leads = cute::elect_one_sync();
    uint32_t tile = 0;
    WorkTile work;
    while (work_tiles.next(work)) {
      if (work.first_block >= work.end_block) continue;
      const FirstPages pages(params.kv, params.capacity, work.request, work.first_block);
      policy = kv_cache_policy(work);
      PagedKvTma kv(params.kv, work, pages);
      for (int block = work.first_block; block < work.end_block; ++block) {
        if (block == work.first_block + 1) kv.read_ahead();
        kv.begin_tile(block);
        const uint64_t present = kv.present(work.tokens - block * kTileTokens);
        if constexpr (Format::kReadsToRegisters) {
          load_fp8(tile, kv, present, leads);
        } else {
          load(tile, kv, present, leads);
        }
        ++tile;
      }
    }
  }

 private:
  // In the first round, empty stages are in the phase before.
  __device__ void load(uint32_t tile, const PagedKvTma& kv, uint64_t present, bool leads) const {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const auto latent = Format::latent_state(tile, half);
      shared.pipelines.latent_empty[latent.stage].wait(latent.phase ^ 1);
      TransactionBarrier& full = shared.pipelines.latent_full[latent.stage];
      if (leads) full.arrive_and_expect_tx(sizeof(shared.kv.latent[0]));
      load_boxes<kHalfChunks>(&params.latent_map, half * kHalfChunks, full,
                              shared.kv.latent[latent.stage], kv, leads);
    }
    const auto rope = Format::rope_state(tile);
    shared.pipelines.rope_empty[rope.stage].wait(rope.phase ^ 1);
    TransactionBarrier& full = shared.pipelines.rope_full[rope.stage];
    if (leads) {
      reinterpret_cast<uint64_t&>(shared.pipelines.present[rope.stage]) = present;
      full.arrive_and_expect_tx(sizeof(shared.kv.rope[0]));
    }
    load_boxes<1>(&params.rope_map, 0, full, shared.kv.rope[rope.stage], kv, leads);
  }

  // Loads `kCount` chunks of a tile, from `chunk` on; zeros of a page that does not exist.
  template <int kCount, class Element>
  __device__ void load_boxes(const CUtensorMap* map, int chunk, TransactionBarrier& full,
                             Element* to, const PagedKvTma& kv, bool leads) const {
    const PagedKvView& view = params.kv;
#pragma unroll 1
    for (int box = 0; box < view.tile_boxes; ++box) {
      const TokenBox source = kv.box(box);
      if (leads) {
        const int32_t group = view.is_in_groups ? source.offset / kSwizzleRows : 0;
        cute::SM90_TMA_LOAD_5D::copy(map, reinterpret_cast<uint64_t*>(&full), policy,
                                     to + box * view.box_tokens * (kCount * kChunk), 0,
                                     source.offset - group * kSwizzleRows, chunk, group,
                                     source.page);
      }
      __syncwarp();
    }
  }

  __device__ void load_fp8(uint32_t tile, const PagedKvTma& kv, uint64_t present,
                           bool leads) const {
    const auto state = Format::state(tile);
    shared.pipelines.empty[state.stage].wait(state.phase ^ 1);
    TransactionBarrier& full = shared.pipelines.full[state.stage];
    if (leads) {
      shared.pipelines.present[state.stage] = present;
      full.arrive_and_expect_tx(sizeof(shared.kv.tiles[0]));
    }
#pragma unroll 1
    for (int box = 0; box < params.kv.tile_boxes; ++box) {
      const TokenBox source = kv.box(box);
      if (leads) load_fp8_box(shared.kv.tiles[state.stage], box, full, source);
      __syncwarp();
    }
  }

  template <class Chunks>
  __device__ void load_fp8_box(Chunks& to, int box, TransactionBarrier& full,
                               const TokenBox& source) const {
    const int first = box * params.kv.box_tokens * kChunk;
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const bool is_rope = chunk == kRopeChunk;
      // If there is no such page, this loads zeros.
      cute::SM90_TMA_LOAD_3D::copy(is_rope ? &params.rope_map : &params.latent_map,
                                   reinterpret_cast<uint64_t*>(&full), policy, to[chunk] + first,
                                   is_rope ? 0 : chunk * kChunk, source.offset, source.page);
    }
  }
};

}  // namespace mla::sm90::swap_ab
