// The warpgroup of the logits: Q K^T of a tile with Q in registers, softmax, and the tile's weights
// into shared memory.
#pragma once

#include "sm90/common/special_registers.cuh"
#include "sm90/mainloop/rows_m64/query_to_fp16.cuh"
#include "sm90/mainloop/rows_m64/shared_storage.cuh"
#include "sm90/mainloop/rows_m64/softmax.cuh"
#include "sm90/scheduler/tile_scheduler.cuh"

namespace mla::sm90 {

template <class Format, int kBlocks, bool kGathers, class Params>
class Weigher {
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
      RegisterMma{}, cute::Shape<cute::_64, cute::Int<kRegisterChunks * kChunk>>{})));
  static constexpr int kLogits = cute::size(Logits{});
  static constexpr int kStepsOfChunk = 4;  // of the tensor cores
  static constexpr int kStepWords = 4;     // of a thread
  static constexpr int kChunkPieces = kChunk * sizeof(Element) / sizeof(uint4);

 public:
  __device__ Weigher(const Params& params, SharedMemory<Format>& shared, int first_row)
      : params_(params),
        shared_(shared),
        thread_(threadIdx.x % kWarpgroup),
        softmax_(params, first_row) {}

  __device__ __forceinline__ void run() {
    Item item;
    for (ItemReader items(shared_.items); items.next(item);) {
      softmax_.start(item);
      // From one lane, so that the compiler knows that a warp does not diverge.
      const int blocks = __shfl_sync(~0u, item.end - item.first, 0);
      if (blocks > 0) {
        take_query();
      } else {
        softmax_.store_nothing(item);
      }
      for (int i = 0; i < blocks; ++i) {
        multiply();
        weigh(item, (item.first + i) * kTileTokens, i + 1 == blocks);
        publish();
      }
    }
  }

 private:
  // The loader puts Q where an item's first tile would be.
  __device__ __forceinline__ void take_query() {
    using namespace cute;
    const auto left = half_place<Format>(tile_, 0);
    const auto right = half_place<Format>(tile_, 1);
    const auto rope = rope_place<Format>(tile_);
    shared_.latent_full[left.slot].wait(left.phase);
    shared_.latent_full[right.slot].wait(right.phase);
    shared_.rope_full[rope.slot].wait(rope.phase);
    if constexpr (Format::kNarrowsQuery) make_query_half();
    Tensor words = recast<uint32_t>(query_);
#pragma unroll
    for (int step = 0; step < kRegisterChunks * kStepsOfChunk; ++step) {
      read_step(chunk_at(step / kStepsOfChunk), step % kStepsOfChunk, &words(step * kStepWords));
    }
#pragma unroll
    for (int i = 0; i < size(words); ++i) words(i) ^= params_.sign_flip;
    // Of the item before, the tensor cores may still read what other warps multiply.
    cutlass::arch::NamedBarrier::sync(kWarpgroup, 0);
#pragma unroll 1
    for (int chunk = kRegisterChunks; chunk < kChunks; ++chunk) {
      const auto* const from = reinterpret_cast<const uint4*>(chunk_at(chunk));
      auto* const to = reinterpret_cast<uint4*>(shared_.q[chunk - kRegisterChunks]);
      const uint32_t flip = params_.sign_flip;
#pragma unroll
      for (int i = thread_; i < kTileRows * kChunkPieces; i += kWarpgroup) {
        const uint4 piece = from[i];
        to[i] = {piece.x ^ flip, piece.y ^ flip, piece.z ^ flip, piece.w ^ flip};
      }
    }
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(kWarpgroup, 0);
    constexpr int kTimes = 2;  // for the two warpgroups of the output
    release<kBlocks, kTimes>(shared_.latent_empty[left.slot]);
    release<kBlocks, kTimes>(shared_.latent_empty[right.slot]);
    release<kBlocks>(shared_.rope_empty[rope.slot]);
    ++tile_;
  }

  // Of the next tile.
  __device__ __forceinline__ Element* chunk_at(int chunk) const {
    if (chunk == kRopeChunk) return shared_.rope[rope_place<Format>(tile_).slot];
    return shared_.latent[half_place<Format>(tile_, chunk / kHalfChunks).slot] +
           chunk % kHalfChunks * kChunkElements;
  }

  // A thread's words of a step of the tensor cores, as these take A: of its two rows in turn.
  __device__ __forceinline__ cute::uint128_t& step_at(Element* chunk, int step) const {
    const int thread = Params::kSelects ? own_thread() % kWarpgroup : thread_;
    const int lane = thread % kWarp;
    const int row = thread / kWarp * 16 + lane % 16;
    const int piece = step * 2 + lane / 16;
    return reinterpret_cast<cute::uint128_t*>(chunk)[row * kChunkPieces + (piece ^ row % 8)];
  }

  __device__ __forceinline__ void read_step(Element* chunk, int step, uint32_t* words) const {
    cute::SM75_U32x4_LDSM_N::copy(step_at(chunk, step), words[0], words[1], words[2], words[3]);
  }

  // In its place.
  __device__ __forceinline__ void make_query_half() {
    HalfQuery half;
    uint32_t words[kStepWords];
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int step = 0; step < kStepsOfChunk; ++step) {
        read_step(chunk_at(chunk), step, words);
#pragma unroll
        for (int i = 0; i < kStepWords; ++i) half.see(words[i], i % kThreadRows);
      }
    }
    half.choose_factors();
    softmax_.scale_logits(half);
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int step = 0; step < kStepsOfChunk; ++step) {
        read_step(chunk_at(chunk), step, words);
#pragma unroll
        for (int i = 0; i < kStepWords; ++i) words[i] = half.of(words[i], i % kThreadRows);
        cute::SM90_U32x4_STSM_N::copy(words[0], words[1], words[2], words[3],
                                      step_at(chunk_at(chunk), step));
      }
    }
    cutlass::arch::NamedBarrier::sync(kWarpgroup, 0);
  }

  // The logits of the next tile.
  __device__ __forceinline__ void multiply() {
    using namespace cute;
    register_mma_.accumulate_ = GMMA::ScaleOut::Zero;
    warpgroup_fence_operand(logits_);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto place = half_place<Format>(tile_, half);
      shared_.latent_full[place.slot].wait(place.phase);
      fence_copies();
      warpgroup_arrive();
#pragma unroll
      for (int i = 0; i < kHalfChunks; ++i) {
        multiply_chunk(half * kHalfChunks + i,
                       make_tensor(make_smem_ptr(shared_.latent[place.slot] + i * kAtomElements),
                                   KeyLayout<Element>{}));
      }
    }
    // What weighing waits for, while the tensor cores are busy.
    const Place<kWeightSlots> place(weighed_);
    shared_.weights_empty[place.slot].wait(place.phase ^ 1);
    const auto rope = rope_place<Format>(tile_);
    shared_.rope_full[rope.slot].wait(rope.phase);
    present_ = read_present(rope.slot);
    fence_copies();
    warpgroup_arrive();
    multiply_chunk(kRopeChunk, chunk_tensor(shared_.rope[rope.slot]));
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    warpgroup_fence_operand(logits_);
    if (thread_ % kWarp == 0) shared_.logits_done[place.slot].arrive();
  }

  // By the lane that arrives when the place may be written anew, for all: racecheck does not count
  // what other lanes read before a __syncwarp as before that.
  __device__ __forceinline__ uint64_t read_present(int slot) const {
    uint64_t present = 0;
    // Without a branch, after which the compiler would take a warp for divergent.
    asm volatile("{ .reg .pred reads; setp.lt.u32 reads, %1, %2; @reads ld.shared.b64 %0, [%3]; }"
                 : "+l"(present)
                 : "r"(thread_ % kWarp), "n"(1),
                   "r"(cute::cast_smem_ptr_to_uint(shared_.present[slot])));
    return __shfl_sync(~0u, present, 0);
  }

  // What threads have copied is for tensor cores to read.
  __device__ __forceinline__ void fence_copies() const {
    if constexpr (kGathers) cutlass::arch::fence_view_async_shared();
  }

  template <class Keys>
  __device__ __forceinline__ void multiply_chunk(int chunk, const Keys& keys) {
    using namespace cute;
    const Tensor k = register_mma_.get_slice(thread_).partition_fragment_B(keys);
    if (chunk < kRegisterChunks) {
#pragma unroll
      for (int i = 0; i < kStepsOfChunk; ++i) {
        gemm(register_mma_, query_(_, _, chunk * kStepsOfChunk + i), k(_, _, i), logits_);
        register_mma_.accumulate_ = GMMA::ScaleOut::One;
      }
    } else {
      SharedMma mma;
      const Tensor q = mma.get_slice(thread_).partition_fragment_A(
          chunk_tensor(shared_.q[chunk - kRegisterChunks]));
#pragma unroll
      for (int i = 0; i < kStepsOfChunk; ++i) gemm(mma, q(_, _, i), k(_, _, i), logits_);
    }
  }

  // The weights may be used, and what the lanes that arrive have written beside them; and the first
  // lane, which arrives at its own block, has read what comes with the rope columns.
  __device__ __forceinline__ void publish() {
    __syncwarp();
    if (thread_ % 4 == 0) shared_.weights_full[Place<kWeightSlots>(weighed_).slot].arrive();
    release_own_first<kBlocks>(shared_.rope_empty[rope_place<Format>(tile_).slot]);
    ++weighed_;
    ++tile_;
  }

  // From logits to shared weights.
  __device__ __forceinline__ void weigh(const Item& item, int first_token, bool last) {
    softmax_.mask(logits_, present_, first_token);
    float scale[kThreadRows] = {1, 1};
    const bool keeps = !softmax_.raise_max(logits_, scale);
    softmax_.exponentiate(logits_, scale);
    const Place<kWeightSlots> place(weighed_);
    if (thread_ % kWarp == 0) shared_.rescales[place.slot][thread_ / kWarp] = !keeps;
    if (!keeps && thread_ % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) shared_.scale[place.slot][tile_row(i)] = scale[i];
    }
    share(place.slot);
    if (last) {
      softmax_.finish(item, shared_.factor[place.slot]);
      clear_tail(item.tokens - first_token);
    }
  }

  __device__ __forceinline__ void share(int slot) {
    using namespace cute;
    // The elements of a row and its neighbour are in the same order in both fragments.
    Tensor packed = make_tensor<Element>(logits_.layout());
    Tensor pairs = recast<uint32_t>(packed);
#pragma unroll
    for (int e = 0; e < kLogits; e += 2) {
      pairs(e / 2) = pair_of<Element>(logits_(e), logits_(e + 1));
    }
    const auto tiled = make_tiled_copy_C(Copy_Atom<SM90_U32x4_STSM_N, Element>{}, RegisterMma{});
    const auto thread_copy = tiled.get_slice(thread_);
    const Tensor from = thread_copy.retile_S(packed);
    Tensor to = thread_copy.partition_D(
        as_position_independent_swizzle_tensor(chunk_tensor(shared_.weights[slot])));
    copy(tiled, from, to);
  }

  // Tokens that do not exist weigh 0, which makes NaN of what an unused page may hold.
  __device__ __forceinline__ void clear_tail(int present) {
    if (present >= kTileTokens) return;
    constexpr int kTokenPieces = kHalfChunks * kChunkPieces;
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const int slot = half_place<Format>(tile_, half).slot;
      auto* const pieces = reinterpret_cast<uint4*>(shared_.latent[slot]);
      for (int i = present * kTokenPieces + thread_; i < kTileTokens * kTokenPieces;
           i += kWarpgroup) {
        const int token = i / kTokenPieces;
        const int chunk = i / kChunkPieces % kHalfChunks;
        pieces[(token / kGroup * kHalfChunks + chunk) * (kGroup * kChunkPieces) +
               token % kGroup * kChunkPieces + i % kChunkPieces] = {0, 0, 0, 0};
      }
    }
  }

  const Params& params_;
  SharedMemory<Format>& shared_;
  const int thread_;
  RegisterMma register_mma_;
  Query query_;
  Logits logits_;
  Softmax<Logits, Format::kNarrowsQuery, Params> softmax_;
  uint64_t present_;      // a bit for each token of the tile
  uint32_t tile_ = 0;     // of the rings of KV
  uint32_t weighed_ = 0;  // tiles
};

}  // namespace mla::sm90
