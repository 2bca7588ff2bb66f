// Gathers rows that hold scales and dequantizes them into the KV pipelines: e4m3 times their
// scales, rounded once, and rope columns as they are.
#pragma once

#include <cute/arch/copy_sm80.hpp>
#include <type_traits>

#include "sm90/mainloop/rows_m64/producer/byte_rows.cuh"
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
  static constexpr int kLatentArrivals = kWarps * kWarp;
  static constexpr int kRopeArrivals = kWarps * kWarp;

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
      wait_for_all_copies();
      find_rows(block);
      // The tile after this one may be one of the next two that are looked up, and may be begun at
      // once.
      if (kSteps < Staging::kStages && (block + 1) % kTilesAtOnce == 0) wait_for_all_copies();
#pragma unroll
      for (int step = 0; step < Staging::kStages; ++step) {
        load_step(block, step, stage);
        stage = after(stage);
      }
      QueryProducer<Format, GatherDequantizer, Params>{params, shared, first_row}.begin(
          tile, work.request, warp);
      ++tile;
#pragma unroll 1
      for (; block < end_block(); ++block, ++tile) {
        producer_acquire(shared, tile);
        if constexpr (kCluster > 1) expect_others(tile);
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          cute::cp_async_wait<Staging::kStages - 1>();
          __syncwarp();
          dequantize(step, stage, tile);
          __syncwarp();
          load_step(block, step + Staging::kStages, stage);
          stage = after(stage);
        }
        // Or the compiler keeps what it has made of `tile` above in registers.
        tile = warp_uniform(tile);
        const auto rope = rope_state<Format>(tile);
        store_present(block, rope.stage);
        // What was stored is for tensor cores; those who use them fence it.
        shared.latent_full[latent_state<Format>(tile, 0).stage].arrive();
        shared.latent_full[latent_state<Format>(tile, 1).stage].arrive();
        shared.rope_full[rope.stage].arrive();
      }
    }
  }

 private:
  using Row = typename Staging::Row;
  static constexpr uint32_t kKnown = Staging::kTokens;    // of a tile, by a warp
  static constexpr uint32_t kTokens = kKnown / kCluster;  // that a warp dequantizes, its first
  static constexpr uint32_t kRows = Staging::kRows;
  static constexpr int kSteps = kTokens / kRows;
  static constexpr uint32_t kVectors = kChunk * sizeof(Element) / sizeof(uint4);  // of a chunk
  // The offsets are kept of all tiles whose rows are loaded or whose tokens are still to be told.
  static_assert(2 + (kSteps - 1 + Staging::kStages) / kSteps <= Staging::kTiles);

  static __device__ __forceinline__ uint32_t after(uint32_t stage) {
    return stage + 1 == Staging::kStages ? 0 : stage + 1;
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
          exists ? rows.page_scales_offset_in_8_bytes(row, Staging::kRowBytes) : Staging::kAbsent;
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

  // Loads the rows of the `step`-th step, counted from a tile on; nothing beyond the work tile.
  __device__ __forceinline__ void load_step(int32_t block, int step, uint32_t stage) const {
    const int32_t next = block + step / kSteps;
    if (next < end_block()) {
      if (step > 0 && step % kSteps == 0 && next % kTilesAtOnce == 0) find_rows(next);
      load(next, step % kSteps, stage);
    }
    cute::cp_async_fence();
  }

  // Rows that do not exist become zeros.
  __device__ __forceinline__ void load(int32_t block, int step, uint32_t stage) const {
    const uint32_t lane = read_lane_index();
    const bool is_extra = block * kTileTokens >= params.extra_begins;
    const auto* const base =
        static_cast<const uint4*>(is_extra ? params.extra.latent : params.main.latent);
    const uint32_t* const offsets = offsets_of(block) + step * kRows;
    Row(&to)[kRows] = own.rows[stage];
    const uint4 of_rows = *reinterpret_cast<const uint4*>(offsets);
    const uint32_t offset[kRows] = {of_rows.x, of_rows.y, of_rows.z, of_rows.w};
    const uint4* of_lane = base + lane;
    asm("" : "+l"(of_lane));  // or the compiler adds lanes to offsets, each with a carry
#pragma unroll
    for (uint32_t k = 0; k < kRows; ++k) {
      copy(of_lane, offset[k], to[k].bytes + lane * sizeof(uint4));
    }
    if constexpr (Format::kHasKeyChunk) {
      static_assert(kRows * kVectors == kWarp);
      const uint32_t k = lane / kVectors;
      const uint32_t vector = lane % kVectors;
      copy(base + Staging::kFormat.rope_offset / sizeof(uint4) + vector, offsets[k],
           to[k].bytes + Staging::kFormat.rope_offset + vector * sizeof(uint4));
      if (lane < kRows) {
        copy(base + Staging::kScaleOffset / sizeof(uint4), offsets[lane],
             to[lane].bytes + Staging::kScaleOffset);
      }
    } else {
      // What rows have beyond a vector of each lane.
      constexpr uint32_t kRest = Staging::kRowBytes / sizeof(uint4) - kWarp;
      static_assert(kRows * kRest <= kWarp);
      const uint32_t k = lane / kRest;
      const uint32_t vector = kWarp + lane % kRest;
      if (k < kRows) copy(base + vector, offsets[k], to[k].bytes + vector * sizeof(uint4));
    }
    if constexpr (Staging::kHasPageScales) {
      static_assert(Staging::kFormat.scale_bytes == sizeof(uint64_t));
      if (lane < kRows) {
        const uint32_t at = own.scale_offsets[block & (Staging::kTiles - 1)][step * kRows + lane];
        cute::SM80_CP_ASYNC_CACHEALWAYS_ZFILL<uint64_t>::copy(
            reinterpret_cast<const uint64_t*>(base)[at == Staging::kAbsent ? 0 : at],
            *reinterpret_cast<uint64_t*>(to[lane].bytes + Staging::kScaleOffset),
            at != Staging::kAbsent);
      }
    }
  }

  static __device__ __forceinline__ void copy(const uint4* base, uint32_t offset, void* to) {
    cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint4>::copy(base[offset], *static_cast<uint4*>(to),
                                                       offset != Staging::kAbsent);
  }

  // Tells the barriers how many bytes the other blocks will store here.
  __device__ __forceinline__ void expect_others(uint32_t tile) const {
    constexpr uint32_t kOthers = kTileTokens / kCluster * (kCluster - 1) * sizeof(Element);
    if (warp != 0 || read_lane_index() != 0) return;
    shared.latent_full[latent_state<Format>(tile, 0).stage].expect_transaction(kOthers * kHalf);
    shared.latent_full[latent_state<Format>(tile, 1).stage].expect_transaction(kOthers * kHalf);
    if constexpr (Format::kHasKeyChunk) {
      shared.rope_full[rope_state<Format>(tile).stage].expect_transaction(kOthers * kRope);
    }
  }

  // A lane has eight columns of each of two chunks, which are two chunks apart. Those beyond the
  // latent are of the rope part.
  __device__ __forceinline__ void dequantize(int step, uint32_t stage, uint32_t tile) const {
    const uint32_t lane = read_lane_index();
    constexpr uint32_t kHalfWarp = kWarp / 2;
    constexpr uint32_t kAtomBytes = kAtomElements * sizeof(Element);
    constexpr uint32_t kRowBytes = kChunk * sizeof(Element);
    constexpr uint32_t kE4m3Columns = Staging::kFormat.latent;
    constexpr bool kRopeIsValue = kE4m3Columns < kLatent;
    const Row(&rows)[kRows] = own.rows[stage];
    const uint32_t half = lane / kHalfWarp;
    const uint32_t vector = lane % kVectors;
    const uint32_t first = first_token(rank, warp) + step * kRows;
    const uint32_t column = half * kHalf + lane % kHalfWarp * sizeof(uint2);
    const bool is_rope = kRopeIsValue && column + kApart >= kE4m3Columns;
    const uint32_t right_column = is_rope ? 0 : column + kApart;
    const auto state = latent_state<Format>(tile, half);
    const Target target(*this, shared.latent_full[state.stage]);
    const uint32_t to = cute::cast_smem_ptr_to_uint(shared.latent[state.stage]) +
                        lane / kVectors % 2 * kAtomBytes + vector * sizeof(uint4);
    uint2 left[kRows], right[kRows];
    float2 scale[kRows];
    const auto read = [&](uint32_t k) {
      left[k] = *reinterpret_cast<const uint2*>(rows[k].bytes + column);
      right[k] = *reinterpret_cast<const uint2*>(rows[k].bytes + right_column);
      scale[k] = scales_of<Staging>(rows[k], column, right_column);
    };
    read(0);
#pragma unroll
    for (uint32_t k = 0; k < kRows; ++k) {
      if (k + 1 < kRows) read(k + 1);
      const uint32_t of_group = (step * kRows + k) % kSwizzleRows;
      const uint32_t row = (to ^ of_group * sizeof(uint4)) +
                           first / kSwizzleRows * (kHalfChunks * kAtomBytes) + of_group * kRowBytes;
      target.store(row, scaled<Element>(left[k], scale[k].x));
      uint4 values = scaled<Element>(right[k], scale[k].y);
      if constexpr (kRopeIsValue) {
        if (is_rope) values = rope_of<Staging>(rows[k])[vector];
      }
      target.store(row + 2 * kAtomBytes, values);
    }
    if constexpr (Format::kHasKeyChunk) {
      const uint32_t k = lane / kVectors;
      const int rope = rope_state<Format>(tile).stage;
      const Target rope_target(*this, shared.rope_full[rope]);
      rope_target.store(cute::cast_smem_ptr_to_uint(shared.rope[rope]) + (first + k) * kRowBytes +
                            (vector ^ (first + k) % kVectors) * sizeof(uint4),
                        rope_of<Staging>(rows[k])[vector]);
    }
  }

  // Stores vectors into this block's shared memory, and to the same place in the other's, whose
  // barrier counts them.
  class Target {
   public:
    __device__ __forceinline__ Target(const GatherDequantizer& dequantizer,
                                      const TransactionBarrier& full) {
      if constexpr (kCluster > 1) {
        const uint32_t own = cute::cast_smem_ptr_to_uint(&full);
        full_ = cute::set_block_rank(own, dequantizer.rank ^ 1);
        other_ = full_ - own;
      }
    }

    __device__ __forceinline__ void store(uint32_t to, const uint4& vector) const {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(vector.x),
                   "r"(vector.y), "r"(vector.z), "r"(vector.w));
      if constexpr (kCluster > 1) {
        asm volatile(
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
            "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(to + other_),
            "r"(vector.x), "r"(vector.y), "r"(vector.z), "r"(vector.w), "r"(full_));
      }
    }

   private:
    uint32_t full_;
    uint32_t other_;
  };
  static_assert(kCluster <= 2);
};

}  // namespace mla::sm90::rows_m64
