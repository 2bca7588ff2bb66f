// A worker: a warpgroup that computes whole tiles, each its share of them, into partial sums of its
// own. Tokens are the rows of its logits, and columns of V the rows of its sums, so that few
// queries waste no tensor cores: K and V^T are the operand in registers, widened on the way there.
#pragma once

#include "sm90/mainloop/swap_ab/epilogue.cuh"
#include "sm90/mainloop/swap_ab/shared_storage.cuh"
#include "sm90/mainloop/swap_ab/softmax.cuh"

namespace mla::sm90::stream {

template <class Out, int kRows>
class Worker {
  static constexpr auto kMajor = cute::GMMA::Major::K;
  using Tile = cute::Shape<cute::_64, cute::Int<kRows>, cute::_64>;
  using Mma = decltype(cute::make_tiled_mma(
      cute::GMMA::rs_op_selector<Element, Element, float, Tile, kMajor, kMajor>()));
  using Sums =
      decltype(cute::partition_fragment_C(Mma{}, cute::Shape<cute::_64, cute::Int<kRows>>{}));
  using Softmax = stream::Softmax<Sums, kRows>;
  using Shared = SharedMemory<kRows>;
  static constexpr int kSumsOfThread = cute::size(Sums{});

  // The operand in registers: 64 rows by the columns or tokens of some steps of the tensor cores,
  // of which a chunk, or a tile of tokens, has four. A read of codes is two of them.
  static constexpr int kReads = kRows == 16 ? 2 : 1;
  static constexpr int kSteps = 2 * kReads;
  static constexpr int kBatches = 4 / kSteps;  // of a chunk
  static constexpr int kReadWords = 4;         // of codes, of a thread
  using Operand = decltype(cute::make_tensor<Element>(
      cute::partition_shape_A(Mma{}, cute::Shape<cute::_64, cute::Int<16 * kSteps>>{})));
  using Codes = uint32_t[kReads][kReadWords];

 public:
  __device__ Worker(const Params& params, Shared& shared, int worker)
      : params_(params),
        shared_(shared),
        worker_(worker),
        barrier_(kFirstWorker + worker),
        warp_(threadIdx.x % kWarpgroup / kWarp),
        lane_(threadIdx.x % kWarp),
        softmax_(params) {}

  __device__ __forceinline__ void run() {
    Item item;
    for (ItemReader items(shared_.items); items.next(item);) {
      // From one lane, so that the compiler knows that a warp does not diverge.
      const int blocks = max(__shfl_sync(~0u, item.end - item.first, 0), 0);
#pragma unroll
      for (int chunk = 0; chunk < kLatentChunks; ++chunk) cute::clear(sums_[chunk]);
      softmax_.start(item, shared_.logit_scale[items.turn() % Shared::kScaleSlots]);
      compute(item, blocks, Place<Shared::kQuerySlots>(items.turn() - 1));
      Joint<Out, kRows>{params_, shared_, worker_}.join(item, blocks, first_turn_, softmax_, sums_);
      first_turn_ += blocks;
    }
  }

 private:
  __device__ __forceinline__ void compute(const Item& item, int blocks,
                                          const Place<Shared::kQuerySlots>& query) {
    shared_.query_full[query.slot].wait(query.phase);
#pragma unroll 1
    for (int i = worker_; i < blocks; i += kWorkers) {
      const Place<Shared::kTileSlots> place(first_turn_ + i);
      const int first_token = (item.first + i) * kTileTokens;
      shared_.tile_full[place.slot].wait(place.phase);
      multiply_keys(query.slot, place.slot);
      softmax_.mask(logits_, shared_.present[place.slot], first_token);
      weigh(place.slot, item.tokens - first_token);
      multiply_values(place.slot);
      // Of the last tile, when the workers have joined their sums in its memory.
      if (i + kWorkers < blocks) shared_.tile_empty[place.slot].arrive();
    }
    shared_.query_empty[query.slot].arrive();
  }

