// The products of a tile of e4m3 without scales: K and V^T are the operand in registers, converted
// on the way there.
#pragma once

#include "sm90/mainloop/swap_ab/shared_storage.cuh"
#include "sm90/mainloop/swap_ab/store_p.cuh"

namespace mla::sm90::swap_ab {

// A consumer has this. It waits for the stages of a tile, and releases them.
template <class Format, int kRows>
class RegisterMma {
 protected:
  using Element = typename Format::Element;
  static constexpr auto kMajor = cute::GMMA::Major::K;
  using Tile = cute::Shape<cute::_64, cute::Int<kRows>, cute::_64>;
  template <class T>
  using MmaOf = decltype(cute::make_tiled_mma(
      cute::GMMA::rs_op_selector<T, T, float, Tile, kMajor, kMajor>()));
  using KeyMma = MmaOf<typename Format::QueryElement>;
  using ValueMma = MmaOf<Element>;

  // The operand in registers has 64 rows by the columns or tokens of some steps of the tensor
  // cores; a chunk, or a tile of tokens, has four steps. A read of e4m3 is two of them.
  static constexpr int kReads = kRows == 16 ? 2 : 1;
  static constexpr int kSteps = 2 * kReads;
  static constexpr int kBatches = 4 / kSteps;  // of a chunk
  static constexpr int kReadWords = 4;         // of e4m3, of a thread
  static constexpr int kAhead = 2;             // batches that are read ahead
  template <class Mma>
  using OperandOf = decltype(cute::make_tensor<typename Mma::ValTypeA>(
      cute::partition_shape_A(Mma{}, cute::Shape<cute::_64, cute::Int<16 * kSteps>>{})));
  using Keys = OperandOf<KeyMma>;
  using Values = OperandOf<ValueMma>;
  using Fp8 = uint32_t[kReads][kReadWords];

  struct Nothing {
    __device__ __forceinline__ void operator()(int) const {}
  };

 public:
  using Shared = SharedStorage<Format, kRows>;
  using Accumulator =
      decltype(cute::partition_fragment_C(ValueMma{}, cute::Shape<cute::_64, cute::Int<kRows>>{}));

  __device__ explicit RegisterMma(Shared& shared)
      : shared_(shared), warp_(threadIdx.x % kWarpgroup / kWarp), lane_(threadIdx.x % kWarp) {}

  // Computes the logits K Q^T; returns which tokens of the tile exist.
  __device__ __forceinline__ uint64_t multiply_keys(int query_stage, uint32_t tile,
                                                    Accumulator& logits) const {
    using namespace cute;
    const auto state = Format::state(tile);
    shared_.pipelines.full[state.stage].wait(state.phase);
    KeyMma mma;
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    warpgroup_fence_operand(logits);
    run_batches<Keys, kChunks * kBatches>(
        [&](int batch, Fp8& fp8) { read_keys(state.stage, batch, fp8); }, convert_keys,
        [&](int batch, const Keys& keys) {
          const Tensor q = mma.get_slice(threadIdx.x % kWarpgroup)
                               .partition_fragment_B(
                                   rows_tensor<kRows>(shared_.q[query_stage][batch / kBatches]));
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            gemm(mma, keys(_, _, step), q(_, _, batch % kBatches * kSteps + step), logits);
            mma.accumulate_ = GMMA::ScaleOut::One;
          }
        });
    warpgroup_fence_operand(logits);
    return shared_.pipelines.present[state.stage];
  }

