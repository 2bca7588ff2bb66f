#include "cpu/merge_states/merge_states.h"

#include <algorithm>

#include "common/checks.h"
#include "cpu/attention.h"
#include "cpu/combine.h"

namespace mla::cpu::merge_states {
namespace {

using Problem = mla_merge_states_problem;

int64_t row_count(const Problem& p) { return saturating_product({p.num_tokens, p.num_heads}); }

int64_t state_count(const Problem& p, int64_t t) {
  if (p.counts == nullptr) return p.num_states;
  return static_cast<const int32_t*>(p.counts)[t * p.counts_stride_t];
}

Status check_values(const Problem& p) {
  const int64_t rows = row_count(p);
  const int64_t states = saturating_product({p.num_states, rows});
  MLA_TRY(check_present({{"o", p.o, saturating_product({states, p.head_dim})},
                         {"lse", p.lse, states},
                         {"out", p.out, saturating_product({rows, p.head_dim})}}));
  for (int64_t t = 0; t < p.num_tokens; ++t) {
    const int64_t count = state_count(p, t);
    if (count < 0 || count > p.num_states) {
      return Status::error(MLA_RANGE, text("counts[", t, "]"), text(count),
                           text("0 to ", p.num_states));
    }
  }
  return {};
}

void merge_row(const Problem& p, DType in, DType out, int64_t t, int64_t h) {
  const Isa& isa = active_isa();
  const int64_t in_bytes = static_cast<int64_t>(element_bytes(in));
  const int64_t out_bytes = static_cast<int64_t>(element_bytes(out));
  const States states = {
      in,
      static_cast<const std::byte*>(p.o) + (t * p.o_stride_t + h * p.o_stride_h) * in_bytes,
      p.o_stride_n * in_bytes,
      static_cast<const float*>(p.lse) + t * p.lse_stride_t + h * p.lse_stride_h,
      p.lse_stride_n,
      state_count(p, t),
      Empty::both_infs};
  std::byte* const row =
      static_cast<std::byte*>(p.out) + (t * p.out_stride_t + h * p.out_stride_h) * out_bytes;
  const CombinedLse lse = combine_lse(states);
  float o[kLatent];
  for (int64_t first = 0; first < p.head_dim; first += kLatent) {
    const int64_t n = std::min<int64_t>(kLatent, p.head_dim - first);
    combine_columns(isa, states, lse, first, n, o);
    isa.from_fp32(out, o, row + first * out_bytes, n);
  }
  if (p.out_lse != nullptr) {
    static_cast<float*>(p.out_lse)[t * p.out_lse_stride_t + h * p.out_lse_stride_h] = lse.value;
  }
}

}  // namespace

Status can_run(const Problem& p) {
  MLA_TRY(check_environment());
  return check_extents({{"num_states", p.num_states},
                        {"num_tokens", p.num_tokens},
                        {"num_heads", p.num_heads},
                        {"head_dim", p.head_dim}});
}

Status launch(const Problem& p, DType in, DType out) {
  MLA_TRY(can_run(p));
  MLA_TRY(check_values(p));
  const int64_t rows = row_count(p);
  const int64_t nanoseconds = saturating_product({p.num_states, rows, p.head_dim}) / 8;
  return parallel(ceil_div(rows, kCombineRows), nanoseconds, [&](int64_t i, const Scratch&) {
    const int64_t end = std::min(rows, (i + 1) * kCombineRows);
    for (int64_t row = i * kCombineRows; row < end; ++row) {
      merge_row(p, in, out, row / p.num_heads, row % p.num_heads);
    }
  });
}

}  // namespace mla::cpu::merge_states