  // Batch by batch: codes are read one ahead, and widened while the tensor cores are busy with the
  // batch before.
  template <int kCount, class Read, class Widen, class Multiply>
  static __device__ __forceinline__ void run_batches(Read&& read, Widen&& widen,
                                                     Multiply&& multiply) {
    Codes codes;
    Operand operands[2];
    read(0, codes);
#pragma unroll
    for (int batch = 0; batch < kCount; ++batch) {
      Operand& operand = operands[batch % 2];
      widen(codes, operand);
      if (batch + 1 < kCount) read(batch + 1, codes);
      cute::warpgroup_arrive();
      multiply(batch, operand);
      cute::warpgroup_commit_batch();
      // The operand that is written next.
      if (batch + 1 < kCount) {
        cute::warpgroup_wait<1>();
      } else {
        cute::warpgroup_wait<0>();
      }
    }
  }

  // The logits: K Q^T.
  __device__ __forceinline__ void multiply_keys(int query, int tile) {
    using namespace cute;
    Mma mma;
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    warpgroup_fence_operand(logits_);
    run_batches<kChunks * kBatches>(
        [&](int batch, Codes& codes) { read_keys(tile, batch, codes); }, widen_keys,
        [&](int batch, const Operand& keys) {
          const Tensor q =
              mma.get_slice(threadIdx.x % kWarpgroup)
                  .partition_fragment_B(rows_tensor<kRows>(shared_.q[query][batch / kBatches]));
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            gemm(mma, keys(_, _, step), q(_, _, batch % kBatches * kSteps + step), logits_);
            mma.accumulate_ = GMMA::ScaleOut::One;
          }
        });
    warpgroup_fence_operand(logits_);
  }

  // Of the 16 tokens of a warp: of two of them, four neighbouring columns of every sixteen.
  __device__ __forceinline__ void read_keys(int tile, int batch, Codes& codes) const {
    const int token = warp_ * 16 + lane_ % 16;
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const int piece = (batch % kBatches * kReads + i) * 2 + lane_ / 16;
      cute::SM75_U32x4_LDSM_N::copy(at(tile, batch / kBatches, token, piece), codes[i][0],
                                    codes[i][1], codes[i][2], codes[i][3]);
    }
  }

  static __device__ __forceinline__ void widen_keys(const Codes& codes, Operand& keys) {
    cute::Tensor words = cute::recast<uint32_t>(keys);
#pragma unroll
    for (int i = 0; i < kReads * kReadWords; ++i) {
      const int first = i / 2 * 4 + i % 2;  // of its step, token by token
      widen(codes[i / kReadWords][i % kReadWords], words(first), words(first + 2));
    }
  }

  // Weights of the tile, for all of the worker's tensor cores.
  __device__ __forceinline__ void weigh(int tile, int tokens) {
    if (any_of_worker(softmax_.exceeds(logits_))) {
      typename Softmax::Own factor;
      softmax_.raise_max(logits_, shared_.of_warps[worker_], barrier_, factor);
#pragma unroll
      for (int chunk = 0; chunk < kLatentChunks; ++chunk) {
#pragma unroll
        for (int e = 0; e < kSumsOfThread; ++e) sums_[chunk](e) *= factor[Softmax::row_of(e)];
      }
    }
    softmax_.exponentiate(logits_);
    share_weights();
    if (tokens < kTileTokens) clear_tail(tile, tokens);
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(kWarpgroup, barrier_);
  }

  __device__ __forceinline__ bool any_of_worker(bool own) const {
    uint32_t any;
    asm volatile(
        "{ .reg .pred own, any; setp.ne.u32 own, %1, 0;"
        " barrier.cta.red.or.pred any, %2, %3, own; selp.u32 %0, 1, 0, any; }"
        : "=r"(any)
        : "r"(static_cast<uint32_t>(own)), "r"(barrier_), "n"(kWarpgroup)
        : "memory");
    return any != 0;
  }

  // As rows of queries by tokens.
  __device__ __forceinline__ void share_weights() const {
#pragma unroll
    for (int first = 0; first < kRows; first += 16) {
      const int row = first + lane_ / 16 * 8 + lane_ % 8;
      const int piece = warp_ * 2 + lane_ / 8 % 2;
      auto* const pieces = reinterpret_cast<cute::uint128_t*>(shared_.weights[worker_]);
      const auto pair = [&](int e) {
        return pair_of<Element>(logits_(first / 2 + e), logits_(first / 2 + e + 1));
      };
      cute::SM90_U16x8_STSM_T::copy(pair(0), pair(2), pair(4), pair(6),
                                    pieces[row * 8 + (piece ^ row % 8)]);
    }
  }

  // Tokens that do not exist weigh 0, which makes NaN of what an unused page may hold.
  __device__ __forceinline__ void clear_tail(int tile, int tokens) const {
    auto* const pieces = reinterpret_cast<uint4*>(shared_.tiles[tile]);
    const int absent = (kTileTokens - tokens) * kPieces;
    for (int i = threadIdx.x % kWarpgroup; i < kLatentChunks * absent; i += kWarpgroup) {
      pieces[(i / absent * kTileTokens + tokens) * kPieces + i % absent] = {0, 0, 0, 0};
    }
  }

  // The sums: V^T P^T.
  __device__ __forceinline__ void multiply_values(int tile) {
    using namespace cute;
    Mma mma;
    const Tensor weights = mma.get_slice(threadIdx.x % kWarpgroup)
                               .partition_fragment_B(rows_tensor<kRows>(shared_.weights[worker_]));
#pragma unroll
    for (int chunk = 0; chunk < kLatentChunks; ++chunk) warpgroup_fence_operand(sums_[chunk]);
    run_batches<kLatentChunks * kBatches>(
        [&](int batch, Codes& codes) { read_values(tile, batch, codes); }, widen_values,
        [&](int batch, const Operand& values) {
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            gemm(mma, values(_, _, step), weights(_, _, batch % kBatches * kSteps + step),
                 sums_[batch / kBatches]);
          }
        });
