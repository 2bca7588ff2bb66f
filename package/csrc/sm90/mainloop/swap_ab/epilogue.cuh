// Where a work tile ends: the consumers add up their sums, and store the result.
#pragma once

#include "sm90/combine/row_results.cuh"
#include "sm90/mainloop/swap_ab/shared_storage.cuh"

namespace mla::sm90::swap_ab {

// Each consumer finishes the columns of some chunks, and gives the others its sums of the rest, in
// the memory of its last tile.
template <class Out, int kRows, class Params>
struct Epilogue {
  using Shared = SharedStorage<kRows>;
  static constexpr int kOwnChunks = kLatentChunks / kConsumers;
  static_assert(kLatentChunks % kConsumers == 0);

  const Params& params;
  Shared& shared;
  const int consumer;

  // `first_tile` is that of the work tile, in KV's pipeline.
  template <class Softmax, class Accumulator>
  __device__ __forceinline__ void run(const WorkTile& work, int blocks, uint32_t first_tile,
                                      const Softmax& softmax,
                                      Accumulator (&sums)[kLatentChunks]) const {
    constexpr int kThreadRows = Softmax::kThreadRows;
    const int warp = threadIdx.x % kWarpgroup / kWarp;
    const bool first_lanes = threadIdx.x % kWarp < 4;
#pragma unroll
    for (int n = 0; n < kThreadRows; ++n) {
      const float sum = softmax.sum_of_warp(n);
      if (first_lanes) shared.of_warps[consumer][warp][Softmax::row(n)] = sum;
      if (first_lanes && warp == 0) shared.row_max[consumer][Softmax::row(n)] = softmax.row_max(n);
    }
    if (consumer < blocks) {
      // All of its warps have read the tile after this barrier.
      cutlass::arch::NamedBarrier::sync(kWarpgroup, kFirstConsumer + consumer);
      give(last_tile(consumer, blocks, first_tile), sums);
    }
    __syncwarp();
    cutlass::arch::NamedBarrier::sync(kConsumers * kWarpgroup, kAllConsumers);

    const float* given[kConsumers];
#pragma unroll
    for (int k = 0; k < kConsumers; ++k) given[k] = last_tile(k, blocks, first_tile);
#pragma unroll
    for (int n = 0; n < kThreadRows; ++n) {
      const int row = Softmax::row(n);
      float factor[kConsumers];
      const float scale = blocks > 0 ? softmax.scale(n) : 0;  // there is none without tokens
      const float lse = factors(row, scale, factor);
      if (row >= params.shape.rows) continue;
      if (consumer == 0 && warp == 0 && first_lanes) store_work_tile_lse(params, work, row, lse);
      store_row(work, row, n, factor, given, sums);
    }
    cutlass::arch::fence_view_async_shared();
    __syncwarp();
    cutlass::arch::NamedBarrier::sync(kConsumers * kWarpgroup, kAllConsumers);
    if (consumer < blocks) shared.kv_empty[last_stage(consumer, blocks, first_tile)].arrive();
  }

 private:
  static __device__ __forceinline__ int last_stage(int k, int blocks, uint32_t first_tile) {
    const int last = (blocks - 1 - k) / kConsumers * kConsumers + k;
    return PipelineState<Shared::kKvStages>(first_tile + max(last, 0)).stage;
  }

  __device__ __forceinline__ float* last_tile(int k, int blocks, uint32_t first_tile) const {
    return reinterpret_cast<float*>(shared.kv[last_stage(k, blocks, first_tile)]);
  }

  // Where an element is that is given: in the order of threads, which have the same elements in
  // every consumer.
  static __device__ __forceinline__ int given_at(int chunk, int element) {
    constexpr int kElements = kRows / 2;
    static_assert((kLatentChunks - kOwnChunks) * kElements * kWarpgroup * sizeof(float) <=
                  kChunks * kChunkBytes);
    return ((chunk * kElements) + element) * kWarpgroup + threadIdx.x % kWarpgroup;
  }

