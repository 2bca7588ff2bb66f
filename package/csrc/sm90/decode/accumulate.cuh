// A warpgroup of the output: the weights of each tile times one half of the columns of its values,
// summed in registers.
#pragma once

#include <cmath>

#include "sm90/decode/shared.cuh"
#include "sm90/decode/walk.cuh"

namespace mla::sm90 {

template <class Element, class Out, int kCluster>
class Accumulator {
  // Of 128 columns: the compiler refuses an instruction with more sums than the registers that a
  // thread of four warpgroups starts with.
  using Tile = cute::Shape<cute::_64, cute::_128, cute::_64>;
  using Mma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, Tile, cute::GMMA::Major::K,
                                 cute::GMMA::Major::MN>()));
  using Output =
      decltype(cute::partition_fragment_C(Mma{}, cute::Shape<cute::_64, cute::Int<kHalf>>{}));

  using Rows = float[kThreadRows];

 public:
  __device__ Accumulator(const Params& params, SharedMemory<Element>& shared, int half)
      : params_(params), shared_(shared), thread_(threadIdx.x % kWarpgroup), half_(half) {}

  __device__ __forceinline__ void run(int first_row) {
    Item item;
    for (ItemReader items(shared_); items.next(item);) {
      // From one lane, so that the compiler knows that a warp does not diverge.
      const int blocks = __shfl_sync(~0u, item.end - item.first, 0);
      cute::clear(out_);
      if (blocks > 0) ++tile_;  // the place of Q
      Rows factor = {0, 0};
      Rows lse = {-INFINITY, -INFINITY};
      for (int i = 0; i < blocks; ++i) {
        const Place<kWeightSlots> place(summed_);
        shared_.weights_full[place.slot].wait(place.phase);
        rescale(place.slot);
        multiply(place.slot);
        if (i + 1 == blocks) {
          read(shared_.factor[place.slot], factor);
          read(shared_.lse[place.slot], lse);
        }
        release(place.slot);
      }
      store_row<0>(item, first_row + tile_row(0), factor[0], lse[0]);
      store_row<1>(item, first_row + tile_row(1), factor[1], lse[1]);
    }
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
    for (int e = 0; e < cute::size(Output{}); ++e) out_(e) *= scale[e % 4 / 2];
  }

  __device__ __forceinline__ void multiply(int slot) {
    using namespace cute;
    Mma mma;
    const Tensor weights =
        mma.get_slice(thread_).partition_fragment_A(chunk_tensor(shared_.weights[slot]));
    const Tensor values = mma.get_slice(thread_).partition_fragment_B(make_tensor(
        make_smem_ptr(shared_.latent[half_place(tile_, half_).slot]), ValueLayout<Element>{}));
    warpgroup_fence_operand(out_);
    warpgroup_arrive();
#pragma unroll
    for (int i = 0; i < size<2>(weights); ++i) {
      gemm(mma, weights(_, _, i), values(_, _, i), out_);
    }
    warpgroup_commit_batch();
    warpgroup_wait<0>();
    warpgroup_fence_operand(out_);
  }

  // A warp's part of the tile, of the latent in every block of the cluster.
  __device__ __forceinline__ void release(int slot) {
    if (thread_ % kWarp < kCluster) {
      shared_.latent_empty[half_place(tile_, half_).slot].arrive(thread_ % kWarp);
    }
    __syncwarp();  // every lane has read what comes with the weights
    if (thread_ % kWarp == 0) shared_.weights_empty[slot].arrive();
    ++tile_;
    ++summed_;
  }

  template <int kRow>
  __device__ __forceinline__ void store_row(const Item& item, int r, float factor,
                                            float lse) const {
    if (r >= params_.shape.rows) return;
    const bool leads = half_ == 0 && thread_ % 4 == 0;
    const int column = half_ * kHalf + thread_ % 4 * 2;
    if (item.partial >= 0) {
      const int64_t at = int64_t{item.partial} * params_.partials.rows + r;
      if (leads) params_.partials.lse[at] = lse;
      float* const to = params_.partials.out + at * kLatent + column;
#pragma unroll
      for (int j = 0; j < kHalf / 8; ++j) {
        *reinterpret_cast<float2*>(to + j * 8) = {value<kRow>(j, 0, factor),
                                                  value<kRow>(j, 1, factor)};
      }
      return;
    }
    const int s = r / params_.shape.num_heads;
    const int h = r % params_.shape.num_heads;
    if (leads && params_.lse.data != nullptr) *params_.lse.at<float>(item.request, s, h) = lse;
    auto* const to = params_.out.at<uint16_t>(item.request, s, h) + column;
#pragma unroll
    for (int j = 0; j < kHalf / 8; ++j) {
      const uint32_t pair = pair_of<Out>(value<kRow>(j, 0, factor), value<kRow>(j, 1, factor));
      if (params_.out_in_pairs) {
        *reinterpret_cast<uint32_t*>(to + j * 8) = pair;
      } else {
        to[j * 8] = static_cast<uint16_t>(pair);
        to[j * 8 + 1] = static_cast<uint16_t>(pair >> 16);
      }
    }
  }

  // A row without weights is 0, whatever its sum is.
  template <int kRow>
  __device__ __forceinline__ float value(int j, int k, float factor) const {
    return factor == 0 ? 0 : out_(j * 4 + kRow * 2 + k) * factor;
  }

  const Params& params_;
  SharedMemory<Element>& shared_;
  const int thread_;
  const int half_;
  Output out_;
  uint32_t tile_ = 0;    // of the rings of KV
  uint32_t summed_ = 0;  // tiles
};

}  // namespace mla::sm90