  // Adds V^T P^T to the sums. `with_first` may multiply what else there is, with the first batch.
  template <class WithFirst = Nothing>
  __device__ __forceinline__ void multiply_values(Element* p, uint32_t tile,
                                                  Accumulator (&sums)[kLatentChunks],
                                                  bool keeps_exchange,
                                                  WithFirst&& with_first = {}) const {
    using namespace cute;
    const int stage = Format::state(tile).stage;
    ValueMma mma;
#pragma unroll
    for (int chunk = 0; chunk < kLatentChunks; ++chunk) warpgroup_fence_operand(sums[chunk]);
    run_batches<Values, Format::kCodeChunks * kBatches>(
        [&](int batch, Fp8& fp8) { read_values(stage, batch, fp8); }, convert_values,
        [&](int batch, const Values& values) {
          if (batch == 0) with_first(batch);
          const int k = batch / kBatches / Format::kScaleChunks;
          const Tensor weights =
              mma.get_slice(threadIdx.x % kWarpgroup)
                  .partition_fragment_B(rows_tensor<kRows>(p + k * kRows * kTileTokens));
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            gemm(mma, values(_, _, step), weights(_, _, batch % kBatches * kSteps + step),
                 sums[batch / kBatches]);
          }
        });
#pragma unroll
    for (int chunk = 0; chunk < kLatentChunks; ++chunk) warpgroup_fence_operand(sums[chunk]);
    if (!keeps_exchange) release_exchange(tile);
  }

  __device__ __forceinline__ void store_p(Element* p, uint32_t, const Accumulator& weights) const {
    swap_ab::store_p<Element, kRows>(p, weights);
  }

  // P of tokens that do not exist is 0, which makes NaN of what an unused page may hold.
  __device__ __forceinline__ void clear_tail(uint32_t tile, int tokens) const {
    constexpr int kVectors = Format::kVectors;
    auto* const vectors =
        reinterpret_cast<uint4*>(Format::tile(shared_.kv, Format::state(tile).stage));
    const int absent = (kTileTokens - tokens) * kVectors;
    for (int i = threadIdx.x % kWarpgroup; i < kLatentChunks * absent; i += kWarpgroup) {
      vectors[(i / absent * kTileTokens + tokens) * kVectors + i % absent] = {0, 0, 0, 0};
    }
  }

  // The memory of a tile in which consumers exchange sums, if it is their last.
  static constexpr size_t kExchangeBytes = Format::kTileBytes;
  __device__ __forceinline__ float* exchange(uint32_t tile) const {
    return reinterpret_cast<float*>(Format::tile(shared_.kv, Format::state(tile).stage));
  }
  __device__ __forceinline__ void release_exchange(uint32_t tile) const {
    shared_.pipelines.empty[Format::state(tile).stage].arrive();
  }

  // A thread has two neighbouring columns of sixteen, of two rows. Two lanes exchange, so that each
  // has the four columns of one row that a lane of a fragment has.
  static constexpr int kFragmentLane = 4;  // lanes by which those of a fragment's row differ
  static constexpr int kPartner = 16;
  static __device__ __forceinline__ bool has_upper_row(int lane) { return lane >= 16; }
  static __device__ __forceinline__ float4 in_fragment(bool upper, const float (&own)[2],
                                                       const float (&got)[2]) {
    return {upper ? got[0] : own[0], upper ? got[1] : own[1], upper ? own[0] : got[0],
            upper ? own[1] : got[1]};
  }

 protected:
  // Multiplies batch by batch. e4m3 is converted while the tensor cores are busy with the batch
  // before. One batch ahead would be too late to read it: what they read of operand B comes first.
  // `done(batch)` is called when a batch has been multiplied.
  template <class Operand, int kCount, class Read, class Convert, class Multiply,
            class Done = Nothing>
  static __device__ __forceinline__ void run_batches(Read&& read, Convert&& convert,
                                                     Multiply&& multiply, Done&& done = {}) {
    Fp8 fp8[kAhead];
    Operand operands[2];
#pragma unroll
    for (int batch = 0; batch < kAhead; ++batch) read(batch, fp8[batch]);
#pragma unroll
    for (int batch = 0; batch < kCount; ++batch) {
      Operand& operand = operands[batch % 2];
      convert(fp8[batch % kAhead], operand);
      if (batch + kAhead < kCount) read(batch + kAhead, fp8[batch % kAhead]);
      cute::warpgroup_arrive();
      multiply(batch, operand);
      cute::warpgroup_commit_batch();
      // The next batch overwrites the operand of the batch before this one.
      if (batch + 1 < kCount) {
        cute::warpgroup_wait<1>();
      } else {
        cute::warpgroup_wait<0>();
      }
      if (batch > 0) done(batch - 1);
    }
    done(kCount - 1);
  }

  // Reads K of the warp's 16 tokens: a thread gets four neighbouring columns of every sixteen, of
  // two tokens.
  __device__ __forceinline__ void read_keys(int stage, int batch, Fp8& fp8) const {
    const int token = warp_ * 16 + lane_ % 16;
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const int vector = (batch % kBatches * kReads + i) * 2 + lane_ / 16;
      cute::SM75_U32x4_LDSM_N::copy(at(stage, batch / kBatches, token, vector), fp8[i][0],
                                    fp8[i][1], fp8[i][2], fp8[i][3]);
    }
  }

  static __device__ __forceinline__ void convert_keys(const Fp8& fp8, Keys& keys) {
    cute::Tensor words = cute::recast<uint32_t>(keys);
#pragma unroll
    for (int i = 0; i < kReads * kReadWords; ++i) {
      const int first = i / 2 * 4 + i % 2;  // of its step, token by token
      e4m3_to_fp16(fp8[i / kReadWords][i % kReadWords], words(first), words(first + 2));
    }
  }

  // Reads V of the warp's 16 columns: a thread gets two neighbouring ones of every two tokens of
  // eight.
  __device__ __forceinline__ void read_values(int stage, int batch, Fp8& fp8) const {
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const int token = (batch % kBatches * kReads + i) * kWarp + lane_;
      cute::SM75_U16x8_LDSM_T::copy(at(stage, batch / kBatches, token, warp_), fp8[i][0], fp8[i][1],
                                    fp8[i][2], fp8[i][3]);
    }
  }

  // A thread's two rows of the operand are neighbouring columns.
  static __device__ __forceinline__ void convert_values(const Fp8& fp8, Values& values) {
    cute::Tensor words = cute::recast<uint32_t>(values);
#pragma unroll
    for (int i = 0; i < kReads * kReadWords; ++i) {
      constexpr uint32_t kTokensOfEachColumn = 0x3120;
      Format::convert_values(
          __byte_perm(fp8[i / kReadWords][i % kReadWords], 0, kTokensOfEachColumn), words(i * 2),
          words(i * 2 + 1));
    }
  }

  __device__ __forceinline__ const cute::uint128_t& at(int stage, int chunk, int token,
                                                       int vector) const {
    return *reinterpret_cast<const cute::uint128_t*>(Format::tile(shared_.kv, stage) +
                                                     Format::vector_offset(chunk, token, vector));
  }

  Shared& shared_;
  const int warp_;
  const int lane_;
};

}  // namespace mla::sm90::swap_ab
