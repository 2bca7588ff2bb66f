// The products of a tile of a 16-bit cache: the tensor cores read K, and V^T, which is K the other
// way round, from shared memory.
#pragma once

#include "sm90/mainloop/swap_ab/shared_storage.cuh"
#include "sm90/mainloop/swap_ab/store_p.cuh"

namespace mla::sm90::swap_ab {

// A consumer has this. It waits for the stages of a tile, and releases them.
template <class Format, int kRows>
class SharedMma {
  using Element = typename Format::Element;
  using Tile = cute::Shape<cute::_64, cute::Int<kRows>, cute::_64>;
  template <cute::GMMA::Major kMajor>
  using MmaOf = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, Tile, kMajor, cute::GMMA::Major::K>()));
  using KeyMma = MmaOf<cute::GMMA::Major::K>;
  using ValueMma = MmaOf<cute::GMMA::Major::MN>;
  static constexpr int kVectors = kChunkVectors<Element>;

 public:
  using Shared = SharedStorage<Format, kRows>;
  using Accumulator =
      decltype(cute::partition_fragment_C(KeyMma{}, cute::Shape<cute::_64, cute::Int<kRows>>{}));

  __device__ explicit SharedMma(Shared& shared) : shared_(shared) {}

  // Computes the logits K Q^T; returns which tokens of the tile exist.
  __device__ __forceinline__ uint64_t multiply_keys(int query_stage, uint32_t tile,
                                                    Accumulator& logits) const {
    using namespace cute;
    auto& pipelines = shared_.pipelines;
    // Neighbouring steps add to different sums, since a step with few rows ends before its sums can
    // be added to again.
    Accumulator odd;
    KeyMma mma;
    const auto multiply_chunk = [&](int chunk, const auto& keys) {
      const auto slice = mma.get_slice(0);
      const Tensor k = slice.partition_fragment_A(keys);
      const Tensor q =
          slice.partition_fragment_B(rows_tensor<kRows>(shared_.q[query_stage][chunk]));
#pragma unroll
      for (int step = 0; step < size<2>(k); ++step) {
        mma.accumulate_ = chunk == 0 && step < 2 ? GMMA::ScaleOut::Zero : GMMA::ScaleOut::One;
        gemm(mma, k(_, _, step), q(_, _, step), step % 2 == 0 ? logits : odd);
      }
    };
    warpgroup_fence_operand(logits);
    warpgroup_fence_operand(odd);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto latent = Format::latent_state(tile, half);
      wait(pipelines.latent_full[latent.stage], latent.phase);
      warpgroup_arrive();
#pragma unroll
      for (int i = 0; i < kHalfChunks; ++i) {
        multiply_chunk(
            half * kHalfChunks + i,
            make_tensor(make_smem_ptr(shared_.kv.latent[latent.stage] + i * kAtomElements),
                        KeyLayout<Element>{}));
      }
    }
    const auto rope = Format::rope_state(tile);
    if constexpr (Format::kHasRope) {
      wait(pipelines.rope_full[rope.stage], rope.phase);
      warpgroup_arrive();
      multiply_chunk(Format::kQueryRopeChunk, chunk_tensor(shared_.kv.rope[rope.stage]));
    }
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    warpgroup_fence_operand(logits);
    warpgroup_fence_operand(odd);
    // Without rope columns this says which tokens exist. To wait before all products are done would
    // make the compiler serialize them.
    if constexpr (!Format::kHasRope) pipelines.rope_full[rope.stage].wait(rope.phase);
    const auto present = reinterpret_cast<const uint64_t&>(pipelines.present[rope.stage]);
    pipelines.rope_empty[rope.stage].arrive();
