// A consumer: a warpgroup that multiplies every second tile, K Q^T and V^T P^T, into sums of its
// own. KV tokens are the rows of its logits, and columns of V the rows of its sums, so that few
// queries waste no tensor cores. K and V^T are the operand in registers, converted on the way
// there.
#pragma once

#include "sm90/mainloop/swap_ab/epilogue.cuh"
#include "sm90/mainloop/swap_ab/shared_storage.cuh"
#include "sm90/mainloop/swap_ab/softmax.cuh"

namespace mla::sm90::swap_ab {

template <class Out, int kRows, class Params>
class Consumer {
  static constexpr auto kMajor = cute::GMMA::Major::K;
  using Tile = cute::Shape<cute::_64, cute::Int<kRows>, cute::_64>;
  using Mma = decltype(cute::make_tiled_mma(
      cute::GMMA::rs_op_selector<Element, Element, float, Tile, kMajor, kMajor>()));
  using Accumulator =
      decltype(cute::partition_fragment_C(Mma{}, cute::Shape<cute::_64, cute::Int<kRows>>{}));
  using Softmax = swap_ab::Softmax<Accumulator, kRows, Params>;
  using Shared = SharedStorage<kRows>;
  static constexpr int kElements = cute::size(Accumulator{});

  // The operand in registers has 64 rows by the columns or tokens of some steps of the tensor
  // cores; a chunk, or a tile of tokens, has four steps. A read of e4m3 is two of them.
  static constexpr int kReads = kRows == 16 ? 2 : 1;
  static constexpr int kSteps = 2 * kReads;
  static constexpr int kBatches = 4 / kSteps;  // of a chunk
  static constexpr int kReadWords = 4;         // of e4m3, of a thread
  using Operand = decltype(cute::make_tensor<Element>(
      cute::partition_shape_A(Mma{}, cute::Shape<cute::_64, cute::Int<16 * kSteps>>{})));
  using Fp8 = uint32_t[kReads][kReadWords];

 public:
  __device__ Consumer(const Params& params, Shared& shared, int consumer)
      : params_(params),
        shared_(shared),
        consumer_(consumer),
        barrier_(kFirstConsumer + consumer),
        warp_(threadIdx.x % kWarpgroup / kWarp),
        lane_(threadIdx.x % kWarp),
        softmax_(params) {}

  __device__ __forceinline__ void run() {
    WorkTile work;
    for (WorkTileConsumer work_tiles(shared_.work_tiles); work_tiles.next(work);) {
      const int blocks = max(warp_uniform(work.end_block - work.first_block), 0);
#pragma unroll
      for (int chunk = 0; chunk < kLatentChunks; ++chunk) cute::clear(sums_[chunk]);
      softmax_.start(work, shared_.logit_scale[work_tiles.count() % Shared::kScaleStages]);
      compute(work, blocks, PipelineState<Shared::kQueryStages>(work_tiles.count() - 1));
      Epilogue<Out, kRows, Params>{params_, shared_, consumer_}.run(work, blocks, first_tile_,
                                                                    softmax_, sums_);
      first_tile_ += blocks;
    }
  }

 private:
  __device__ __forceinline__ void compute(const WorkTile& work, int blocks,
                                          const PipelineState<Shared::kQueryStages>& query) {
    shared_.query_full[query.stage].wait(query.phase);
#pragma unroll 1
    for (int i = consumer_; i < blocks; i += kConsumers) {
      const PipelineState<Shared::kKvStages> kv(first_tile_ + i);
      const int first_token = (work.first_block + i) * kTileTokens;
      shared_.kv_full[kv.stage].wait(kv.phase);
      multiply_keys(query.stage, kv.stage);
      softmax_.mask(logits_, shared_.present[kv.stage], first_token);
      make_p(kv.stage, work.tokens - first_token);
      multiply_values(kv.stage);
      // The epilogue releases the last tile, in whose memory the consumers exchange sums.
      if (i + kConsumers < blocks) shared_.kv_empty[kv.stage].arrive();
    }
    shared_.query_empty[query.stage].arrive();
  }

