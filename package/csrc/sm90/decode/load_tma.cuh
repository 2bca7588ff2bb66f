// Loads tiles, or their codes, with the tensor memory accelerator. In a cluster, every block asks
// for every other chunk of KV, and all blocks get it.
#pragma once

#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "sm90/decode/load_query.cuh"
#include "sm90/decode/shared.cuh"
#include "sm90/decode/walk.cuh"

namespace mla::sm90 {

template <class Format, int kCluster>
struct TmaLoader {
  using Element = typename Format::Element;
  static constexpr int kWarps = 1;
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
    const int lane = threadIdx.x % kWarp;
    uint32_t tile = 0;
    Item item;
    while (items.next(item)) {
      if (item.first >= item.end) continue;
      // A lane has the place of every 32nd block; the next ones are on their way.
      Tile place = {page_of(item, item.first + lane), offset_of(item.first + lane)};
      if constexpr (!Format::kWidens) {
        QueryLoader<Format, TmaLoader>{params, shared, first_row}.begin(tile, item.request, 0);
        ++tile;
      }
      int32_t next_page = page_of(item, item.first + kWarp + lane);
      for (int block = item.first; block < item.end; ++block) {
        const int turn = (block - item.first) % kWarp;
        if (turn == 0 && block > item.first) {
          place = {next_page, offset_of(block + lane)};
          next_page = page_of(item, block + kWarp + lane);
        }
        const Tile source = {__shfl_sync(~0u, place.page, turn),
                             __shfl_sync(~0u, place.offset, turn)};
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
  struct Tile {
    int32_t page;
    int32_t offset;  // of its first token in the page
  };

  // Of the last block, where there is none.
  __device__ int32_t page_of(const Item& item, int32_t block) const {
    const KvView& kv = params.kv;
    if (kv.table == nullptr) return item.request;
    const int32_t token = min(block, item.end - 1) * kTileTokens;
    return __ldg(kv.table + item.request * kv.table_stride + token / kv.page_size);
  }

  __device__ int32_t offset_of(int32_t block) const {
    return block * kTileTokens % params.kv.page_size;
  }

  // A bit for each token.
  __device__ uint64_t present(int32_t page, int32_t tokens) const {
    if (page < 0 || page >= params.kv.num_pages) return 0;
    return tokens >= kTileTokens ? ~uint64_t{0} : (uint64_t{1} << tokens) - 1;
  }

  __device__ bool is_mine(int chunk) const { return kCluster == 1 || chunk % kCluster == rank; }

  __device__ const CUtensorMap* map_of(int chunk) const {
    return chunk == kRopeChunk ? &params.rope_map : &params.latent_map;
  }

  static __device__ int32_t column_of(int chunk) { return chunk % kRopeChunk * kChunk; }

  __device__ void load(uint32_t tile, const Tile& source, int32_t tokens) {
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
    reinterpret_cast<uint64_t&>(shared.present[rope.slot]) = present(source.page, tokens);
    FullBarrier& full = shared.rope_full[rope.slot];
    full.expect_transaction(kChunkBytes);
    arrive_times(full, kRopeArrivals);
    load(kRopeChunk, full, shared.rope[rope.slot], source);
  }

  __device__ void load_codes(uint32_t tile, const Tile& source, int32_t tokens) {
    const uint32_t phase = tile & 1;
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      shared.codes.empty[chunk].wait(phase ^ 1);
      if (chunk == kRopeChunk) shared.codes.present = present(source.page, tokens);
      FullBarrier& full = shared.codes.full[chunk];
      full.arrive_and_expect_tx(kChunkElements);
      load(chunk, full, shared.codes.chunks[chunk], source);
    }
  }

  // Where there is no such page, zeros.
  __device__ void load(int chunk, FullBarrier& full, void* to, const Tile& source) {
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
