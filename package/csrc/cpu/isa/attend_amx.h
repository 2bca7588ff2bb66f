#pragma once

#include "cpu/isa/attend_fp32.h"
#include "cpu/isa/bf16.h"

namespace mla::cpu {
namespace {

// Tiles of 16 rows of 64 bytes. S^T = K Q^T puts rows in lanes for the softmax and takes K as it
// lies; only V and P have to be rearranged, and for a single panel of 16 rows only P.
inline constexpr int kTile = 16;
inline constexpr int kTileDepth = 32;             // bf16 summed by one tile product
inline constexpr int kTileWords = kTile * kTile;  // 32-bit
inline constexpr int kTileBytes = 64;             // of a row
inline constexpr int kQkSteps = kHeadDim / kTileDepth;
inline constexpr int kLatentSteps = kLatent / kTileDepth;
inline constexpr int kAmxBlock = 128;  // tokens; more spend less on O, and more scratch
inline constexpr int kKvTiles = kAmxBlock / kTile;
inline constexpr int kPvSteps = kAmxBlock / kTileDepth;
inline constexpr int kRowTiles = kMaxRows / kTile;
inline constexpr int kColumnTiles = kLatent / kTile;
inline constexpr int kAtOnce = 4;  // tiles that sums take: of tokens, or of columns

using Tile = uint32_t[kTileWords];
using SumTile = float[kTileWords];
using ValueTiles = Tile[kAtOnce];  // [pair of tokens][column], see pair_columns

// 16 tokens at equal distances: in the cache, or copied.
struct KvTile {
  const std::byte* latent;
  const std::byte* rope;
  int64_t latent_stride;
  int64_t rope_stride;

