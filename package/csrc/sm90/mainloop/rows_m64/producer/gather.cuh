// Loads tiles of KV row by row with asynchronous copies: tokens may lie anywhere.
#pragma once

#include "sm90/mainloop/paged_kv_gather.cuh"
#include "sm90/mainloop/rows_m64/producer/query.cuh"
#include "sm90/mainloop/selected_kv_gather.cuh"

namespace mla::sm90::rows_m64 {

template <class Format, class Params>
struct GatherProducer {
  using Element = typename Format::Element;
  static constexpr int kBlocks = 1;
  static constexpr int kWarps = 2;
  static constexpr int kQueryWaiters = kWarps;
  static constexpr int kThreads = kWarps * kWarp;
  static_assert(kTileTokens == kThreads);

  // Every thread arrives when its copies are done; where the rope columns would be, when it has
  // said which tokens exist, and for these columns, if keys have them, when their copies are done.
  static constexpr int kLatentArrivals = kThreads;
  static constexpr int kRopeArrivals = (Format::kHasKeyChunk ? 2 : 1) * kThreads;

  const Params& params;
  SharedStorage<Format>& shared;
  const int first_row;

  // `kWarps` warps call this, of which each loads its 32 tokens of a tile.
  __device__ void run(int warp) {
    const int lane = threadIdx.x % kWarp;
    uint32_t tile = 0;
    WorkTile work;
    for (WorkTileConsumer work_tiles(shared.work_tiles); work_tiles.next(work);) {
      if (work.first_block >= work.end_block) continue;
      QueryProducer<Format, GatherProducer, Params>{params, shared, first_row}.begin(tile, work,
                                                                                     warp);
      ++tile;
      int32_t token = work.first_block * kTileTokens + warp * kWarp + lane;
      const auto selection = selection_of(params, work);
      const auto rows = kv_rows_of(params, selection);
      int32_t own = rows.look_up(token);
      for (; work.first_block < work.end_block; ++work.first_block, token += kTileTokens) {
        auto row = rows.row(own, token);
        const uint32_t present = __ballot_sync(~0u, rows.exists(row));
        if (!rows.exists(row)) row = {};
        // The next tile is looked up while this one is loaded. If it was before the use of `own`,
        // the compiler would wait for both.
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
    const auto rope = rope_state<Format>(tile);
    shared.rope_empty[rope.stage].wait(rope.phase ^ 1);
    if (lane == 0) shared.present[rope.stage][warp] = present;
    shared.rope_full[rope.stage].arrive();
    if constexpr (Format::kHasKeyChunk) {
      copy_rows<1>(rows.template rope<Element>(row), present, shared.rope[rope.stage], warp * kWarp,
                   lane);
      arrive(shared.rope_full[rope.stage]);
    }
    const auto* const from = rows.template latent<Element>(row);
#pragma unroll 1
    for (int half = 0; half < Format::kHalves; ++half) {
      const auto latent = latent_state<Format>(tile, half);
      shared.latent_empty[latent.stage].wait(latent.phase ^ 1);
      copy_rows<kHalfChunks>(from + half * kHalf, present, shared.latent[latent.stage],
                             warp * kWarp, lane);
      arrive(shared.latent_full[latent.stage]);
    }
  }

  static __device__ void arrive(TransactionBarrier& full) {
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<const uint64_t*>(&full));
  }
};

}  // namespace mla::sm90::rows_m64
