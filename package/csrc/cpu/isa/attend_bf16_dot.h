#pragma once

#include "cpu/isa/attend_fp32.h"
#include "cpu/isa/bf16.h"

namespace mla::cpu {
namespace {

struct Bf16Dot {
  using Word = uint32_t;
  static constexpr int kPerWord = 2;
  static MLA_ALWAYS_INLINE Vec add(Vec sum, Vec a, Vec b) {
    return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
  }
  static MLA_ALWAYS_INLINE Vec load_words(const uint32_t* from) {
    return (Vec)mla::cpu::load_words(from);
  }
  static MLA_ALWAYS_INLINE Vec broadcast_word(const uint32_t* from) {
    return (Vec)broadcast(static_cast<int32_t>(*from));
  }
};

inline constexpr int kBf16Block = 112;  // is a whole number of both token tiles

template <int kDQk, int kDV>
struct alignas(64) Bf16DotScratch {
  static constexpr int kPairs = kDQk / 2;
  static constexpr int kValueStride = kDV + 16;  // spreads a column over the cache's sets

  uint32_t q[kMaxRows * kPairs];             // [panel][pair][16]
  uint32_t kv[kBf16Block][kPairs];           // tokens of a block
  uint32_t v[kBf16Block / 2][kValueStride];  // pairs of tokens, see pair_columns
  float scores[kBf16Block][kScoreStride];
  uint32_t p[kBf16Block / 2][kScoreStride];  // pairs of tokens
  int32_t position[kBf16Block];
  RowState rows;
};
inline constexpr size_t kBf16DotScratchBytes = sizeof(Bf16DotScratch<kMaxDQk, kMaxDV>);
static_assert(kBf16DotScratchBytes <= kMaxScratchBytes);
static_assert(kBf16Block % kManyTokens == 0 && kBf16Block % 2 == 0);

template <int kDQk, int kDV>
inline void load_block(const AttendItem& item, const TokenBlocks<kBf16Block>& blocks,
                       Bf16DotScratch<kDQk, kDV>& scratch) {
  static_assert(kDV % (2 * kLanes) == 0);
  const int tokens = blocks.count();
  for (int t = 0; t < tokens; ++t) {
    row_to_bf16(*item.format, blocks[t], scratch.kv[t]);
    scratch.position[t] = blocks[t].position;
  }
  const int padded = round_up(tokens, kManyTokens);
  __builtin_memset(scratch.kv[tokens], 0, (padded - tokens) * sizeof scratch.kv[0]);
  for (int t = 0; t < tokens; t += 2) {
    for (int d = 0; d < kDV; d += 2 * kLanes) {
      uint32_t* v = scratch.v[t / 2] + d;
      pair_columns(scratch.kv[t] + d / 2, scratch.kv[t + 1] + d / 2, v, v + kLanes);
    }
  }
}

template <int kDQk, int kDV>
inline void attend_bf16_dot(const AttendItem& item, Widths<kDQk, kDV>) {
  using Scratch = Bf16DotScratch<kDQk, kDV>;
  Scratch& scratch = *reinterpret_cast<Scratch*>(item.scratch);
  RowState& state = scratch.rows;
  const int padded_rows = round_up(item.rows, kLanes);
  start_rows(item, state);
  pack_q_pairs<Scratch::kPairs>(item, padded_rows, scratch.q);
  TokenBlocks<kBf16Block> blocks(item, state.max_visible);
  const Ahead ahead(blocks.prefetch, padded_rows);
  const float* correction = nullptr;
  while (blocks.advance()) {
    const int tokens = blocks.count();
    load_block(item, blocks, scratch);
    score_block<Bf16Dot, kDQk, Scratch::kPairs, kScoreStride>(
        scratch.q, padded_rows / kLanes, scratch.kv[0], tokens, scratch.scores[0], ahead);
    softmax(scratch.scores[0], scratch.position, tokens, padded_rows, item.scale, state);
    for (int t = 0; t < tokens; t += 2) {
      for (int r = 0; r < padded_rows; r += kLanes) {
        store_words(scratch.p[t / 2] + r, probability_pairs(scratch.scores[0] + r, t, tokens));
      }
    }
    value_block<Bf16Dot, kDV, kScoreStride, Scratch::kValueStride>(
        scratch.p[0], item.rows, scratch.v[0], (tokens + 1) / 2, correction, item.o, item.o_stride,
        ahead);
    correction = state.correction;
  }
  for (int r = 0; correction != nullptr && r < item.rows; ++r) {
    for (int d = 0; d < kDV; d += 2 * kLanes) {
      float* o = item.o + r * item.o_stride + d;
      restore_columns(o, o + kLanes, o);
    }
  }
  finish_rows(item, state);
}

inline void attend_bf16_dot(const AttendItem& item) {
  if (!has_bf16_products(item)) return attend_fp32(item);
  with_widths(*item.format, [&item](auto widths) { attend_bf16_dot(item, widths); });
}

}  // namespace
}  // namespace mla::cpu
