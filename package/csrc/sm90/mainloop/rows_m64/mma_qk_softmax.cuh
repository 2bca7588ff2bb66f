// The warpgroup of the logits computes Q K^T, with most of Q in registers, and the softmax.
#pragma once

#include "sm90/common/special_registers.cuh"
#include "sm90/mainloop/rows_m64/query_to_fp16.cuh"
#include "sm90/mainloop/rows_m64/shared_storage.cuh"
#include "sm90/mainloop/rows_m64/softmax.cuh"

namespace mla::sm90::rows_m64 {

// `kBlocks` blocks fill the KV pipelines together; `kThreadsFill`: not TMA, but threads do.
template <class Format, int kBlocks, bool kThreadsFill, class Params>
class MmaQkSoftmax {
  using Element = typename Format::Element;
  static constexpr auto kMajor = cute::GMMA::Major::K;
  using Tile = cute::Shape<cute::_64, cute::Int<kTileTokens>, cute::_64>;
  using RegisterMma = decltype(cute::make_tiled_mma(
      cute::GMMA::rs_op_selector<Element, Element, float, Tile, kMajor, kMajor>()));
  using SharedMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, Tile, kMajor, kMajor>()));
  using Logits = decltype(cute::partition_fragment_C(
      RegisterMma{}, cute::Shape<cute::_64, cute::Int<kTileTokens>>{}));
  using Query = decltype(cute::make_tensor<Element>(cute::partition_shape_A(
      RegisterMma{}, cute::Shape<cute::_64, cute::Int<Format::kRegisterChunks * kChunk>>{})));
  using Softmax = rows_m64::Softmax<Logits, kPParts<Format>, Format::kConvertsQuery,
                                    !Format::kDequantizes, Params>;
  using Rows = typename Softmax::Rows;
  static constexpr int kStepsOfChunk = 4;  // of the tensor cores
  static constexpr int kStepWords = 4;     // of a thread
  static constexpr int kVectors = kChunkVectors<Element>;

 public:
  __device__ MmaQkSoftmax(const Params& params, SharedStorage<Format>& shared, int first_row)
      : params_(params),
        shared_(shared),
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
      if (has_query<Format>(params_, work_tiles.count() == 1, blocks)) take_query();
      for (int i = 0; i < blocks; ++i) {
        multiply();
        make_p(own_work, (work.first_block + i) * kTileTokens, i + 1 == blocks);
        end_tile();
      }
    }
  }

 private:
  // The producer puts Q where a work tile's first tile of KV would be.
  __device__ __forceinline__ void take_query() {
    using namespace cute;
    const auto rope = rope_state<Format>(tile_);
#pragma unroll
    for (int half = 0; half < Format::kHalves; ++half) {
      const auto latent = latent_state<Format>(tile_, half);
      shared_.latent_full[latent.stage].wait(latent.phase);
    }
    shared_.rope_full[rope.stage].wait(rope.phase);
    if constexpr (Format::kConvertsQuery) convert_query();
    Tensor words = recast<uint32_t>(query_);
#pragma unroll
    for (int step = 0; step < Format::kRegisterChunks * kStepsOfChunk; ++step) {
      read_step(chunk_at(step / kStepsOfChunk), step % kStepsOfChunk, &words(step * kStepWords));
    }
#pragma unroll
    for (int i = 0; i < size(words); ++i) words(i) ^= params_.sign_flip;
    // Tensor cores may still read the Q of the work tile before, for other warps.
    cutlass::arch::NamedBarrier::sync(kWarpgroup, 0);
#pragma unroll 1
    for (int chunk = Format::kRegisterChunks; chunk < Format::kChunks; ++chunk) {
      const auto* const from = reinterpret_cast<const uint4*>(chunk_at(chunk));
      auto* const to = reinterpret_cast<uint4*>(shared_.q[chunk - Format::kRegisterChunks]);
      const uint32_t flip = params_.sign_flip;
#pragma unroll
      for (int i = thread_; i < kTileRows * kVectors; i += kWarpgroup) {
        const uint4 vector = from[i];
        to[i] = {vector.x ^ flip, vector.y ^ flip, vector.z ^ flip, vector.w ^ flip};
      }
    }
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(kWarpgroup, 0);
    constexpr int kTimes = 2;  // for the two warpgroups of the output, which do not read Q
#pragma unroll
    for (int half = 0; half < Format::kHalves; ++half) {
      consumer_release<kBlocks, kTimes>(
          shared_.latent_empty[latent_state<Format>(tile_, half).stage]);
    }
    consumer_release<kBlocks>(shared_.rope_empty[rope.stage]);
    ++tile_;
  }

  // A chunk of the tile that comes next in the KV pipelines.
  __device__ __forceinline__ Element* chunk_at(int chunk) const {
    if (Format::kHasKeyChunk && chunk == Format::kKeyChunk) {
      return shared_.rope[rope_state<Format>(tile_).stage];
    }
    return shared_.latent[latent_state<Format>(tile_, chunk / kHalfChunks).stage] +
           chunk % kHalfChunks * kChunkElements;
  }

  // Where a thread's words of a step are, as tensor cores take operand A: of its two rows in turn.
  __device__ __forceinline__ cute::uint128_t& step_at(Element* chunk, int step) const {
    const int thread =
        Params::kIsSparse || Format::kConvertsQuery ? read_thread_index() % kWarpgroup : thread_;
    const int lane = thread % kWarp;
    const int row = thread / kWarp * 16 + lane % 16;
    const int vector = step * 2 + lane / 16;
    return reinterpret_cast<cute::uint128_t*>(chunk)[row * kVectors + (vector ^ row % 8)];
  }

  __device__ __forceinline__ void read_step(Element* chunk, int step, uint32_t* words) const {
    cute::SM75_U32x4_LDSM_N::copy(step_at(chunk, step), words[0], words[1], words[2], words[3]);
  }

  __device__ __forceinline__ void convert_query() {
    QueryToFp16 query;
    uint32_t words[kStepWords];
#pragma unroll 1
    for (int chunk = 0; chunk < Format::kChunks; ++chunk) {
#pragma unroll
      for (int step = 0; step < kStepsOfChunk; ++step) {
        read_step(chunk_at(chunk), step, words);
#pragma unroll
        for (int i = 0; i < kStepWords; ++i) query.see(words[i], i % kThreadRows);
      }
    }
    query.choose_factors();
    for (int i = 0; i < kThreadRows; ++i) softmax_.scale_logits(i, query.inverse_factor(i));
#pragma unroll 1
    for (int chunk = 0; chunk < Format::kChunks; ++chunk) {
#pragma unroll
      for (int step = 0; step < kStepsOfChunk; ++step) {
        read_step(chunk_at(chunk), step, words);
#pragma unroll
        for (int i = 0; i < kStepWords; ++i) words[i] = query.convert(words[i], i % kThreadRows);
        cute::SM90_U32x4_STSM_N::copy(words[0], words[1], words[2], words[3],
                                      step_at(chunk_at(chunk), step));
      }
    }
    cutlass::arch::NamedBarrier::sync(kWarpgroup, 0);
  }

  // Computes the logits of the next tile. The output's warps wake up while the last columns are
  // multiplied. Where they wait for that, the right half is last: they hold its stage longest.
  __device__ __forceinline__ void multiply() {
    constexpr bool kRopeFirst = kPvAfterLogits<Format, kBlocks>;
    const PipelineState<kPStages> p(p_count_);
    register_mma_.accumulate_ = cute::GMMA::ScaleOut::Zero;
    cute::warpgroup_fence_operand(logits_);
    multiply_half<0>();
    if constexpr (!Format::kHasKeyChunk) {
      read_present_of_tile();
      multiply_half<1, true>();
    } else if constexpr (kRopeFirst && Format::kHalves == 2) {
      multiply_rope();
      cute::warpgroup_commit_batch();
      multiply_half<1>();
    } else {
      if constexpr (Format::kHalves == 2) multiply_half<1>();
      cute::warpgroup_commit_batch();
      multiply_rope();
    }
    cute::warpgroup_commit_batch();
    // The softmax needs an empty stage of P; this waits for it while the tensor cores are busy.
    shared_.p_empty[p.stage].wait(p.phase ^ 1);
    cute::warpgroup_wait<1>();
    if (thread_ % kWarp == 0) shared_.logits_done[p.stage].arrive();
    cute::warpgroup_wait<0>();
    cute::warpgroup_fence_operand(logits_);
  }

  __device__ __forceinline__ void multiply_rope() {
    const int stage = read_present_of_tile();
    fence_stores();
    cute::warpgroup_arrive();
    multiply_chunk(Format::kKeyChunk, chunk_tensor(shared_.rope[stage]));
  }

  // Returns the stage that tells which tokens exist, and what the rope columns are in.
  __device__ __forceinline__ int read_present_of_tile() {
    const auto rope = rope_state<Format>(tile_);
    shared_.rope_full[rope.stage].wait(rope.phase);
    present_ = read_present(rope.stage);
    return rope.stage;
  }

  // The last chunk may be a batch of its own.
  template <int kHalfOfColumns, bool kCommitsBeforeLast = false>
  __device__ __forceinline__ void multiply_half() {
    using namespace cute;
    const auto latent = latent_state<Format>(tile_, kHalfOfColumns);
    shared_.latent_full[latent.stage].wait(latent.phase);
    fence_stores();
    warpgroup_arrive();
#pragma unroll
    for (int i = 0; i < kHalfChunks; ++i) {
      if (kCommitsBeforeLast && i + 1 == kHalfChunks) warpgroup_commit_batch();
      multiply_chunk(kHalfOfColumns * kHalfChunks + i,
                     make_tensor(make_smem_ptr(shared_.latent[latent.stage] + i * kAtomElements),
                                 KeyLayout<Element>{}));
    }
  }

  // The lane that releases the stage reads for all: racecheck does not take what other lanes read
  // before a __syncwarp for read before the release.
  __device__ __forceinline__ uint64_t read_present(int stage) const {
    uint64_t present = 0;
    // There is no branch, after which the compiler would take the warp for divergent.
    asm volatile("{ .reg .pred reads; setp.lt.u32 reads, %1, %2; @reads ld.shared.b64 %0, [%3]; }"
                 : "+l"(present)
                 : "r"(thread_ % kWarp), "n"(1),
                   "r"(cute::cast_smem_ptr_to_uint(shared_.present[stage])));
    return warp_uniform(present);
  }

  // Makes what threads have stored visible to the tensor cores.
  __device__ __forceinline__ void fence_stores() const {
    if constexpr (kThreadsFill) cutlass::arch::fence_view_async_shared();
  }

  template <class Keys>
  __device__ __forceinline__ void multiply_chunk(int chunk, const Keys& keys) {
    using namespace cute;
    const Tensor k = register_mma_.get_slice(thread_).partition_fragment_B(keys);
    if (chunk < Format::kRegisterChunks) {
#pragma unroll
      for (int i = 0; i < kStepsOfChunk; ++i) {
        gemm(register_mma_, query_(_, _, chunk * kStepsOfChunk + i), k(_, _, i), logits_);
        register_mma_.accumulate_ = GMMA::ScaleOut::One;
      }
    } else {
      SharedMma mma;
      const Tensor q = mma.get_slice(thread_).partition_fragment_A(
          chunk_tensor(shared_.q[chunk - Format::kRegisterChunks]));
#pragma unroll
      for (int i = 0; i < kStepsOfChunk; ++i) gemm(mma, q(_, _, i), k(_, _, i), logits_);
    }
  }

  // Turns the logits into P, in shared memory, with the factors that the output needs. A dense tile
  // takes the old maxima for great enough, and begins anew if they are not.
  __device__ __forceinline__ void make_p(const WorkTile& work, int first_token, bool last) {
    const int stage = PipelineState<kPStages>(p_count_).stage;
    softmax_.mask(logits_, present_, first_token);
    Rows rescale = {1, 1};
    Rows sums;
    typename Softmax::Flags found;
    bool raises;
    if constexpr (Softmax::kSearchesFirst) {
      raises = softmax_.find_excess(logits_, found);
      if (raises) softmax_.raise_max(logits_, found, rescale);
      store_p(stage, 0, sums);
    } else {
      store_p(stage, 0, sums);
      raises = softmax_.find_excess(logits_, sums, found);
      if (raises) {
        softmax_.raise_max(logits_, found, rescale);
        store_p(stage, 0, sums);
      }
    }
    softmax_.add(sums);
    if (thread_ % kWarp == 0) shared_.rescales[stage][thread_ / kWarp] = raises;
    if (raises && thread_ % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) shared_.rescale[stage][tile_row(i)] = rescale[i];
    }
    if (last) clear_tail(work.tokens - first_token);
