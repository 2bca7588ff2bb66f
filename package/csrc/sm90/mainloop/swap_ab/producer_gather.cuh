// Gathers the rows of selected tokens of a 16-bit cache with asynchronous copies.
#pragma once

#include <cute/arch/copy_sm80.hpp>

#include "sm90/mainloop/copy_rows.cuh"
#include "sm90/mainloop/gather_tiles.cuh"
#include "sm90/mainloop/swap_ab/shared_storage.cuh"

namespace mla::sm90::swap_ab {

// `Format::kKvWarps` warps call this, of which each gathers 32 tokens of a tile. Tokens that are
// absent become zeros.
template <class Format, int kRows, class Params>
struct GatherProducer {
  const Params& params;
  SharedStorage<Format, kRows>& shared;
  const int warp;

  template <class WorkTiles>
  __device__ void run(WorkTiles work_tiles) const {
    static_assert(Format::kKvWarps * kWarp == kTileTokens);
    gather_tiles(params, warp * kWarp, work_tiles,
                 [this](uint32_t tile, const auto&, const auto& rows, auto row) {
                   const uint32_t present = __ballot_sync(~0u, rows.exists(row));
                   if (!rows.exists(row)) row = {};
                   load(tile, rows, row, present);
                 });
  }

 private:
  using Element = typename Format::Element;

  // Every lane arrives when its copies are done; where the rope columns would be, also when it has
  // said which tokens exist.
  template <class Rows>
  __device__ __forceinline__ void load(uint32_t tile, const Rows& rows,
                                       const typename Rows::Row& row, uint32_t present) const {
    const int lane = threadIdx.x % kWarp;
    auto& pipelines = shared.pipelines;
    const auto* const from = rows.template latent<Element>(row);
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const auto latent = Format::latent_state(tile, half);
      pipelines.latent_empty[latent.stage].wait(latent.phase ^ 1);
      copy_rows<kHalfChunks>(from + half * kHalf, present, shared.kv.latent[latent.stage],
                             warp * kWarp, lane);
      arrive(pipelines.latent_full[latent.stage]);
    }
    const auto rope = Format::rope_state(tile);
    pipelines.rope_empty[rope.stage].wait(rope.phase ^ 1);
    if (lane == 0) pipelines.present[rope.stage][warp] = present;
    pipelines.rope_full[rope.stage].arrive();
    if constexpr (Format::kHasRope) {
      copy_rows<1>(rows.template rope<Element>(row), present, shared.kv.rope[rope.stage],
                   warp * kWarp, lane);
      arrive(pipelines.rope_full[rope.stage]);
    }
  }

  static __device__ __forceinline__ void arrive(TransactionBarrier& full) {
    cutlass::arch::cpasync_barrier_arrive_noinc(reinterpret_cast<const uint64_t*>(&full));
  }
};

}  // namespace mla::sm90::swap_ab
