// Loads the queries of an item, narrowed to fp16.
//
// A thread of the tensor cores' operand K takes codes of four neighbouring columns, two for each of
// two of the columns that it multiplies, so the columns of Q are in that order: of every sixteen,
// 0 1 4 5 8 9 12 13 2 3 6 7 10 11 14 15.
#pragma once

#include <cfloat>
#include <cute/arch/copy_sm80.hpp>

#include "sm90/mainloop/fp16_row_scale.cuh"
#include "sm90/mainloop/swap_ab/shared_storage.cuh"

namespace mla::sm90::stream {

// By `kQueryWarps` warps; `warp` is one of them, and has every third row.
template <int kRows>
struct QueryLoader {
  static constexpr int kSlots = SharedMemory<kRows>::kQuerySlots;
  using Chunks = Element[kChunks][kRows * kChunk];

  const Params& params;
  SharedMemory<kRows>& shared;
  const int warp;

  __device__ void run() const {
    Item item;
    for (ItemReader items(shared.items); items.next(item);) {
      const Place<kSlots> place(items.turn() - 1);
      float* const scales = shared.logit_scale[items.turn() % SharedMemory<kRows>::kScaleSlots];
      shared.query_empty[place.slot].wait(place.phase ^ 1);
      if (item.first < item.end) load(item.request, shared.q[place.slot], scales);
      cutlass::arch::fence_view_async_shared();
      shared.query_full[place.slot].arrive();
    }
  }

 private:
  // First all rows as they are, then each narrowed in its place.
  __device__ __forceinline__ void load(int32_t request, Chunks& q, float* scales) const {
#pragma unroll 1
    for (int row = warp; row < kRows; row += kQueryWarps) copy(request, row, q);
    cute::cp_async_fence();
    cute::cp_async_wait<0>();
    __syncwarp();
#pragma unroll 1
    for (int row = warp; row < kRows; row += kQueryWarps) narrow(row, q, scales);
  }

  // Zeros, where there is no such row.
  __device__ __forceinline__ void copy(int32_t request, int r, Chunks& q) const {
    const int lane = threadIdx.x % kWarp;
    const bool exists = r < params.shape.rows;
    const int s = exists ? params.shape.token_of(r) : 0;
    const int h = exists ? params.shape.head_of(r) : 0;
    const auto* const latent = params.query.latent.at<const uint16_t>(request, s, h);
    const auto* const rope = params.query.rope.at<const uint16_t>(request, s, h);
    if (params.query.in_pieces) {
      constexpr int kPieceElements = sizeof(uint4) / sizeof(Element);
      constexpr int kChunkPieces = kChunk / kPieceElements;
#pragma unroll
      for (int i = lane; i < kChunks * kChunkPieces; i += kWarp) {
        const int chunk = i / kChunkPieces;
        const int column = i % kChunkPieces * kPieceElements;
        const auto* const from = chunk == kRopeChunk ? rope : latent + chunk * kChunk;
        cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint4>::copy(
            *reinterpret_cast<const uint4*>(from + column),
            *reinterpret_cast<uint4*>(q[chunk] + r * kChunk + column), exists);
      }
    } else {
#pragma unroll 1
      for (int i = lane; i < kHeadDim; i += kWarp) {
        const uint16_t* const from = i < kLatent ? latent + i : rope + i - kLatent;
        reinterpret_cast<uint16_t*>(q[i / kChunk])[r * kChunk + i % kChunk] = exists ? *from : 0;
      }
    }
  }

  // A lane has a pair of each chunk.
  __device__ __forceinline__ void narrow(int row, Chunks& q, float* scales) const {
    const int lane = threadIdx.x % kWarp;
    constexpr int kRowPairs = kChunk / 2;
    uint32_t pairs[kChunks];
    uint32_t greatest = 0;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      pairs[chunk] = reinterpret_cast<const uint32_t*>(q[chunk])[row * kRowPairs + lane];
      see_pair(greatest, pairs[chunk]);
    }
    const HalfScale scale(__reduce_max_sync(~0u, greater_of(greatest)));
    __syncwarp();  // all have read what is overwritten
    const int pair = lane / 8 * 8 + lane % 8 / 2 + lane % 2 * 4;
    const int to = row * kRowPairs + (pair / 4 ^ row % 8) * 4 + pair % 4;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      reinterpret_cast<uint32_t*>(q[chunk])[to] =
          HalfScale::narrow(pairs[chunk], scale.factor()) ^ params.sign_flip;
    }
    if (lane > 0) return;
    // Not 0, so that a masked logit stays -inf.
    scales[row] = fmaxf(params.logit_scale * scale.inverse(), FLT_MIN);
  }
};

}  // namespace mla::sm90::stream