  // The index of a chunk among those that consumer `k` gives.
  static __device__ __forceinline__ int given_chunk(int chunk, int k) {
    return chunk / kOwnChunks < k ? chunk : chunk - kOwnChunks;
  }

  template <class Accumulator>
  __device__ __forceinline__ void give(float* to, const Accumulator (&sums)[kLatentChunks]) const {
#pragma unroll
    for (int chunk = 0; chunk < kLatentChunks; ++chunk) {
      if (chunk / kOwnChunks == consumer) continue;
#pragma unroll
      for (int e = 0; e < cute::size(Accumulator{}); ++e) {
        to[given_at(given_chunk(chunk, consumer), e)] = sums[chunk](e);
      }
    }
  }

  // Computes the factors of each consumer's sums of a row; returns the row's LSE.
  __device__ __forceinline__ float factors(int row, float scale,
                                           float (&factor)[kConsumers]) const {
    float row_max = -INFINITY;
#pragma unroll
    for (int k = 0; k < kConsumers; ++k) row_max = fmaxf(row_max, shared.row_max[k][row]);
    float total = 0;
#pragma unroll
    for (int k = 0; k < kConsumers; ++k) {
      float sum = 0;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) sum += shared.of_warps[k][warp][row];
      // A consumer without P has no maximum either.
      factor[k] = sum == 0 ? 0 : exp2_approx((shared.row_max[k][row] - row_max) * scale);
      total += factor[k] * sum;
    }
    const float inverse = total == 0 ? 0 : params.out_scale / total;
#pragma unroll
    for (int k = 0; k < kConsumers; ++k) factor[k] *= inverse;
    return total == 0 ? -INFINITY : (row_max * scale + log2f(total)) * kLn2;
  }

  // Stores two neighbouring columns of every chunk of this consumer.
  template <class Accumulator>
  __device__ __forceinline__ void store_row(const WorkTile& work, int r, int n,
                                            const float (&factor)[kConsumers],
                                            const float* const (&given)[kConsumers],
                                            const Accumulator (&sums)[kLatentChunks]) const {
    const int column = threadIdx.x % kWarpgroup / kWarp * 16 + threadIdx.x % kWarp / 4 * 2;
    // A partial result has a fragment of the warp's sixteen columns, or columns as they are.
    const int index = max(work.partial, 0);
    float* const partial =
        params.combines
            ? fragment_at(params.partials, index, r, column % 8 / 2) + column % 16 / 8 * 2 +
                  column / 16 * static_cast<int>(kFragmentElements)
            : params.partials.out + (int64_t{index} * params.partials.rows + r) * kLatent + column;
    const int chunk_stride =
        params.combines ? static_cast<int>(kChunk / kFragmentColumns * kFragmentElements) : kChunk;
    auto* const out = params.out.template at<uint16_t>(work.request, params.shape.token_of(r),
                                                       params.shape.head_of(r)) +
                      column;
#pragma unroll
    for (int chunk = 0; chunk < kLatentChunks; ++chunk) {
      if (chunk / kOwnChunks != consumer) continue;
      float pair[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int e = n / 2 * 4 + i * 2 + n % 2;
        pair[i] = 0;
#pragma unroll
        for (int k = 0; k < kConsumers; ++k) {
          // A consumer without P adds nothing, whatever its sum is.
          if (factor[k] == 0) continue;
          const float sum =
              k == consumer ? sums[chunk](e) : given[k][given_at(given_chunk(chunk, k), e)];
          pair[i] += factor[k] * sum;
        }
      }
      if (work.partial >= 0) {
        *reinterpret_cast<float2*>(partial + chunk * chunk_stride) = {pair[0], pair[1]};
        continue;
      }
      const uint32_t rounded = pack_pair<Out>(pair[0], pair[1]);
      uint16_t* const to = out + chunk * kChunk;
      if (params.out_is_aligned_to_4) {
        *reinterpret_cast<uint32_t*>(to) = rounded;
      } else {
        to[0] = static_cast<uint16_t>(rounded);
        to[1] = static_cast<uint16_t>(rounded >> 16);
      }
    }
  }
};

}  // namespace mla::sm90::swap_ab
