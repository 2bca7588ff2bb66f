// The products of a tile of e4m3 with scales: K and V^T are the operand in registers, as codes
// without their scale. Logits are multiplied by the scales of their token, in fp32, and so is P.
// The tensor cores read rope columns, of K and V^T, from shared memory.
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
  using MajorOfOperand = cute::GMMA::Major;
  template <MajorOfOperand kMajorOfA>
  using RopeMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, Tile, kMajorOfA, kMajor>()));
  // As V^T, rope columns are columns by tokens.
  using RopeValueLayout = decltype(cute::composition(
      ChunkLayout<Element>{}, cute::Layout<cute::Shape<cute::Int<kChunk>, cute::Int<kTileTokens>>,
                                           cute::Stride<cute::Int<kTileTokens>, cute::_1>>{}));
  static constexpr int kScaleBatches = Format::kScaleChunks * kBatches;

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
    cute::clear(logits);  // or the compiler keeps those of the tile before until here
    if constexpr (Format::kHasRope) multiply_rope_keys(query_stage, state.stage, logits);
    // The columns of a scale have a sum of their own, one of two in turn.
    Accumulator sums[2];
    KeyMma mma;
    this->template run_batches<Keys, Format::kCodeChunks * kBatches>(
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
          if (Format::kHasRope && k == 0) warpgroup_fence_operand(logits);
          warpgroup_fence_operand(sums[k % 2]);
          add_scaled(sums[k % 2], state.stage, k, logits);
        });
    return reinterpret_cast<const uint64_t&>(shared_.pipelines.present[state.stage]);
  }

  // Adds V^T P^T to the sums.
  __device__ __forceinline__ void multiply_values(Element* p, uint32_t tile,
                                                  Accumulator (&sums)[kLatentChunks],
                                                  bool keeps_exchange) const {
    Base::multiply_values(p, tile, sums, keeps_exchange, [&](int) {
      if constexpr (Format::kRopeIsValue) {
        multiply_rope_values(p + Format::kScales * kRows * kTileTokens, Format::state(tile).stage,
                             sums[kLatentChunks - 1]);
      }
    });
  }

  // Stores P once for each scale, multiplied by that, and as it is for rope columns of the value.
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
    if constexpr (Format::kRopeIsValue) {
      swap_ab::store_p<Element, kRows>(p + Format::kScales * kRows * kTileTokens, weights);
    }
  }

  // Gives a thread neighbouring rope columns of the value, as it has of the others, whose order in
  // the tensor cores is another one. All threads of a consumer call this where a work tile ends.
  __device__ __forceinline__ void order_rope(Accumulator (&sums)[kLatentChunks]) const {
    if constexpr (!Format::kRopeIsValue) return;
    Accumulator& sum = sums[kLatentChunks - 1];
    // Of sixteen columns, lane 4 i has columns i and i + 8, and is to have 2 i and 2 i + 1.
    const int from = lane_ % 16 / 4 * 8 + lane_ % 4;
#pragma unroll
    for (int e = 0; e < cute::size(sum); e += 1 + e % 2 * 2) {
      float columns[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float low = __shfl_sync(~0u, sum(e), from + 4 * i);
        const float high = __shfl_sync(~0u, sum(e + 2), from + 4 * i);
        columns[i] = lane_ < 16 ? low : high;
      }
      sum(e) = columns[0];
      sum(e + 2) = columns[1];
    }
  }

  // Tokens that do not exist are zeros in memory.
  __device__ __forceinline__ void clear_tail(uint32_t, int) const {}

 private:
  // Begins the logits with the products of the rope columns, without waiting for them.
  __device__ __forceinline__ void multiply_rope_keys(int query_stage, int stage,
                                                     Accumulator& logits) const {
    using namespace cute;
    RopeMma<MajorOfOperand::K> mma;
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    warpgroup_fence_operand(logits);
    warpgroup_arrive();
    multiply_rope(mma, chunk_tensor(shared_.kv.stages[stage].rope),
                  reinterpret_cast<Element*>(shared_.q[query_stage][Format::kQueryRopeChunk]),
                  logits);
    warpgroup_commit_batch();
  }

  // Adds the products of the rope columns of V^T, without waiting for them.
  __device__ __forceinline__ void multiply_rope_values(Element* p, int stage,
                                                       Accumulator& sums) const {
    RopeMma<MajorOfOperand::MN> mma;
    multiply_rope(
        mma,
        cute::make_tensor(cute::make_smem_ptr(shared_.kv.stages[stage].rope), RopeValueLayout{}), p,
        sums);
  }

  template <class Mma, class A>
  static __device__ __forceinline__ void multiply_rope(Mma& mma, const A& a, Element* b,
                                                       Accumulator& to) {
    using namespace cute;
    const auto slice = mma.get_slice(0);
    const Tensor in_a = slice.partition_fragment_A(a);
    const Tensor in_b = slice.partition_fragment_B(rows_tensor<kRows>(b));
#pragma unroll
    for (int step = 0; step < size<2>(in_a); ++step) {
      gemm(mma, in_a(_, _, step), in_b(_, _, step), to);
      mma.accumulate_ = GMMA::ScaleOut::One;
    }
  }

  // Adds numbers times the k-th scale of their token. A thread has those of two tokens.
  __device__ __forceinline__ void add_scaled(const Accumulator& numbers, int stage, int k,
                                             Accumulator& to) const {
    const auto scale_of = [&](int token) {
      const uint8_t* const scales = shared_.kv.stages[stage].tokens[token] + Format::kRow.latent;
      return Format::to_float(reinterpret_cast<const typename Format::Scale*>(scales)[k]);
    };
    const int token = warp_ * 16 + lane_ / 4;
    const float scale[2] = {scale_of(token), scale_of(token + 8)};
#pragma unroll
    for (int e = 0; e < cute::size(to); ++e) {
      to(e) = fmaf(numbers(e), scale[e % 4 / 2], to(e));
    }
  }
};

}  // namespace mla::sm90::swap_ab
