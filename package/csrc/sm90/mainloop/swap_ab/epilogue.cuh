// Where a work tile ends: the consumers add up their sums, and store the result.
#pragma once

#include "sm90/combine/fragments.cuh"
#include "sm90/combine/row_results.cuh"
#include "sm90/combine/split_request.cuh"
#include "sm90/mainloop/swap_ab/shared_storage.cuh"

namespace mla::sm90::swap_ab {

// Each of the two consumers finishes the columns of one half, and gives the other its sums of the
// rest, in the memory of its last tile.
template <class Mma, class Out, int kRows, class Params>
struct Epilogue {
  using Shared = typename Mma::Shared;
  using Accumulator = typename Mma::Accumulator;
  static constexpr int kElements = cute::size(Accumulator{});
  static constexpr int kOwnChunks = kLatentChunks / kConsumers;
  static constexpr int kOwnFragments = kOwnChunks / kFragmentChunks * kChunkFragments;
  static constexpr int kPairs = kRows / 8;  // of a thread's rows
  static_assert(kConsumers == 2);

  const Params& params;
  Shared& shared;
  const int consumer;
  const Mma& mma;

  // `first_tile` is that of the work tile, in KV's pipelines.
  template <class Softmax>
  __device__ __forceinline__ void run(const WorkTile& work, bool is_first_work_tile, int blocks,
                                      uint32_t first_tile, Softmax& softmax,
                                      Accumulator (&sums)[kLatentChunks]) const {
    const int warp = threadIdx.x % kWarpgroup / kWarp;
    // The lanes of a row store the same. If some were chosen by a branch, the compiler would take
    // the warp for divergent in the loop over tiles, and move descriptors for every instruction.
#pragma unroll
    for (int n = 0; n < 2 * kPairs; ++n) {
      const int row = Softmax::row(n);
      shared.of_warps[consumer][warp][row] = softmax.sum_of_warp(n);
      if (warp == 0) shared.row_max[consumer][row] = softmax.row_max(n);
      if constexpr (Params::kIsSparse) {
        shared.max_logits[consumer][warp][row] = softmax.max_logit_of_warp(n);
      }
    }
    move_own_half_first(sums);
    if (consumer < blocks) {
      // All of its warps have read the tile after this barrier.
      cutlass::arch::NamedBarrier::sync(kWarpgroup, kFirstConsumer + consumer);
      give(mma.exchange(last_tile(consumer, blocks, first_tile)), sums);
    }
    __syncwarp();
    cutlass::arch::NamedBarrier::sync(kConsumers * kWarpgroup, kAllConsumers);

    const int row = static_cast<int>(threadIdx.x % kWarpgroup);
    if (row < kRows) find_factors(work, row, blocks > 0, softmax);
    __syncwarp();
    cutlass::arch::NamedBarrier::sync(kWarpgroup, kFirstConsumer + consumer);
    // Sums need not wait for what the first warp stores now.
    if (consumer == 0 && row < softmax.query_rows()) store_results(work, row);
    __syncwarp();
    store(work, softmax, mma.exchange(last_tile(1 - consumer, blocks, first_tile)), sums);
    cutlass::arch::fence_view_async_shared();
    __syncwarp();
    cutlass::arch::NamedBarrier::sync(kConsumers * kWarpgroup, kAllConsumers);
    if (consumer < blocks) mma.release_exchange(last_tile(consumer, blocks, first_tile));
    count_split(params, shared.split_request, is_first_work_tile,
                work.partial >= 0 && params.combines && threadIdx.x == 0);
  }

 private:
  static __device__ __forceinline__ uint32_t last_tile(int k, int blocks, uint32_t first_tile) {
    const int last = (blocks - 1 - k) / kConsumers * kConsumers + k;
    return first_tile + max(last, 0);
  }

