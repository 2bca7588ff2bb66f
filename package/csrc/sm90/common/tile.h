// The tile that a block computes, in numbers that host and device share.
#pragma once

#include <cstdint>

#include "common/arithmetic.h"
#include "common/dtype.h"
#include "cuda/host_device.h"

namespace mla::sm90 {

inline constexpr int kTileRows = 64;    // query rows of a block: heads of tokens, packed
inline constexpr int kTileTokens = 64;  // KV tokens that a warpgroup multiplies at a time
inline constexpr int kChunk = 64;       // columns of a tile that lie together in shared memory
inline constexpr int kSwizzleRows = 8;  // rows after which the swizzle of shared memory repeats
inline constexpr int kChunks = kHeadDim / kChunk;
inline constexpr int kLatentChunks = kLatent / kChunk;
inline constexpr int kRopeChunk = kLatentChunks;
inline constexpr int kMaxHeads = 128;
inline constexpr int kSwapAbRows = 32;  // query rows that the schedule `swap_ab` has registers for

}  // namespace mla::sm90