#pragma unroll
    for (int part = 0; part < kPParts<Format>; ++part) {
      if (part > 0) {
        store_p(stage, part, sums);
        softmax_.add(sums);
      }
      arrive_by_rows(shared_.p_full[stage][part]);
    }
    if (last) softmax_.finish(work, shared_.final_scale[stage]);
    arrive_by_rows(shared_.rows_finished[stage]);
  }

  // A thread's words of P are those that it would read of operand A.
  __device__ __forceinline__ void store_p(int stage, int part, Rows& sums) {
    constexpr int kSteps = kStepsOfChunk / kPParts<Format>;
    Logits p;
    softmax_.exponentiate(logits_, part, p, sums);
#pragma unroll
    for (int step = part * kSteps; step < (part + 1) * kSteps; ++step) {
      uint32_t words[kStepWords];
#pragma unroll
      for (int i = 0; i < kStepWords; ++i) {
        const int e = (step * kStepWords + i) * 2;
        words[i] = pack_pair<Element>(p(e), p(e + 1));
      }
      cute::SM90_U32x4_STSM_N::copy(words[0], words[1], words[2], words[3],
                                    step_at(shared_.p[stage], step));
    }
  }

  // P of tokens that do not exist is 0, which makes NaN of what an unused page may hold.
  __device__ __forceinline__ void clear_tail(int present) {
    if (present >= kTileTokens) return;
    constexpr int kTokenVectors = kHalfChunks * kVectors;
#pragma unroll 1
    for (int half = 0; half < Format::kHalves; ++half) {
      const int stage = latent_state<Format>(tile_, half).stage;
      auto* const vectors = reinterpret_cast<uint4*>(shared_.latent[stage]);
      for (int i = present * kTokenVectors + thread_; i < kTileTokens * kTokenVectors;
           i += kWarpgroup) {
        const int token = i / kTokenVectors;
        const int chunk = i / kVectors % kHalfChunks;
        vectors[(token / kSwizzleRows * kHalfChunks + chunk) * (kSwizzleRows * kVectors) +
                token % kSwizzleRows * kVectors + i % kVectors] = {0, 0, 0, 0};
      }
    }
  }

  // Lets the output's warps use what this one has stored; lanes that store what rows have arrive.
  __device__ __forceinline__ void arrive_by_rows(Barrier& full) const {
    __syncwarp();
    if (thread_ % 4 == 0) full.arrive();
  }

  // The first lane, which arrives at its own block, has read what comes with the rope columns.
  __device__ __forceinline__ void end_tile() {
    consumer_release_own_first<kBlocks>(shared_.rope_empty[rope_state<Format>(tile_).stage]);
    ++p_count_;
    ++tile_;
  }

  const Params& params_;
  SharedStorage<Format>& shared_;
  const int thread_;
  RegisterMma register_mma_;
  Query query_;
  Logits logits_;
  Softmax softmax_;
  uint64_t present_;      // a bit for each token of the tile
  uint32_t tile_ = 0;     // of the KV pipelines
  uint32_t p_count_ = 0;  // uses of P's pipeline
};

}  // namespace mla::sm90::rows_m64
