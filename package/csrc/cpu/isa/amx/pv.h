// Rounds P to bf16 in tiles, and adds P V to O.
#pragma once

#include "cpu/isa/amx/tiles.h"

namespace mla::cpu {
namespace {

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

// Interleaves 64 columns of V in pairs of tokens.
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

// Adds P V to 32 rows by 32 columns of O.
inline void value_two_panels(const Tile (*p)[kPvSteps], const ValueTiles* v, int half, int steps,
                             bool first, SumTile* o0, SumTile* o1, AmxAhead& ahead) {
  if (first) {
    zero_sums();
  } else {
    load_sums(o0, o1);
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
  store_sums(o0[0], o0[1], o1[0], o1[1], kTileBytes);
}

// Interleaves the next columns before it multiplies these: the tile loads of what was just stored
// would wait for it.
inline void value_panel_pairs(int panels, int tokens, bool first, AmxScratch& scratch,
                              AmxAhead& ahead) {
  const int steps = ceil_div(tokens, kTileDepth);
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

// Adds P V to 16 rows by 64 columns of O, with V as it lies: half of each product is by 0, which
// costs less than the interleaving that a single panel would have to pay for.
inline void value_one_panel(const Tile (*p)[2], const KvTile* kv, int steps, int step, bool first,
                            SumTile* o, AmxAhead& ahead) {
  if (first) {
    zero_sums();
  } else {
    load_sums(o, o + 2);
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
  store_sums(o[0], o[1], o[2], o[3], kTileBytes);
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
  const int steps = ceil_div(tokens, kTile);
  for (int c = 0; c < kColumnTiles; c += kAtOnce) {
    value_one_panel(scratch.single_p, scratch.tiles, steps, c / 2, first, scratch.o[last] + c,
                    ahead);
  }
}

}  // namespace
}  // namespace mla::cpu
