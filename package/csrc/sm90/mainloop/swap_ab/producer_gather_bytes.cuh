// Gathers the rows of selected tokens of a cache of bytes, as they are in memory, with asynchronous
// copies.
#pragma once

#include <cute/arch/copy_sm80.hpp>

#include "sm90/common/copy_vector.cuh"
#include "sm90/mainloop/gather_tiles.cuh"
#include "sm90/mainloop/swap_ab/shared_storage.cuh"

namespace mla::sm90::swap_ab {

// `Format::kKvWarps` warps call this, of which each gathers 32 tokens of a tile. Tokens that are
// absent become zeros.
template <class Format, int kRows, class Params>
struct GatherBytesProducer {
  const Params& params;
  SharedStorage<Format, kRows>& shared;
  const int warp;

  template <class WorkTiles>
  __device__ void run(WorkTiles work_tiles) const {
    static_assert(Format::kKvWarps * kWarp == kTileTokens);
    gather_tiles(params, first_token(), work_tiles,
                 [this](uint32_t tile, const auto& kv, const auto& rows, const auto& row) {
                   const bool exists = rows.exists(row);
                   uint32_t scale_offset = kAbsent;
                   if constexpr (Format::kHasPageScales) {
                     if (exists) {
                       scale_offset = rows.page_scales_offset_in_8_bytes(row, kRow.row_bytes);
                     }
                   }
                   load(tile, kv, exists ? rows.offset_in_16_bytes(row) : kAbsent, scale_offset);
                 });
  }

 private:
  using Element = typename Format::Element;
  static constexpr CacheFormat kRow = Format::kRow;
  static constexpr int kTokenBytes = Format::kTokenBytes;
  static constexpr uint32_t kAbsent = ~0u;
  // Copies without a jump between them take registers for their addresses.
  static constexpr bool kHasManyRegisters = kKeepsRowsInRegisters<Format, kRows>;

  __device__ __forceinline__ int first_token() const { return warp * kWarp; }

  // The offsets are those of the lane's token: of its row, counted in 16 bytes, and of scales that
  // follow the rows of its page, counted in 8.
  __device__ __forceinline__ void load(uint32_t tile, const sparse_decode::SelectedKvView& kv,
                                       uint32_t offset, uint32_t scale_offset) const {
    const auto state = Format::state(tile);
    auto& pipelines = shared.pipelines;
    const uint32_t present = __ballot_sync(~0u, offset != kAbsent);
    pipelines.empty[state.stage].wait(state.phase ^ 1);
    if (threadIdx.x % kWarp == 0) pipelines.present[state.stage][warp] = present;
    pipelines.full[state.stage].arrive();
    const auto* const rows = static_cast<const uint4*>(kv.latent);
    auto& stage = shared.kv.stages[state.stage];
    copy_codes(rows, offset, stage.tokens);
    if constexpr (Format::kHasRope) {
      copy_rope(rows + kRow.rope_offset / sizeof(uint4), offset, stage.rope);
    }
    uint8_t* const scales = stage.tokens[first_token() + threadIdx.x % kWarp] + kRow.latent;
    if constexpr (Format::kHasPageScales) {
      copy_page_scales(static_cast<const uint64_t*>(kv.latent), scale_offset, scales);
    } else {
      copy_vector(rows + kRow.scale_offset / sizeof(uint4), offset, scales);
    }
    cutlass::arch::cpasync_barrier_arrive_noinc(
        reinterpret_cast<const uint64_t*>(&pipelines.full[state.stage]));
  }

  static __device__ __forceinline__ void copy_vector(const uint4* rows, uint32_t offset, void* to) {
    mla::sm90::copy_vector<L2Reads::sectors, kAbsent>(rows + offset, to, offset);
  }

  static __device__ __forceinline__ void copy_page_scales(const uint64_t* scales, uint32_t offset,
                                                          void* to) {
    static_assert(!Format::kHasPageScales || kRow.scale_bytes == sizeof(uint64_t));
    const bool exists = offset != kAbsent;
    cute::SM80_CP_ASYNC_CACHEALWAYS_ZFILL<uint64_t>::copy(scales[exists ? offset : 0],
                                                          *static_cast<uint64_t*>(to), exists);
  }

  // A lane copies its vector of every token.
  __device__ __forceinline__ void copy_codes(const uint4* rows, uint32_t offset,
                                             uint8_t (&tokens)[kTileTokens][kTokenBytes]) const {
    constexpr int kCodeVectors = kRow.latent / Format::kVectorBytes;
    static_assert(kCodeVectors <= kWarp);
    const int lane = threadIdx.x % kWarp;
    const uint4* of_lane = rows + lane;
    asm("" : "+l"(of_lane));  // or the compiler adds lanes to offsets, each with a carry
    uint8_t* const to = tokens[first_token()] + lane * Format::kVectorBytes;
#pragma unroll kHasManyRegisters ? 8 : 4
    for (int i = 0; i < kWarp; ++i) {
      const uint32_t of_row = __shfl_sync(~0u, offset, i);
      if (kCodeVectors == kWarp || lane < kCodeVectors) {
        copy_vector(of_lane, of_row, to + i * kTokenBytes);
      }
    }
  }

  // A lane copies a vector of every fourth token.
  __device__ __forceinline__ void copy_rope(const uint4* rows, uint32_t offset,
                                            Element* chunk) const {
    constexpr int kVectors = kChunkVectors<Element>;
    constexpr int kAtOnce = kWarp / kVectors;
    const int lane = threadIdx.x % kWarp;
    const uint4* of_lane = rows + lane % kVectors;
    asm("" : "+l"(of_lane));
#pragma unroll kHasManyRegisters ? kWarp / kAtOnce : 2
    for (int i = 0; i < kWarp; i += kAtOnce) {
      const int row = i + lane / kVectors;
      const int vector = lane % kVectors ^ row % kSwizzleRows;
      copy_vector(of_lane, __shfl_sync(~0u, offset, row),
                  chunk + (first_token() + row) * kChunk + vector * kVectorElements<Element>);
    }
  }
};

}  // namespace mla::sm90::swap_ab
