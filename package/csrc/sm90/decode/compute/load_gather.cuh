// Loads tiles of KV row by row with asynchronous copies: tokens may lie in pages of any size.
#pragma once

#include "sm90/decode/compute/copy_rows.cuh"
#include "sm90/decode/compute/load_query.cuh"
#include "sm90/decode/compute/shared.cuh"

namespace mla::sm90 {

template <class Format>
struct GatherLoader {
  using Element = typename Format::Element;
  static constexpr int kWarps = 2;
  static constexpr int kThreads = kWarps * kWarp;
  static_assert(kTileTokens == kThreads);

  // Every thread, when its copies are done, and when it is told which tokens exist.
  static constexpr int kLatentArrivals = kThreads;
  static constexpr int kRopeArrivals = 2 * kThreads;

  const Params& params;
  SharedMemory<Format>& shared;
  const int first_row;

  // By `kWarps` warps, each of which loads its 32 tokens of a tile; `warp` is one of them.
  __device__ void run(int warp) {
    const int lane = threadIdx.x % kWarp;
    uint32_t tile = 0;
    Item item;
    for (ItemReader items(shared.items); items.next(item);) {
      if (item.first >= item.end) continue;
      QueryLoader<Format, GatherLoader>{params, shared, first_row}.begin(tile, item.request, warp);
      ++tile;
      int32_t token = item.first * kTileTokens + warp * kWarp + lane;
      int32_t page = page_of(item, token);
      for (; item.first < item.end; ++item.first, token += kTileTokens) {
        // On its way while this tile is loaded.
        const int32_t next = page_of(item, token + kTileTokens);
        load(tile++, page, token % params.kv.page_size, warp);
        page = next;
      }
    }
  }

 private:
  // Of a lane's token; -1: there is no such token. Unsigned division is the shorter one.
  __device__ int32_t page_of(const Item& item, int32_t token) const {
    const KvView& kv = params.kv;
    if (token >= item.tokens) return -1;
    if (kv.table == nullptr) return item.request;
    return __ldg(kv.table + item.request * kv.table_stride +
                 static_cast<uint32_t>(token) / static_cast<uint32_t>(kv.page_size));
  }

  __device__ void load(uint32_t tile, int32_t page, int32_t offset, int warp) {
    const KvView& kv = params.kv;
    const bool is_there = static_cast<uint32_t>(page) < static_cast<uint32_t>(kv.num_pages);
    const uint32_t present = __ballot_sync(~0u, is_there);
    if (!is_there) page = offset = 0;
    const auto place = rope_place<Format>(tile);
    shared.rope_empty[place.slot].wait(place.phase ^ 1);
    if (threadIdx.x % kWarp == 0) shared.present[place.slot][warp] = present;
    shared.rope_full[place.slot].arrive();
    const auto* const rope = static_cast<const Element*>(kv.rope) + page * kv.rope_stride_page +
                             offset * kv.rope_stride_token;
    copy_rows<1>(rope, present, shared.rope[place.slot], warp * kWarp);
    arrive(shared.rope_full[place.slot]);
    const auto* const latent = static_cast<const Element*>(kv.latent) +
                               page * kv.latent_stride_page + offset * kv.latent_stride_token;
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const auto place = half_place<Format>(tile, half);
      shared.latent_empty[place.slot].wait(place.phase ^ 1);
      copy_rows<kHalfChunks>(latent + half * kHalf, present, shared.latent[place.slot],
                             warp * kWarp);
      arrive(shared.latent_full[place.slot]);
    }
  }

  static __device__ void arrive(FullBarrier& full) {
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<const uint64_t*>(&full));
  }
};

}  // namespace mla::sm90
