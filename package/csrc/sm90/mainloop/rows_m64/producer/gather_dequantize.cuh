// Gathers rows that hold scales and dequantizes them into the KV pipelines: elements times their
// scales, rounded once, and rope columns.
#pragma once

#include <cute/arch/copy_sm80.hpp>
#include <type_traits>

#include "sm90/mainloop/rows_m64/producer/copy_byte_rows.cuh"
#include "sm90/mainloop/rows_m64/producer/dequantize_rows.cuh"
#include "sm90/mainloop/rows_m64/producer/query.cuh"
#include "sm90/mainloop/selected_kv_gather.cuh"

namespace mla::sm90::rows_m64 {

// The `kCluster` blocks of a cluster have other heads of the same query token. Each dequantizes its
// part of a tile for all.
template <class Format, int kCluster, class Params>
struct GatherDequantizer {
  using Element = typename Format::Element;
  using Staging = typename Format::Staging;
  static constexpr int kBlocks = kCluster;
  static constexpr int kWarps = Staging::kProducers;
  static constexpr int kQueryWaiters = kWarps;
  // One lane arrives for a warp; where blocks share what they dequantize, all do, which is faster.
  static constexpr int kArrivingLanes = kCluster == 1 ? 1 : kWarp;
  static constexpr int kLatentArrivals = kWarps * kArrivingLanes;
  static constexpr int kRopeArrivals = kWarps * kArrivingLanes;

  const Params& params;
  SharedStorage<Format>& shared;
  const int first_row;
  const int rank;
  const int warp;
  typename Staging::Warp& own;

  // `kWarps` warps call this, of which each has its tokens of every tile. Rows are on their way
  // while those before them are dequantized.
  template <class WorkTiles>
  __device__ void run(WorkTiles work_tiles) const {
    uint32_t tile = 0;  // of the KV pipelines
    uint32_t stage = 0;
    WorkTile work;
    while (work_tiles.next(work)) {
      int32_t block = warp_uniform(work.first_block);
      if (block >= warp_uniform(work.end_block)) continue;
      select(work);
      look_up(block);
      const QueryProducer<Format, GatherDequantizer, Params> query = {params, shared, first_row};
      if (tile == 0 && warp == 0) query.start(tile, work);
      wait_for_all_copies();
      find_rows(block);
      // The tile after this one may be one of the next two that are looked up, and may be begun at
      // once.
      if (kSteps < Staging::kAhead && (block + 1) % kTilesAtOnce == 0) wait_for_all_copies();
#pragma unroll
      for (int step = 0; step < Staging::kAhead; ++step) {
        load_step(block, step, end_block() - block, stage);
        stage = after(stage);
      }
      if constexpr (kLoadsFirst) stage = after(stage);
      if (tile > 0) query.begin(tile, work, warp);
      ++tile;
#pragma unroll 1
      for (; block < end_block(); ++block, ++tile) {
        if constexpr (kCluster == 1) {
          dequantize_by_steps(block, end_block() - block, tile, stage);
        } else {
          dequantize_by_halves(block, end_block() - block, tile, stage);
        }
      }
    }
    if constexpr (kCluster > 1) producer_tail(shared, tile);
  }

 private:
  using Row = typename Staging::Row;
  using Main = typename Staging::Main;
  using Extra = typename Staging::Extra;
  static constexpr uint32_t kKnown = Staging::kTokens;    // of a tile, by a warp
  static constexpr uint32_t kTokens = kKnown / kCluster;  // that a warp dequantizes, its first
  static constexpr uint32_t kRows = Staging::kRows;
  static constexpr int kSteps = kTokens / kRows;
  // The offsets are kept of all tiles whose rows are loaded or whose tokens are still to be told.
  static_assert(2 + (kSteps - 1 + Staging::kAhead) / kSteps <= Staging::kTiles);
  static constexpr bool kLoadsFirst = Staging::kStages > Staging::kAhead;

  __device__ __forceinline__ void dequantize_by_steps(int32_t block, int remaining, uint32_t& tile,
                                                      uint32_t& stage) const {
    producer_acquire(shared, tile);
    // Unrolled, the code for two formats is so long that a launch takes 4% more time.
    constexpr int kUnrolled = std::is_same_v<Main, Extra> ? kSteps : 1;
#pragma unroll kUnrolled
    for (int step = 0; step < kSteps; ++step) {
      cute::cp_async_wait<Staging::kAhead - 1>();
      __syncwarp();
      if constexpr (kLoadsFirst) load_step(block, step + Staging::kAhead, remaining, before(stage));
      with_rows_of(block, [&](auto rows) {
        dequantizer().template dequantize_tokens<decltype(rows)>(own.rows[stage], step, tile);
      });
      if constexpr (!kLoadsFirst) {
        __syncwarp();
        load_step(block, step + Staging::kAhead, remaining, stage);
      }
      stage = after(stage);
    }
    // Or the compiler keeps what it has made of `tile` above in registers.
    tile = warp_uniform(tile);
    store_present(block, rope_state<Format>(tile).stage);
    __syncwarp();
    if (read_lane_index() >= kArrivingLanes) return;
    arrive_half(tile, 0);
    arrive_half(tile, 1);
    shared.rope_full[rope_state<Format>(tile).stage].arrive();
  }

