// Cache formats that are arrays of bytes: a row has e4m3 or e2m1, the scales of its groups, or
// scales that follow the rows of its page, and rope columns if any.
#pragma once

#include <algorithm>

#include "sm90/mainloop/rows_m64/format.cuh"
#include "sm90/mainloop/selected_kv_gather.cuh"

namespace mla::sm90::rows_m64 {

// Rows of bytes as they are copied: a row as it is in memory, then scales that lie elsewhere.
template <DType kKv, int kDQk>
struct ByteRows {
  static constexpr CacheFormat kFormat = kCacheFormat<kKv, kDQk, kLatent>;
  static constexpr bool kHasPageScales = kFormat.scale_place == ScalePlace::page;
  static constexpr int kRowBytes = kFormat.row_bytes;
  static constexpr int kVectors = kRowBytes / sizeof(uint4);
  static constexpr int kScaleOffset = kHasPageScales ? kRowBytes : kFormat.scale_offset;
  static constexpr int kCopied = kRowBytes + (kHasPageScales ? kFormat.scale_bytes : 0);
  static constexpr int kCodes = kFormat.latent_type == DType::e2m1 ? 2 : 1;  // of a byte
  static_assert(kRowBytes % sizeof(uint4) == 0);
};

// What the warps that dequantize rows have in shared memory, each for itself.
template <DType kKv, int kDQk, ExtraKv kExtraKv>
struct ByteRowStaging {
  using Main = ByteRows<kKv, kDQk>;
  using Extra = ByteRows<extra_format(kExtraKv, kKv), kDQk>;
  static constexpr int kProducers = 4;
  static constexpr int kTokens = kTileTokens / kProducers;  // of a tile that a warp knows
  static constexpr int kRows = 4;                           // that are copied together
  static constexpr int kTiles = 4;
  static constexpr uint32_t kAbsent = ~0u;
  static constexpr bool kHasPageScales = Main::kHasPageScales;
  static_assert(Extra::kHasPageScales == kHasPageScales);

  struct alignas(16) Row {
    uint8_t bytes[std::max(Main::kCopied, Extra::kCopied)];
  };

  // So many steps are on their way while another one is dequantized. Where memory is left for one
  // stage more, a step is begun before the dequantizing and not after it.
  static constexpr int kAhead = 3;
  static constexpr size_t kLeft = (kDQk > kLatent ? 32 : 40) * 1024;
  static constexpr int kStages =
      (kAhead + 1) * kProducers * kRows * sizeof(Row) <= kLeft ? kAhead + 1 : kAhead;

  struct Warp {
    // Some rows are on their way while others are dequantized.
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

template <DType kKv, int kDQk, ExtraKv kExtraKv>
struct ByteRowFormat : Widths<kKv, kDQk> {
  using Element = cute::bfloat16_t;
  using Staging = ByteRowStaging<kKv, kDQk, kExtraKv>;
  static constexpr bool kDequantizes = true;
  static constexpr bool kMultipliesFp8 = false;
  static constexpr bool kConvertsQuery = false;
  static constexpr int kLatentStages = 4;
  static constexpr int kRopeStages = 2;
  template <Load>
  static constexpr int kMaxCluster = 2;  // blocks share what they dequantize
};

template <int kDQk>
struct Format<DType::bf16, DType::fp8_ds_mla, kDQk, kLatent>
    : ByteRowFormat<DType::fp8_ds_mla, kDQk, ExtraKv::same> {};
template <int kDQk>
struct Format<DType::bf16, DType::nvfp4_ds_mla, kDQk, kLatent>
    : ByteRowFormat<DType::nvfp4_ds_mla, kDQk, ExtraKv::same> {};
template <int kDQk>
struct Format<DType::bf16, DType::fp8_ds_v4, kDQk, kLatent>
    : ByteRowFormat<DType::fp8_ds_v4, kDQk, ExtraKv::same> {};
template <int kDQk>
struct Format<DType::bf16, DType::mxfp4_ds_v4, kDQk, kLatent>
    : ByteRowFormat<DType::mxfp4_ds_v4, kDQk, ExtraKv::same> {};
template <int kDQk, ExtraKv kExtraKv>
struct Format<DType::bf16, DType::fp8_ds_v41, kDQk, kLatent, kExtraKv>
    : ByteRowFormat<DType::fp8_ds_v41, kDQk, kExtraKv> {};
template <int kDQk>
struct Format<DType::bf16, DType::fp4_ds_v41, kDQk, kLatent>
    : ByteRowFormat<DType::fp4_ds_v41, kDQk, ExtraKv::same> {};

}  // namespace mla::sm90::rows_m64
