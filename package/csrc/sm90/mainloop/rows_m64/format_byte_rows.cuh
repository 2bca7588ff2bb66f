// Cache formats that are arrays of bytes: a row has e4m3, the scales of its groups, or scales that
// follow the rows of its page, and rope columns of bf16 if any.
#pragma once

#include "sm90/mainloop/rows_m64/format.cuh"
#include "sm90/mainloop/selected_kv_gather.cuh"

namespace mla::sm90::rows_m64 {

// What the warps that dequantize rows have in shared memory, each for itself.
template <DType kKv, int kDQk>
struct ByteRowStaging {
  static constexpr CacheFormat kFormat = kCacheFormat<kKv, kDQk, kLatent>;
  static constexpr int kProducers = 4;
  static constexpr int kTokens = kTileTokens / kProducers;  // of a tile that a warp knows
  static constexpr int kRows = 4;                           // that are copied together
  static constexpr int kStages = 3;
  static constexpr int kTiles = 4;
  static constexpr uint32_t kAbsent = ~0u;
  static constexpr bool kHasPageScales = kFormat.scale_place == ScalePlace::page;

  // A row as it is in memory, and the scales that lie elsewhere.
  static constexpr int kRowBytes = kFormat.row_bytes;
  static constexpr int kScaleOffset = kHasPageScales ? kRowBytes : kFormat.scale_offset;
  struct alignas(16) Row {
    uint8_t bytes[kRowBytes + (kHasPageScales ? kFormat.scale_bytes : 0)];
  };
  static_assert(kRowBytes % sizeof(uint4) == 0);

  struct Warp {
    // Rows as they are in memory: some are on their way while others are dequantized.
    Row rows[kStages][kRows];
    // These are the offsets of the rows of tiles in their cache, counted in 16 bytes.
    alignas(16) uint32_t offsets[kTiles][kTokens];
    // Those of scales that follow the rows of a page, counted in 8 bytes.
    uint32_t scale_offsets[kHasPageScales ? kTiles : 1][kHasPageScales ? kTokens : 1];
    int32_t slots[2 * kTokens];  // of the tokens of the next two tiles
    // The warps lack registers for these: what is selected, how many work tiles there were, where
    // this one ends.
    sparse_decode::Selection selection;
    uint32_t work_tiles;
    int32_t end_block;
  };
  Warp warps[kProducers];
  Boundary scheduler;  // the state of the warp that schedules
};

template <DType kKv, int kDQk>
struct ByteRowFormat : Widths<kKv, kDQk> {
  using Element = cute::bfloat16_t;
  using Staging = ByteRowStaging<kKv, kDQk>;
  static constexpr bool kDequantizes = true;
  static constexpr bool kConvertsQuery = false;
  static constexpr int kLatentStages = 4;
  static constexpr int kRopeStages = 2;
  template <Load>
  static constexpr int kMaxCluster = 2;  // blocks share what they dequantize
};

template <int kDQk>
struct Format<DType::bf16, DType::fp8_ds_mla, kDQk> : ByteRowFormat<DType::fp8_ds_mla, kDQk> {};
template <int kDQk>
struct Format<DType::bf16, DType::fp8_ds_v4, kDQk> : ByteRowFormat<DType::fp8_ds_v4, kDQk> {};
template <int kDQk>
struct Format<DType::bf16, DType::fp8_ds_v41, kDQk> : ByteRowFormat<DType::fp8_ds_v41, kDQk> {};

}  // namespace mla::sm90::rows_m64