#pragma unroll
    for (int e = 0; e < size(logits); ++e) logits(e) += odd(e);
    return present;
  }

  // Adds V^T P^T to the sums.
  __device__ __forceinline__ void multiply_values(Element* p, uint32_t tile,
                                                  Accumulator (&sums)[kLatentChunks],
                                                  bool keeps_exchange) const {
    using namespace cute;
    ValueMma mma;
    const auto slice = mma.get_slice(0);
    const Tensor weights = slice.partition_fragment_B(rows_tensor<kRows>(p));
#pragma unroll
    for (int chunk = 0; chunk < kLatentChunks; ++chunk) warpgroup_fence_operand(sums[chunk]);
    warpgroup_arrive();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Element* const latent = shared_.kv.latent[Format::latent_state(tile, half).stage];
#pragma unroll
      for (int step = 0; step < size<2>(weights); ++step) {
        // Neighbouring instructions add to different sums.
#pragma unroll
        for (int i = 0; i < kHalfChunks; ++i) {
          const Tensor v = slice.partition_fragment_A(make_tensor(
              make_smem_ptr(latent + i * kAtomElements), ValueLayout<Element, kChunk>{}));
          gemm(mma, v(_, _, step), weights(_, _, step), sums[half * kHalfChunks + i]);
        }
      }
      warpgroup_commit_batch();
    }
    warpgroup_wait<1>();
    release(tile, 0);
    warpgroup_wait<0>();
    if (!keeps_exchange) release(tile, 1);
#pragma unroll
    for (int chunk = 0; chunk < kLatentChunks; ++chunk) warpgroup_fence_operand(sums[chunk]);
  }

  __device__ __forceinline__ void store_p(Element* p, uint32_t, const Accumulator& weights) const {
    swap_ab::store_p<Element, kRows>(p, weights);
  }

  // P of tokens that do not exist is 0, which makes NaN of what an unused page may hold. Gathered
  // tokens that do not exist are zeros.
  __device__ __forceinline__ void clear_tail(uint32_t tile, int tokens) const {
    if constexpr (Format::kIsSparse) return;
    constexpr int kTokenVectors = kHalfChunks * kVectors;
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      auto* const vectors =
          reinterpret_cast<uint4*>(shared_.kv.latent[Format::latent_state(tile, half).stage]);
#pragma unroll 1
      for (int i = tokens * kTokenVectors + threadIdx.x % kWarpgroup;
           i < kTileTokens * kTokenVectors; i += kWarpgroup) {
        const int token = i / kTokenVectors;
        const int chunk = i / kVectors % kHalfChunks;
        vectors[(token / kSwizzleRows * kHalfChunks + chunk) * (kSwizzleRows * kVectors) +
                token % kSwizzleRows * kVectors + i % kVectors] = {0, 0, 0, 0};
      }
    }
  }

  // The memory of a tile in which consumers exchange sums, if it is their last.
  static constexpr size_t kExchangeBytes = kHalfChunks * kChunkElements * sizeof(Element);
  __device__ __forceinline__ float* exchange(uint32_t tile) const {
    return reinterpret_cast<float*>(shared_.kv.latent[Format::latent_state(tile, 1).stage]);
  }
  __device__ __forceinline__ void release_exchange(uint32_t tile) const { release(tile, 1); }

  // A thread has two columns of sixteen, eight apart, of two rows. Two lanes exchange, so that each
  // has the four columns of one row that a lane of a fragment has.
  static constexpr int kFragmentLane = 8;  // lanes by which those of a fragment's row differ
  static constexpr int kPartner = 4;
  static __device__ __forceinline__ bool has_upper_row(int lane) { return lane / 4 % 2 != 0; }
  static __device__ __forceinline__ float4 in_fragment(bool upper, const float (&own)[2],
                                                       const float (&got)[2]) {
    return {upper ? got[0] : own[0], upper ? own[0] : got[0], upper ? got[1] : own[1],
            upper ? own[1] : got[1]};
  }

 private:
  static __device__ __forceinline__ void wait(const TransactionBarrier& full, uint32_t phase) {
    full.wait(phase);
    // Other threads have copied what tensor cores read, if it was gathered.
    if constexpr (Format::kIsSparse) cutlass::arch::fence_view_async_shared();
  }

  __device__ __forceinline__ void release(uint32_t tile, int half) const {
    if (threadIdx.x % kWarp > 0) return;
    shared_.pipelines.latent_empty[Format::latent_state(tile, half).stage].arrive();
  }

  Shared& shared_;
};

}  // namespace mla::sm90::swap_ab
