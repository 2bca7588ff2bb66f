// How KV is split: the arithmetic that the host, the row kernel and the reduction agree on.
#pragma once

#include <cstdint>

#include "cuda/host_device.h"

namespace mla::sm100 {

inline constexpr int kHeads = 128;       // of a tile
inline constexpr int kTileTokens = 128;  // of a tile
inline constexpr int kMaxSplits = 256;   // that the reduction can merge
inline constexpr int kClusterSize = 2;   // multiprocessors that compute one tile together

// The kernel computes the offsets of partial results, rows * splits * 128 * 512, in 32 bits.
inline constexpr int64_t kMaxPartialRows = (int64_t{1} << 31) / (kHeads * 512);

template <class Integer>
MLA_HOST_DEVICE constexpr Integer ceil_div(Integer n, Integer divisor) {
  return (n + divisor - 1) / divisor;
}

MLA_HOST_DEVICE constexpr int32_t tile_count(int32_t tokens) {
  return ceil_div(tokens, static_cast<int32_t>(kTileTokens));
}

// Into how many parts `tiles` are cut if there may be at most `most`. The kernel gives every part
// ceil(tiles / parts) tiles, so some counts would leave the last parts empty, and an empty part can
// hang it: this is the largest count that leaves none.
MLA_HOST_DEVICE constexpr int32_t split_count(int32_t tiles, int32_t most) {
  if (tiles <= 0) return 0;
  const int32_t parts = tiles < most ? tiles : most;
  return ceil_div(tiles, ceil_div(tiles, parts));
}

// The most parts a row may have so that all rows together fill the machine once.
constexpr int32_t most_splits(int64_t rows, int sm_count) {
  if (rows <= 0) return 1;
  const int64_t clusters = sm_count / kClusterSize;
  const int64_t parts = clusters / rows;
  return static_cast<int32_t>(parts < 1 ? 1 : parts > kMaxSplits ? kMaxSplits : parts);
}

}  // namespace mla::sm100
