// Copies rows that may lie anywhere into chunks of a tile, asynchronously.
#pragma once

#include "sm90/common/copy_vector.cuh"
#include "sm90/common/warp.cuh"
#include "sm90/mainloop/tile_layouts.cuh"

namespace mla::sm90 {

// A warp copies `kCount` chunks of 32 rows, each from where its lane says, to the rows of a tile
// from `first_row` on, in HalfLayout if kCount is kHalfChunks. Rows that `present` has no bit for
// become zeros.
template <int kCount, class Element>
__device__ __forceinline__ void copy_rows(const Element* own, uint32_t present, Element* chunks,
                                          int first_row, int lane) {
  constexpr int kVectors = kChunkVectors<Element>;
  constexpr int kAtOnce = kWarp / kVectors;
  constexpr int kTimes = kWarp / kAtOnce;
  static_assert(2 * kAtOnce == kSwizzleRows);
  const int vector = lane % kVectors;
  const int row = lane / kVectors;
  const auto begin_of = [&](int i) {
    return reinterpret_cast<const Element*>(
               __shfl_sync(~0u, reinterpret_cast<unsigned long long>(own), i * kAtOnce + row)) +
           vector * kVectorElements<Element>;
  };
  Element* const first = chunks + first_row * (kCount * kChunk) + row * kChunk;
  Element* const even = first + (vector ^ row) * kVectorElements<Element>;
  Element* const odd =
      first + kAtOnce * kChunk + (vector ^ row ^ kAtOnce) * kVectorElements<Element>;
  present >>= row;
  const Element* from = begin_of(0);
#pragma unroll
  for (int i = 0; i < kTimes; ++i) {
    const Element* const next = i + 1 < kTimes ? begin_of(i + 1) : from;
    Element* const to = (i % 2 == 0 ? even : odd) + i / 2 * (kCount * kAtomElements);
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      copy_vector<L2Reads::whole_lines, 0>(from + c * kChunk, to + c * kAtomElements,
                                           present & 1u << i * kAtOnce);
    }
    from = next;
  }
}

}  // namespace mla::sm90
