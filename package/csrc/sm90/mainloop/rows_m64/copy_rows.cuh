// Copies rows that may lie anywhere into chunks of a tile, asynchronously.
#pragma once

#include <cute/arch/util.hpp>

#include "sm90/mainloop/rows_m64/shared_storage.cuh"

namespace mla::sm90 {

template <class Element>
inline constexpr int kPieceElements = sizeof(uint4) / sizeof(Element);
template <class Element>
inline constexpr int kChunkPieces = kChunk / kPieceElements<Element>;

// Of 16 bytes; zeros if `exists` is 0. Told by a predicate: the compiler makes arithmetic of a size
// of 16 or 0, as CuTe's copy tells it, where a bit says which.
__device__ __forceinline__ void copy_piece(const void* from, void* to, uint32_t exists) {
  asm volatile(
      "{ .reg .pred absent; setp.eq.u32 absent, %2, 0;\n"
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, absent; }" ::"r"(
          cute::cast_smem_ptr_to_uint(to)),
      "l"(from), "r"(exists)
      : "memory");
}

// By a warp: `kCount` chunks of 32 rows, of which each begins where its lane says, to the rows of a
// tile from `first_row` on, of every eight rows the chunks one after the other. Zeros for rows that
// `present` has no bit for.
template <int kCount, class Element>
__device__ __forceinline__ void copy_rows(const Element* own, uint32_t present, Element* chunks,
                                          int first_row, int lane) {
  constexpr int kPieces = kChunkPieces<Element>;
  constexpr int kAtOnce = kWarp / kPieces;
  constexpr int kTimes = kWarp / kAtOnce;
  static_assert(2 * kAtOnce == kGroup);
  const int piece = lane % kPieces;
  const int row = lane / kPieces;
  const auto begin_of = [&](int i) {
    return reinterpret_cast<const Element*>(
               __shfl_sync(~0u, reinterpret_cast<unsigned long long>(own), i * kAtOnce + row)) +
           piece * kPieceElements<Element>;
  };
  Element* const first = chunks + first_row * (kCount * kChunk) + row * kChunk;
  Element* const even = first + (piece ^ row) * kPieceElements<Element>;
  Element* const odd = first + kAtOnce * kChunk + (piece ^ row ^ kAtOnce) * kPieceElements<Element>;
  present >>= row;
  const Element* from = begin_of(0);
#pragma unroll
  for (int i = 0; i < kTimes; ++i) {
    const Element* const next = i + 1 < kTimes ? begin_of(i + 1) : from;
    Element* const to = (i % 2 == 0 ? even : odd) + i / 2 * (kCount * kAtomElements);
#pragma unroll
    for (int c = 0; c < kCount; ++c) {
      copy_piece(from + c * kChunk, to + c * kAtomElements, present & 1u << i * kAtOnce);
    }
    from = next;
  }
}

}  // namespace mla::sm90
