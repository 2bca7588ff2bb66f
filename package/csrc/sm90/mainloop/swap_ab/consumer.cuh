// A consumer: a warpgroup that multiplies every second tile, K Q^T and V^T P^T, into sums of its
// own. KV tokens are the rows of its logits, and columns of V the rows of its sums, so that few
// queries waste no tensor cores.
#pragma once

#include "sm90/mainloop/swap_ab/epilogue.cuh"
#include "sm90/mainloop/swap_ab/mma_scaled_registers.cuh"
#include "sm90/mainloop/swap_ab/mma_shared.cuh"
#include "sm90/mainloop/swap_ab/query_operand.cuh"
#include "sm90/mainloop/swap_ab/softmax.cuh"

namespace mla::sm90::swap_ab {

// The products of a format.
template <class Format, int kRows, bool kReadsToRegisters = Format::kReadsToRegisters,
          bool kHasScales = (Format::kScales > 0)>
struct MmaOf {
  using Type = SharedMma<Format, kRows>;
};
template <class Format, int kRows>
struct MmaOf<Format, kRows, true, false> {
  using Type = RegisterMma<Format, kRows>;
};
template <class Format, int kRows>
struct MmaOf<Format, kRows, true, true> {
  using Type = ScaledRegisterMma<Format, kRows>;
};

template <class Format, class Out, int kRows, class Params>
class Consumer {
  using Element = typename Format::Element;
  using Mma = typename MmaOf<Format, kRows>::Type;
  using Accumulator = typename Mma::Accumulator;
  using Softmax = swap_ab::Softmax<Format, Accumulator, kRows, Params>;
  using Shared = SharedStorage<Format, kRows>;
  static constexpr int kElements = cute::size(Accumulator{});

 public:
  __device__ Consumer(const Params& params, Shared& shared, int consumer)
      : params_(params),
        shared_(shared),
        consumer_(consumer),
        mma_(shared),
        softmax_(params, shared) {}

  __device__ __forceinline__ void run() {
    uint32_t index = 0;
    for (WorkTile work; consume_work_tile(shared_.work_tiles, work, index);) {
      const PipelineState<Shared::kQueryStages> query(index);
      QueryFacts<kRows>& facts = shared_.query_facts[index % Shared::kFactStages];
      const int blocks = max(warp_uniform(work.end_block - work.first_block), 0);
      shared_.query_full[query.stage].wait(query.phase);
      if (blocks > 0) {
        QueryOperand<Format, kRows, Params>{params_}.prepare(shared_.q[query.stage],
                                                             facts.logit_scale);
      }
#pragma unroll
      for (int chunk = 0; chunk < kLatentChunks; ++chunk) cute::clear(sums_[chunk]);
      softmax_.start(facts);
      const WorkTile& kept = Softmax::kInRegisters ? work : facts.work;
      compute(kept, blocks, query);
      if constexpr (Format::kScales > 0) mma_.order_rope(sums_);
      Epilogue<Mma, Out, kRows, Params>{params_, shared_, consumer_, mma_}.run(
          kept, facts.index == 0, blocks, first_tile(), softmax_, sums_);
      const uint32_t others = position_ + (blocks + consumer_) / kConsumers;
      position_ = (first_tile() + blocks) << 1 | (others & 1);
      index = facts.index + 1;  // read anew: it has no register in the loop over tiles
    }
  }

 private:
  __device__ __forceinline__ void compute(const WorkTile& work, int blocks,
                                          const PipelineState<Shared::kQueryStages>& query) {
#pragma unroll 1
    for (int i = consumer_; i < blocks; i += kConsumers) {
      const uint32_t tile = in_uniform_register(first_tile() + i);
      const int first_token = (work.first_block + i) * kTileTokens;
      if (i > 0) wait_for_turn(i);
      const uint64_t present = mma_.multiply_keys(query.stage, tile, logits_);
      if (threadIdx.x % kWarp == 0) shared_.received[consumer_].arrive();
      softmax_.mask(logits_, present, first_token);
      make_p(tile, work.tokens - first_token);
      // The consumers exchange sums in the memory of the last tile; the epilogue releases it.
      const bool is_last = i + kConsumers >= blocks;
      mma_.multiply_values(shared_.p[consumer_], tile, sums_, is_last);
    }
    shared_.query_empty[query.stage].arrive();
  }

  // The first tile of the work tile, in KV's pipelines.
  __device__ __forceinline__ uint32_t first_tile() const { return position_ >> 1; }

  // Waits until the other consumer has received the tile before the work tile's i-th. Tiles may
  // arrive in any order, and a phase of a stage's barrier tells a use from the one before only to
  // those who know that all uses before that are over.
  __device__ __forceinline__ void wait_for_turn(int i) const {
    static_assert(kConsumers == 2);
    shared_.received[1 - consumer_].wait((position_ + (i - 1) / 2) & 1);
  }

  // That of the consumer's own threads.
  __device__ __forceinline__ uint32_t barrier() const { return kFirstConsumer + consumer_; }

  // Turns the logits into P, in shared memory for all of the consumer's warps.
  __device__ __forceinline__ void make_p(uint32_t tile, int tokens) {
    if (any_of_consumer(softmax_.exceeds(logits_))) {
      typename Softmax::Rows rescale;
      softmax_.raise_max(logits_, shared_.of_warps[consumer_], barrier(), rescale);
#pragma unroll
      for (int chunk = 0; chunk < kLatentChunks; ++chunk) {
#pragma unroll
        for (int e = 0; e < kElements; ++e) sums_[chunk](e) *= rescale[Softmax::row_of(e)];
      }
    }
    softmax_.exponentiate(logits_);
    mma_.store_p(shared_.p[consumer_], tile, logits_);
    if (tokens < kTileTokens) mma_.clear_tail(tile, tokens);
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(kWarpgroup, barrier());
  }

  __device__ __forceinline__ bool any_of_consumer(bool own) const {
    uint32_t any;
    asm volatile(
        "{ .reg .pred own, any; setp.ne.u32 own, %1, 0;"
        " barrier.cta.red.or.pred any, %2, %3, own; selp.u32 %0, 1, 0, any; }"
        : "=r"(any)
        : "r"(static_cast<uint32_t>(own)), "r"(barrier()), "n"(kWarpgroup)
        : "memory");
    return any != 0;
  }

  const Params& params_;
  Shared& shared_;
  const int consumer_;
  const Mma mma_;
  Softmax softmax_;
  Accumulator logits_;
  Accumulator sums_[kLatentChunks];
  // The first tile and, in the lowest bit, whether the other consumer has had an odd number of
  // tiles in work tiles before: there is one register for both.
  uint32_t position_ = 0;
};

}  // namespace mla::sm90::swap_ab
