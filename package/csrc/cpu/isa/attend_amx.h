#pragma once

#include "cpu/isa/amx/pv.h"
#include "cpu/isa/amx/qk.h"
#include "cpu/isa/attend_fp32.h"

namespace mla::cpu {
namespace {

inline void attend_amx(const AttendItem& item) {
  const bool has_tiles = item.format->d_qk == kHeadDim && item.format->d_v == kLatent;
  if (!has_tiles || !has_bf16_products(item)) return attend_fp32(item);
  AmxScratch& scratch = *reinterpret_cast<AmxScratch*>(item.scratch);
  RowState& state = scratch.rows;
  const int padded_rows = round_up(item.rows, kTile);
  const int panels = padded_rows / kTile;
  start_rows(item, state);
  pack_q_pairs<kPairs>(item, padded_rows, scratch.q[0][0]);
  AmxBlocks blocks(item, state.max_visible);
  AmxAhead ahead(blocks.prefetch, panels);
  // Whatever ran on this thread since the last call may have changed the configuration.
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
