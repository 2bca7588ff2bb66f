// A warpgroup of the output: the weights of each tile times half of the columns of its values,
// summed in registers. The two warpgroups sum up the left half of a tile together, then the right
// one, so that the left one can be loaded anew early.
#pragma once

#include "sm90/combine/combine_fused.cuh"
#include "sm90/combine/partial_layout.h"
#include "sm90/common/special_registers.cuh"
#include "sm90/mainloop/rows_m64/shared_storage.cuh"
#include "sm90/scheduler/tile_scheduler.cuh"

namespace mla::sm90 {

template <class Format, class Out, int kBlocks, class Params>
class Accumulator {
  using Element = typename Format::Element;
  // Of 128 columns: the compiler refuses an instruction with more sums than the registers that a
  // thread of four warpgroups starts with.
  static constexpr int kColumns = 128;
  static constexpr int kBlockChunks = kColumns / kChunk;
  static_assert(2 * kBlockChunks == kHalfChunks);
  using Tile = cute::Shape<cute::_64, cute::Int<kColumns>, cute::_64>;
  using Mma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, Tile, cute::GMMA::Major::K,
                                 cute::GMMA::Major::MN>()));
  using Output =
      decltype(cute::partition_fragment_C(Mma{}, cute::Shape<cute::_64, cute::Int<kColumns>>{}));
  static constexpr int kSums = cute::size(Output{});
  static constexpr int kPairs = kHalf / 8;  // of neighbours, of a thread, in a row
  static constexpr int kBlockPairs = kPairs / 2;
  static constexpr int kHalfStrips = kHalf / kStripColumns;

  using Rows = float[kThreadRows];

 public:
  // `side` of each half of the columns.
  __device__ Accumulator(const Params& params, SharedMemory<Format>& shared, int side)
      : params_(params), shared_(shared), thread_(threadIdx.x % kWarpgroup), side_(side) {}

  // Whether the blocks have met: they have where the last item is the first of two pieces of a
  // request, which this block finishes.
  __device__ __forceinline__ bool run(int first_row) {
    Item item;
    for (ItemReader items(shared_.items); items.next(item);) {
      // From one lane, so that the compiler knows that a warp does not diverge.
      const int blocks = __shfl_sync(~0u, item.end - item.first, 0);
      cute::clear(out_[0]);
      cute::clear(out_[1]);
      if (blocks > 0) ++tile_;  // the place of Q
      Rows factor = {0, 0};
      for (int i = 0; i < blocks; ++i) {
        const Place<kWeightSlots> place(summed_);
        shared_.weights_full[place.slot].wait(place.phase);
        // Here, and not before they arrive, since the logits are the longer way.
        cutlass::arch::fence_view_async_shared();
        rescale(place.slot);
        multiply<0>(place.slot);
        if (i + 1 < blocks) let_logits_go_first();
        multiply<1>(place.slot);
        if (i + 1 == blocks) read(shared_.factor[place.slot], factor);
        end_tile(place.slot);
      }
      if (item.partial >= 0 && (Params::kSelects || params_.merges)) {
        if (item.other >= 0) {
          finish(item, first_row, factor);
          return true;
        }
        store_packed(item.partial, own_row(first_row), factor);
      } else {
        const int r = own_row(first_row);
        store_row<0>(item, r, factor[0]);
        store_row<1>(item, r + 8, factor[1]);
      }
    }
    return false;
  }

 private:
  __device__ __forceinline__ void read(const float (&rows)[kTileRows], Rows& own) const {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) own[i] = rows[tile_row(i)];
  }

  __device__ __forceinline__ void rescale(int slot) {
    if (shared_.rescales[slot][thread_ / kWarp] == 0) return;
    Rows scale;
    read(shared_.scale[slot], scale);
#pragma unroll
    for (int e = 0; e < kSums; ++e) {
      out_[0](e) *= scale[e % 4 / 2];
      out_[1](e) *= scale[e % 4 / 2];
    }
  }

  // Tensor cores are shared. While they sum up, the next tile can be weighed, if its logits are
  // done; so those come first, unless their KV is still to come.
  __device__ __forceinline__ void let_logits_go_first() {
    const auto next = half_place<Format>(tile_ + 1, 1);
    if (!shared_.latent_full[next.slot].test_wait(next.phase)) return;
    const Place<kWeightSlots> place(summed_ + 1);
    shared_.logits_done[place.slot].wait(place.phase);
  }

  template <int kHalfOfColumns>
  __device__ __forceinline__ void multiply(int slot) {
    using namespace cute;
    Mma mma;
    const Tensor weights =
        mma.get_slice(thread_).partition_fragment_A(chunk_tensor(shared_.weights[slot]));
    Element* const half = shared_.latent[half_place<Format>(tile_, kHalfOfColumns).slot];
    const Tensor values = mma.get_slice(thread_).partition_fragment_B(
        make_tensor(make_smem_ptr(half + side_ * kBlockChunks * kAtomElements),
                    ValueLayout<Element, kColumns>{}));
    warpgroup_fence_operand(out_[kHalfOfColumns]);
    warpgroup_arrive();
#pragma unroll
    for (int i = 0; i < size<2>(weights); ++i) {
      gemm(mma, weights(_, _, i), values(_, _, i), out_[kHalfOfColumns]);
    }
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    warpgroup_fence_operand(out_[kHalfOfColumns]);
    release<kBlocks>(shared_.latent_empty[half_place<Format>(tile_, kHalfOfColumns).slot]);
  }

  __device__ __forceinline__ void end_tile(int slot) {
    // By every lane, which has read what comes with the weights.
    shared_.weights_empty[slot].arrive();
    ++tile_;
    ++summed_;
  }

  // The first of a thread's two. Worked out anew, or the compiler keeps what follows from it in
  // registers that it lacks.
  static __device__ __forceinline__ int own_row(int first_row) {
    const int thread = own_thread() % kWarpgroup;
    return first_row + thread / kWarp * 16 + thread % kWarp / 4;
  }

  // Both rows of a thread, `r` the first, if any row of its warp exists.
  __device__ __forceinline__ void store_packed(int partial, int r, const Rows& factor) const {
    if (r / 16 * 16 >= params_.shape.rows) return;
    float* const to = packed_at(params_.partials, partial, r, thread_ % 4) +
                      side_ * (kColumns / kStripColumns * kStripElements);
#pragma unroll
    for (int j = 0; j < kPairs; j += 2) {
      const int strip = offset(j) / kStripColumns;
      store_strip<0>(to + strip * kStripElements, j, factor[0]);
      store_strip<1>(to + (kStrips + strip) * kStripElements, j, factor[1]);
    }
  }
  template <int kRow>
  __device__ __forceinline__ void store_strip(float* to, int j, float factor) const {
    const float2 low = sums<kRow>(j, factor);
    const float2 high = sums<kRow>(j + 1, factor);
    *reinterpret_cast<float4*>(to) = {low.x, low.y, high.x, high.y};
  }

  template <int kRow>
  __device__ __forceinline__ void store_row(const Item& item, int r, float factor) const {
    const bool exists = r < params_.shape.rows;
    const int thread = own_thread();
    const int column = thread / kWarpgroup * kColumns + thread % 2 * 8 + thread % 4 / 2 * 4;
    if (!Params::kSelects && item.partial >= 0) {
      // Unsigned, or the compiler keeps the upper half of a sign in a register that it lacks.
      const int64_t at = uint64_t{static_cast<uint32_t>(item.partial)} * params_.partials.rows + r;
      float* const to =
          params_.partials.out + at * kLatent + thread / kWarpgroup * kColumns + thread % 4 * 2;
      if (!exists) return;
#pragma unroll
      for (int j = 0; j < kPairs; ++j)
        *reinterpret_cast<float2*>(to + offset(j)) = sums<kRow>(j, factor);
      return;
    }
    const int s = params_.shape.token_of(r);
    const int h = params_.shape.head_of(r);
    auto* const to = params_.out.template at<uint16_t>(item.request, s, h) + column;
#pragma unroll
    for (int j = 0; j < kPairs; j += 2) {
      uint32_t own[2] = {rounded<kRow>(j, factor), rounded<kRow>(j + 1, factor)};
      store_four(to + offset(j), own, exists);
    }
  }

  // Of the two of a lane's pairs that it keeps.
  __device__ __forceinline__ void store_four(uint16_t* to, uint32_t (&own)[2], bool exists) const {
    exchange(own);
    // Read anew, or the compiler makes two loops and keeps what they share in registers.
    const int32_t in_fours = *static_cast<const volatile int32_t*>(&params_.out_in_fours);
    if (exists && in_fours) {
      *reinterpret_cast<uint2*>(to) = {own[0], own[1]};
    } else if (exists) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = static_cast<uint16_t>(own[i / 2] >> i % 2 * 16);
    }
  }

  // Of a request of two pieces, when the other piece is there as well. Of a pair of blocks that end
  // together, each hands the other one half of the columns, and finishes the other half.
  __device__ __forceinline__ void finish(const Item& item, int first_row, const Rows& factor) {
    // The list of splits is complete, which one of the warps makes.
    cutlass::arch::NamedBarrier::sync(2 * kWarpgroup, kMergeBarrier);
    const bool in_pair = shared_.splits.in_pairs;
    int half = in_pair && item.partial > item.other;
    if (in_pair) {
      hand_over(item.partial, own_row(first_row), half, factor);
      meet(params_, shared_.splits);
    } else {
      // The right half is in the place of tiles meanwhile, for want of registers.
      meet(params_, shared_.splits, [this] {
#pragma unroll
        for (int e = 0; e < kSums; e += 4) {
          *waiting(e) = {out_[1](e), out_[1](e + 1), out_[1](e + 2), out_[1](e + 3)};
        }
      });
    }
#pragma unroll 1
    while (true) {
      finish_half(item, own_row(first_row), half, factor);
      if (in_pair || half == 1) return;
      half = 1;
#pragma unroll
      for (int e = 0; e < kSums; e += 4) {
        const float4 sums = *waiting(e);
        out_[0](e) = sums.x;
        out_[0](e + 1) = sums.y;
        out_[0](e + 2) = sums.z;
        out_[0](e + 3) = sums.w;
      }
    }
  }

  __device__ __forceinline__ float4* waiting(int e) const {
    static_assert(sizeof(shared_.latent) >= kSums * sizeof(float) * 2 * kWarpgroup);
    return reinterpret_cast<float4*>(shared_.latent) + e / 4 * 2 * kWarpgroup + own_thread();
  }

  // The half that a block of a pair does not keep. What it keeps is in the first registers then.
  __device__ __forceinline__ void hand_over(int partial, int r, int kept, const Rows& factor) {
    if (kept == 1) {
#pragma unroll
      for (int e = 0; e < kSums; ++e) {
        const float sum = out_[0](e);
        out_[0](e) = out_[1](e);
        out_[1](e) = sum;
      }
    }
    if (r / 16 * 16 >= params_.shape.rows) return;
    float* const to = half_of(partial, r, 1 - kept);
#pragma unroll
    for (int j = 0; j < kBlockPairs; j += 2) {
      store_strip<0>(to + j / 2 * kStripElements, kBlockPairs + j, factor[0]);
      store_strip<1>(to + (kStrips + j / 2) * kStripElements, kBlockPairs + j, factor[1]);
    }
  }

  // Of a partial result, the columns of a warpgroup.
  __device__ __forceinline__ float* half_of(int partial, int r, int half) const {
    const int thread = own_thread();
    const int strip = half * kHalfStrips + thread / kWarpgroup * (kColumns / kStripColumns);
    return packed_at(params_.partials, partial, r, thread % 4) + strip * kStripElements;
  }

  // Both rows of a thread, `r` the first, from the first registers.
  __device__ __forceinline__ void finish_half(const Item& item, int r, int half,
                                              const Rows& factor) const {
    if (r / 16 * 16 >= params_.shape.rows) return;
    const int thread = own_thread();
    const int column =
        half * kHalf + thread / kWarpgroup * kColumns + thread % 2 * 8 + thread % 4 / 2 * 4;
    const float* const from = half_of(item.other, r, half);
    finish_row<0>(item, r, column, factor[0], from);
    finish_row<1>(item, r + 8, column, factor[1], from + kStrips * kStripElements);
  }

  // From `column` on; `from` are the other block's sums.
  template <int kRow>
  __device__ __forceinline__ void finish_row(const Item& item, int r, int column, float factor,
                                             const float* from) const {
    float4 sums_of_other[kBlockPairs / 2];
#pragma unroll
    for (int i = 0; i < kBlockPairs / 2; ++i) {
      sums_of_other[i] = __ldcg(reinterpret_cast<const float4*>(from + i * kStripElements));
    }
    const bool exists = r < params_.shape.rows;
    const float own_lse = exists ? of_row(params_.partials.lse, item.partial, r) : -INFINITY;
    const float other_lse = exists ? of_row(params_.partials.lse, item.other, r) : -INFINITY;
    const float peak = fmaxf(own_lse, other_lse);
    const float shift = peak == -INFINITY ? 0 : peak;
    float own_weight = power_of_2((own_lse - shift) * kLog2E);
    float other_weight = power_of_2((other_lse - shift) * kLog2E);
    float total = own_weight + other_weight;
    if (exists && column == 0) {
      store_lse(params_, item.request, r, peak, total);
      if constexpr (Params::kSelects) store_peak(item, r);
    }
    if constexpr (Params::kSelects) {
      if (exists) total = with_sink(params_, r, peak, total);
    }
    const float inverse = inverse_of(total);
    own_weight *= inverse;
    other_weight *= inverse;
    auto* const to = params_.out.template at<uint16_t>(item.request, params_.shape.token_of(r),
                                                       params_.shape.head_of(r)) +
                     column;
#pragma unroll
    for (int j = 0; j < kBlockPairs; j += 2) {
      const float4 add = sums_of_other[j / 2];
      const float2 low = sums<kRow>(j, factor);
      const float2 high = sums<kRow>(j + 1, factor);
      uint32_t own[2] = {pair_of<Out>(weighed(low.x, own_weight) + weighed(add.x, other_weight),
                                      weighed(low.y, own_weight) + weighed(add.y, other_weight)),
                         pair_of<Out>(weighed(high.x, own_weight) + weighed(add.z, other_weight),
                                      weighed(high.y, own_weight) + weighed(add.w, other_weight))};
      store_four(to + offset(j), own, exists);
    }
  }

  // What has no weight adds nothing, whatever it is.
  static __device__ __forceinline__ float weighed(float sum, float weight) {
    return weight == 0 ? 0 : sum * weight;
  }

  __device__ __forceinline__ float of_row(const float* of_rows, int partial, int r) const {
    return __ldcg(of_rows + int64_t{partial} * params_.partials.rows + r);
  }

  __device__ __forceinline__ void store_peak(const Item& item, int r) const {
    if (params_.max_logits.data == nullptr) return;
    const float peak = fmaxf(of_row(params_.partial_peaks, item.partial, r),
                             of_row(params_.partial_peaks, item.other, r));
    *params_.max_logits.template at<float>(item.request, 0, r) = peak * kLn2;
  }

  // Of the j-th pair of a row of a thread, from the column where the thread begins.
  static __device__ __forceinline__ constexpr int offset(int j) {
    return j / kBlockPairs * kHalf + j % kBlockPairs * 8;
  }

  template <int kRow>
  __device__ __forceinline__ float2 sums(int j, float factor) const {
    const Output& block = out_[j / kBlockPairs];
    const int first = j % kBlockPairs * 4 + kRow * 2;
    // A row without weights is 0, whatever its sum is.
    if (factor == 0) return {0, 0};
    return {block(first) * factor, block(first + 1) * factor};
  }

  template <int kRow>
  __device__ __forceinline__ uint32_t rounded(int j, float factor) const {
    const float2 own = sums<kRow>(j, factor);
    return pair_of<Out>(own.x, own.y);
  }

  // A lane has two neighbours of every eight columns. Two lanes exchange theirs of sixteen, so that
  // each has four neighbours.
  static __device__ __forceinline__ void exchange(uint32_t (&own)[2]) {
    const bool upper = threadIdx.x % 2 != 0;
    const uint32_t got = __shfl_xor_sync(~0u, upper ? own[0] : own[1], 1);
    own[0] = upper ? got : own[0];
    own[1] = upper ? own[1] : got;
  }

  const Params& params_;
  SharedMemory<Format>& shared_;
  const int thread_;
  const int side_;
  Output out_[2];        // of the halves
  uint32_t tile_ = 0;    // of the rings of KV
  uint32_t summed_ = 0;  // tiles
};

}  // namespace mla::sm90
