// The tile that one block computes, in numbers that host and device share.
#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "cuda/host_device.h"

namespace mla::sm90 {

inline constexpr int kTileRows = 64;    // query rows of a block: heads of tokens, packed
inline constexpr int kTileTokens = 64;  // KV tokens of a step of a warpgroup
inline constexpr int kChunk = 64;       // columns of a tile that lie together in shared memory
inline constexpr int kGroup = 8;        // rows that the swizzle of shared memory repeats after
inline constexpr int kChunks = kHeadDim / kChunk;
inline constexpr int kLatentChunks = kLatent / kChunk;
inline constexpr int kRopeChunk = kLatentChunks;
inline constexpr int kMostHeads = 128;
inline constexpr int kStreamRows = 32;  // that the schedule `swap_ab` has sums for

template <class Integer>
MLA_HOST_DEVICE constexpr Integer ceil_div(Integer n, Integer divisor) {
  return (n + divisor - 1) / divisor;
}

}  // namespace mla::sm90
