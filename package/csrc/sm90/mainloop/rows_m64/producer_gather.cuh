// Loads tiles of KV row by row with asynchronous copies: tokens may lie in pages of any size.
#pragma once

#include "sm90/mainloop/paged_kv_gather.cuh"
#include "sm90/mainloop/rows_m64/copy_rows.cuh"
#include "sm90/mainloop/rows_m64/producer_query.cuh"
#include "sm90/mainloop/rows_m64/shared_storage.cuh"

namespace mla::sm90 {

template <class Format, class Params>
struct GatherLoader {
  using Element = typename Format::Element;
  static constexpr int kWarps = 2;
  static constexpr int kQueryWaiters = kWarps;
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
      QueryLoader<Format, GatherLoader, Params>{params, shared, first_row}.begin(tile, item.request,
                                                                                 warp);
      ++tile;
      int32_t token = item.first * kTileTokens + warp * kWarp + lane;
      const auto selection = selection_of(params, item);
      const auto rows = rows_of(params, selection);
      int32_t own = rows.look_up(token);
      for (; item.first < item.end; ++item.first, token += kTileTokens) {
        auto row = rows.row(own, token);
        const uint32_t present = __ballot_sync(~0u, rows.exists(row));
        if (!rows.exists(row)) row = {};
        // On its way while this tile is loaded. Before `own` is used, the compiler would wait for
        // both.
        own = rows.look_up(token + kTileTokens);
        load(tile++, rows, row, present, warp);
      }
    }
  }

 private:
  template <class Rows>
  __device__ void load(uint32_t tile, const Rows& rows, const typename Rows::Row& row,
                       uint32_t present, int warp) {
    const int lane = threadIdx.x % kWarp;
    const auto place = rope_place<Format>(tile);
    shared.rope_empty[place.slot].wait(place.phase ^ 1);
    if (lane == 0) shared.present[place.slot][warp] = present;
    shared.rope_full[place.slot].arrive();
    copy_rows<1>(rows.template rope<Element>(row), present, shared.rope[place.slot], warp * kWarp,
                 lane);
    arrive(shared.rope_full[place.slot]);
    const auto* const latent = rows.template latent<Element>(row);
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const auto place = half_place<Format>(tile, half);
      shared.latent_empty[place.slot].wait(place.phase ^ 1);
      copy_rows<kHalfChunks>(latent + half * kHalf, present, shared.latent[place.slot],
                             warp * kWarp, lane);
      arrive(shared.latent_full[place.slot]);
    }
  }

  static __device__ void arrive(FullBarrier& full) {
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<const uint64_t*>(&full));
  }
};

}  // namespace mla::sm90
