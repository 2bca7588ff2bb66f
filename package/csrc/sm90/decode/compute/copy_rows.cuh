// Copies rows that may lie anywhere into chunks of a tile, asynchronously.
#pragma once

#include <cute/arch/copy_sm80.hpp>

#include "sm90/decode/compute/shared.cuh"

namespace mla::sm90 {

template <class Element>
inline constexpr int kPieceElements = sizeof(uint4) / sizeof(Element);
template <class Element>
inline constexpr int kChunkPieces = kChunk / kPieceElements<Element>;

// By a warp: `kCount` chunks of 32 rows, of which each begins where its lane says, to the rows of a
// tile from `first_row` on, of every eight rows the chunks one after the other. Zeros for rows that
// `present` has no bit for.
template <int kCount, class Element>
__device__ __forceinline__ void copy_rows(const Element* own, uint32_t present, Element* chunks,
                                          int first_row) {
  constexpr int kPieces = kChunkPieces<Element>;
  constexpr int kAtOnce = kWarp / kPieces;
  const int lane = threadIdx.x % kWarp;
  const int piece = lane % kPieces;
  Element* const to = chunks + first_row * (kCount * kChunk);
#pragma unroll 4
  for (int i = 0; i < kWarp / kAtOnce; ++i) {
    const int row = i * kAtOnce + lane / kPieces;
    const auto* const from = reinterpret_cast<const Element*>(
        __shfl_sync(~0u, reinterpret_cast<unsigned long long>(own), row));
    const int swizzled = piece ^ row % kPieces;
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint4>::copy(
          *reinterpret_cast<const uint4*>(from + piece * kPieceElements<Element> + c * kChunk),
          *reinterpret_cast<uint4*>(to + (row / kGroup * kCount + c) * kAtomElements +
                                    row % kGroup * kChunk + swizzled * kPieceElements<Element>),
          (present >> row & 1) != 0);
    }
  }
}

}  // namespace mla::sm90