  // The tile of columns [32 step, 32 step + 32).
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
  Tile single_p[kKvTiles][2];   // [row][token], the other half of each word 0
  ValueTiles v[2][kPvSteps];
  SumTile o[kRowTiles][kColumnTiles];  // [row][column]
  int32_t position[kAmxBlock];
  RowState rows;
  KvTile tiles[kKvTiles];
};
static_assert(sizeof(AmxScratch) <= kMaxScratchBytes);
static_assert(kKvTiles % kAtOnce == 0 && kColumnTiles % kAtOnce == 0);

alignas(64) inline constexpr uint32_t kZeroRow[kPairs] = {};

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

inline constexpr int kScoreBytes = kScoreStride * 4;

// The compiler does not know that tile loads read memory.
MLA_ALWAYS_INLINE void finish_stores() { __asm__ volatile("" ::: "memory"); }

MLA_ALWAYS_INLINE void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
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

using AmxBlocks = TokenBlocks<kAmxBlock>;

inline bool equally_spaced(const AttendItem& item, const TokenRow* rows) {
  for (int t = 1; t < kTile; ++t) {
    if (rows[t].latent - rows[t - 1].latent != item.kv.latent_token_stride) return false;
    if (rows[t].rope - rows[t - 1].rope != item.kv.rope_token_stride) return false;
  }
  return true;
}

// The block's tokens by tiles; where kAtOnce tiles are read and fewer exist, the others are 0.
inline void load_block(const AttendItem& item, const AmxBlocks& blocks, AmxScratch& scratch) {
  const int tokens = blocks.count();
  int first = 0;
  for (; first < tokens; first += kTile) {
    const int count = tokens - first < kTile ? tokens - first : kTile;
    for (int t = first; t < first + count; ++t) scratch.position[t] = blocks[t].position;
    const TokenRow* rows = &blocks[first];
    KvTile& tile = scratch.tiles[first / kTile];
    if (item.kv_dtype == DType::bf16 && count == kTile && equally_spaced(item, rows)) {
      tile = {rows->latent, rows->rope, item.kv.latent_token_stride, item.kv.rope_token_stride};
      continue;
    }
    uint32_t (*copies)[kPairs] = scratch.kv + first;
    for (int t = 0; t < count; ++t) row_to_bf16(item.kv_dtype, rows[t], copies[t]);
    __builtin_memset(copies[count], 0, (kTile - count) * sizeof copies[0]);
    const std::byte* copy = reinterpret_cast<const std::byte*>(copies);
    tile = {copy, copy + kLatent * 2, sizeof copies[0], sizeof copies[0]};
  }
  const std::byte* zero = reinterpret_cast<const std::byte*>(kZeroRow);
  for (; first % (kAtOnce * kTile) != 0; first += kTile) {
    scratch.tiles[first / kTile] = {zero, zero, 0, 0};
  }
}

// 32 tokens by 32 rows of scores.
inline void score_two_panels(const KvTile* kv, const Tile (*q)[kQkSteps], float* scores,
                             AmxAhead& ahead) {
  zero_sums();
  for (int k = 0; k < kQkSteps; ++k) {
    ahead.step();
    _tile_loadd(4, kv[0].at(k), kv[0].stride(k));
    _tile_loadd(6, q[0][k], kTileBytes);
    _tile_loadd(7, q[1][k], kTileBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, kv[1].at(k), kv[1].stride(k));
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, scores, kScoreBytes);
  _tile_stored(1, scores + kTile, kScoreBytes);
  _tile_stored(2, scores + kTile * kScoreStride, kScoreBytes);
  _tile_stored(3, scores + kTile * kScoreStride + kTile, kScoreBytes);
}

// 64 tokens by 16 rows of scores.
inline void score_one_panel(const KvTile* kv, const Tile* q, float* scores, AmxAhead& ahead) {
  zero_sums();
  for (int k = 0; k < kQkSteps; ++k) {
    ahead.step();
    _tile_loadd(7, q[k], kTileBytes);
    _tile_loadd(4, kv[0].at(k), kv[0].stride(k));
    _tile_dpbf16ps(0, 4, 7);
    _tile_loadd(5, kv[1].at(k), kv[1].stride(k));
    _tile_dpbf16ps(1, 5, 7);
    _tile_loadd(6, kv[2].at(k), kv[2].stride(k));
    _tile_dpbf16ps(2, 6, 7);
    _tile_loadd(4, kv[3].at(k), kv[3].stride(k));
    _tile_dpbf16ps(3, 4, 7);
  }
  _tile_stored(0, scores, kScoreBytes);
  _tile_stored(1, scores + 1 * kTile * kScoreStride, kScoreBytes);
  _tile_stored(2, scores + 2 * kTile * kScoreStride, kScoreBytes);
  _tile_stored(3, scores + 3 * kTile * kScoreStride, kScoreBytes);
}

inline void score_block(int panels, int tokens, AmxScratch& scratch, AmxAhead& ahead) {
  int panel = 0;
  for (; panel + 1 < panels; panel += 2) {
    for (int t = 0; t < tokens; t += 2 * kTile) {
      score_two_panels(scratch.tiles + t / kTile, scratch.q + panel,
                       scratch.scores[t] + panel * kTile, ahead);
    }
  }
  if (panel == panels) return;
  for (int t = 0; t < tokens; t += kAtOnce * kTile) {
    score_one_panel(scratch.tiles + t / kTile, scratch.q[panel], scratch.scores[t] + panel * kTile,
                    ahead);
  }
}

inline void pack_probabilities(int panel, int tokens, AmxScratch& scratch) {
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

inline void pack_single_probabilities(int panel, int tokens, AmxScratch& scratch) {
  for (int first = 0; first < tokens; first += kTile) {
    Words words[kTile];
#pragma GCC unroll 16
    for (int i = 0; i < kTile; ++i) {
      words[i] = probability_words(scratch.scores[0] + panel * kTile, first + i, tokens);
    }
    transpose(words);
    Tile* to = scratch.single_p[first / kTile];
#pragma GCC unroll 16
    for (int i = 0; i < kTile; ++i) {
      store_words(to[0] + i * kTile, words[i]);
      store_words(to[1] + i * kTile, words[i] << 16);
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

// 64 columns of V in pairs of tokens.
inline void pair_values(const KvTile* kv, int steps, int column, ValueTiles* v) {
  for (int t = 0; t < steps * kTileDepth; t += 2) {
    const KvTile& tile = kv[t / kTile];
    const std::byte* even = tile.latent + t % kTile * tile.latent_stride + column * 2;
    const std::byte* odd = even + tile.latent_stride;
    const int word = t % kTileDepth / 2 * kTile;
    Tile* to = v[t / kTileDepth];
    pair_columns(even, odd, to[0] + word, to[1] + word);
    pair_columns(even + kTileBytes, odd + kTileBytes, to[2] + word, to[3] + word);
  }
}

// 32 rows by 32 columns of O += P V.
inline void value_two_panels(const Tile (*p)[kPvSteps], const ValueTiles* v, int half, int steps,
                             bool first, SumTile* o0, SumTile* o1, AmxAhead& ahead) {
  if (first) {
    zero_sums();
  } else {
    _tile_loadd(0, o0[0], kTileBytes);
    _tile_loadd(1, o0[1], kTileBytes);
    _tile_loadd(2, o1[0], kTileBytes);
    _tile_loadd(3, o1[1], kTileBytes);
  }
  for (int k = 0; k < steps; ++k) {
    ahead.step();
    _tile_loadd(4, p[0][k], kTileBytes);
    _tile_loadd(6, v[k][half], kTileBytes);
    _tile_loadd(7, v[k][half + 1], kTileBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, p[1][k], kTileBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, o0[0], kTileBytes);
  _tile_stored(1, o0[1], kTileBytes);
  _tile_stored(2, o1[0], kTileBytes);
  _tile_stored(3, o1[1], kTileBytes);
}

// Interleaves the next columns before it multiplies these: the tile loads of what was just stored
// would wait for it.
inline void value_panel_pairs(int panels, int tokens, bool first, AmxScratch& scratch,
                              AmxAhead& ahead) {
  const int steps = (tokens + kTileDepth - 1) / kTileDepth;
  pair_values(scratch.tiles, steps, 0, scratch.v[0]);
  for (int c = 0; c < kColumnTiles; c += kAtOnce) {
    const int next = c + kAtOnce;
    const ValueTiles* v = scratch.v[c / kAtOnce % 2];
    if (next < kColumnTiles) {
      pair_values(scratch.tiles, steps, next * kTile, scratch.v[next / kAtOnce % 2]);
    }
    finish_stores();
    for (int panel = 0; panel + 1 < panels; panel += 2) {
      for (int half = 0; half < kAtOnce; half += 2) {
        value_two_panels(scratch.p + panel, v, half, steps, first, scratch.o[panel] + c + half,
                         scratch.o[panel + 1] + c + half, ahead);
      }
    }
  }
}

// 16 rows by 64 columns of O += P V, with V as it lies: half of each product is by 0, which costs
// less than the interleaving that a single panel would have to pay for.
inline void value_one_panel(const Tile (*p)[2], const KvTile* kv, int steps, int step, bool first,
                            SumTile* o, AmxAhead& ahead) {
  if (first) {
    zero_sums();
  } else {
    _tile_loadd(0, o[0], kTileBytes);
    _tile_loadd(1, o[1], kTileBytes);
    _tile_loadd(2, o[2], kTileBytes);
    _tile_loadd(3, o[3], kTileBytes);
  }
  for (int k = 0; k < steps; ++k) {
    ahead.step();
    _tile_loadd(6, kv[k].at(step), kv[k].latent_stride);
    _tile_loadd(4, p[k][0], kTileBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, p[k][1], kTileBytes);
    _tile_dpbf16ps(1, 5, 6);
    _tile_loadd(7, kv[k].at(step + 1), kv[k].latent_stride);
    _tile_dpbf16ps(2, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, o[0], kTileBytes);
  _tile_stored(1, o[1], kTileBytes);
  _tile_stored(2, o[2], kTileBytes);
  _tile_stored(3, o[3], kTileBytes);
}

inline void value_block(int panels, int tokens, bool first, AmxScratch& scratch, AmxAhead& ahead) {
  for (int panel = 0; panel < panels / 2 * 2; ++panel) {
    pack_probabilities(panel, tokens, scratch);
  }
  if (panels > 1) value_panel_pairs(panels, tokens, first, scratch, ahead);
  if (panels % 2 == 0) return;
  const int last = panels - 1;
  pack_single_probabilities(last, tokens, scratch);
  finish_stores();
  const int steps = (tokens + kTile - 1) / kTile;
  for (int c = 0; c < kColumnTiles; c += kAtOnce) {
    value_one_panel(scratch.single_p, scratch.tiles, steps, c / 2, first, scratch.o[last] + c,
                    ahead);
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
  AmxBlocks blocks(item, state.max_visible);
  AmxAhead ahead(blocks.prefetch, panels);
  // At every call: whatever ran on this thread since the last one may have changed it.
  const TileConfig config;
  _tile_loadconfig(&config);
  bool first = true;
  while (blocks.advance()) {
    const int tokens = blocks.count();
    load_block(item, blocks, scratch);
    finish_stores();
    score_block(panels, tokens, scratch, ahead);
    softmax(scratch.scores[0], scratch.position, tokens, padded_rows, item.scale, state);
    if (!first) correct_output(item.rows, scratch);
    value_block(panels, tokens, first, scratch, ahead);
    first = false;
  }
  _tile_release();
  for (int r = 0; !first && r < item.rows; ++r) {
    for (int c = 0; c < kColumnTiles; c += 2) {
      const SumTile* o = scratch.o[r / kTile] + c;
      const int row = r % kTile * kTile;
      restore_columns(o[0] + row, o[1] + row, item.o + r * item.o_stride + c * kTile);
    }
  }
  finish_rows(item, state);
}

}  // namespace
}  // namespace mla::cpu
