// A warpgroup of the output sums up P V of each tile in registers, for half of the columns. The two
// warpgroups multiply the left half of a tile's latent together, then the right one, so that
// the stage of the left one is free early.
#pragma once

#include "sm90/mainloop/rows_m64/epilogue.cuh"
#include "sm90/mainloop/rows_m64/fp8/mma_pv.cuh"

namespace mla::sm90::rows_m64 {

// `kBlocks` blocks of a cluster fill the KV pipelines together.
template <class Format, class Out, int kBlocks, class Params>
class MmaPv {
  using Element = typename Format::Element;
  static constexpr int kBlockChunks = kPvColumns / kChunk;
  static_assert(2 * kBlockChunks == kHalfChunks);
  using Tile = cute::Shape<cute::_64, cute::Int<kPvColumns>, cute::_64>;
  // Tensor cores take V^T of 16 bits from tiles as they are, but not of 8 bits: see MmaPvFp8.
  static constexpr auto kValueMajor =
      Format::kMultipliesFp8 ? cute::GMMA::Major::K : cute::GMMA::Major::MN;
  using Mma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, Tile, cute::GMMA::Major::K,
                                 kValueMajor>()));
  using Accumulator =
      decltype(cute::partition_fragment_C(Mma{}, cute::Shape<cute::_64, cute::Int<kPvColumns>>{}));
  using Rows = float[kThreadRows];

 public:
  // `side` of each half's columns is the warpgroup's.
  __device__ MmaPv(const Params& params, SharedStorage<Format>& shared, int side)
      : params_(params),
        shared_(shared),
        thread_(Format::kMultipliesFp8 ? keep_in_register(threadIdx.x % kWarpgroup)
                                       : threadIdx.x % kWarpgroup),
        side_(side) {}

  // Says whether the request of the last work tile has been combined: that is so if it is split in
  // two and this block combines them.
  __device__ __forceinline__ bool run() {
    WorkTile work;
    for (WorkTileConsumer work_tiles(shared_.work_tiles); work_tiles.next(work);) {
      const int blocks = warp_uniform(work.end_block - work.first_block);
#pragma unroll
      for (auto& half : out_) cute::clear(half);
      // Q takes the stages of a tile.
      if (!Format::kMultipliesFp8 && has_query<Format>(params_, work_tiles.count() == 1, blocks)) {
        ++tile_;
      }
      Rows final_scale = {0, 0};
      // The result goes through the memory of the last tile.
      const bool keeps_last = !Format::kMultipliesFp8 && work.partial < 0;
      for (int i = 0; i < blocks; ++i) {
        const bool is_last = i + 1 == blocks;
        if constexpr (Format::kMultipliesFp8) {
          MmaPvFp8<Format, kBlocks, Accumulator>(shared_, thread_, side_)
              .add(tile_++, is_last, out_, final_scale);
        } else {
          sum(is_last, !is_last || !keeps_last, final_scale);
        }
      }
      Epilogue<Format, Out, Accumulator, Params> epilogue = {params_, shared_, out_};
      if (work.partial < 0) {
        if constexpr (Format::kMultipliesFp8) {
          epilogue.store_rows(work, final_scale);
        } else {
          store_rows(work, final_scale, blocks > 0);
        }
        continue;
      }
      if (blocks <= 0) epilogue.store_empty_rows(work);
      if (!Params::kIsSparse && !params_.combines) {
        epilogue.store_partial_rows(work, final_scale);
      } else if (work.other_partial < 0) {
        epilogue.store_partial(work, final_scale);
        epilogue.count(work_tiles.count() == 1);
      } else {
        wait_for_unused_query();
        epilogue.combine_two(work, final_scale);
        return true;
      }
    }
    wait_for_unused_query();
    return false;
  }

 private:
  // A block that has had no KV may still have the first Q on its way to the memory that combining
  // takes. Its stages have had no other use then.
  __device__ __forceinline__ void wait_for_unused_query() const {
    if (Format::kDequantizes || tile_ == 0 || p_count_ > 0) return;
#pragma unroll
    for (int half = 0; half < Format::kHalves; ++half) shared_.latent_full[half].wait(0);
  }

  __device__ __forceinline__ void sum(bool is_last, bool releases, Rows& final_scale) {
    const PipelineState<kPStages> p(p_count_);
    if constexpr (kPvAfterLogits<Format, kBlocks>) {
      sum_after_logits(p, !is_last, releases);
    } else {
      sum_by_parts(p, !is_last, releases);
    }
    if (is_last) {
      shared_.rows_finished[p.stage].wait(p.phase);
      read_rows(shared_.final_scale[p.stage], thread_, final_scale);
    }
    end_tile(p.stage);
  }

  // Sums up a tile. The left half is multiplied by each part of P as soon as that is there.
  __device__ __forceinline__ void sum_by_parts(const PipelineState<kPStages>& p, bool has_next,
                                               bool releases) {
#pragma unroll
    for (int part = 0; part < kPParts<Format>; ++part) {
      shared_.p_full[p.stage][part].wait(p.phase);
      if (part == 0) {
        fence_and_rescale(p.stage);
      } else {
        cutlass::arch::fence_view_async_shared();
      }
      multiply<0>(p.stage, part, part + 1);
      cute::warpgroup_wait<0>();
      cute::warpgroup_fence_operand(out_[0]);
    }
    if (releases) release<0>(tile_);
    if constexpr (Format::kHalves == 2) {
      if (has_next) let_logits_go_first();
      multiply<1>(p.stage, 0, kPParts<Format>);
      cute::warpgroup_wait<0>();
      cute::warpgroup_fence_operand(out_[1]);
      if (releases) release<1>(tile_);
    }
  }

  // Sums up a tile after the logits of the next one.
  __device__ __forceinline__ void sum_after_logits(const PipelineState<kPStages>& p, bool has_next,
                                                   bool releases) {
    for (auto& part : shared_.p_full[p.stage]) part.wait(p.phase);
    if (has_next) wait_for_next_logits();
    fence_and_rescale(p.stage);
    multiply<0>(p.stage, 0, kPParts<Format>);
    if constexpr (Format::kHalves == 2) {
      multiply<1>(p.stage, 0, kPParts<Format>);
      cute::warpgroup_wait<1>();
      if (releases) release<0>(tile_);
    }
    cute::warpgroup_wait<0>();
#pragma unroll
    for (auto& half : out_) cute::warpgroup_fence_operand(half);
    if (releases) release<Format::kHalves - 1>(tile_);
  }

  // Lets the tensor cores see P, of which the first part has arrived.
  __device__ __forceinline__ void fence_and_rescale(int stage) {
    // The warp's flag is on its way while the fence waits.
    const bool rescales = shared_.rescales[stage][thread_ / kWarp] != 0;
    // The fence stands here and not before P's arrival, since the logits are the longer way.
    cutlass::arch::fence_view_async_shared();
    if (__any_sync(~0u, rescales)) rescale(stage);
  }

  __device__ __forceinline__ void rescale(int stage) {
    Rows factor;
    read_rows(shared_.rescale[stage], thread_, factor);
#pragma unroll
    for (auto& half : out_) scale_rows(half, factor);
  }

  // The warpgroups share the tensor cores. If the next logits come first, their softmax runs while
  // the output is multiplied; but only if their KV has arrived.
  __device__ __forceinline__ void let_logits_go_first() {
    const auto next = latent_state<Format>(tile_ + 1, 1);
    if (shared_.latent_full[next.stage].test_wait(next.phase)) wait_for_next_logits();
  }

  __device__ __forceinline__ void wait_for_next_logits() {
    const PipelineState<kPStages> p(p_count_ + 1);
    shared_.logits_done[p.stage].wait(p.phase);
  }

  // Begins to multiply parts of P with a half of the columns.
  template <int kHalfOfColumns>
  __device__ __forceinline__ void multiply(int p_stage, int first_part, int end_part) {
    using namespace cute;
    Mma mma;
    const Tensor p = mma.get_slice(thread_).partition_fragment_A(chunk_tensor(shared_.p[p_stage]));
    Element* const half = shared_.latent[latent_state<Format>(tile_, kHalfOfColumns).stage];
    const Tensor v = mma.get_slice(thread_).partition_fragment_B(
        make_tensor(make_smem_ptr(half + side_ * kBlockChunks * kAtomElements),
                    ValueLayout<Element, kPvColumns>{}));
    constexpr int kSteps = size<2>(p) / kPParts<Format>;  // of the tensor cores, in a part
    warpgroup_fence_operand(out_[kHalfOfColumns]);
    warpgroup_arrive();
#pragma unroll
    for (int i = first_part * kSteps; i < end_part * kSteps; ++i) {
      gemm(mma, p(_, _, i), v(_, _, i), out_[kHalfOfColumns]);
    }
    warpgroup_commit_batch();
  }

  template <int kHalfOfColumns>
  __device__ __forceinline__ void release(uint32_t tile) {
    consumer_release<kBlocks>(
        shared_.latent_empty[latent_state<Format>(tile, kHalfOfColumns).stage]);
  }

  // Stores the result through the memory of the last tile, if there is one, and releases it.
  __device__ __forceinline__ void store_rows(const WorkTile& work, const Rows& final_scale,
                                             bool has_tile) {
    const StoreRows<Format, Out, Accumulator, Params> store = {params_, shared_, out_};
    if (!has_tile) return store.run_without_tokens(work);
    // All warps of the warpgroup have read the tile after this barrier.
    cutlass::arch::NamedBarrier::sync(kWarpgroup, kFirstPvBarrier + side_of_thread());
    uint4* halves[Format::kHalves];
#pragma unroll
    for (int i = 0; i < Format::kHalves; ++i) {
      halves[i] =
          reinterpret_cast<uint4*>(shared_.latent[latent_state<Format>(tile_ - 1, i).stage]);
    }
    store.run(work, final_scale, halves, [this] {
      cutlass::arch::fence_view_async_shared();
      __syncwarp();
      release<0>(tile_ - 1);
      if constexpr (Format::kHalves == 2) release<1>(tile_ - 1);
    });
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
  Accumulator out_[Format::kHalves];
  uint32_t tile_ = 0;     // of the KV pipelines
  uint32_t p_count_ = 0;  // uses of P's pipeline
};

}  // namespace mla::sm90::rows_m64
