// Widens rows of 656 bytes: codes times their scales, rounded once, into the rings that tensor
// cores read.
#pragma once

#include <cuda_fp16.h>

#include "sm90/decode/compute/load_query.cuh"
#include "sm90/sparse/format.cuh"
#include "sm90/sparse/params.h"

namespace mla::sm90::sparse {

struct RowWidener {
  using Format = mla::sm90::Format<DType::bf16, DType::fp8_ds_mla>;
  using Element = Format::Element;
  static constexpr int kWarps = 3;
  static constexpr int kQueryWaiters = kWarps + 1;  // the loader, who knows of the rope columns
  static constexpr int kLatentArrivals = kWarps * kWarp;
  static constexpr int kRopeArrivals = 2 * kWarp;  // the loader's

  const SelectedParams& params;
  SharedMemory<Format>& shared;
  const int first_row;

  // By `kWarps` warps, each of which widens every third token; `warp` is one of them.
  __device__ void run(int warp) const {
    uint32_t tile = 0;   // of the rings
    uint32_t slice = 0;  // of all, in whose places Q never is
    Item item;
    for (ItemReader items(shared.items); items.next(item);) {
      const int blocks = item.end - item.first;
      if (blocks <= 0) continue;
      QueryLoader<Format, RowWidener, SelectedParams>{params, shared, first_row}.begin(
          tile, item.request, warp);
      ++tile;
#pragma unroll 1
      for (const uint32_t end = tile + blocks; tile != end; ++tile) {
        widen_tile(tile, slice, warp);
        slice += RowSlices::kOfTile;
      }
    }
  }

 private:
  __device__ __forceinline__ void widen_tile(uint32_t tile, uint32_t slice, int warp) const {
    const auto left = half_place<Format>(tile, 0);
    const auto right = half_place<Format>(tile, 1);
    shared.latent_empty[left.slot].wait(left.phase ^ 1);
    shared.latent_empty[right.slot].wait(right.phase ^ 1);
    const int lane = threadIdx.x % kWarp;
    // A lane has sixteen columns, two pieces of a chunk.
    constexpr int kLanesOfChunk = kWarp / kLatentChunks;
    const int chunk = lane / kLanesOfChunk;
    const int half_chunk = chunk % kHalfChunks;
    Element* const to =
        shared.latent[chunk < kHalfChunks ? left.slot : right.slot] + half_chunk * kChunkElements;
#pragma unroll 1
    for (int i = 0; i < RowSlices::kOfTile; ++i) {
      const Place<RowSlices::kSlots> place(slice + i);
      shared.codes.full[place.slot].wait(place.phase);
      const uint32_t present = shared.codes.present[place.slot];
      // Of all tokens of the tile, a warp has every third.
      const int first =
          (warp + kWarps * RowSlices::kTokens - i * RowSlices::kTokens % kWarps) % kWarps;
#pragma unroll 2
      for (int k = first; k < RowSlices::kTokens; k += kWarps) {
        const uint8_t* const row = shared.codes.rows[place.slot][k];
        uint4 low = {}, high = {};
        if (present >> k & 1) {
          const auto codes = reinterpret_cast<const uint4*>(row)[lane];
          constexpr int kLanesOfScale = kWarp * kDsMlaGroup / kLatent;
          const float scale =
              reinterpret_cast<const float*>(row + kDsMlaScaleOffset)[lane / kLanesOfScale];
          widen(codes.x, scale, low.x, low.y);
          widen(codes.y, scale, low.z, low.w);
          widen(codes.z, scale, high.x, high.y);
          widen(codes.w, scale, high.z, high.w);
        }
        store(to, i * RowSlices::kTokens + k, lane % kLanesOfChunk * 2, chunk % 2, low, high);
      }
      __syncwarp();
      if (lane == 0) shared.codes.empty[place.slot].arrive();
    }
    cutlass::arch::fence_view_async_shared();
    shared.latent_full[left.slot].arrive();
    shared.latent_full[right.slot].arrive();
  }

  // Two neighbouring pieces of a token, those of odd chunks in the other order: at once, the lanes
  // of two chunks then write to all banks.
  static __device__ __forceinline__ void store(Element* chunk, int token, int piece, int odd,
                                               const uint4& low, const uint4& high) {
    constexpr int kPieces = kChunk * sizeof(Element) / sizeof(uint4);
    auto* const pieces = reinterpret_cast<uint4*>(chunk) + token * kPieces;
    const int place = piece ^ token % kPieces;
    pieces[place ^ odd] = odd ? high : low;
    pieces[place ^ odd ^ 1] = odd ? low : high;
  }

  // Four codes; exact but for the rounding of the products.
  static __device__ __forceinline__ void widen(uint32_t codes, float scale, uint32_t& low,
                                               uint32_t& high) {
    uint32_t halves[2];
    sm90::widen(codes, halves[0], halves[1]);
    low = scaled(halves[0], scale);
    high = scaled(halves[1], scale);
  }
  static __device__ __forceinline__ uint32_t scaled(uint32_t pair, float scale) {
    const float2 codes = __half22float2(reinterpret_cast<const __half2&>(pair));
    return pair_of<Element>(codes.x * scale, codes.y * scale);
  }
};

}  // namespace mla::sm90::sparse
