// The products of a tile of e4m3 with scales: K and V^T are the operand in registers, as codes
// without their scale. Logits are multiplied by the scales of their token, in fp32, and so is P.
#pragma once

#include "sm90/mainloop/swap_ab/mma_registers.cuh"

namespace mla::sm90::swap_ab {

// A consumer has this. It waits for the stages of a tile, and releases them.
template <class Format, int kRows>
class ScaledRegisterMma : public RegisterMma<Format, kRows> {
  using Base = RegisterMma<Format, kRows>;
  using Base::kBatches;
  using Base::kMajor;
  using Base::kSteps;
  using Base::lane_;
  using Base::shared_;
  using Base::warp_;
  using typename Base::Element;
  using typename Base::Fp8;
  using typename Base::KeyMma;
  using typename Base::Keys;
  using typename Base::Tile;
  using RopeMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, Tile, kMajor, kMajor>()));
  static constexpr int kScaleBatches = kLatentChunks / Format::kScales * kBatches;

 public:
  using Base::Base;
  using typename Base::Accumulator;
  using typename Base::Shared;

  // Computes the logits K Q^T; returns which tokens of the tile exist.
  __device__ __forceinline__ uint64_t multiply_keys(int query_stage, uint32_t tile,
                                                    Accumulator& logits) const {
    using namespace cute;
    const auto state = Format::state(tile);
    shared_.pipelines.full[state.stage].wait(state.phase);
    cutlass::arch::fence_view_async_shared();  // other threads have copied what tensor cores read
    multiply_rope(query_stage, state.stage, logits);
    // The columns of a scale have a sum of their own, one of two in turn.
    Accumulator sums[2];
    KeyMma mma;
    this->template run_batches<Keys, kLatentChunks * kBatches>(
        [&](int batch, Fp8& fp8) { this->read_keys(state.stage, batch, fp8); }, Base::convert_keys,
        [&](int batch, const Keys& keys) {
          Accumulator& sum = sums[batch / kScaleBatches % 2];
          const Tensor q = mma.get_slice(threadIdx.x % kWarpgroup)
                               .partition_fragment_B(
                                   rows_tensor<kRows>(shared_.q[query_stage][batch / kBatches]));
          const bool is_first = batch % kScaleBatches == 0;
          if (is_first) warpgroup_fence_operand(sum);
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            mma.accumulate_ = is_first && step == 0 ? GMMA::ScaleOut::Zero : GMMA::ScaleOut::One;
            gemm(mma, keys(_, _, step), q(_, _, batch % kBatches * kSteps + step), sum);
          }
        },
        [&](int batch) {
          if (batch % kScaleBatches + 1 < kScaleBatches) return;
          const int k = batch / kScaleBatches;
          if (k == 0) warpgroup_fence_operand(logits);
          warpgroup_fence_operand(sums[k % 2]);
          add_scaled(sums[k % 2], state.stage, k, logits);
        });
    return reinterpret_cast<const uint64_t&>(shared_.pipelines.present[state.stage]);
  }

  // Stores P once for each scale, multiplied by that.
  __device__ __forceinline__ void store_p(Element* p, uint32_t tile,
                                          const Accumulator& weights) const {
    const int stage = Format::state(tile).stage;
#pragma unroll
    for (int k = 0; k < Format::kScales; ++k) {
      Accumulator scaled;
      cute::clear(scaled);
      add_scaled(weights, stage, k, scaled);
      swap_ab::store_p<Element, kRows>(p + k * kRows * kTileTokens, scaled);
    }
  }

  // Tokens that do not exist are zeros in memory.
  __device__ __forceinline__ void clear_tail(uint32_t, int) const {}

 private:
  // Begins the logits with the products of the rope columns, without waiting for them.
  __device__ __forceinline__ void multiply_rope(int query_stage, int stage,
                                                Accumulator& logits) const {
    using namespace cute;
    RopeMma mma;
    const auto slice = mma.get_slice(0);
    const Tensor k = slice.partition_fragment_A(chunk_tensor(shared_.kv.rope[stage]));
    const Tensor q = slice.partition_fragment_B(
        rows_tensor<kRows>(reinterpret_cast<Element*>(shared_.q[query_stage][kRopeChunk])));
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    warpgroup_fence_operand(logits);
    warpgroup_arrive();
#pragma unroll
    for (int step = 0; step < size<2>(k); ++step) {
      gemm(mma, k(_, _, step), q(_, _, step), logits);
      mma.accumulate_ = GMMA::ScaleOut::One;
    }
    warpgroup_commit_batch();
  }

  // Adds numbers times the k-th scale of their token. A thread has those of two tokens.
  __device__ __forceinline__ void add_scaled(const Accumulator& numbers, int stage, int k,
                                             Accumulator& to) const {
    const float* const scales = shared_.kv.scales[stage][warp_ * 16 + lane_ / 4] + k;
    const float scale[2] = {scales[0], scales[8 * Format::kScales]};
#pragma unroll
    for (int e = 0; e < cute::size(to); ++e) {
      to(e) = fmaf(numbers(e), scale[e % 4 / 2], to(e));
    }
  }
};

}  // namespace mla::sm90::swap_ab
