// Where an item ends: the workers join their sums, and store the result.
#pragma once

#include "sm90/combine/partial_layout.h"
#include "sm90/common/exp2.cuh"
#include "sm90/mainloop/swap_ab/shared_storage.cuh"

namespace mla::sm90::stream {

// Each worker finishes the columns of some chunks, and gives the others its sums of the rest, in
// the memory of its last tile.
template <class Out, int kRows>
struct Joint {
  using Shared = SharedMemory<kRows>;
  static constexpr int kOwnChunks = kLatentChunks / kWorkers;
  static_assert(kLatentChunks % kWorkers == 0);

  const Params& params;
  Shared& shared;
  const int worker;

  // `first_turn` is that of the item's first tile.
  template <class Softmax, class Sums>
  __device__ __forceinline__ void join(const Item& item, int blocks, uint32_t first_turn,
                                       const Softmax& softmax, Sums (&sums)[kLatentChunks]) const {
    constexpr int kOwn = Softmax::kOwn;
    const int warp = threadIdx.x % kWarpgroup / kWarp;
    const bool first_lanes = threadIdx.x % kWarp < 4;
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      const float sum = softmax.sum_of_warp(n);
      if (first_lanes) shared.of_warps[worker][warp][Softmax::row(n)] = sum;
      if (first_lanes && warp == 0) shared.peak[worker][Softmax::row(n)] = softmax.max(n);
    }
    if (worker < blocks) {
      // All of its warps have read the tile.
      cutlass::arch::NamedBarrier::sync(kWarpgroup, kFirstWorker + worker);
      give(last_tile(worker, blocks, first_turn), sums);
    }
    __syncwarp();
    cutlass::arch::NamedBarrier::sync(kWorkers * kWarpgroup, kAllWorkers);

    const float* given[kWorkers];
#pragma unroll
    for (int k = 0; k < kWorkers; ++k) given[k] = last_tile(k, blocks, first_turn);
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      const int row = Softmax::row(n);
      float factor[kWorkers];
      const float scale = blocks > 0 ? softmax.scale(n) : 0;  // there is none without tokens
      const float lse = factors(row, scale, factor);
      if (row >= params.shape.rows) continue;
      if (worker == 0 && warp == 0 && first_lanes) store_lse(item, row, lse);
      store_row(item, row, n, factor, given, sums);
    }
    cutlass::arch::fence_view_async_shared();
    __syncwarp();
    cutlass::arch::NamedBarrier::sync(kWorkers * kWarpgroup, kAllWorkers);
    if (worker < blocks) shared.tile_empty[last_slot(worker, blocks, first_turn)].arrive();
  }

 private:
  static __device__ __forceinline__ int last_slot(int k, int blocks, uint32_t first_turn) {
    const int last = (blocks - 1 - k) / kWorkers * kWorkers + k;
    return Place<Shared::kTileSlots>(first_turn + max(last, 0)).slot;
  }

  __device__ __forceinline__ float* last_tile(int k, int blocks, uint32_t first_turn) const {
    return reinterpret_cast<float*>(shared.tiles[last_slot(k, blocks, first_turn)]);
  }

  // In the order of threads, which have the same place in every worker.
  static __device__ __forceinline__ int given_at(int chunk, int element) {
    constexpr int kSumsOfThread = kRows / 2;
    static_assert((kLatentChunks - kOwnChunks) * kSumsOfThread * kWarpgroup * sizeof(float) <=
                  kChunks * kChunkBytes);
    return ((chunk * kSumsOfThread) + element) * kWarpgroup + threadIdx.x % kWarpgroup;
  }

  // The place among what worker `k` gives.
  static __device__ __forceinline__ int given_chunk(int chunk, int k) {
    return chunk / kOwnChunks < k ? chunk : chunk - kOwnChunks;
  }

  template <class Sums>
  __device__ __forceinline__ void give(float* to, const Sums (&sums)[kLatentChunks]) const {
#pragma unroll
    for (int chunk = 0; chunk < kLatentChunks; ++chunk) {
      if (chunk / kOwnChunks == worker) continue;
#pragma unroll
      for (int e = 0; e < cute::size(Sums{}); ++e) {
        to[given_at(given_chunk(chunk, worker), e)] = sums[chunk](e);
      }
    }
  }

  // What makes a result of each worker's sums of a row; its log-sum-exp.
  __device__ __forceinline__ float factors(int row, float scale, float (&factor)[kWorkers]) const {
    float peak = -INFINITY;
#pragma unroll
    for (int k = 0; k < kWorkers; ++k) peak = fmaxf(peak, shared.peak[k][row]);
    float total = 0;
#pragma unroll
    for (int k = 0; k < kWorkers; ++k) {
      float sum = 0;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) sum += shared.of_warps[k][warp][row];
      // Where no weight was, there is no peak either.
      factor[k] = sum == 0 ? 0 : power_of_2((shared.peak[k][row] - peak) * scale);
      total += factor[k] * sum;
    }
    const float inverse = total == 0 ? 0 : params.out_scale / total;
