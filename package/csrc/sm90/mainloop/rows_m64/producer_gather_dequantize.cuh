// Loads rows of 656 bytes and widens them: codes times their scales, rounded once, into the rings
// that tensor cores read, and rope columns as they are.
#pragma once

#include <cuda_fp16.h>

#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/copy_sm80.hpp>
#include <type_traits>

#include "sm90/mainloop/rows_m64/format_fp8_ds_mla.cuh"
#include "sm90/mainloop/rows_m64/producer_query.cuh"
#include "sm90/mainloop/selected_kv_gather.cuh"

namespace mla::sm90::sparse {

// `kCluster` blocks, which have other heads of the same tokens, share the work: each widens its
// part of a tile for all.
template <int kCluster>
struct RowWidener {
  using Format = mla::sm90::Format<DType::bf16, DType::fp8_ds_mla>;
  using Element = Format::Element;
  static constexpr int kWarps = RowBuffers::kWideners;
  static constexpr int kQueryWaiters = kWarps;
  static constexpr int kLatentArrivals = kWarps * kWarp;
  static constexpr int kRopeArrivals = kWarps * kWarp;

  const SelectedParams& params;
  SharedMemory<Format>& shared;
  const int first_row;
  const int rank;
  const int warp;
  RowBuffers::Own& own;

  // By `kWarps` warps, each of which has its tokens of every tile. Rows are on their way while
  // those before them are widened.
  template <class Items>
  __device__ void run(Items items) const {
    uint32_t tile = 0;  // of the rings
    uint32_t slot = 0;
    Item item;
    while (items.next(item)) {
      // From one lane, so that the compiler knows that a warp does not diverge.
      int32_t block = __shfl_sync(~0u, item.first, 0);
      if (block >= __shfl_sync(~0u, item.end, 0)) continue;
      select(item);
      look_up(block);
      wait_for_all();
      find_places(block);
      // The tile after this one may be of the next two, and be begun at once.
      if (kSteps < RowBuffers::kSlots && (block + 1) % kTilesAtOnce == 0) wait_for_all();
#pragma unroll
      for (int step = 0; step < RowBuffers::kSlots; ++step) {
        load_next(block, step, slot);
        slot = after(slot);
      }
      QueryLoader<Format, RowWidener, SelectedParams>{params, shared, first_row}.begin(
          tile, item.request, warp);
      ++tile;
#pragma unroll 1
      for (; block < end(); ++block, ++tile) {
        wait_until_empty(shared, tile);
        if constexpr (kCluster > 1) expect_others(tile);
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          cute::cp_async_wait<RowBuffers::kSlots - 1>();
          __syncwarp();
          widen(step, slot, tile);
          __syncwarp();
          load_next(block, step + RowBuffers::kSlots, slot);
          slot = after(slot);
        }
        // Or the compiler keeps what it has made of it above, in registers that it lacks.
        tile = __shfl_sync(~0u, tile, 0);
        const auto rope = rope_place<Format>(tile);
        tell_present(block, rope.slot);
        // For tensor cores; those who use them fence it.
        shared.latent_full[half_place<Format>(tile, 0).slot].arrive();
        shared.latent_full[half_place<Format>(tile, 1).slot].arrive();
        shared.rope_full[rope.slot].arrive();
      }
    }
  }

 private:
  using Row = RowBuffers::Row;
  static constexpr uint32_t kKnown = RowBuffers::kTokens;  // of a tile, by a warp
  static constexpr uint32_t kTokens = kKnown / kCluster;   // that it widens, the first of those
  static constexpr uint32_t kRows = RowBuffers::kRows;
  static constexpr int kSteps = kTokens / kRows;
  static constexpr uint32_t kPieces = kChunk * sizeof(Element) / sizeof(uint4);  // of a chunk
  // Of tiles that rows are loaded of, or that are told of.
  static_assert(2 + (kSteps - 1 + RowBuffers::kSlots) / kSteps <= RowBuffers::kTiles);

  // Read anew, or the compiler keeps what follows from it in registers that it lacks.
  static __device__ __forceinline__ uint32_t lane() {
    uint32_t lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
  }
  static __device__ __forceinline__ uint32_t after(uint32_t slot) {
    return slot + 1 == RowBuffers::kSlots ? 0 : slot + 1;
  }
  __device__ __forceinline__ uint32_t (&places_of(int32_t block) const)[kKnown] {
    return own.places[block & (RowBuffers::kTiles - 1)];
  }
  // In a tile, of the tokens that a warp of a block widens.
  static __device__ __forceinline__ uint32_t first_token(uint32_t rank, uint32_t warp) {
    return (rank * kWarps + warp) * kTokens;
  }
  // Of those that a warp knows: its own come before those of its peers.
  __device__ __forceinline__ uint32_t known_token(uint32_t i) const {
    if constexpr (kCluster == 1) return first_token(0, warp) + i;
    return first_token((rank + i / kTokens) % kCluster, warp) + i % kTokens;
  }

