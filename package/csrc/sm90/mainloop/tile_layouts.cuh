// How tiles of 16-bit elements lie in shared memory, where tensor cores read them.
#pragma once

#include <cute/tensor.hpp>

#include "sm90/common/tile.h"

namespace mla::sm90 {

inline constexpr int kChunkElements = kTileTokens * kChunk;
inline constexpr int kAtomElements = kSwizzleRows * kChunk;

// Threads copy rows in vectors of 16 bytes.
template <class Element>
inline constexpr int kVectorElements = sizeof(uint4) / sizeof(Element);
template <class Element>
inline constexpr int kChunkVectors = kChunk / kVectorElements<Element>;

// A chunk is 64 rows by 64 columns, 128 or 64 bytes a row, swizzled.
template <class Element>
using ChunkAtom = std::conditional_t<sizeof(Element) == 2, cute::GMMA::Layout_K_SW128_Atom<Element>,
                                     cute::GMMA::Layout_K_SW64_Atom<Element>>;
template <class Element>
using ChunkLayout = decltype(cute::tile_to_shape(ChunkAtom<Element>{},
                                                 cute::Shape<cute::Int<64>, cute::Int<kChunk>>{}));
// A half of a tile's latent: of every eight tokens the chunks one after the other, so that what TMA
// loads of a page, however few tokens that has, lies together.
template <class Element>
using HalfLayout = decltype(cute::tile_to_shape(
    cute::GMMA::Layout_K_SW128_Atom<Element>{},
    cute::Shape<cute::Int<kTileTokens>, cute::Int<kHalf>>{}, cute::Step<cute::_2, cute::_1>{}));
// As K, a chunk of a half is tokens by columns.
template <class Element>
using KeyLayout = decltype(cute::composition(
    HalfLayout<Element>{}, cute::Layout<cute::Shape<cute::Int<kTileTokens>, cute::Int<kChunk>>>{}));
// As V^T, some chunks of a half are columns by tokens.
template <class Element, int kColumns>
using ValueLayout = decltype(cute::composition(
    HalfLayout<Element>{}, cute::Layout<cute::Shape<cute::Int<kColumns>, cute::Int<kTileTokens>>,
                                        cute::Stride<cute::Int<kTileTokens>, cute::_1>>{}));

template <class Element>
__device__ __forceinline__ auto chunk_tensor(Element* chunk) {
  return cute::make_tensor(cute::make_smem_ptr(chunk), ChunkLayout<Element>{});
}

}  // namespace mla::sm90
