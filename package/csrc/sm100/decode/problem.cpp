#include "sm100/decode/problem.h"

#include <algorithm>

#include "common/arithmetic.h"
#include "common/checks.h"
#include "common/queries.h"
#include "sm100/cutlass_mla/split_heuristic.h"

namespace mla::sm100 {
namespace {

using Problem = mla_decode_problem;

bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

// Returns whether KV has no pages. A problem without a cache, of which only a workspace is sized,
// has them.
bool is_contiguous(const Problem& p) { return p.block_table == nullptr && p.kv_latent != nullptr; }

Status check_layout(const Problem& p, const Traits& traits) {
  if (traits.load == Load::cpasync) {
    if (is_contiguous(p)) {
      return Status::error(MLA_UNSUPPORTED, "block_table", "none",
                           "an int32 tensor: contiguous KV takes a variant with load tma");
    }
    if (!is_power_of_two(p.page_size) || p.page_size > kTileTokens) {
      return Status::error(MLA_UNSUPPORTED, "page_size", text(p.page_size),
                           text("powers of two up to ", kTileTokens));
    }
  } else if (is_contiguous(p)) {
    if (most_query_tokens(p) != 1) {
      return Status::error(MLA_UNSUPPORTED, "q_len", text(most_query_tokens(p)),
                           "1 for contiguous KV: every query token would need a KV row of its own");
    }
    if (p.num_heads > kHeads) {
      return Status::error(
          MLA_UNSUPPORTED, "num_heads", text(p.num_heads),
          text("1 to ", kHeads, " for contiguous KV, which has a row for each tile"));
    }
    if (is_ragged(p)) {
      return Status::error(MLA_UNSUPPORTED, "cu_seqlens_q", "a tensor",
                           "None for contiguous KV, which has a row for each query token");
    }
    if (p.num_pages < p.batch) {
      return Status::error(MLA_SHAPE, "kv_cache", text(p.num_pages, " rows"),
                           text("a row for each of ", p.batch, " requests"));
    }
  } else if (p.page_size != kTileTokens) {
    return Status::error(MLA_UNSUPPORTED, "page_size", text(p.page_size),
                         text(kTileTokens, ": a page is a tile; other sizes take load cpasync"));
  }
  return {};
}

// Tokens of ragged queries are one batch, whatever its stride says.
Problem with_one_batch(Problem p) {
  if (!is_ragged(p)) return p;
  p.q_latent_stride_b = p.q_len * p.q_latent_stride_s;
  p.q_rope_stride_b = p.q_len * p.q_rope_stride_s;
  p.out_stride_b = p.q_len * p.out_stride_s;
  p.lse_stride_b = p.q_len * p.lse_stride_s;
  return p;
}

// Returns what a row may attend to: the pages of its request up to its length.
RowSource row_source(const Problem& p) {
  const bool contiguous = is_contiguous(p);
  const int64_t width = contiguous ? 1 : p.table_width;
  RowSource source = {};
  source.main.data = contiguous ? nullptr : static_cast<const int32_t*>(p.block_table);
  source.main.stride_b = p.block_table_stride_b;
  source.main.width = contiguous ? 0 : width;
  source.main.lengths = static_cast<const int32_t*>(p.seq_lens);
  source.main.lengths_stride_b = 1;
  source.main.capacity = std::min(saturating_product({width, p.page_size}), kMaxInt - kTileTokens);
  source.main.limit = p.num_pages;
  source.token_lengths = static_cast<const int32_t*>(p.token_seq_lens);
  source.token_lengths_stride_b = p.token_seq_lens_stride_b;
  source.token_lengths_stride_s = p.token_seq_lens_stride_s;
  source.query_bounds = is_ragged(p) ? static_cast<const int32_t*>(p.cu_seqlens_q) : nullptr;
  source.requests = static_cast<int32_t>(std::min(p.num_requests, kMaxInt));
  source.entry_tokens = static_cast<int32_t>(p.page_size);
  source.causal = p.causal != 0;
  source.page_size = 1;
  source.page_units = 1;
  return source;
}

}  // namespace

Status describe(const Problem& given, const Traits& traits, AttentionProblem* attention) {
  MLA_TRY(check_queries(given));
  const Problem p = with_one_batch(given);
  MLA_TRY(check_extents(
      {{"num_pages", p.num_pages}, {"page_size", p.page_size}, {"table_width", p.table_width}}));
  MLA_TRY(check_layout(p, traits));
  *attention = {};
  attention->device = p.device;
  MLA_TRY(set_shape({p.batch, p.q_len, p.num_heads, p.max_splits, p.batch_invariant != 0}, traits,
                    attention));
  if (p.num_pages > kMaxInt || p.page_size > kMaxInt) {
    return Status::error(MLA_UNSUPPORTED, "kv_cache", text(p.num_pages, " pages of ", p.page_size),
                         "fewer than 2^31 of each");
  }
  set_query_and_results(p, traits, attention);
  attention->source = row_source(p);
  attention->kv = {{p.kv_latent, p.kv_rope, p.kv_latent_stride_page, p.kv_latent_stride_token,
                    p.kv_rope_stride_page, p.kv_rope_stride_token},
                   !is_contiguous(p),
                   p.num_pages,
                   static_cast<int32_t>(p.page_size)};
  set_keys_without_rope(attention);
  attention->has_tokens = p.num_pages > 0 && attention->source.capacity() > 0;
  return check_kv(attention->kv, traits.kv);
}

}  // namespace mla::sm100
