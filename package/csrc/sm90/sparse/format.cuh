// Shared memory of a block that widens rows of 656 bytes.
#pragma once

#include "sm90/decode/compute/shared.cuh"

namespace mla::sm90 {

// Rows as they are in memory, but for their rope columns, which are not widened: slices of a tile,
// so that the first ones of the next are on their way while the last ones are widened.
struct RowSlices {
  static constexpr int kTokens = 16;
  static constexpr int kOfTile = kTileTokens / kTokens;
  static constexpr int kSlots = kOfTile;
  static constexpr int kRowBytes = kDsMlaRopeOffset;  // 512 codes, 4 scales

  alignas(16) uint8_t rows[kSlots][kTokens][kRowBytes];
  uint32_t present[kSlots];  // a bit for each token
  FullBarrier full[kSlots];
  Barrier empty[kSlots];
  Boundary walk;  // of the loading warp

  // A loading warp arrives with what is present and with its copies; `readers` warps read.
  __device__ void init_barriers(int readers) {
    for (auto& barrier : full) barrier.init(2 * kWarp);
    for (auto& barrier : empty) barrier.init(readers);
  }
};

template <>
struct Format<DType::bf16, DType::fp8_ds_mla> {
  using Element = cute::bfloat16_t;
  using Codes = RowSlices;
  static constexpr bool kWidens = true;
  static constexpr bool kNarrowsQuery = false;
  static constexpr int kHalfSlots = 4;
  static constexpr int kRopeSlots = 1;
};
static_assert(sizeof(SharedMemory<Format<DType::bf16, DType::fp8_ds_mla>>) <= 227 * 1024);

}  // namespace mla::sm90
