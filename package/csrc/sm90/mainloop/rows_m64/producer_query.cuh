// Loads the query rows of a tile into the rings of KV tiles, as if they were an item's first tile:
// as boxes by the tensor memory accelerator, or row by row.
#pragma once

#include <cute/arch/copy_sm80.hpp>
#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>

#include "sm90/common/special_registers.cuh"
#include "sm90/mainloop/rows_m64/copy_rows.cuh"
#include "sm90/mainloop/rows_m64/shared_storage.cuh"

namespace mla::sm90 {

inline constexpr uint32_t kQueryBarrier = 1;

// `Filler` is what fills the rings with KV: barriers wait for as many arrivals as it makes, and as
// many warps as wait for Q's places meet before it comes.
template <class Format, class Filler, class Params>
struct QueryLoader {
  using Element = typename Format::Element;
  static constexpr uint32_t kChunkBytes = kChunkElements * sizeof(Element);

  const Params& params;
  SharedMemory<Format>& shared;
  const int first_row;

  // By the warps that fill the rings, who alone know when a place is empty: who does not wait for
  // every use of a place cannot tell one from another.
  __device__ void begin(uint32_t tile, int32_t request, int warp) const {
    wait_until_empty(shared, tile);
    // Nor can who waits only when Q has come and gone.
    if constexpr (Filler::kQueryWaiters > 1) {
      cutlass::arch::NamedBarrier::sync(Filler::kQueryWaiters * kWarp, kQueryBarrier);
    }
    __syncwarp();
    if (warp != 0) return;
    if (params.query.by_tma) {
      if (cute::elect_one_sync()) copy_boxes(tile, request);
    } else if constexpr (Format::kWidens) {
      copy(tile, request);
    } else {
      if (cute::elect_one_sync()) shared.query_wanted.arrive();
    }
    __syncwarp();
  }

  // By a warp of its own, where queries are no boxes.
  __device__ void run() const {
    uint32_t tile = 0;
    uint32_t phase = 0;
    Item item;
    for (ItemReader items(shared.items); items.next(item);) {
      if (item.first >= item.end) continue;
      shared.query_wanted.wait(phase);
      phase ^= 1;
      copy(tile, item.request);
      tile += 1 + item.end - item.first;
    }
  }

 private:
  // By one thread.
  __device__ void copy_boxes(uint32_t tile, int32_t request) const {
    int32_t row = first_row;
    asm volatile("" : "+r"(row));  // or the compiler keeps its token in a register that it lacks
    const BoxPlace at = params.query.box(request, params.shape.token_of(row));
    const int32_t h = params.shape.head_of(row);
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const auto place = half_place<Format>(tile, half);
      FullBarrier& full = shared.latent_full[place.slot];
      full.expect_transaction(kHalfChunks * kChunkBytes);
#pragma unroll 1
      for (int i = 0; i < kHalfChunks; ++i) {
        copy_box(&params.query.latent_map, full, shared.latent[place.slot] + i * kChunkElements,
                 (half * kHalfChunks + i) * kChunk, h, at.s, at.b);
      }
    }
    const auto rope = rope_place<Format>(tile);
    FullBarrier& full = shared.rope_full[rope.slot];
    full.expect_transaction(kChunkBytes);
    copy_box(&params.query.rope_map, full, shared.rope[rope.slot], 0, h, at.s, at.b);
    arrive<1>(tile);
  }

  // By a warp. Rows beyond the last are copies of it, and their results are not stored.
  __device__ void copy(uint32_t tile, int32_t request) const {
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      Element* const to = chunk == kRopeChunk
                              ? shared.rope[rope_place<Format>(tile).slot]
                              : shared.latent[half_place<Format>(tile, chunk / kHalfChunks).slot] +
                                    chunk % kHalfChunks * kChunkElements;
#pragma unroll 1
      for (int row = 0; row < kTileRows; row += kWarp) {
        const int own = row + threadIdx.x % kWarp;
        const int r = min(first_row + own, params.shape.rows - 1);
        const auto& rows = chunk == kRopeChunk ? params.query.rope : params.query.latent;
        const auto* const from = rows.template at<const Element>(request, params.shape.token_of(r),
                                                                 params.shape.head_of(r)) +
                                 chunk % kRopeChunk * kChunk;
        if (params.query.in_pieces) {
          copy_rows<1>(from, ~0u, to, row, own_thread() % kWarp);
        } else {
          copy_elements(from, to, own);
        }
      }
    }
    cute::cp_async_wait<0>();
    arrive<kWarp>(tile);
  }

  static __device__ void copy_box(const CUtensorMap* map, FullBarrier& full, Element* to,
                                  int32_t column, int32_t h, int32_t s, int32_t b) {
    cute::SM90_TMA_LOAD_4D::copy(map, reinterpret_cast<uint64_t*>(&full),
                                 static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_FIRST), to,
                                 column, h, s, b);
  }

  // By `kLanes` lanes, each for as many arrivals.
  template <int kLanes>
  __device__ void arrive(uint32_t tile) const {
    static_assert(Filler::kLatentArrivals % kLanes == 0 && Filler::kRopeArrivals % kLanes == 0);
    for (int half = 0; half < 2; ++half) {
      arrive_times(shared.latent_full[half_place<Format>(tile, half).slot],
                   Filler::kLatentArrivals / kLanes);
    }
    arrive_times(shared.rope_full[rope_place<Format>(tile).slot], Filler::kRopeArrivals / kLanes);
  }

  // One row.
  __device__ void copy_elements(const Element* own, Element* chunk, int row) const {
    const auto* const from = reinterpret_cast<const uint16_t*>(own);
#pragma unroll 1
    for (int i = 0; i < kChunk; i += 2) {
      *reinterpret_cast<uint32_t*>(chunk + row * kChunk + (i ^ row % 8 * 8)) =
          from[i] | static_cast<uint32_t>(from[i + 1]) << 16;
    }
  }
};

}  // namespace mla::sm90
