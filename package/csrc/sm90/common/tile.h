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
inline constexpr int kHalf = 256;       // columns of a tile that have a stage of the KV pipelines
inline constexpr int kHalfChunks = kHalf / kChunk;
inline constexpr int kSwizzleRows = 8;  // rows after which the swizzle of shared memory repeats
inline constexpr int kChunks = kHeadDim / kChunk;
inline constexpr int kLatentChunks = kLatent / kChunk;
inline constexpr int kRopeChunk = kLatentChunks;
inline constexpr int kMaxHeads = 256;
inline constexpr int kMaxSparseHeads = 128;

// The most query rows of the schedule `swap_ab`. It has registers for 32, but over other caches
// `rows_m64` is faster with more than 16, or registers spill.
constexpr int swap_ab_rows(DType kv, int d_qk) {
  return kv == DType::e4m3 || (kv == DType::fp8_ds_mla && d_qk == kHeadDim) ? 32 : 16;
}

}  // namespace mla::sm90
