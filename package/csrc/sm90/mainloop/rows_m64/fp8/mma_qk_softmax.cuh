// The warpgroup of the logits in fp8 arithmetic: it converts Q, computes Q K^T and the softmax, of
// which P becomes e4m3.
#pragma once

#include "sm90/mainloop/rows_m64/fp8/query.cuh"
#include "sm90/mainloop/rows_m64/shared_storage.cuh"
#include "sm90/mainloop/rows_m64/softmax.cuh"

namespace mla::sm90::rows_m64 {

// `kBlocks` blocks stage tiles together.
template <class Format, int kBlocks, class Params>
class MmaQkSoftmaxFp8 {
  using Element = typename Format::Element;
  using Staging = typename Format::Staging;
  static constexpr auto kMajor = cute::GMMA::Major::K;
  using Tile = cute::Shape<cute::_64, cute::Int<kTileTokens>, cute::_64>;
  using Mma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, Tile, kMajor, kMajor>()));
  using Logits =
      decltype(cute::partition_fragment_C(Mma{}, cute::Shape<cute::_64, cute::Int<kTileTokens>>{}));
  static constexpr int kParts = 1;
  static constexpr bool kRowsAreScaled = true;
  static constexpr bool kClearsMissingRows = false;  // not tried here
  // The greatest P of a row is 2^8, or up to 416 where its maximum is stale; e4m3 ends at 448.
  using Softmax = rows_m64::Softmax<Logits, kParts, kRowsAreScaled, kClearsMissingRows, Params,
                                    ExponentRange<8>>;
  using Rows = typename Softmax::Rows;
  static constexpr int kStepColumns = 32;  // of the tensor cores
  static constexpr int kStepWords = 4;     // of a thread
  static constexpr int kSteps = Format::kChunks * kChunk / kStepColumns;
  static constexpr int kChunkSteps = kChunk / kStepColumns;

 public:
  __device__ MmaQkSoftmaxFp8(const Params& params, SharedStorage<Format>& shared, int first_row)
      : params_(params),
        shared_(shared),
        first_row_(first_row),
        thread_(threadIdx.x % kWarpgroup),
        softmax_(params, first_row) {}

  __device__ __forceinline__ void run() {
    WorkTile work;
    WorkTile& own_work = shared_.own_work[thread_ / kWarp];
    for (WorkTileConsumer work_tiles(shared_.work_tiles); work_tiles.next(work);) {
      softmax_.start(work);
      const int blocks = warp_uniform(work.end_block - work.first_block);
      if (thread_ % kWarp == 0) own_work = work;
      __syncwarp();
      if (blocks <= 0) softmax_.finish_empty(work);
      if (blocks > 0) take_query(work);
      for (int i = 0; i < blocks; ++i) {
        multiply();
        make_p(own_work, (work.first_block + i) * kTileTokens, i + 1 == blocks);
        ++tile_;
      }
    }
  }

 private:
  // Reads Q, row after row. Rows beyond the last are copies of it.
  __device__ __forceinline__ void take_query(const WorkTile& work) {
    const uint32_t flip = params_.sign_flip | params_.sign_flip >> 8;
    // Tensor cores may still read the Q of the work tile before, for other warps.
    cutlass::arch::NamedBarrier::sync(kWarpgroup, 0);
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const int row = accumulator_row(first_row_, thread_) + i * 8;
      const int r = min(row, query_rows(params_, work) - 1);
      const int token = params_.shape.token_of(r);
      const int head = params_.shape.head_of(r);
      const int column = thread_ % 4 * 4;
      uint2 own[kSteps * 2];
      load_row(params_.query.latent.template at<const uint16_t>(work.query, token, head) + column,
               params_.query.rope.template at<const uint16_t>(work.query, token, head) + column,
               own);
      QueryScale scale;
#pragma unroll
      for (const uint2& four : own) {
        scale.see(four.x);
        scale.see(four.y);
      }
      scale.choose();
      softmax_.scale_logits(i, scale.inverse());
#pragma unroll
      for (int k = 0; k < kSteps * 2; ++k) {
        *query_word(i, k) = scale.convert(own[k]) ^ flip;
      }
    }
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(kWarpgroup, 0);
  }

  // Where four neighbours are in shared memory.
  __device__ __forceinline__ uint32_t* query_word(int i, int four) {
    constexpr int kGroups = kChunk / 16;
    const int row = accumulator_row(0, thread_) + i * 8;
    const int group = four % kGroups ^ row / 2 % kGroups;
    auto* const chunk = reinterpret_cast<uint32_t*>(shared_.q[four / kGroups]);
    return chunk + (row * kGroups + group) * 4 + thread_ % 4;
  }

  // Loads what a thread has of a row: four neighbours of every sixteen.
  __device__ __forceinline__ void load_row(const uint16_t* latent, const uint16_t* rope,
                                           uint2 (&own)[kSteps * 2]) const {
    const auto at = [&](int k) {
      const int of_latent = Format::kQueryLatentChunks * kChunkSteps * 2;
      return k < of_latent ? latent + k * 16 : rope + (k - of_latent) * 16;
    };
    if (params_.query.is_aligned_to_16) {
#pragma unroll
      for (int k = 0; k < kSteps * 2; ++k) own[k] = __ldg(reinterpret_cast<const uint2*>(at(k)));
    } else {
#pragma unroll
      for (int k = 0; k < kSteps * 2; ++k) own[k] = load_four(at(k));
    }
  }

  // Loads four neighbours that are not aligned.
  static __device__ __forceinline__ uint2 load_four(const uint16_t* from) {
    return {__ldg(from) | static_cast<uint32_t>(__ldg(from + 1)) << 16,
            __ldg(from + 2) | static_cast<uint32_t>(__ldg(from + 3)) << 16};
  }

  // Computes the logits of the next tile.
  __device__ __forceinline__ void multiply() {
    using namespace cute;
    const PipelineState<kPStages> p(tile_);
    const PipelineState<Staging::kStages> staged(tile_);
    shared_.staging.full[staged.stage].wait(staged.phase);
    read_present(staged.stage);
    mma_.accumulate_ = GMMA::ScaleOut::Zero;
    warpgroup_fence_operand(logits_);
    warpgroup_arrive();
#pragma unroll
    for (int chunk = 0; chunk < Format::kChunks; ++chunk) {
      const Tensor q = mma_.get_slice(thread_).partition_fragment_A(chunk_tensor(shared_.q[chunk]));
      const Tensor k = mma_.get_slice(thread_).partition_fragment_B(
          chunk_tensor(shared_.staging.chunks[staged.stage][chunk]));
#pragma unroll
      for (int i = 0; i < kChunkSteps; ++i) {
        gemm(mma_, q(_, _, i), k(_, _, i), logits_);
        mma_.accumulate_ = GMMA::ScaleOut::One;
      }
    }
    warpgroup_commit_batch();
    // The softmax needs an empty stage of P; this waits for it while the tensor cores are busy.
    shared_.p_empty[p.stage].wait(p.phase ^ 1);
    warpgroup_wait<0>();
    warpgroup_fence_operand(logits_);
    consumer_release_own_first<kBlocks>(shared_.staging.empty[staged.stage]);
  }

  // The lane that releases the stage reads for all, as racecheck wants it.
  __device__ __forceinline__ void read_present(int stage) {
    uint64_t present = 0;
    if (thread_ % kWarp == 0) present = shared_.staging.present[stage];
    present_ = warp_uniform(present);
  }

  // Turns the logits into P, in shared memory, with the factors that the output needs.
  __device__ __forceinline__ void make_p(const WorkTile& work, int first_token, bool last) {
    const int stage = PipelineState<kPStages>(tile_).stage;
    softmax_.mask(logits_, present_, first_token);
    Rows rescale = {1, 1};
    Rows sums;
    typename Softmax::Flags found;
    const bool raises = softmax_.find_excess(logits_, found);
    if (raises) softmax_.raise_max(logits_, found, rescale);
    softmax_.exponentiate(logits_, 0, logits_, sums);
    softmax_.add(sums);
    store_p(stage);
    if (thread_ % kWarp == 0) shared_.rescales[stage][thread_ / kWarp] = raises;
    if (raises && thread_ % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) shared_.rescale[stage][tile_row(i)] = rescale[i];
    }
    if (last) softmax_.finish(work, shared_.final_scale[stage]);
    __syncwarp();
    if (thread_ % 4 == 0) shared_.p_full[stage][0].arrive();
  }

  // A thread's P of sixteen tokens are neighbours, as Transposer orders them.
  __device__ __forceinline__ void store_p(int stage) {
    constexpr int kGroups = kTileTokens / 16;
    const int lane = thread_ % kWarp;
    const int row = thread_ / kWarp * 16 + lane % 16;
    auto* const to = reinterpret_cast<cute::uint128_t*>(shared_.p[stage]) + row * kGroups;
#pragma unroll
    for (int group = 0; group < kGroups; group += 2) {
      uint32_t words[kStepWords];
#pragma unroll
      for (int i = 0; i < kStepWords; ++i) {
        const int e = (group + i / kThreadRows) * 8 + i % kThreadRows * 2;
        words[i] = pack_e4m3(logits_(e), logits_(e + 1), logits_(e + 4), logits_(e + 5));
      }
      cute::SM90_U32x4_STSM_N::copy(words[0], words[1], words[2], words[3],
                                    to[(group + lane / 16) ^ row / 2 % 4]);
    }
  }

  const Params& params_;
  SharedStorage<Format>& shared_;
  const int first_row_;
  const int thread_;
  Mma mma_;
  Logits logits_;
  Softmax softmax_;
  uint64_t present_;   // a bit for each token of the tile
  uint32_t tile_ = 0;  // of the pipelines of tiles and of P
};

}  // namespace mla::sm90::rows_m64
