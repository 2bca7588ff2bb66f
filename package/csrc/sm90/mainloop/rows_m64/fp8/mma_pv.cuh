// P V in e4m3, summed in two levels: tensor cores keep too few bits of a sum of 8-bit products, so
// they sum those of one tile, a few columns at a time, and threads add them up in float32.
#pragma once

#include <cute/arch/copy_sm75.hpp>

#include "sm90/common/special_registers.cuh"
#include "sm90/mainloop/rows_m64/shared_storage.cuh"

namespace mla::sm90::rows_m64 {

// What a warpgroup of the output does with a tile. `kBlocks` blocks stage tiles together.
// `Accumulator` has a thread's sums of the warpgroup's columns of a half.
template <class Format, int kBlocks, class Accumulator>
class MmaPvFp8 {
  using Element = typename Format::Element;
  using Sums = Accumulator[Format::kHalves];
  using Rows = float[kThreadRows];
  static constexpr auto kMajor = cute::GMMA::Major::K;
  static constexpr int kStepColumns = 32;  // the products of more take too many registers
  static constexpr int kSteps = kPvColumns / kStepColumns;
  using Tile = cute::Shape<cute::_64, cute::Int<kStepColumns>, cute::_64>;
  using Mma = decltype(cute::make_tiled_mma(
      cute::GMMA::rs_op_selector<Element, Element, float, Tile, kMajor, kMajor>()));
  using Products = decltype(cute::partition_fragment_C(
      Mma{}, cute::Shape<cute::_64, cute::Int<kStepColumns>>{}));
  using Weights = decltype(cute::make_tensor<Element>(
      cute::partition_shape_A(Mma{}, cute::Shape<cute::_64, cute::Int<kTileTokens>>{})));
  static constexpr int kWeightWords = kTileRows * kTileTokens / kWarpgroup / sizeof(uint32_t);
  // V^T in the stages of the latent, columns by tokens.
  using Values = decltype(cute::tile_to_shape(
      ChunkAtom<Element>{},
      cute::Shape<cute::Int<kHalf>, cute::Int<kTileTokens>, cute::Int<Format::kLatentStages>>{}));

 public:
  // `side` of each half's columns is the warpgroup's. What follows from `thread` is computed for
  // each tile, or it would take registers of all.
  __device__ MmaPvFp8(SharedStorage<Format>& shared, uint32_t thread, int side)
      : shared_(shared), thread_(keep_in_register(thread)), side_(side) {}

  // Adds P V of a tile to `sums`. The last tile of a work tile brings `final_scale`.
  __device__ __forceinline__ void add(uint32_t tile, bool is_last, Sums& sums, Rows& final_scale) {
    const PipelineState<kPStages> p(tile);
    const uint32_t own = keep_in_register(own_weights());
    shared_.p_full[p.stage][0].wait(p.phase);
    read_weights(shared_.p[p.stage], own);
    const bool rescales = shared_.rescales[p.stage][thread_ / kWarp] != 0;
    if (is_last) read_rows(shared_.final_scale[p.stage], thread_, final_scale);
    if (__any_sync(~0u, rescales)) {
      Rows factor;
      read_rows(shared_.rescale[p.stage], thread_, factor);
#pragma unroll
      for (auto& half : sums) scale_rows(half, factor);
    }
    shared_.p_empty[p.stage].arrive();
#pragma unroll
    for (int half = 0; half < Format::kHalves; ++half) {
      const auto latent = latent_state<Format>(tile, half);
      shared_.latent_full[latent.stage].wait(latent.phase);
      add_half(latent.stage, sums[half]);
      consumer_release<kBlocks>(shared_.latent_empty[latent.stage], thread_ % kWarp);
    }
  }

 private:
  static constexpr int kGroup = 16;  // tokens, and bytes that ldmatrix reads at once
  static constexpr int kGroups = kTileTokens / kGroup;

  // Where a thread reads P, in bytes.
  __device__ __forceinline__ uint32_t own_weights() const {
    const uint32_t lane = thread_ % kWarp;
    const uint32_t row = thread_ / kWarp * 16 + lane % 16;
    return (row * kGroups + (lane / 16 ^ row / 2 % kGroups)) * kGroup;
  }

  __device__ __forceinline__ void read_weights(const Element* tile, uint32_t own) {
    cute::Tensor words = cute::recast<uint32_t>(weights_);
#pragma unroll
    for (int i = 0; i < kWeightWords; i += 4) {
      const auto* const from = reinterpret_cast<const char*>(tile) + (own ^ i / 2 * kGroup);
      cute::SM75_U32x4_LDSM_N::copy(*reinterpret_cast<const cute::uint128_t*>(from), words(i),
                                    words(i + 1), words(i + 2), words(i + 3));
    }
  }

  __device__ __forceinline__ void add_half(int stage, Accumulator& sums) {
    using namespace cute;
    Mma mma;
    const Tensor v = mma.get_slice(0).partition_fragment_B(
        make_tensor(make_smem_ptr(shared_.latent[0]), Values{}));
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      mma.accumulate_ = GMMA::ScaleOut::Zero;
      warpgroup_fence_operand(products_);
      warpgroup_fence_operand(weights_);
      warpgroup_arrive();
#pragma unroll
      for (int i = 0; i < size<2>(weights_); ++i) {
        gemm(mma, weights_(_, 0, i), v(_, side_ * kSteps + step, i, stage), products_(_, 0, 0));
        mma.accumulate_ = GMMA::ScaleOut::One;
      }
      warpgroup_commit_batch();
      warpgroup_wait<0>();
      warpgroup_fence_operand(products_);
#pragma unroll
      for (int e = 0; e < size(products_); ++e) sums(step * size(products_) + e) += products_(e);
    }
  }

  SharedStorage<Format>& shared_;
  const uint32_t thread_;
  const int side_;
  Weights weights_;  // P
  Products products_;
};

}  // namespace mla::sm90::rows_m64
