// A warpgroup of the output sums up P V of each tile in registers, for half of the columns. The two
// warpgroups multiply the left half of a tile's latent together, then the right one, so that
// the stage of the left one is free early.
#pragma once

#include "sm90/mainloop/rows_m64/epilogue.cuh"

namespace mla::sm90::rows_m64 {

// `kBlocks` blocks fill the KV pipelines together.
template <class Format, class Out, int kBlocks, class Params>
class MmaPv {
  using Element = typename Format::Element;
  static constexpr int kBlockChunks = kPvColumns / kChunk;
  static_assert(2 * kBlockChunks == kHalfChunks);
  using Tile = cute::Shape<cute::_64, cute::Int<kPvColumns>, cute::_64>;
  using Mma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, Tile, cute::GMMA::Major::K,
                                 cute::GMMA::Major::MN>()));
  using Accumulator =
      decltype(cute::partition_fragment_C(Mma{}, cute::Shape<cute::_64, cute::Int<kPvColumns>>{}));
  static constexpr int kElements = cute::size(Accumulator{});
  using Rows = float[kThreadRows];

 public:
  // `side` of each half's columns is the warpgroup's.
  __device__ MmaPv(const Params& params, SharedStorage<Format>& shared, int side)
      : params_(params), shared_(shared), thread_(threadIdx.x % kWarpgroup), side_(side) {}

  // Says whether the blocks have synchronized: they have if the last work tile is the first of two
  // splits of a request, which this block combines.
  __device__ __forceinline__ bool run(int first_row) {
    WorkTile work;
    for (WorkTileConsumer work_tiles(shared_.work_tiles); work_tiles.next(work);) {
      const int blocks = warp_uniform(work.end_block - work.first_block);
      cute::clear(out_[0]);
      cute::clear(out_[1]);
      if (blocks > 0) ++tile_;  // Q takes the stages of a tile
      Rows final_scale = {0, 0};
      for (int i = 0; i < blocks; ++i) {
        const PipelineState<kPStages> p(p_count_);
        shared_.p_full[p.stage].wait(p.phase);
        // The fence stands here and not before P's arrival, since the logits are the longer way.
        cutlass::arch::fence_view_async_shared();
        rescale(p.stage);
        multiply<0>(p.stage);
        if (i + 1 < blocks) let_logits_go_first();
        multiply<1>(p.stage);
        if (i + 1 == blocks) read(shared_.final_scale[p.stage], final_scale);
        end_tile(p.stage);
      }
      Epilogue<Format, Out, Accumulator, Params> epilogue = {params_, shared_, thread_, side_,
                                                             out_};
      if (work.partial >= 0 && (Params::kIsSparse || params_.combines)) {
        if (work.other_partial >= 0) {
          epilogue.combine_two(work, first_row, final_scale);
          return true;
        }
        epilogue.store_partial(work, first_row, final_scale);
      } else {
        epilogue.store_rows(work, first_row, final_scale);
      }
    }
    return false;
  }

 private:
  __device__ __forceinline__ void read(const float (&rows)[kTileRows], Rows& own) const {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) own[i] = rows[tile_row(i)];
  }

  __device__ __forceinline__ void rescale(int stage) {
    if (shared_.rescales[stage][thread_ / kWarp] == 0) return;
    Rows factor;
    read(shared_.rescale[stage], factor);
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      out_[0](e) *= factor[e % 4 / 2];
      out_[1](e) *= factor[e % 4 / 2];
    }
  }

  // The warpgroups share the tensor cores. If the next logits come first, their softmax runs while
  // the output is multiplied; but only if their KV has arrived.
  __device__ __forceinline__ void let_logits_go_first() {
    const auto next = latent_state<Format>(tile_ + 1, 1);
    if (!shared_.latent_full[next.stage].test_wait(next.phase)) return;
    const PipelineState<kPStages> p(p_count_ + 1);
    shared_.logits_done[p.stage].wait(p.phase);
  }

  template <int kHalfOfColumns>
  __device__ __forceinline__ void multiply(int p_stage) {
    using namespace cute;
    Mma mma;
    const Tensor p = mma.get_slice(thread_).partition_fragment_A(chunk_tensor(shared_.p[p_stage]));
    Element* const half = shared_.latent[latent_state<Format>(tile_, kHalfOfColumns).stage];
    const Tensor v = mma.get_slice(thread_).partition_fragment_B(
        make_tensor(make_smem_ptr(half + side_ * kBlockChunks * kAtomElements),
                    ValueLayout<Element, kPvColumns>{}));
    warpgroup_fence_operand(out_[kHalfOfColumns]);
    warpgroup_arrive();
#pragma unroll
    for (int i = 0; i < size<2>(p); ++i) {
      gemm(mma, p(_, _, i), v(_, _, i), out_[kHalfOfColumns]);
    }
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    warpgroup_fence_operand(out_[kHalfOfColumns]);
    consumer_release<kBlocks>(
        shared_.latent_empty[latent_state<Format>(tile_, kHalfOfColumns).stage]);
  }

  __device__ __forceinline__ void end_tile(int p_stage) {
    // Every lane arrives, since each has read what comes with P.
    shared_.p_empty[p_stage].arrive();
    ++tile_;
    ++p_count_;
  }

  const Params& params_;
  SharedStorage<Format>& shared_;
  const int thread_;
  const int side_;
  Accumulator out_[2];    // of the halves
  uint32_t tile_ = 0;     // of the KV pipelines
  uint32_t p_count_ = 0;  // uses of P's pipeline
};

}  // namespace mla::sm90::rows_m64
