// Loads the tokens of a block as tiles, and multiplies them by Q.
#pragma once

#include "cpu/isa/amx/tiles.h"

namespace mla::cpu {
namespace {

alignas(64) inline constexpr uint32_t kZeroRow[kPairs] = {};

inline constexpr int kScoreBytes = kScoreStride * 4;

using AmxBlocks = TokenBlocks<kAmxBlock>;

inline bool equally_spaced(const AttendItem& item, const TokenRow* rows) {
  for (int t = 1; t < kTile; ++t) {
    if (rows[t].latent - rows[t - 1].latent != item.kv.latent_token_stride) return false;
    if (rows[t].rope - rows[t - 1].rope != item.kv.rope_token_stride) return false;
  }
  return true;
}

// Points the tiles at the block's tokens, and copies those that no tile can take from the cache.
// Where kAtOnce tiles are read and fewer exist, the others are 0.
inline void load_block(const AttendItem& item, const AmxBlocks& blocks, AmxScratch& scratch) {
  const int tokens = blocks.count();
  int first = 0;
  for (; first < tokens; first += kTile) {
    const int count = tokens - first < kTile ? tokens - first : kTile;
    for (int t = first; t < first + count; ++t) scratch.position[t] = blocks[t].position;
    const TokenRow* rows = &blocks[first];
    KvTile& tile = scratch.tiles[first / kTile];
    if (item.format->latent_type == DType::bf16 && count == kTile && equally_spaced(item, rows)) {
      tile = {rows->latent, rows->rope, item.kv.latent_token_stride, item.kv.rope_token_stride};
      continue;
    }
    uint32_t (*copies)[kPairs] = scratch.kv + first;
    for (int t = 0; t < count; ++t) row_to_bf16(*item.format, rows[t], copies[t]);
    __builtin_memset(copies[count], 0, (kTile - count) * sizeof copies[0]);
    const std::byte* copy = reinterpret_cast<const std::byte*>(copies);
    tile = {copy, copy + kLatent * 2, sizeof copies[0], sizeof copies[0]};
  }
  const std::byte* zero = reinterpret_cast<const std::byte*>(kZeroRow);
  for (; first % (kAtOnce * kTile) != 0; first += kTile) {
    scratch.tiles[first / kTile] = {zero, zero, 0, 0};
  }
}

// Computes 32 tokens by 32 rows of S^T.
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
  float* const below = scores + kTile * kScoreStride;
  store_sums(scores, scores + kTile, below, below + kTile, kScoreBytes);
}

// Computes 64 tokens by 16 rows of S^T.
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
  constexpr int kNext = kTile * kScoreStride;
  store_sums(scores, scores + kNext, scores + 2 * kNext, scores + 3 * kNext, kScoreBytes);
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

}  // namespace
}  // namespace mla::cpu