  // Dequantizes all that the warp has of a tile, by halves of the columns: the left half goes into
  // its stage while the right one's is still in use, and is multiplied while that is dequantized.
  __device__ __forceinline__ void dequantize_by_halves(int32_t block, int remaining, uint32_t& tile,
                                                       uint32_t& stage) const {
    static_assert(kSteps == 2 && kSteps <= Staging::kAhead);
    cute::cp_async_wait<Staging::kAhead - kSteps>();
    __syncwarp();
    if constexpr (kLoadsFirst) load_step(block, Staging::kAhead, remaining, before(stage));
    const Row* const steps[kSteps] = {own.rows[stage], own.rows[after(stage)]};
    acquire_half(tile, 0);
    with_rows_of(block, [&](auto rows) {
      dequantizer().template dequantize_half<decltype(rows), 0>(steps, tile);
    });
    arrive_half(tile, 0);
    acquire_half(tile, 1);
    acquire_rope(tile);
    with_rows_of(block, [&](auto rows) {
      dequantizer().template dequantize_half<decltype(rows), 1>(steps, tile);
    });
    const int rope = rope_state<Format>(tile).stage;
    store_present(block, rope);
    arrive_half(tile, 1);
    shared.rope_full[rope].arrive();
    __syncwarp();
    if constexpr (!kLoadsFirst) load_step(block, Staging::kAhead, remaining, stage);
    load_step(block, Staging::kAhead + 1, remaining, kLoadsFirst ? stage : after(stage));
    stage = after(after(stage));
    tile = warp_uniform(tile);
  }

  __device__ __forceinline__ auto dequantizer() const {
    return RowDequantizer<Format, kCluster>{shared, rank, first_token(rank, warp)};
  }

  // Wait until stages are empty, and tell their barriers how many bytes the other block will store.
  __device__ __forceinline__ void acquire_half(uint32_t tile, int half) const {
    const auto latent = latent_state<Format>(tile, half);
    shared.latent_empty[latent.stage].wait(latent.phase ^ 1);
    expect_other(shared.latent_full[latent.stage], kHalf);
  }
  __device__ __forceinline__ void acquire_rope(uint32_t tile) const {
    const auto rope = rope_state<Format>(tile);
    shared.rope_empty[rope.stage].wait(rope.phase ^ 1);
    if constexpr (Format::kHasKeyChunk) expect_other(shared.rope_full[rope.stage], kRope);
  }
  __device__ __forceinline__ void expect_other(TransactionBarrier& full, uint32_t columns) const {
    if (warp != 0 || read_lane_index() != 0) return;
    full.expect_transaction(kTileTokens / kCluster * columns * sizeof(Element));
  }

  // What was stored is for tensor cores; those who use them fence it.
  __device__ __forceinline__ void arrive_half(uint32_t tile, int half) const {
    shared.latent_full[latent_state<Format>(tile, half).stage].arrive();
  }

  static __device__ __forceinline__ uint32_t after(uint32_t stage) {
    return stage + 1 == Staging::kStages ? 0 : stage + 1;
  }
  static __device__ __forceinline__ uint32_t before(uint32_t stage) {
    return stage == 0 ? Staging::kStages - 1 : stage - 1;
  }
  __device__ __forceinline__ uint32_t (&offsets_of(int32_t block) const)[kKnown] {
    return own.offsets[block & (Staging::kTiles - 1)];
  }
  // The first token of a tile that a warp of a block dequantizes.
  static __device__ __forceinline__ uint32_t first_token(uint32_t rank, uint32_t warp) {
    return (rank * kWarps + warp) * kTokens;
  }
  // The i-th token that a warp knows: its own come before those of its peers in other blocks.
  __device__ __forceinline__ uint32_t known_token(uint32_t i) const {
    if constexpr (kCluster == 1) return first_token(0, warp) + i;
    return first_token((rank + i / kTokens) % kCluster, warp) + i % kTokens;
  }

  __device__ __forceinline__ bool is_extra(int32_t block) const {
    return block * kTileTokens >= params.extra_begins;
  }
  // Calls body(Main()) or body(Extra()), as the cache of a tile has rows.
  template <class Body>
  __device__ __forceinline__ void with_rows_of(int32_t block, const Body& body) const {
    if constexpr (std::is_same_v<Main, Extra>) {
      body(Main());
    } else if (is_extra(block)) {
      body(Extra());
    } else {
      body(Main());
    }
  }