#pragma unroll
    for (int chunk = 0; chunk < kLatentChunks; ++chunk) warpgroup_fence_operand(sums_[chunk]);
  }

  // Of the 16 columns of a warp: two neighbouring ones of every two tokens of eight.
  __device__ __forceinline__ void read_values(int tile, int batch, Codes& codes) const {
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const int token = (batch % kBatches * kReads + i) * kWarp + lane_;
      cute::SM75_U16x8_LDSM_T::copy(at(tile, batch / kBatches, token, warp_), codes[i][0],
                                    codes[i][1], codes[i][2], codes[i][3]);
    }
  }

  // A thread's two rows of the operand are neighbouring columns.
  static __device__ __forceinline__ void widen_values(const Codes& codes, Operand& values) {
    cute::Tensor words = cute::recast<uint32_t>(values);
#pragma unroll
    for (int i = 0; i < kReads * kReadWords; ++i) {
      constexpr uint32_t kTokensOfEachColumn = 0x3120;
      widen(__byte_perm(codes[i / kReadWords][i % kReadWords], 0, kTokensOfEachColumn),
            words(i * 2), words(i * 2 + 1));
    }
  }

  __device__ __forceinline__ const cute::uint128_t& at(int tile, int chunk, int token,
                                                       int piece) const {
    return *reinterpret_cast<const cute::uint128_t*>(shared_.tiles[tile][chunk] +
                                                     piece_offset(token, piece));
  }

  const Params& params_;
  Shared& shared_;
  const int worker_;
  const uint32_t barrier_;
  const int warp_;
  const int lane_;
  Softmax softmax_;
  Sums logits_;
  Sums sums_[kLatentChunks];
  uint32_t first_turn_ = 0;  // of the item's tiles
};

}  // namespace mla::sm90::stream
