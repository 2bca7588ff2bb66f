#pragma once

// The operands of bf16 products are pairs along the summed dimension, in 32-bit words.

#include <immintrin.h>

#include "cpu/isa/convert.h"
#include "cpu/isa/softmax.h"
#include "cpu/isa/tokens.h"

namespace mla::cpu {
namespace {

inline constexpr int kVectorColumns = 32;  // of bf16
static_assert(kLanes == 16);

using Words [[gnu::vector_size(64)]] = uint32_t;

MLA_ALWAYS_INLINE Words load_words(const uint32_t* from) {
  Words words;
  __builtin_memcpy(&words, from, sizeof words);
  return words;
}

MLA_ALWAYS_INLINE void store_words(uint32_t* to, Words words) {
  __builtin_memcpy(to, &words, sizeof words);
}

inline bool has_bf16_products(const AttendItem& item) {
  const CacheFormat& format = *item.format;
  const bool is_bf16 = format.latent_type == DType::bf16 && format.rope_type == DType::bf16;
  const bool is_e4m3 = format.latent_type == DType::e4m3 &&
                       (format.rope_type == DType::e4m3 || format.rope_type == DType::bf16) &&
                       format.scale_group % kVectorColumns == 0;
  const bool has_vectors = format.latent % kVectorColumns == 0 && format.rope % kVectorColumns == 0;
  return item.q_dtype == DType::bf16 && (is_bf16 || is_e4m3) && has_vectors &&
         item.compute == ComputeDType::exact;
}

// Puts 16-bit halves into words of (low, high), in the order 0 16 1 17 ...
MLA_ALWAYS_INLINE Words interleave_halves(__m512i low_then_high) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return (Words)_mm512_permutexvar_epi16(order, low_then_high);
}

MLA_ALWAYS_INLINE Words round_to_bf16(Vec low, Vec high) {
  return interleave_halves((__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
}

// Converts 32 codes exactly. Subnormal codes, those below 8, come from a table of 0, 2^-9, 2^-8,
// 3 * 2^-9, ...
MLA_ALWAYS_INLINE Words e4m3_to_bf16(const std::byte* codes) {
  const __m512i subnormals =
      _mm512_set_epi64(0, 0, 0, 0, 0, 0, 0x3c603c403c203c00, 0x3bc03b803b000000);
  const __m512i code = _mm512_cvtepu8_epi16(load_as<__m256i_u>(codes, 0));
  const __m512i magnitude = _mm512_and_si512(code, _mm512_set1_epi16(0x7f));
  const __m512i sign = _mm512_slli_epi16(_mm512_and_si512(code, _mm512_set1_epi16(0x80)), 8);
  const __m512i normal =
      _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
  const __mmask32 small = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8));
  const __mmask32 nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f));
  const __m512i finite = _mm512_mask_permutexvar_epi16(normal, small, magnitude, subnormals);
  const __m512i value = _mm512_mask_mov_epi16(finite, nan, _mm512_set1_epi16(0x7fc0));
  return (Words)_mm512_or_si512(value, sign);
}

// Converts columns of bf16 or e4m3, without a scale.
MLA_ALWAYS_INLINE void to_bf16(DType from, const std::byte* columns, int count, uint32_t* row) {
  if (from == DType::bf16) {
    __builtin_memcpy(row, columns, count * 2);
    return;
  }
  for (int i = 0; i < count; i += kVectorColumns) {
    store_words(row + i / 2, e4m3_to_bf16(columns + i));
  }
}

// Dequantises a cache row as stored, without the scale of the cache, and rounds it to bf16.
inline void row_to_bf16(const CacheFormat& format, const StoredRow& token, uint32_t* row) {
  if (format.is_bytes) {
    const int columns = format.scale_group;
    for (int first = 0; first < format.latent; first += columns) {
      const int group = format.scale_index(first / columns);
      const float scale = group_scale(format.scale_type, token.scales, group);
      for (int i = first; i < first + columns; i += kVectorColumns) {
        const Words words = e4m3_to_bf16(token.latent + i);
        const Vec low = (Vec)(words << 16) * scale;
        const Vec high = (Vec)(words & 0xffff0000) * scale;
        store_words(row + i / 2, round_to_bf16(low, high));
      }
    }
  } else {
    to_bf16(format.latent_type, token.latent, format.latent, row);
  }
  to_bf16(format.rope_type, token.rope, format.rope, row + format.latent / 2);
}

// Puts 32 columns of two tokens into words of (even, odd) token, even columns first, then odd ones.
// Two blends are cheaper than an interleaving in order; restore_columns undoes it in O.
MLA_ALWAYS_INLINE void pair_columns(const void* even, const void* odd, uint32_t* even_columns,
                                    uint32_t* odd_columns) {
  const Words a = load_as<Words>(even, 0);
  const Words b = load_as<Words>(odd, 0);
  store_words(even_columns, (a & 0xffff) | (b << 16));
  store_words(odd_columns, (a >> 16) | (b & 0xffff0000));
}

MLA_ALWAYS_INLINE Words zip_low(Words a, Words b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

MLA_ALWAYS_INLINE Words zip_high(Words a, Words b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
}

MLA_ALWAYS_INLINE void restore_columns(const float* even_columns, const float* odd_columns,
                                       float* o) {
  const Words even = (Words)load(even_columns);
  const Words odd = (Words)load(odd_columns);
  store(o, (Vec)zip_low(even, odd));
  store(o + kLanes, (Vec)zip_high(even, odd));
}

// Transposes 16 vectors of 16 words in place, by four perfect shuffles.
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

// Packs Q as [panel of 16 rows][pair][row].
// @pre rows is a multiple of 16.
template <int kPairs>
inline void pack_q_pairs(const AttendItem& item, int rows, uint32_t* q) {
  static_assert(kPairs % kLanes == 0);
  const int latent_vectors = item.format->latent / kVectorColumns;
  for (int first = 0; first < rows; first += kLanes) {
    for (int i = 0; i < kPairs / kLanes; ++i, q += kLanes * kLanes) {
      Words words[kLanes] = {};
      for (int r = 0; r < kLanes && first + r < item.rows; ++r) {
        words[r] = i < latent_vectors ? load_as<Words>(item.q_latent[first + r], i)
                                      : load_as<Words>(item.q_rope[first + r], i - latent_vectors);
      }
      transpose(words);
      for (int d = 0; d < kLanes; ++d) store_words(q + d * kLanes, words[d]);
    }
  }
}

// Puts P of 16 rows at tokens t and t + 1 into words; it is 0 at tokens beyond the last.
MLA_ALWAYS_INLINE Words probability_pairs(const float* scores, int t, int tokens) {
  const Vec even = t < tokens ? load(scores + t * kScoreStride) : Vec{};
  const Vec odd = t + 1 < tokens ? load(scores + (t + 1) * kScoreStride) : Vec{};
  return round_to_bf16(even, odd);
}

// Does the same for token t alone, in the low half of each word.
MLA_ALWAYS_INLINE Words probability_words(const float* scores, int t, int tokens) {
  return round_to_bf16(t < tokens ? load(scores + t * kScoreStride) : Vec{}, Vec{});
}

}  // namespace
}  // namespace mla::cpu