  __device__ __forceinline__ void move_own_half_first(Accumulator (&sums)[kLatentChunks]) const {
    if (consumer == 0) return;
#pragma unroll
    for (int chunk = 0; chunk < kOwnChunks; ++chunk) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const float sum = sums[chunk](e);
        sums[chunk](e) = sums[kOwnChunks + chunk](e);
        sums[kOwnChunks + chunk](e) = sum;
      }
    }
  }

  // Where an element is that is given: in the order of threads, which have the same elements in
  // both consumers.
  static __device__ __forceinline__ int given_at(int chunk, int element) {
    static_assert(kOwnChunks * kElements * kWarpgroup * sizeof(float) <= Mma::kExchangeBytes);
    return (chunk * kElements + element) * kWarpgroup + threadIdx.x % kWarpgroup;
  }

  __device__ __forceinline__ void give(float* to, const Accumulator (&sums)[kLatentChunks]) const {
#pragma unroll
    for (int chunk = 0; chunk < kOwnChunks; ++chunk) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) to[given_at(chunk, e)] = sums[kOwnChunks + chunk](e);
    }
  }

  // What is found of a row, which lies where the consumer's P was.
  struct RowFactors {
    float2 factors;  // of the consumer's own sums, and of the other's
    // What is stored beside sums, as powers of 2.
    float row_max;
    float total;  // of P
    float max_logit;
  };
  __device__ __forceinline__ RowFactors* factors_of_rows() const {
    static_assert(sizeof(shared.p[0]) >= kRows * sizeof(RowFactors));
    return reinterpret_cast<RowFactors*>(shared.p[consumer]);
  }

  template <class Softmax>
  __device__ __forceinline__ void find_factors(const WorkTile& work, int row, bool has_tokens,
                                               const Softmax& softmax) const {
    const float scale = has_tokens ? softmax.scale_of_row(row) : 0;  // there is none without tokens
    const float row_max = fmaxf(shared.row_max[0][row], shared.row_max[1][row]);
    float factors[kConsumers];
    float total = 0;
#pragma unroll
    for (int k = 0; k < kConsumers; ++k) {
      float sum = 0;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) sum += shared.of_warps[k][warp][row];
      // A consumer without P has no maximum either.
      factors[k] = sum == 0 ? 0 : exp2_approx((shared.row_max[k][row] - row_max) * scale);
      total += factors[k] * sum;
    }
    float all = total;
    if constexpr (Params::kIsSparse) {
      if (work.partial < 0 && row < softmax.query_rows()) {
        all = with_sink(params, work.query, row, row_max * scale * kLn2, total);
      }
    }
    const float inverse = total == 0 ? 0 : params.out_scale / all;
    const float2 both = {factors[0] * inverse, factors[1] * inverse};
    RowFactors& found = factors_of_rows()[row];
    found.factors = consumer == 0 ? both : float2{both.y, both.x};
    found.row_max = row_max * scale;
    found.total = total;
    if constexpr (Params::kIsSparse) {
      found.max_logit = has_tokens ? max_logit(row) * scale : -INFINITY;
    }
  }

  __device__ __forceinline__ void store_results(const WorkTile& work, int row) const {
    const RowFactors& found = factors_of_rows()[row];
    store_work_tile_lse(params, work, row, lse_of(found.row_max, found.total));
    if constexpr (Params::kIsSparse) store_work_tile_max_logit(params, work, row, found.max_logit);
  }

  __device__ __forceinline__ float max_logit(int row) const {
    float greatest = -INFINITY;
#pragma unroll
    for (const auto& of_warps : shared.max_logits) {
#pragma unroll
      for (const auto& of_rows : of_warps) greatest = fmaxf(greatest, of_rows[row]);
    }
    return greatest;
  }

  // Stores the consumer's half of the output, or of a partial result.
  template <class Softmax>
  __device__ __forceinline__ void store(const WorkTile& work, const Softmax& softmax,
                                        const float* given,
                                        Accumulator (&sums)[kLatentChunks]) const {
    const int lane = threadIdx.x % kWarp;
    const int warp = threadIdx.x % kWarpgroup / kWarp;
    // Lane t of a fragment has columns 2 t and 2 t + 1 of sixteen, and the same from column 8 on.
    const int t = lane / Mma::kFragmentLane % 4;
    float2 factors[kPairs][2];
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        factors[n][i] = factors_of_rows()[n * 8 + lane % 4 * 2 + i].factors;
      }
    }
    // Without a block that combines, this is not used, and there is no such memory.
    const FragmentLane fragments(params.partials, max(work.partial, 0), 0,
                                 consumer * kOwnFragments + warp,
                                 row_of(0) % kFragmentRows * 4 + t);
    // A loop, since code that runs once takes longer to arrive than to run.
