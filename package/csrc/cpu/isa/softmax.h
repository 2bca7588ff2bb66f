#pragma once

#include <math.h>

#include "common/arithmetic.h"
#include "cpu/isa/attend.h"
#include "cpu/isa/simd.h"

namespace mla::cpu {
namespace {

// The stride is 64 bytes more than the rows, so that a column of the scores spreads over the
// cache's sets.
inline constexpr int kScoreStride = kMaxRows + 16;

// The state of an online softmax with rows in lanes; rows beyond the item's see no token.
struct RowState {
  alignas(64) float max[kMaxRows];
  alignas(64) float sum[kMaxRows];
  alignas(64) float correction[kMaxRows];  // of O, for the row max that the block has raised
  alignas(64) int32_t visible[kMaxRows];   // tokens of the range that the row attends, a prefix
  int32_t min_visible;                     // of the item's rows
  int32_t max_visible;
};

inline void start_rows(const AttendItem& item, RowState& state) {
  const int64_t tokens = item.end > item.begin ? item.end - item.begin : 0;
  state.min_visible = static_cast<int32_t>(tokens);
  state.max_visible = 0;
  for (int r = 0; r < kMaxRows; ++r) {
    int64_t visible = r < item.rows ? tokens : 0;
    if (r < item.rows && item.row_limit != nullptr) {
      const int64_t limit = item.row_limit[r] - item.begin;
      visible = limit < 0 ? 0 : limit < visible ? limit : visible;
    }
    state.max[r] = -kInfinity;
    state.sum[r] = 0;
    state.visible[r] = static_cast<int32_t>(visible);
    if (r >= item.rows) continue;
    if (state.visible[r] < state.min_visible) state.min_visible = state.visible[r];
    if (state.visible[r] > state.max_visible) state.max_visible = state.visible[r];
  }
}

// Scales the logits of one vector of rows, masks them, and updates the row max.
MLA_ALWAYS_INLINE Vec scale_and_mask(float* scores, const int32_t* position, int tokens,
                                     float scale, IntVec visible, int32_t min_visible, Vec max) {
  int t = 0;
  for (; t < tokens && position[t] < min_visible; ++t) {
    const Vec s = load(scores + t * kScoreStride) * scale;
    store(scores + t * kScoreStride, s);
    max = maximum(max, s);
  }
  for (; t < tokens; ++t) {
    const Vec s = select(visible > position[t], load(scores + t * kScoreStride) * scale,
                         broadcast(-kInfinity));
    store(scores + t * kScoreStride, s);
    max = maximum(max, s);
  }
  return max;
}

// Makes P of S: scores [tokens][kScoreStride] become exp(scale * score - row max).
// @pre position [tokens] ascends; rows is a multiple of kLanes.
inline void softmax(float* scores, const int32_t* position, int tokens, int rows, float scale,
                    RowState& state) {
  for (int r = 0; r < rows; r += kLanes) {
    const Vec previous = load(state.max + r);
    const Vec max = scale_and_mask(scores + r, position, tokens, scale, load(state.visible + r),
                                   state.min_visible, previous);
    // For a row that has seen no token yet, exp(-inf - 0) is 0 where exp(-inf - -inf) would be NaN.
    const Vec base = select(max == -kInfinity, Vec{}, max);
    Vec sum = {};
    for (int t = 0; t < tokens; ++t) {
      float* s = scores + t * kScoreStride + r;
      const Vec p = exponential(load(s) - base);
      store(s, p);
      sum += p;
    }
    const Vec correction = exponential(previous - base);
    store(state.max + r, max);
    store(state.correction + r, correction);
    store(state.sum + r, load(state.sum + r) * correction + sum);
  }
}

inline void finish_rows(const AttendItem& item, const RowState& state) {
  const int d_v = item.format->d_v;
  for (int r = 0; r < item.rows; ++r) {
    float* o = item.o + r * item.o_stride;
    const float sum = state.sum[r];
    const float max = state.max[r];
    const bool nan = sum != sum;
    if (sum == 0) {
      for (int d = 0; d < d_v; ++d) o[d] = 0;
    } else {
      const float factor = item.v_scale / sum;
      for (int d = 0; d < d_v; ++d) o[d] *= factor;
    }
    // The row max ignores NaN and the sum does not; but an infinite logit makes the sum NaN too.
    const bool finite = !nan || max == kInfinity;
    item.lse[r] = sum == 0 ? -kInfinity : max == kInfinity ? max : max + logf(sum);
    if (item.max_logit != nullptr) item.max_logit[r] = finite ? max : sum;
  }
}

}  // namespace
}  // namespace mla::cpu
