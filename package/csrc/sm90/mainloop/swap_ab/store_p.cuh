// Stores the P of a tile where the tensor cores read it.
#pragma once

#include <cute/arch/copy_sm90.hpp>

#include "sm90/common/elements.cuh"
#include "sm90/common/warp.cuh"
#include "sm90/mainloop/tile_layouts.cuh"

namespace mla::sm90::swap_ab {

// Stores what a thread has of the weights of a tile, tokens by query rows, as query rows by tokens.
// All threads of a consumer call this.
template <class Element, int kRows, class Accumulator>
__device__ __forceinline__ void store_p(Element* p, const Accumulator& weights) {
  const int warp = threadIdx.x % kWarpgroup / kWarp;
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int first = 0; first < kRows; first += 16) {
    const int row = first + lane / 16 * 8 + lane % 8;
    const int vector = warp * 2 + lane / 8 % 2;
    auto* const vectors = reinterpret_cast<cute::uint128_t*>(p);
    const auto pair = [&](int e) {
      return pack_pair<Element>(weights(first / 2 + e), weights(first / 2 + e + 1));
    };
    cute::SM90_U16x8_STSM_T::copy(pair(0), pair(2), pair(4), pair(6),
                                  vectors[row * 8 + (vector ^ row % 8)]);
  }
}

}  // namespace mla::sm90::swap_ab