#pragma unroll 1
    for (int chunk = 0; chunk < kOwnChunks; chunk += static_cast<int>(kFragmentChunks)) {
#pragma unroll
      for (int n = 0; n < kPairs; ++n) {
        LaneSums both;
#pragma unroll
        for (int i = 0; i < kFragmentChunks; ++i) {
          add_up(n, factors[n], given + given_at(chunk + i, n * 4), sums[i], both + 4 * i);
        }
        const bool exists = row_of(n) < softmax.query_rows();
        if (work.partial >= 0 && params.combines) {
          const uint32_t further = chunk / kFragmentChunks * kChunkFragments;
          if (exists) fragments.store(further, n, pack_sums(both, 1));
        } else {
          store_row(work, row_of(n), exists, t, consumer * kOwnChunks + chunk, both);
        }
      }
#pragma unroll
      for (int i = kFragmentChunks; i < kOwnChunks; ++i) {
#pragma unroll
        for (int e = 0; e < kElements; ++e) sums[i - kFragmentChunks](e) = sums[i](e);
      }
    }
  }

  // The row of the n-th pair of a thread's rows that it stores.
  static __device__ __forceinline__ int row_of(int n) {
    const int lane = threadIdx.x % kWarp;
    return n * 8 + lane % 4 * 2 + Mma::has_upper_row(lane);
  }

  // Stores what a lane has of a row of two chunks, of which `chunk` is the first, where no block
  // combines. All lanes of a warp call this.
  __device__ __forceinline__ void store_row(const WorkTile& work, int r, bool exists, int t,
                                            int chunk, const LaneSums& sums) const {
    const int warp = threadIdx.x % kWarpgroup / kWarp;
    const int column = chunk * kChunk + warp * static_cast<int>(kFragmentNeighbours);
    if (work.partial < 0) {
      auto* const to = params.out.template at<uint16_t>(work.query, params.shape.token_of(r),
                                                        params.shape.head_of(r)) +
                       column + t % 2 * 8 + t / 2 * 4;
#pragma unroll
      for (int i = 0; i < kFragmentChunks; ++i) {
        store_output(to + i * kChunk, t, sums + 4 * i, exists);
      }
    } else if (exists) {
      float* const to = params.partials.row(work.partial, r) + column + 2 * t;
#pragma unroll
      for (int i = 0; i < kLaneSums / 2; ++i) {
        *reinterpret_cast<float2*>(to + i / 2 * kChunk + i % 2 * 8) = {sums[2 * i],
                                                                       sums[2 * i + 1]};
      }
    }
  }

  // Adds up the sums of both consumers of a chunk; `four` become what a lane of a fragment has of a
  // row.
  static __device__ __forceinline__ void add_up(int n, const float2 (&factors)[2],
                                                const float* given, const Accumulator& sums,
                                                float* four) {
    const bool upper = Mma::has_upper_row(threadIdx.x % kWarp);
    float both[2][2];  // of the thread's two rows, two columns
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 factor = factors[i % 2];
      float& sum = both[i % 2][i / 2];
      // A consumer without P adds nothing, whatever its sum is.
      sum = factor.x == 0 ? 0 : factor.x * sums(n * 4 + i);
      if (factor.y != 0) sum += factor.y * given[i * kWarpgroup];
    }
    float kept[2];
    float got[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      kept[i] = upper ? both[1][i] : both[0][i];
      got[i] = __shfl_xor_sync(~0u, upper ? both[0][i] : both[1][i], Mma::kPartner);
    }
    const float4 in_order = Mma::in_fragment(upper, kept, got);
    four[0] = in_order.x;
    four[1] = in_order.y;
    four[2] = in_order.z;
    four[3] = in_order.w;
  }

  // Two lanes exchange pairs, so that each stores four neighbours. All lanes of a warp call this.
  __device__ __forceinline__ void store_output(uint16_t* to, int t, const float* four,
                                               bool exists) const {
    const uint32_t low = pack_pair<Out>(four[0], four[1]);
    const uint32_t high = pack_pair<Out>(four[2], four[3]);
    const bool right = t % 2 != 0;
    const uint32_t got = __shfl_xor_sync(~0u, right ? low : high, Mma::kFragmentLane);
    const uint2 pairs = {right ? got : low, right ? high : got};
    if (!exists) return;
    if (params.out_is_aligned_to_4) {
      *reinterpret_cast<uint2*>(to) = pairs;
    } else {
      to[0] = static_cast<uint16_t>(pairs.x);
      to[1] = static_cast<uint16_t>(pairs.x >> 16);
      to[2] = static_cast<uint16_t>(pairs.y);
      to[3] = static_cast<uint16_t>(pairs.y >> 16);
    }
  }
};

}  // namespace mla::sm90::swap_ab
