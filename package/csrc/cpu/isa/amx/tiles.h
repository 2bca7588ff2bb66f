// The tiles of AMX: their sizes, where they lie in memory, and the four registers that sum.
#pragma once

#include "common/arithmetic.h"
#include "cpu/isa/bf16.h"
#include "cpu/isa/tokens.h"

namespace mla::cpu {
namespace {

// The tiles are those of the default widths. They have 16 rows of 64 bytes. S^T = K Q^T puts query
// rows in lanes for the softmax and takes K as it lies; only V and P have to be rearranged, and for
// a single panel of 16 rows only P.
inline constexpr int kTile = 16;
inline constexpr int kTileDepth = 32;             // bf16 that one tile product sums over
inline constexpr int kTileWords = kTile * kTile;  // 32-bit
inline constexpr int kTileBytes = 64;             // of a row
inline constexpr int kPairs = kHeadDim / 2;
inline constexpr int kQkSteps = kHeadDim / kTileDepth;
inline constexpr int kLatentSteps = kLatent / kTileDepth;
inline constexpr int kAmxBlock = 128;  // tokens; more would spend less on O, and more scratch
inline constexpr int kKvTiles = kAmxBlock / kTile;
inline constexpr int kPvSteps = kAmxBlock / kTileDepth;
inline constexpr int kRowTiles = kMaxRows / kTile;
inline constexpr int kColumnTiles = kLatent / kTile;
inline constexpr int kAtOnce = 4;  // tiles of tokens, or of columns, that the sums take at a time

using Tile = uint32_t[kTileWords];
using SumTile = float[kTileWords];
using ValueTiles = Tile[kAtOnce];  // [pair of tokens][column], see pair_columns

// A tile has 16 tokens at equal distances, in the cache or copied.
struct KvTile {
  const std::byte* latent;
  const std::byte* rope;
  int64_t latent_stride;
  int64_t rope_stride;

  // Returns where the tile of columns [32 step, 32 step + 32) begins.
  MLA_ALWAYS_INLINE const std::byte* at(int step) const {
    return step < kLatentSteps ? latent + step * kTileBytes
                               : rope + (step - kLatentSteps) * kTileBytes;
  }
  MLA_ALWAYS_INLINE int64_t stride(int step) const {
    return step < kLatentSteps ? latent_stride : rope_stride;
  }
};

struct alignas(64) AmxScratch {
  Tile q[kRowTiles][kQkSteps];     // [pair][row]
  uint32_t kv[kAmxBlock][kPairs];  // tokens that no tile can take from the cache
  float scores[kAmxBlock][kScoreStride];
  Tile p[kRowTiles][kPvSteps];  // [row][pair of tokens]
  Tile single_p[kKvTiles][2];   // [row][token]; the other half of each word is 0
  ValueTiles v[2][kPvSteps];
  SumTile o[kRowTiles][kColumnTiles];  // [row][column]
  int32_t position[kAmxBlock];
  RowState rows;
  KvTile tiles[kKvTiles];
};
static_assert(sizeof(AmxScratch) <= kMaxScratchBytes);
static_assert(kKvTiles % kAtOnce == 0 && kColumnTiles % kAtOnce == 0);

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

// The compiler does not know that tile loads read memory.
MLA_ALWAYS_INLINE void finish_stores() { __asm__ volatile("" ::: "memory"); }

// Tile registers 0 to 3 hold sums in every product.
MLA_ALWAYS_INLINE void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// Loads two neighbouring tiles of O each.
MLA_ALWAYS_INLINE void load_sums(const SumTile* o0, const SumTile* o1) {
  _tile_loadd(0, o0[0], kTileBytes);
  _tile_loadd(1, o0[1], kTileBytes);
  _tile_loadd(2, o1[0], kTileBytes);
  _tile_loadd(3, o1[1], kTileBytes);
}

MLA_ALWAYS_INLINE void store_sums(float* a, float* b, float* c, float* d, int stride) {
  _tile_stored(0, a, stride);
  _tile_stored(1, b, stride);
  _tile_stored(2, c, stride);
  _tile_stored(3, d, stride);
}

// Prefetches some lines of the next block before each step of a product, so that all of its bf16
// have been asked for when the block ends.
struct AmxAhead {
  static constexpr int kLines = kAmxBlock * kHeadDim * 2 / 64;
  static constexpr int kStepsOfOne =
      kAmxBlock / kTile / kAtOnce * kQkSteps + kColumnTiles / kAtOnce * kKvTiles;
  static constexpr int kStepsOfTwo =
      kAmxBlock / kTileDepth * kQkSteps + kColumnTiles / 2 * kPvSteps;

  AmxAhead(Prefetch& cursor, int panels)
      : prefetch(cursor),
        lines(kLines / (panels == 1 ? kStepsOfOne : panels / 2 * kStepsOfTwo) + 1) {}

  MLA_ALWAYS_INLINE void step() { prefetch.lines(lines); }

  Prefetch& prefetch;
  int lines;
};

}  // namespace
}  // namespace mla::cpu