  // Kept in shared memory for want of registers.
  __device__ __forceinline__ void select(const Item& item) const {
    __syncwarp();
    if (lane() == 0) {
      own.selection = selection_of(params, item);
      own.end = item.end;
    }
    __syncwarp();
  }
  // Of the item, in tiles.
  __device__ __forceinline__ int32_t end() const {
    return *static_cast<const volatile int32_t*>(&own.end);
  }
  // Two tiles are looked up together, by half a warp each: a lane has a token of one.
  static constexpr int kTilesAtOnce = kWarp / kKnown;
  static __device__ __forceinline__ int32_t tile_of(int32_t block, uint32_t lane) {
    return block / kTilesAtOnce * kTilesAtOnce + static_cast<int32_t>(lane / kKnown);
  }
  __device__ __forceinline__ SelectedRows selected() const {
    return rows_of(params, own.selection);
  }

  // Copies of the warp.
  static __device__ __forceinline__ void wait_for_all() {
    cute::cp_async_fence();
    cute::cp_async_wait<0>();
    __syncwarp();  // nor may the compiler read before it what has been copied
  }

  // The slots of lanes' tokens.
  __device__ __forceinline__ void look_up(int32_t block) const {
    const uint32_t lane = this->lane();
    const int32_t* const from = selected().place(tile_of(block, lane) * kTileTokens +
                                                 static_cast<int32_t>(known_token(lane % kKnown)));
    int32_t& to = own.ahead[lane];
    if (from == nullptr) {
      to = SelectedRows::kNone;
    } else {
      cute::SM80_CP_ASYNC_CACHEALWAYS<int32_t>::copy(*from, to);
    }
  }

  // Of tiles whose tokens have been looked up; those after them are.
  __device__ __forceinline__ void find_places(int32_t block) const {
    const uint32_t lane = this->lane();
    const SelectedRows rows = selected();
    const int32_t tile = tile_of(block, lane);
    const SelectedRows::Row row = rows.row(own.ahead[lane], tile * kTileTokens);
    places_of(tile)[lane % kKnown] = rows.exists(row) ? rows.piece(row) : RowBuffers::kAbsent;
    __syncwarp();
    look_up(block + kTilesAtOnce);
  }

  __device__ __forceinline__ void tell_present(int32_t block, int slot) const {
    const uint32_t lane = this->lane();
    const uint32_t place = places_of(block)[lane % kKnown];
    const uint32_t present = __ballot_sync(~0u, place != RowBuffers::kAbsent);
    using Bits = std::conditional_t<kCluster == 1, uint16_t, uint8_t>;
    static_assert(8 * sizeof(Bits) == kTokens);
    if (lane < kCluster) {
      reinterpret_cast<Bits*>(shared.present[slot])[known_token(lane * kTokens) / kTokens] =
          static_cast<Bits>(present >> lane * kTokens);
    }
  }

  // The rows of the `step`-th step, counted from a tile on; nothing beyond the end.
  __device__ __forceinline__ void load_next(int32_t block, int step, uint32_t slot) const {
    const int32_t next = block + step / kSteps;
    if (next < end()) {
      if (step > 0 && step % kSteps == 0 && next % kTilesAtOnce == 0) find_places(next);
      load(next, step % kSteps, slot);
    }
    cute::cp_async_fence();
  }

  // Zeros for rows that do not exist.
  __device__ __forceinline__ void load(int32_t block, int step, uint32_t slot) const {
    const uint32_t lane = this->lane();
    const bool is_extra = block * kTileTokens >= params.extra_begins;
    const auto* const base =
        static_cast<const uint4*>(is_extra ? params.extra.latent : params.main.latent);
    const uint32_t* const places = places_of(block) + step * kRows;
    Row(&to)[kRows] = own.rows[slot];
    const uint4 of_rows = *reinterpret_cast<const uint4*>(places);
    const uint32_t place[kRows] = {of_rows.x, of_rows.y, of_rows.z, of_rows.w};
    const uint4* of_lane = base + lane;
    asm("" : "+l"(of_lane));  // or the compiler adds lanes to places, each with a carry
#pragma unroll
    for (uint32_t k = 0; k < kRows; ++k) {
      copy(of_lane, place[k], to[k].codes + lane * sizeof(uint4));
    }
    static_assert(kRows * kPieces == kWarp);
    const uint32_t k = lane / kPieces;
    const uint32_t piece = lane % kPieces;
    copy(base + kDsMlaRopeOffset / sizeof(uint4) + piece, places[k],
         reinterpret_cast<uint4*>(to[k].rope) + piece);
    if (lane < kRows) {
      copy(base + kDsMlaScaleOffset / sizeof(uint4), places[lane], to[lane].scales);
    }
  }

  static __device__ __forceinline__ void copy(const uint4* base, uint32_t place, void* to) {
    cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint4>::copy(base[place], *static_cast<uint4*>(to),
                                                       place != RowBuffers::kAbsent);
  }