  // Multiplies batch by batch. e4m3 is read one batch ahead, and converted while the tensor cores
  // are busy with the batch before.
  template <int kCount, class Read, class Convert, class Multiply>
  static __device__ __forceinline__ void run_batches(Read&& read, Convert&& convert,
                                                     Multiply&& multiply) {
    Fp8 fp8;
    Operand operands[2];
    read(0, fp8);
#pragma unroll
    for (int batch = 0; batch < kCount; ++batch) {
      Operand& operand = operands[batch % 2];
      convert(fp8, operand);
      if (batch + 1 < kCount) read(batch + 1, fp8);
      cute::warpgroup_arrive();
      multiply(batch, operand);
      cute::warpgroup_commit_batch();
      // The next batch overwrites the operand of the batch before this one.
      if (batch + 1 < kCount) {
        cute::warpgroup_wait<1>();
      } else {
        cute::warpgroup_wait<0>();
      }
    }
  }

  // Computes the logits K Q^T.
  __device__ __forceinline__ void multiply_keys(int query_stage, int kv_stage) {
    using namespace cute;
    Mma mma;
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    warpgroup_fence_operand(logits_);
    run_batches<kChunks * kBatches>(
        [&](int batch, Fp8& fp8) { read_keys(kv_stage, batch, fp8); }, convert_keys,
        [&](int batch, const Operand& keys) {
          const Tensor q = mma.get_slice(threadIdx.x % kWarpgroup)
                               .partition_fragment_B(
                                   rows_tensor<kRows>(shared_.q[query_stage][batch / kBatches]));
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            gemm(mma, keys(_, _, step), q(_, _, batch % kBatches * kSteps + step), logits_);
            mma.accumulate_ = GMMA::ScaleOut::One;
          }
        });
    warpgroup_fence_operand(logits_);
  }

  // Reads K of the warp's 16 tokens: a thread gets four neighbouring columns of every sixteen, of
  // two tokens.
  __device__ __forceinline__ void read_keys(int kv_stage, int batch, Fp8& fp8) const {
    const int token = warp_ * 16 + lane_ % 16;
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const int vector = (batch % kBatches * kReads + i) * 2 + lane_ / 16;
      cute::SM75_U32x4_LDSM_N::copy(at(kv_stage, batch / kBatches, token, vector), fp8[i][0],
                                    fp8[i][1], fp8[i][2], fp8[i][3]);
    }
  }

  static __device__ __forceinline__ void convert_keys(const Fp8& fp8, Operand& keys) {
    cute::Tensor words = cute::recast<uint32_t>(keys);
#pragma unroll
    for (int i = 0; i < kReads * kReadWords; ++i) {
      const int first = i / 2 * 4 + i % 2;  // of its step, token by token
      e4m3_to_fp16(fp8[i / kReadWords][i % kReadWords], words(first), words(first + 2));
    }
  }

  // Turns the logits into P, in shared memory for all of the consumer's warps.
  __device__ __forceinline__ void make_p(int kv_stage, int tokens) {
    if (any_of_consumer(softmax_.exceeds(logits_))) {
      typename Softmax::Rows rescale;
      softmax_.raise_max(logits_, shared_.of_warps[consumer_], barrier_, rescale);
#pragma unroll
      for (int chunk = 0; chunk < kLatentChunks; ++chunk) {
#pragma unroll
        for (int e = 0; e < kElements; ++e) sums_[chunk](e) *= rescale[Softmax::row_of(e)];
      }
    }
    softmax_.exponentiate(logits_);
    store_p();
    if (tokens < kTileTokens) clear_tail(kv_stage, tokens);
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(kWarpgroup, barrier_);
  }

  __device__ __forceinline__ bool any_of_consumer(bool own) const {
    uint32_t any;
    asm volatile(
        "{ .reg .pred own, any; setp.ne.u32 own, %1, 0;"
        " barrier.cta.red.or.pred any, %2, %3, own; selp.u32 %0, 1, 0, any; }"
        : "=r"(any)
        : "r"(static_cast<uint32_t>(own)), "r"(barrier_), "n"(kWarpgroup)
        : "memory");
    return any != 0;
  }

  // Stores P as query rows by tokens.
  __device__ __forceinline__ void store_p() const {
#pragma unroll
    for (int first = 0; first < kRows; first += 16) {
      const int row = first + lane_ / 16 * 8 + lane_ % 8;
      const int vector = warp_ * 2 + lane_ / 8 % 2;
      auto* const vectors = reinterpret_cast<cute::uint128_t*>(shared_.p[consumer_]);
      const auto pair = [&](int e) {
        return pack_pair<Element>(logits_(first / 2 + e), logits_(first / 2 + e + 1));
      };
      cute::SM90_U16x8_STSM_T::copy(pair(0), pair(2), pair(4), pair(6),
                                    vectors[row * 8 + (vector ^ row % 8)]);
    }
  }

  // P of tokens that do not exist is 0, which makes NaN of what an unused page may hold.
  __device__ __forceinline__ void clear_tail(int kv_stage, int tokens) const {
    auto* const vectors = reinterpret_cast<uint4*>(shared_.kv[kv_stage]);
    const int absent = (kTileTokens - tokens) * kVectors;
    for (int i = threadIdx.x % kWarpgroup; i < kLatentChunks * absent; i += kWarpgroup) {
      vectors[(i / absent * kTileTokens + tokens) * kVectors + i % absent] = {0, 0, 0, 0};
    }
  }

  // Adds V^T P^T to the sums.
  __device__ __forceinline__ void multiply_values(int kv_stage) {
    using namespace cute;
    Mma mma;
    const Tensor p = mma.get_slice(threadIdx.x % kWarpgroup)
                         .partition_fragment_B(rows_tensor<kRows>(shared_.p[consumer_]));
#pragma unroll
    for (int chunk = 0; chunk < kLatentChunks; ++chunk) warpgroup_fence_operand(sums_[chunk]);
    run_batches<kLatentChunks * kBatches>(
        [&](int batch, Fp8& fp8) { read_values(kv_stage, batch, fp8); }, convert_values,
        [&](int batch, const Operand& values) {
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            gemm(mma, values(_, _, step), p(_, _, batch % kBatches * kSteps + step),
                 sums_[batch / kBatches]);
          }
        });
