// How KV is split. The host, the kernel that prepares rows and the reduction share this arithmetic.
#pragma once

#include <cstdint>

#include "common/arithmetic.h"
#include "cuda/host_device.h"
#include "mla/formats.h"

namespace mla::sm100 {

inline constexpr int kHeads = 128;       // query heads of a tile
inline constexpr int kMaxHeads = 256;    // query heads of a token
inline constexpr int kTileTokens = 128;  // KV tokens of a tile
inline constexpr int kMaxSplits = 256;   // the most splits that the reduction combines
inline constexpr int kClusterSize = 2;   // multiprocessors that compute one tile together

// The kernel computes the offsets of partial results, rows * splits * kHeads * kLatent, in 32
// bits.
inline constexpr int64_t kMaxPartialRows = (int64_t{1} << 31) / (kHeads * kLatent);

MLA_HOST_DEVICE constexpr int32_t tile_count(int32_t tokens) {
  return ceil_div(tokens, kTileTokens);
}

// Returns the splits of a row of `tiles` tiles that may have up to `max_splits`. The kernel gives
// every split ceil(tiles / splits) tiles, so some counts would leave the last splits empty, and an
// empty split can hang it: this is the largest count that leaves none.
//
// @pre max_splits >= 1.
MLA_HOST_DEVICE constexpr int32_t num_splits(int32_t tiles, int32_t max_splits) {
  if (tiles <= 0) return 0;
  const int32_t splits = tiles < max_splits ? tiles : max_splits;
  return ceil_div(tiles, ceil_div(tiles, splits));
}

// Returns the most splits that a row may have so that all rows together fill the device once.
constexpr int32_t num_splits_heuristic(int64_t rows, int sm_count) {
  if (rows <= 0) return 1;
  const int64_t clusters = sm_count / kClusterSize;
  const int64_t splits = clusters / rows;
  return static_cast<int32_t>(splits < 1 ? 1 : splits > kMaxSplits ? kMaxSplits : splits);
}

}  // namespace mla::sm100
