#pragma once

#include "cpu/isa/attend_fp32.h"
#include "cpu/isa/bf16.h"

namespace mla::cpu {
namespace {

// Tiles of 16 rows of 64 bytes. S^T = K Q^T puts rows in lanes for the softmax and takes K as it
// lies; only V and P have to be rearranged.
inline constexpr int kTile = 16;
inline constexpr int kTileDepth = 32;             // bf16 summed by one tile product
inline constexpr int kTileWords = kTile * kTile;  // 32-bit
inline constexpr int kQkSteps = kHeadDim / kTileDepth;
inline constexpr int kAmxStage = 64;   // tokens staged at a time: four tiles of scores in flight
inline constexpr int kAmxBlock = 128;  // the longest that keeps a thread within 1 MiB
inline constexpr int kPvSteps = kAmxBlock / kTileDepth;
inline constexpr int kRowTiles = kMaxRows / kTile;
inline constexpr int kColumnTiles = kLatent / kTile;

struct alignas(64) AmxScratch {
  uint32_t q[kRowTiles][kQkSteps][kTileWords];  // [pair][row]
  uint32_t kv[kAmxStage][kPairs];
  float scores[kAmxBlock][kScoreStride];
  uint32_t p[kRowTiles][kPvSteps][kTileWords];     // [row][pair of tokens]
  uint32_t v[kPvSteps][kColumnTiles][kTileWords];  // [pair of tokens][column], see pair_columns
  float o[kRowTiles][kColumnTiles][kTileWords];    // [row][column]
  int32_t position[kAmxBlock];
  RowState rows;
};
static_assert(sizeof(AmxScratch) <= kMaxScratchBytes);
static_assert(kQkSteps * kTile == kPairs, "q is packed by pack_q_pairs");

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

inline constexpr int kTileBytes = 64;  // of a row
inline constexpr int kScoreBytes = kScoreStride * 4;
inline constexpr int kKvBytes = kPairs * 4;

// The compiler does not know that tile loads read memory.
MLA_ALWAYS_INLINE void finish_stores() { __asm__ volatile("" ::: "memory"); }

MLA_ALWAYS_INLINE void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// 32 tokens by 32 rows of scores.
inline void score_two_panels(const uint32_t* kv, const uint32_t (*q)[kQkSteps][kTileWords],
                             float* scores) {
  zero_sums();
  for (int k = 0; k < kQkSteps; ++k) {
    _tile_loadd(4, kv + k * kTile, kKvBytes);
    _tile_loadd(6, q[0][k], kTileBytes);
    _tile_loadd(7, q[1][k], kTileBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, kv + kTile * kPairs + k * kTile, kKvBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, scores, kScoreBytes);
  _tile_stored(1, scores + kTile, kScoreBytes);
  _tile_stored(2, scores + kTile * kScoreStride, kScoreBytes);
  _tile_stored(3, scores + kTile * kScoreStride + kTile, kScoreBytes);
}

// 64 tokens by 16 rows of scores.
inline void score_one_panel(const uint32_t* kv, const uint32_t (*q)[kTileWords], float* scores) {
  zero_sums();
  for (int k = 0; k < kQkSteps; ++k) {
    _tile_loadd(7, q[k], kTileBytes);
    _tile_loadd(4, kv + k * kTile, kKvBytes);
    _tile_dpbf16ps(0, 4, 7);
    _tile_loadd(5, kv + 1 * kTile * kPairs + k * kTile, kKvBytes);
    _tile_dpbf16ps(1, 5, 7);
    _tile_loadd(6, kv + 2 * kTile * kPairs + k * kTile, kKvBytes);
    _tile_dpbf16ps(2, 6, 7);
    _tile_loadd(4, kv + 3 * kTile * kPairs + k * kTile, kKvBytes);
    _tile_dpbf16ps(3, 4, 7);
  }
  _tile_stored(0, scores, kScoreBytes);
  _tile_stored(1, scores + 1 * kTile * kScoreStride, kScoreBytes);
  _tile_stored(2, scores + 2 * kTile * kScoreStride, kScoreBytes);
  _tile_stored(3, scores + 3 * kTile * kScoreStride, kScoreBytes);
}

// Stages up to kAmxStage tokens, and their values for the products with P; returns how many.
inline int stage(DType dtype, TokenWalk& walk, int32_t* position, uint32_t (*kv)[kPairs],
                 uint32_t (*v)[kColumnTiles][kTileWords]) {
  int tokens = 0;
  TokenRow row;
  while (tokens < kAmxStage && walk.take(row)) {
    row_to_bf16(dtype, row, kv[tokens]);
    position[tokens++] = row.position;
  }
  __builtin_memset(kv[tokens], 0, (kAmxStage - tokens) * sizeof kv[0]);
  for (int t = 0; t < tokens; t += kTileDepth) {
    for (int i = 0; i < kTileDepth; i += 2) {
      for (int c = 0; c < kColumnTiles; c += 2) {
        uint32_t* words = v[t / kTileDepth][c] + i / 2 * kTile;
        pair_columns(kv[t + i] + c / 2 * kTile, kv[t + i + 1] + c / 2 * kTile, words,
                     words + kTileWords);
      }
    }
  }
  return tokens;
}

// Scores of up to kAmxBlock tokens; returns how many.
inline int score_block(const AttendItem& item, int panels, TokenWalk& walk, AmxScratch& scratch) {
  int tokens = 0;
  int staged = kAmxStage;
  for (int first = 0; first < kAmxBlock && staged == kAmxStage; first += kAmxStage) {
    staged = stage(item.kv_dtype, walk, scratch.position + first, scratch.kv,
                   scratch.v + first / kTileDepth);
    finish_stores();
    int panel = 0;
    for (; panel + 1 < panels; panel += 2) {
      for (int t = 0; t < staged; t += 2 * kTile) {
        score_two_panels(scratch.kv[t], scratch.q + panel,
                         scratch.scores[first + t] + panel * kTile);
      }
    }
    if (panel < panels) {
      score_one_panel(scratch.kv[0], scratch.q[panel], scratch.scores[first] + panel * kTile);
    }
    tokens += staged;
  }
  return tokens;
}

// In place: m[i][j] to m[j][i], by four perfect shuffles.
MLA_ALWAYS_INLINE void transpose(Words* m) {
#pragma GCC unroll 4
  for (int stage = 0; stage < 4; ++stage) {
    Words zipped[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      zipped[2 * i] = zip_low(m[i], m[i + 8]);
      zipped[2 * i + 1] = zip_high(m[i], m[i + 8]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) m[i] = zipped[i];
  }
}

inline void pack_probabilities(int panels, int tokens, AmxScratch& scratch) {
  for (int panel = 0; panel < panels; ++panel) {
    for (int first = 0; first < tokens; first += kTileDepth) {
      Words pairs[kTile];
#pragma GCC unroll 16
      for (int i = 0; i < kTile; ++i) {
        pairs[i] = probability_pairs(scratch.scores[0] + panel * kTile, first + 2 * i, tokens);
      }
      transpose(pairs);
      uint32_t* to = scratch.p[panel][first / kTileDepth];
#pragma GCC unroll 16
      for (int i = 0; i < kTile; ++i) store_words(to + i * kTile, pairs[i]);
    }
  }
}

inline void correct_output(int rows, AmxScratch& scratch) {
  for (int r = 0; r < rows; ++r) {
    const float correction = scratch.rows.correction[r];
    if (correction == 1) continue;
    for (int c = 0; c < kColumnTiles; ++c) {
      float* o = scratch.o[r / kTile][c] + r % kTile * kTile;
      store(o, load(o) * correction);
    }
  }
}

// 32 rows by 32 columns of O += P V.
inline void value_two_panels(const uint32_t (*p)[kPvSteps][kTileWords],
                             const uint32_t (*v)[kColumnTiles][kTileWords], int steps, bool first,
                             float (*o)[kColumnTiles][kTileWords]) {
  if (first) {
    zero_sums();
  } else {
    _tile_loadd(0, o[0][0], kTileBytes);
    _tile_loadd(1, o[0][1], kTileBytes);
    _tile_loadd(2, o[1][0], kTileBytes);
    _tile_loadd(3, o[1][1], kTileBytes);
  }
  for (int k = 0; k < steps; ++k) {
    _tile_loadd(4, p[0][k], kTileBytes);
    _tile_loadd(6, v[k][0], kTileBytes);
    _tile_loadd(7, v[k][1], kTileBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, p[1][k], kTileBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, o[0][0], kTileBytes);
  _tile_stored(1, o[0][1], kTileBytes);
  _tile_stored(2, o[1][0], kTileBytes);
  _tile_stored(3, o[1][1], kTileBytes);
}

// 16 rows by 64 columns of O += P V.
inline void value_one_panel(const uint32_t (*p)[kTileWords],
                            const uint32_t (*v)[kColumnTiles][kTileWords], int steps, bool first,
                            float (*o)[kTileWords]) {
  if (first) {
    zero_sums();
  } else {
    _tile_loadd(0, o[0], kTileBytes);
    _tile_loadd(1, o[1], kTileBytes);
    _tile_loadd(2, o[2], kTileBytes);
    _tile_loadd(3, o[3], kTileBytes);
  }
  for (int k = 0; k < steps; ++k) {
    _tile_loadd(7, p[k], kTileBytes);
    _tile_loadd(4, v[k][0], kTileBytes);
    _tile_dpbf16ps(0, 7, 4);
    _tile_loadd(5, v[k][1], kTileBytes);
    _tile_dpbf16ps(1, 7, 5);
    _tile_loadd(6, v[k][2], kTileBytes);
    _tile_dpbf16ps(2, 7, 6);
    _tile_loadd(4, v[k][3], kTileBytes);
    _tile_dpbf16ps(3, 7, 4);
  }
  _tile_stored(0, o[0], kTileBytes);
  _tile_stored(1, o[1], kTileBytes);
  _tile_stored(2, o[2], kTileBytes);
  _tile_stored(3, o[3], kTileBytes);
}

// Pointer to the tiles of a column and the next ones, at every step.
inline const uint32_t (*values_from(const AmxScratch& scratch, int column))
    [kColumnTiles][kTileWords] {
      return reinterpret_cast<const uint32_t (*)[kColumnTiles][kTileWords]>(scratch.v[0][column]);
    }

inline void value_block(int panels, int tokens, bool first, AmxScratch& scratch) {
  const int steps = (tokens + kTileDepth - 1) / kTileDepth;
  for (int c = 0; c < kColumnTiles; c += 4) {
    int panel = 0;
    for (; panel + 1 < panels; panel += 2) {
      for (int half = c; half < c + 4; half += 2) {
        value_two_panels(
            scratch.p + panel, values_from(scratch, half), steps, first,
            reinterpret_cast<float (*)[kColumnTiles][kTileWords]>(scratch.o[panel][half]));
      }
    }
    if (panel < panels) {
      value_one_panel(scratch.p[panel], values_from(scratch, c), steps, first,
                      scratch.o[panel] + c);
    }
  }
}

inline void attend_amx(const AttendItem& item) {
  if (!has_bf16_products(item)) return attend_fp32(item);
  AmxScratch& scratch = *reinterpret_cast<AmxScratch*>(item.scratch);
  RowState& state = scratch.rows;
  const int padded_rows = round_up(item.rows, kTile);
  const int panels = padded_rows / kTile;
  start_rows(item, state);
  pack_q_pairs(item, padded_rows, scratch.q[0][0]);
  TokenWalk walk(item.kv, item.begin, item.begin + state.max_visible);
  // At every call: whatever ran on this thread since the last one may have changed it.
  const TileConfig config;
  _tile_loadconfig(&config);
  bool first = true;
  while (const int tokens = score_block(item, panels, walk, scratch)) {
    softmax(scratch.scores[0], scratch.position, tokens, padded_rows, item.scale, state);
    pack_probabilities(panels, tokens, scratch);
    if (!first) correct_output(item.rows, scratch);
    finish_stores();
    value_block(panels, tokens, first, scratch);
    first = false;
  }
  _tile_release();
  for (int r = 0; !first && r < item.rows; ++r) {
    for (int c = 0; c < kColumnTiles; c += 2) {
      const float (*o)[kTileWords] = scratch.o[r / kTile] + c;
      const int row = r % kTile * kTile;
      restore_columns(o[0] + row, o[1] + row, item.o + r * item.o_stride + c * kTile);
    }
  }
  finish_rows(item, state);
}

}  // namespace
}  // namespace mla::cpu