#pragma unroll
    for (int chunk = 0; chunk < kLatentChunks; ++chunk) warpgroup_fence_operand(sums_[chunk]);
  }

  // Reads V of the warp's 16 columns: a thread gets two neighbouring ones of every two tokens of
  // eight.
  __device__ __forceinline__ void read_values(int kv_stage, int batch, Fp8& fp8) const {
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const int token = (batch % kBatches * kReads + i) * kWarp + lane_;
      cute::SM75_U16x8_LDSM_T::copy(at(kv_stage, batch / kBatches, token, warp_), fp8[i][0],
                                    fp8[i][1], fp8[i][2], fp8[i][3]);
    }
  }

  // A thread's two rows of the operand are neighbouring columns.
  static __device__ __forceinline__ void convert_values(const Fp8& fp8, Operand& values) {
    cute::Tensor words = cute::recast<uint32_t>(values);
#pragma unroll
    for (int i = 0; i < kReads * kReadWords; ++i) {
      constexpr uint32_t kTokensOfEachColumn = 0x3120;
      e4m3_to_fp16(__byte_perm(fp8[i / kReadWords][i % kReadWords], 0, kTokensOfEachColumn),
                   words(i * 2), words(i * 2 + 1));
    }
  }

  __device__ __forceinline__ const cute::uint128_t& at(int kv_stage, int chunk, int token,
                                                       int vector) const {
    return *reinterpret_cast<const cute::uint128_t*>(shared_.kv[kv_stage][chunk] +
                                                     vector_offset(token, vector));
  }

  const Params& params_;
  Shared& shared_;
  const int consumer_;
  const uint32_t barrier_;
  const int warp_;
  const int lane_;
  Softmax softmax_;
  Accumulator logits_;
  Accumulator sums_[kLatentChunks];
  uint32_t first_tile_ = 0;  // of the work tile, in KV's pipeline
};

}  // namespace mla::sm90::swap_ab
