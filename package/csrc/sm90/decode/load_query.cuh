// Copies the query rows of a tile into the rings of KV tiles, as if they were an item's first tile,
// when the loader of KV says that their place is empty: only who waits for every use of a place can
// tell one from another.
#pragma once

#include <cute/arch/copy_sm80.hpp>

#include "sm90/decode/shared.cuh"

namespace mla::sm90 {

// `Loader` is what loads KV: barriers wait for as many arrivals as it makes.
template <class Element, class Loader>
struct QueryLoader {
  static constexpr int kPiece = sizeof(uint4) / sizeof(Element);
  static constexpr int kChunkPieces = kChunk / kPiece;
  static constexpr int kLatentPieces = kLatent / kPiece;
  static constexpr int kPieces = kHeadDim / kPiece;  // of a row

  const Params& params;
  SharedMemory<Element>& shared;
  const int first_row;

  // By one warp.
  __device__ void run() {
    uint32_t tile = 0;
    uint32_t phase = 0;
    Item item;
    for (ItemReader items(shared); items.next(item);) {
      if (item.first >= item.end) continue;
      shared.query_wanted.wait(phase);
      phase ^= 1;
      load(tile, item.request);
      tile += 1 + item.end - item.first;
    }
  }

 private:
  __device__ void load(uint32_t tile, int32_t request) {
    const Place<kHalfSlots> left = half_place(tile, 0);
    const Place<kHalfSlots> right = half_place(tile, 1);
    const Place<kRopeSlots> rope(tile);
    copy(tile, request);
    __syncwarp();
    if (threadIdx.x % kWarp == 0) {
      arrive(shared.latent_full[left.slot], Loader::kLatentArrivals);
      arrive(shared.latent_full[right.slot], Loader::kLatentArrivals);
      arrive(shared.rope_full[rope.slot], Loader::kRopeArrivals);
    }
  }

  static __device__ void arrive(FullBarrier& barrier, int count) {
    const uint32_t address = cute::cast_smem_ptr_to_uint(&barrier);
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(count)
                 : "memory");
  }

  // Rows beyond the last are copies of it, and their results are not stored.
  __device__ void copy(uint32_t tile, int32_t request) {
    const int heads = params.shape.num_heads;
    int s = first_row / heads;
    int h = first_row % heads;
#pragma unroll 1
    for (int row = 0; row < kTileRows; ++row) {
      if (first_row + row >= params.shape.rows) {
        s = params.shape.q_len - 1;
        h = heads - 1;
      }
#pragma unroll 1
      for (int piece = threadIdx.x % kWarp; piece < kPieces; piece += kWarp) {
        const int chunk = piece / kChunkPieces;
        Element* const to = chunk == kRopeChunk
                                ? shared.rope[Place<kRopeSlots>(tile).slot]
                                : shared.latent[half_place(tile, chunk / kHalfChunks).slot] +
                                      chunk % kHalfChunks * kChunkElements;
        const int swizzled = piece % kChunkPieces ^ row % kChunkPieces;
        const RowView& rows = chunk == kRopeChunk ? params.query.rope : params.query.latent;
        copy_piece(rows.at<Element>(request, s, h) + piece % kLatentPieces * kPiece,
                   reinterpret_cast<uint4*>(to)[row * kChunkPieces + swizzled]);
      }
      if (++h == heads) {
        h = 0;
        ++s;
      }
    }
    cute::cp_async_wait<0>();
  }

  __device__ void copy_piece(const Element* from, uint4& to) const {
    if (params.query.in_pieces) {
      cute::SM80_CP_ASYNC_CACHEGLOBAL<uint4>::copy(*reinterpret_cast<const uint4*>(from), to);
    } else {
      const auto* const elements = reinterpret_cast<const uint16_t*>(from);
      auto* const pairs = reinterpret_cast<uint32_t*>(&to);
#pragma unroll 1
      for (int i = 0; i < 4; ++i) {
        pairs[i] = elements[2 * i] | static_cast<uint32_t>(elements[2 * i + 1]) << 16;
      }
    }
  }
};

}  // namespace mla::sm90
