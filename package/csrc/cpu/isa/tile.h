#pragma once

#include "common/arithmetic.h"
#include "cpu/isa/simd.h"
#include "cpu/isa/tokens.h"

namespace mla::cpu {
namespace {

// This header has the two products in registers. They are not inlined into the loop over blocks,
// which would take registers of their inner loops: 8% of the time with AVX2. A word is 32 bits of
// an operand, one float or a pair of bf16 along the summed dimension.

// Multiplies words that are one float each.
struct Fp32Dot {
  using Word = float;
  static constexpr int kPerWord = 1;
  static MLA_ALWAYS_INLINE Vec add(Vec sum, Vec a, Vec b) { return sum + a * b; }
  static MLA_ALWAYS_INLINE Vec load_words(const float* from) { return load(from); }
  static MLA_ALWAYS_INLINE Vec broadcast_word(const float* from) { return broadcast(*from); }
};

// Prefetches some lines of the next block after every kAheadWords words of product. More rows need
// fewer lines at a time, because they give more products a token.
struct Ahead {
  Ahead(Prefetch& cursor, int rows) : prefetch(cursor), lines(ceil_div(128, rows)) {}

  Prefetch& prefetch;
  int lines;
};
inline constexpr int kAheadWords = 8;

inline constexpr int kManyPanels = 2;                           // of kLanes rows
inline constexpr int kFewTokens = kAccumulators / kManyPanels;  // beside many panels
inline constexpr int kManyTokens = kAccumulators;               // beside one panel

// Computes scores[t][r] = sum_d q[r / kLanes][d][r % kLanes] kv[t][d] for kTokens tokens and
// kPanels panels of rows.
template <class Dot, int kDQk, int kPanels, int kTokens, int kKvStride, int kScoreStride>
MLA_ALWAYS_INLINE void score_tile(const typename Dot::Word* q, const typename Dot::Word* kv,
                                  float* scores, Ahead ahead) {
  constexpr int kWords = kDQk / Dot::kPerWord;
  Vec sum[kTokens][kPanels] = {};
  for (int d = 0; d < kWords; ++d) {
    // With more panels, the prefetches of value_tile suffice, and here they would cost several
    // percent.
    if (kPanels == 1 && d % kAheadWords == 0) ahead.prefetch.lines(ahead.lines);
    Vec a[kPanels];
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) a[p] = Dot::load_words(q + (p * kWords + d) * kLanes);
#pragma GCC unroll 32
    for (int t = 0; t < kTokens; ++t) {
      const Vec b = Dot::broadcast_word(kv + t * kKvStride + d);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) sum[t][p] = Dot::add(sum[t][p], a[p], b);
    }
  }
#pragma GCC unroll 32
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) store(scores + t * kScoreStride + p * kLanes, sum[t][p]);
  }
}

// @pre q is [panels][words][kLanes], kv [tokens rounded up to kManyTokens][kKvStride].
template <class Dot, int kDQk, int kKvStride, int kScoreStride>
[[gnu::noinline]] inline void score_block(const typename Dot::Word* q, int panels,
                                          const typename Dot::Word* kv, int tokens, float* scores,
                                          Ahead ahead) {
  constexpr int kPanelWords = kDQk / Dot::kPerWord * kLanes;
  int p = 0;
  for (; p + kManyPanels <= panels; p += kManyPanels) {
    for (int t = 0; t < tokens; t += kFewTokens) {
      score_tile<Dot, kDQk, kManyPanels, kFewTokens, kKvStride, kScoreStride>(
          q + p * kPanelWords, kv + t * kKvStride, scores + t * kScoreStride + p * kLanes, ahead);
    }
  }
  for (; p < panels; ++p) {
    for (int t = 0; t < tokens; t += kManyTokens) {
      score_tile<Dot, kDQk, 1, kManyTokens, kKvStride, kScoreStride>(
          q + p * kPanelWords, kv + t * kKvStride, scores + t * kScoreStride + p * kLanes, ahead);
    }
  }
}

inline constexpr int kValueRows = 6;
inline constexpr int kValueColumns = kValueVectors * kLanes;

// Computes o[r] = correction[r] o[r] + sum_t p[t][r] v[t] for kRows rows and kValueColumns columns.
template <class Dot, int kRows>
MLA_ALWAYS_INLINE void value_tile(const typename Dot::Word* p, int p_stride,
                                  const typename Dot::Word* v, int v_stride, int words,
                                  const float* correction, float* o, int64_t o_stride,
                                  Ahead ahead) {
  Vec sum[kRows][kValueVectors] = {};
  if (correction != nullptr) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < kValueVectors; ++c) {
        sum[r][c] = load(o + r * o_stride + c * kLanes) * correction[r];
      }
    }
  }
  for (int t = 0; t < words; ++t) {
    if (t % kAheadWords == 0) ahead.prefetch.lines(ahead.lines);
    Vec b[kValueVectors];
#pragma GCC unroll 4
    for (int c = 0; c < kValueVectors; ++c) b[c] = Dot::load_words(v + t * v_stride + c * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec a = Dot::broadcast_word(p + t * p_stride + r);
#pragma GCC unroll 4
      for (int c = 0; c < kValueVectors; ++c) sum[r][c] = Dot::add(sum[r][c], a, b[c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kValueVectors; ++c) store(o + r * o_stride + c * kLanes, sum[r][c]);
  }
}

template <class Dot, int kRows>
MLA_ALWAYS_INLINE void value_rows(int rows, const typename Dot::Word* p, int p_stride,
                                  const typename Dot::Word* v, int v_stride, int words,
                                  const float* correction, float* o, int64_t o_stride,
                                  Ahead ahead) {
  if (rows == kRows) {
    value_tile<Dot, kRows>(p, p_stride, v, v_stride, words, correction, o, o_stride, ahead);
  } else if constexpr (kRows > 1) {
    value_rows<Dot, kRows - 1>(rows, p, p_stride, v, v_stride, words, correction, o, o_stride,
                               ahead);
  }
}

// Without a correction, o starts at 0.
// @pre p is [words][kPStride] with rows innermost, v [words][kVStride].
template <class Dot, int kDV, int kPStride, int kVStride>
[[gnu::noinline]] inline void value_block(const typename Dot::Word* p, int rows,
                                          const typename Dot::Word* v, int words,
                                          const float* correction, float* o, int64_t o_stride,
                                          Ahead ahead) {
  static_assert(kDV % kValueColumns == 0);
  for (int c = 0; c < kDV; c += kValueColumns) {
    for (int r = 0; r < rows; r += kValueRows) {
      const int count = rows - r < kValueRows ? rows - r : kValueRows;
      value_rows<Dot, kValueRows>(count, p + r, kPStride, v + c, kVStride, words,
                                  correction == nullptr ? nullptr : correction + r,
                                  o + r * o_stride + c, o_stride, ahead);
    }
  }
}

}  // namespace
}  // namespace mla::cpu
