// The cache format fp8_ds_mla: a row has e4m3 with a scale for each group, and bf16 rope columns.
#pragma once

#include "sm90/mainloop/rows_m64/format.cuh"
#include "sm90/mainloop/selected_kv_gather.cuh"

namespace mla::sm90::rows_m64 {

// What the warps that dequantize rows have in shared memory, each for itself.
struct Fp8DsMlaStaging {
  static constexpr CacheFormat kFormat = kCacheFormat<DType::fp8_ds_mla>;
  static constexpr int kProducers = 4;
  static constexpr int kTokens = kTileTokens / kProducers;  // of a tile that a warp knows
  static constexpr int kRows = 4;                           // that are copied together
  static constexpr int kStages = 3;
  static constexpr int kTiles = 4;
  static constexpr uint32_t kAbsent = ~0u;
  static constexpr int kGroup = kFormat.scale_group;
  static constexpr int kScaleOffset = kFormat.scale_offset;
  static constexpr int kRopeOffset = kFormat.rope_offset;

  struct alignas(16) Row {
    uint8_t latent[kLatent];
    float scales[kLatent / kGroup];
    cute::bfloat16_t rope[kRope];
  };
  static_assert(sizeof(Row) == kFormat.row_bytes);

  struct Warp {
    // Rows as they are in memory: some are on their way while others are dequantized.
    Row rows[kStages][kRows];
    // These are the offsets of the rows of tiles in their cache, counted in 16 bytes.
    alignas(16) uint32_t offsets[kTiles][kTokens];
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

template <>
struct Format<DType::bf16, DType::fp8_ds_mla> {
  using Element = cute::bfloat16_t;
  using Staging = Fp8DsMlaStaging;
  static constexpr bool kDequantizes = true;
  static constexpr bool kConvertsQuery = false;
  static constexpr int kLatentStages = 4;
  static constexpr int kRopeStages = 2;
  template <Load>
  static constexpr int kMaxCluster = 2;  // blocks share what they dequantize
};

}  // namespace mla::sm90::rows_m64
