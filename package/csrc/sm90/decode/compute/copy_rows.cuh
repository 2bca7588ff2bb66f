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
  constexpr int kTimes = kGroup / kAtOnce;  // that rows of a group take
  constexpr int kGroups = 2;                // more, and the compiler lacks registers
  const int lane = own_thread() % kWarp;
  const int piece = lane % kPieces;
  const int row = lane / kPieces;
  Element* to = chunks + first_row * (kCount * kChunk) + row * kChunk;
  present >>= row;
#pragma unroll 1
  for (int first = row; first < kWarp; first += kGroups * kGroup) {
#pragma unroll
    for (int i = 0; i < kGroups * kTimes; ++i) {
      const auto* const from =
          reinterpret_cast<const Element*>(
              __shfl_sync(~0u, reinterpret_cast<unsigned long long>(own), first + i * kAtOnce)) +
          piece * kPieceElements<Element>;
      const int swizzled = piece ^ row ^ i % kTimes * kAtOnce;
      Element* const pieces = to + i / kTimes * (kCount * kAtomElements) +
                              i % kTimes * (kAtOnce * kChunk) + swizzled * kPieceElements<Element>;
#pragma unroll
      for (int c = 0; c < kCount; ++c) {
        cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint4>::copy(
            *reinterpret_cast<const uint4*>(from + c * kChunk),
            *reinterpret_cast<uint4*>(pieces + c * kAtomElements),
            (present >> i * kAtOnce & 1) != 0);
      }
    }
    to += kGroups * kCount * kAtomElements;
    present >>= kGroups * kGroup;
  }
}

}  // namespace mla::sm90