  // What the other blocks will store here.
  __device__ __forceinline__ void expect_others(uint32_t tile) const {
    constexpr uint32_t kOthers = kTileTokens / kCluster * (kCluster - 1) * sizeof(Element);
    if (warp != 0 || lane() != 0) return;
    shared.latent_full[half_place<Format>(tile, 0).slot].expect_transaction(kOthers * kHalf);
    shared.latent_full[half_place<Format>(tile, 1).slot].expect_transaction(kOthers * kHalf);
    shared.rope_full[rope_place<Format>(tile).slot].expect_transaction(kOthers * kRope);
  }

  // A lane has eight columns of each of two chunks.
  __device__ __forceinline__ void widen(int step, uint32_t slot, uint32_t tile) const {
    const uint32_t lane = this->lane();
    constexpr uint32_t kHalfWarp = kWarp / 2;
    constexpr uint32_t kAtomBytes = kAtomElements * sizeof(Element);
    constexpr uint32_t kRowBytes = kChunk * sizeof(Element);
    const Row(&rows)[kRows] = own.rows[slot];
    const uint32_t half = lane / kHalfWarp;
    const uint32_t piece = lane % kPieces;
    const uint32_t first = first_token(rank, warp) + step * kRows;
    const uint8_t* const codes =
        rows[0].codes + half * (2 * kDsMlaGroup) + lane % kHalfWarp * sizeof(uint2);
    const float* const scales = rows[0].scales + half * 2;
    const auto place = half_place<Format>(tile, half);
    const Target target(*this, shared.latent_full[place.slot]);
    const uint32_t to = cute::cast_smem_ptr_to_uint(shared.latent[place.slot]) +
                        lane / kPieces % 2 * kAtomBytes + piece * sizeof(uint4);
    uint2 left[kRows], right[kRows];
    float2 scale[kRows];
    const auto read = [&](uint32_t k) {
      left[k] = *reinterpret_cast<const uint2*>(codes + k * sizeof(Row));
      right[k] = *reinterpret_cast<const uint2*>(codes + k * sizeof(Row) + kDsMlaGroup);
      scale[k] = *reinterpret_cast<const float2*>(scales + k * (sizeof(Row) / sizeof(float)));
    };
    read(0);
#pragma unroll
    for (uint32_t k = 0; k < kRows; ++k) {
      if (k + 1 < kRows) read(k + 1);
      const uint32_t of_group = (step * kRows + k) % kGroup;
      const uint32_t row = (to ^ of_group * sizeof(uint4)) +
                           first / kGroup * (kHalfChunks * kAtomBytes) + of_group * kRowBytes;
      target.store(row, widened(left[k], scale[k].x));
      target.store(row + 2 * kAtomBytes, widened(right[k], scale[k].y));
    }
    const uint32_t k = lane / kPieces;
    const int rope = rope_place<Format>(tile).slot;
    const Target rope_target(*this, shared.rope_full[rope]);
    rope_target.store(cute::cast_smem_ptr_to_uint(shared.rope[rope]) + (first + k) * kRowBytes +
                          (piece ^ (first + k) % kPieces) * sizeof(uint4),
                      reinterpret_cast<const uint4*>(rows[k].rope)[piece]);
  }

  // Where pieces go: into this block's shared memory, and to the same place in the other's, whose
  // barrier counts them.
  class Target {
   public:
    __device__ __forceinline__ Target(const RowWidener& widener, const FullBarrier& full) {
      if constexpr (kCluster > 1) {
        const uint32_t own = cute::cast_smem_ptr_to_uint(&full);
        full_ = cute::set_block_rank(own, widener.rank ^ 1);
        other_ = full_ - own;
      }
    }

    __device__ __forceinline__ void store(uint32_t to, const uint4& piece) const {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(piece.x), "r"(piece.y),
                   "r"(piece.z), "r"(piece.w));
      if constexpr (kCluster > 1) {
        asm volatile(
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
            "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(to + other_),
            "r"(piece.x), "r"(piece.y), "r"(piece.z), "r"(piece.w), "r"(full_));
      }
    }

   private:
    uint32_t full_;
    uint32_t other_;
  };
  static_assert(kCluster <= 2);

  // Eight codes; exact but for the rounding of the products.
  static __device__ __forceinline__ uint4 widened(const uint2& codes, float scale) {
    uint4 pairs;
    sm90::widen(codes.x, pairs.x, pairs.y);
    sm90::widen(codes.y, pairs.z, pairs.w);
    return {scaled(pairs.x, scale), scaled(pairs.y, scale), scaled(pairs.z, scale),
            scaled(pairs.w, scale)};
  }
  static __device__ __forceinline__ uint32_t scaled(uint32_t pair, float scale) {
    const float2 codes = __half22float2(reinterpret_cast<const __half2&>(pair));
    return pair_of<Element>(codes.x * scale, codes.y * scale);
  }
};

}  // namespace mla::sm90::sparse
