#pragma once

#include "cpu/isa/convert.h"
#include "cpu/isa/round_e4m3.h"
#include "cpu/isa/softmax.h"
#include "cpu/isa/tile.h"
#include "cpu/isa/tokens.h"

namespace mla::cpu {
namespace {

// A block is a whole number of both token tiles, and leaves room in a 1 MiB L2 for Q and O.
inline constexpr int kFp32Block = 60 / kManyTokens * kManyTokens;

template <int kDQk>
struct alignas(64) Fp32Scratch {
  float q[kMaxRows * kDQk];    // [panel][kDQk][kLanes]
  float kv[kFp32Block][kDQk];  // tokens of a block
  float scores[kFp32Block][kScoreStride];
  int32_t position[kFp32Block];
  RowState rows;
};
inline constexpr size_t kFp32ScratchBytes = sizeof(Fp32Scratch<kMaxDQk>);
static_assert(kFp32ScratchBytes <= kMaxScratchBytes);
static_assert(kFp32Block >= kLanes, "pack_q stages a panel of rows in kv");

template <int kDQk>
inline void pack_q(const AttendItem& item, int rows, Fp32Scratch<kDQk>& scratch) {
  const CacheFormat& format = *item.format;
  float* panel = scratch.q;
  for (int first = 0; first < rows; first += kLanes) {
    for (int r = 0; r < kLanes; ++r) {
      float* row = scratch.kv[r];
      if (first + r < item.rows) {
        to_fp32(item.q_dtype, item.q_latent[first + r], row, format.latent);
        to_fp32(item.q_dtype, item.q_rope[first + r], row + format.latent, format.rope);
        if (item.compute == ComputeDType::e4m3) round_query_to_e4m3(row, kDQk);
      } else {
        __builtin_memset(row, 0, sizeof scratch.kv[0]);
      }
    }
    for (int d = 0; d < kDQk; ++d) {
      for (int r = 0; r < kLanes; ++r) *panel++ = scratch.kv[r][d];
    }
  }
}

template <int kDQk>
inline void load_block(const AttendItem& item, const TokenBlocks<kFp32Block>& blocks,
                       Fp32Scratch<kDQk>& scratch) {
  const int tokens = blocks.count();
  for (int t = 0; t < tokens; ++t) {
    row_to_fp32(*item.format, blocks[t], scratch.kv[t]);
    scratch.position[t] = blocks[t].position;
  }
  const int padded = round_up(tokens, kManyTokens);
  __builtin_memset(scratch.kv[tokens], 0, (padded - tokens) * sizeof scratch.kv[0]);
}

template <int kDQk, int kDV>
inline void attend_fp32(const AttendItem& item, Widths<kDQk, kDV>) {
  auto& scratch = *reinterpret_cast<Fp32Scratch<kDQk>*>(item.scratch);
  RowState& state = scratch.rows;
  const int padded_rows = round_up(item.rows, kLanes);
  start_rows(item, state);
  pack_q(item, padded_rows, scratch);
  TokenBlocks<kFp32Block> blocks(item, state.max_visible);
  const Ahead ahead(blocks.prefetch, padded_rows);
  const float* correction = nullptr;
  while (blocks.advance()) {
    const int tokens = blocks.count();
    load_block(item, blocks, scratch);
    score_block<Fp32Dot, kDQk, kDQk, kScoreStride>(scratch.q, padded_rows / kLanes, scratch.kv[0],
                                                   tokens, scratch.scores[0], ahead);
    softmax(scratch.scores[0], scratch.position, tokens, padded_rows, item.scale, state);
    for (int t = 0; item.compute == ComputeDType::e4m3 && t < tokens; ++t) {
      round_probabilities_to_e4m3(scratch.scores[t], item.rows);
    }
    value_block<Fp32Dot, kDV, kScoreStride, kDQk>(scratch.scores[0], item.rows, scratch.kv[0],
                                                  tokens, correction, item.o, item.o_stride, ahead);
    correction = state.correction;
  }
  finish_rows(item, state);
}

inline void attend_fp32(const AttendItem& item) {
  with_widths(*item.format, [&item](auto widths) { attend_fp32(item, widths); });
}

}  // namespace
}  // namespace mla::cpu
