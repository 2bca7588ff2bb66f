// Shared memory of a block that widens rows of 656 bytes.
#pragma once

#include "sm90/mainloop/rows_m64/shared_storage.cuh"
#include "sm90/mainloop/selected_kv_gather.cuh"

namespace mla::sm90 {

// What warps that widen rows have, each for itself.
struct RowBuffers {
  static constexpr int kWideners = 4;
  static constexpr int kTokens = kTileTokens / kWideners;  // of a tile, whose places a warp knows
  static constexpr int kRows = 4;                          // that are loaded and widened together
  static constexpr int kSlots = 3;
  static constexpr int kTiles = 4;
  static constexpr uint32_t kAbsent = ~0u;

  struct alignas(16) Row {
    uint8_t codes[kLatent];
    float scales[kLatent / kDsMlaGroup];
    cute::bfloat16_t rope[kRope];
  };
  static_assert(sizeof(Row) == kDsMlaRowBytes);

  struct Own {
    // As they are in memory: some are on their way while others are widened.
    Row rows[kSlots][kRows];
    // Where the rows of tiles are, in pieces of 16 bytes.
    alignas(16) uint32_t places[kTiles][kTokens];
    int32_t ahead[2 * kTokens];  // the slots of the tokens of the next two tiles
    // For want of registers: what is selected, how many items there were, where this one ends.
    sparse::Selection selection;
    uint32_t turn;
    int32_t end;
  };
  Own of_warp[kWideners];
  Boundary walk;  // of the warp that walks
};

template <>
struct Format<DType::bf16, DType::fp8_ds_mla> {
  using Element = cute::bfloat16_t;
  using Codes = RowBuffers;
  static constexpr bool kWidens = true;
  static constexpr bool kNarrowsQuery = false;
  static constexpr int kHalfSlots = 4;
  static constexpr int kRopeSlots = 2;
};
static_assert(sizeof(SharedMemory<Format<DType::bf16, DType::fp8_ds_mla>>) <= 227 * 1024);

}  // namespace mla::sm90