  // Keeps what is selected in shared memory, since the warps lack registers.
  __device__ __forceinline__ void select(const WorkTile& work) const {
    __syncwarp();
    if (read_lane_index() == 0) {
      own.selection = selection_of(params, work);
      own.end_block = work.end_block;
    }
    __syncwarp();
  }
  __device__ __forceinline__ int32_t end_block() const {
    return *static_cast<const volatile int32_t*>(&own.end_block);
  }
  // Two tiles are looked up together, by half a warp each: a lane has a token of one.
  static constexpr int kTilesAtOnce = kWarp / kKnown;
  static __device__ __forceinline__ int32_t tile_of(int32_t block, uint32_t lane) {
    return block / kTilesAtOnce * kTilesAtOnce + static_cast<int32_t>(lane / kKnown);
  }
  __device__ __forceinline__ auto selected() const { return kv_rows_of(params, own.selection); }

  static __device__ __forceinline__ void wait_for_all_copies() {
    cute::cp_async_fence();
    cute::cp_async_wait<0>();
    __syncwarp();  // the compiler may not read what was copied before this either
  }

  // Copies the slots of the lanes' tokens of two tiles.
  __device__ __forceinline__ void look_up(int32_t block) const {
    const uint32_t lane = read_lane_index();
    const int32_t* const from = selected().index_of(
        tile_of(block, lane) * kTileTokens + static_cast<int32_t>(known_token(lane % kKnown)));
    int32_t& to = own.slots[lane];
    if (from == nullptr) {
      to = sparse_decode::SelectedKvGather::kNone;
    } else {
      cute::SM80_CP_ASYNC_CACHEALWAYS<int32_t>::copy(*from, to);
    }
  }

  // @pre The tokens of `block` have been looked up.
  // @post Those of the next two tiles are being looked up.
  __device__ __forceinline__ void find_rows(int32_t block) const {
    const uint32_t lane = read_lane_index();
    const auto rows = selected();
    const int32_t tile = tile_of(block, lane);
    const auto row = rows.row(own.slots[lane], tile * kTileTokens);
    const bool exists = rows.exists(row);
    offsets_of(tile)[lane % kKnown] = exists ? rows.offset_in_16_bytes(row) : Staging::kAbsent;
    if constexpr (Staging::kHasPageScales) {
      own.scale_offsets[tile & (Staging::kTiles - 1)][lane % kKnown] =
          exists ? rows.page_scales_offset_in_8_bytes(row, Main::kRowBytes) : Staging::kAbsent;
    }
    __syncwarp();
    look_up(block + kTilesAtOnce);
  }

  __device__ __forceinline__ void store_present(int32_t block, int stage) const {
    const uint32_t lane = read_lane_index();
    const uint32_t offset = offsets_of(block)[lane % kKnown];
    const uint32_t present = __ballot_sync(~0u, offset != Staging::kAbsent);
    using Bits = std::conditional_t<kCluster == 1, uint16_t, uint8_t>;
    static_assert(8 * sizeof(Bits) == kTokens);
    if (lane < kCluster) {
      reinterpret_cast<Bits*>(shared.present[stage])[known_token(lane * kTokens) / kTokens] =
          static_cast<Bits>(present >> lane * kTokens);
    }
  }

  // Loads the rows of the `step`-th step, counted from a tile on; nothing beyond the work tile,
  // which has so many tiles.
  __device__ __forceinline__ void load_step(int32_t block, int step, int remaining,
                                            uint32_t stage) const {
    const int32_t next = block + step / kSteps;
    if (step < kSteps || step / kSteps < remaining) {
      if (step > 0 && step % kSteps == 0 && next % kTilesAtOnce == 0) find_rows(next);
      with_rows_of(next, [&](auto rows) { load<decltype(rows)>(next, step % kSteps, stage); });
    }
    cute::cp_async_fence();
  }

  template <class Rows>
  __device__ __forceinline__ void load(int32_t block, int step, uint32_t stage) const {
    const sparse_decode::SelectedKvView& kv = is_extra(block) ? params.extra : params.main;
    const uint32_t* scale_offsets = nullptr;
    if constexpr (Rows::kHasPageScales) {
      scale_offsets = own.scale_offsets[block & (Staging::kTiles - 1)] + step * kRows;
    }
    const StepOffsets<Format, Rows> offsets(offsets_of(block) + step * kRows, scale_offsets);
    copy_byte_rows<Format, Rows>(static_cast<const uint4*>(kv.latent), offsets, own.rows[stage]);
  }

  static_assert(kCluster <= 2);
};

}  // namespace mla::sm90::rows_m64