#pragma unroll
    for (int k = 0; k < kWorkers; ++k) factor[k] *= inverse;
    return total == 0 ? -INFINITY : (peak * scale + log2f(total)) * kLn2;
  }

  __device__ __forceinline__ void store_lse(const Item& item, int r, float lse) const {
    if (item.partial >= 0) {
      params.partials.lse[int64_t{item.partial} * params.partials.rows + r] = lse;
    } else if (params.lse.data != nullptr) {
      const Shape& shape = params.shape;
      *params.lse.at<float>(item.request, shape.token_of(r), shape.head_of(r)) = lse;
    }
  }

  // Two neighbouring columns of every chunk of this worker.
  template <class Sums>
  __device__ __forceinline__ void store_row(const Item& item, int r, int n,
                                            const float (&factor)[kWorkers],
                                            const float* const (&given)[kWorkers],
                                            const Sums (&sums)[kLatentChunks]) const {
    const int column = threadIdx.x % kWarpgroup / kWarp * 16 + threadIdx.x % kWarp / 4 * 2;
    // The strip of a warp's sixteen columns, or columns as they are.
    const int slot = max(item.partial, 0);
    float* const partial =
        params.merges
            ? packed_at(params.partials, slot, r, column % 8 / 2) + column % 16 / 8 * 2 +
                  column / 16 * static_cast<int>(kStripElements)
            : params.partials.out + (int64_t{slot} * params.partials.rows + r) * kLatent + column;
    const int chunk_stride =
        params.merges ? static_cast<int>(kChunk / kStripColumns * kStripElements) : kChunk;
    auto* const out =
        params.out.at<uint16_t>(item.request, params.shape.token_of(r), params.shape.head_of(r)) +
        column;
#pragma unroll
    for (int chunk = 0; chunk < kLatentChunks; ++chunk) {
      if (chunk / kOwnChunks != worker) continue;
      float pair[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int e = n / 2 * 4 + i * 2 + n % 2;
        pair[i] = 0;
#pragma unroll
        for (int k = 0; k < kWorkers; ++k) {
          // A worker without weights adds nothing, whatever its sum is.
          if (factor[k] == 0) continue;
          const float sum =
              k == worker ? sums[chunk](e) : given[k][given_at(given_chunk(chunk, k), e)];
          pair[i] += factor[k] * sum;
        }
      }
      if (item.partial >= 0) {
        *reinterpret_cast<float2*>(partial + chunk * chunk_stride) = {pair[0], pair[1]};
        continue;
      }
      const uint32_t rounded = pair_of<Out>(pair[0], pair[1]);
      uint16_t* const to = out + chunk * kChunk;
      if (params.out_in_fours) {
        *reinterpret_cast<uint32_t*>(to) = rounded;
      } else {
        to[0] = static_cast<uint16_t>(rounded);
        to[1] = static_cast<uint16_t>(rounded >> 16);
      }
    }
  }
};

}  // namespace mla::sm90::stream
