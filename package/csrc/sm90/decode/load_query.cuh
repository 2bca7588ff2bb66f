// Copies the query rows of a tile into the rings of KV tiles, as if they were an item's first tile.
#pragma once

#include <cute/arch/copy_sm80.hpp>

#include "sm90/decode/shared.cuh"

namespace mla::sm90 {

inline constexpr int kQueryWarps = 2;

template <class Element>
struct QueryLoader {
  static constexpr int kPiece = sizeof(uint4) / sizeof(Element);
  static constexpr int kChunkPieces = kChunk / kPiece;
  static constexpr int kLatentPieces = kLatent / kPiece;
  static constexpr int kPieces = kHeadDim / kPiece;  // of a row
  static constexpr int kThreads = kQueryWarps * kWarp;

  const Params& params;
  SharedMemory<Element>& shared;
  const int first_row;

  // By `kQueryWarps` warps; `warp` is one of them.
  __device__ void run(int warp) {
    uint32_t tile = 0;
    Item item;
    for (ItemReader items(shared); items.next(item);) {
      const int blocks = item.end - item.first;
      if (blocks <= 0) continue;
      const Place<kHalfSlots> left = half_place(tile, 0);
      const Place<kHalfSlots> right = half_place(tile, 1);
      const Place<kRopeSlots> rope(tile);
      shared.latent_empty[left.slot].wait(left.phase ^ 1);
      shared.latent_empty[right.slot].wait(right.phase ^ 1);
      shared.rope_empty[rope.slot].wait(rope.phase ^ 1);
      copy(item.request, tile, warp);
      cutlass::arch::NamedBarrier::sync(kThreads, 1);
      if (warp == 0 && cute::elect_one_sync()) {
        shared.latent_full[left.slot].arrive();
        shared.latent_full[right.slot].arrive();
        shared.rope_full[rope.slot].arrive();
      }
      tile += 1 + blocks;
    }
  }

 private:
  // Rows beyond the last are copies of it, and their results are not stored.
  __device__ void copy(int32_t request, uint32_t tile, int warp) {
    const int heads = params.shape.num_heads;
    int s = (first_row + warp) / heads;
    int h = (first_row + warp) % heads;
#pragma unroll 1
    for (int row = warp; row < kTileRows; row += kQueryWarps) {
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
      h += kQueryWarps;
      while (h >= heads) {
        h -= heads;
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
